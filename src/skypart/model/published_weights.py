"""Convert published weights (original, Hugging Face, timm key names) to ours; infer a ViT's shape from its tensors."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from skypart.errors import SkyPartError
from skypart.model.positions import PositionMode, sincos_positions
from skypart.model.vit import ViTConfig, check_shape

_PREFIXES = (
    "module.",
    "_orig_mod.",
    "backbone.",
    "base_encoder.",
    "dinov2_with_registers.",
    "dinov2.",
    "vit.",
    "deit.",
    "model.",
)
# Parts of published files that are not the backbone: heads, poolers, mask tokens of the pre-training task.
_NOT_BACKBONE = re.compile(
    r"^(head|heads|head_dist|predictor|pooler|classifier|lm_head|momentum_encoder|decoder|fc)\."
    r"|^(mask_token|masked_embed|embeddings\.mask_token|queue|queue_ptr)$"
)
_WHOLE = {
    "embeddings.cls_token": "cls_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.register_tokens": "register_tokens",
    "embeddings.distillation_token": "dist_token",
    "reg_token": "register_tokens",
}
_STARTS = (
    ("embeddings.patch_embeddings.projection.", "patch_embed.proj."),
    ("layernorm.", "norm."),
    ("fc_norm.", "norm."),
)
_IN_BLOCK = {
    "attention.output.dense": "attn.proj",
    "attention.o_proj": "attn.proj",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "gamma_1": "ls1.gamma",
    "gamma_2": "ls2.gamma",
}
_BLOCK = re.compile(r"^(?:encoder\.layer|layers|blocks(?:\.\d+(?=\.\d))?)\.(\d+)\.(.+)$")
_QKV = re.compile(r"^attention\.(?:attention\.)?(query|key|value|q_proj|k_proj|v_proj)\.(weight|bias)$")


def convert_state_dict(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the keys of a published state dict to ours, those of the original DINOv2. Drops heads and mask tokens."""
    renamed: dict[str, Tensor] = {}
    thirds: dict[str, dict[str, Tensor]] = {}
    for key, tensor in _without_prefixes(state).items():
        if _NOT_BACKBONE.match(key):
            continue
        block = _BLOCK.match(key)
        if block is None:
            renamed[_outside_block(key)] = tensor
            continue
        index, rest = block.groups()
        part = _QKV.match(rest)
        if part:
            thirds.setdefault(f"blocks.{index}.attn.qkv.{part[2]}", {})[part[1][0]] = tensor
        else:
            stem = next((old for old in _IN_BLOCK if rest == old or rest.startswith(f"{old}.")), None)
            rest = rest if stem is None else _IN_BLOCK[stem] + rest[len(stem) :]
            renamed[f"blocks.{index}.{rest}"] = tensor
    for key, parts in thirds.items():
        if set(parts) == set("qkv"):
            renamed[key] = torch.cat([parts["q"], parts["k"], parts["v"]])
    return _uniform_prefix(renamed)


def _without_prefixes(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Strip prefixes such as `module.` or `backbone.`. Of MoCo v3's two encoders, keeps the trained one."""
    keys = dict(state)
    changed = True
    while changed:
        changed = False
        for prefix in _PREFIXES:
            inside = {key[len(prefix) :]: value for key, value in keys.items() if key.startswith(prefix)}
            if inside and not any(key in ("cls_token", "embeddings.cls_token") for key in keys):
                keys = inside
                changed = True
    return keys


def _outside_block(key: str) -> str:
    """Rename a key that belongs to no block."""
    if key in _WHOLE:
        return _WHOLE[key]
    return next((new + key[len(old) :] for old, new in _STARTS if key.startswith(old)), key)


def _uniform_prefix(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add a position for the CLS token if it has none, and turn a distillation token into a register.

    timm stores register models without a CLS position; DeiT-like files have a distillation token with a position.
    """
    if "pos_embed" not in state or "cls_token" not in state:
        return state
    positions = state["pos_embed"]
    if "dist_token" in state:
        state["register_tokens"] = state.pop("dist_token") + positions[:, 1:2]
        positions = torch.cat([positions[:, :1], positions[:, 2:]], dim=1)
    if _square(positions.shape[1]) and not _square(positions.shape[1] - 1):
        positions = torch.cat([torch.zeros_like(positions[:, :1]), positions], dim=1)
    state["pos_embed"] = positions
    return state


def _square(count: int) -> bool:
    """Whether `count` is a positive square number."""
    return count > 0 and int(count**0.5 + 0.5) ** 2 == count


def _is_sincos(positions: Tensor, grid: tuple[int, int]) -> bool:
    """Whether patch positions (1, rows * columns, dim) are the fixed ones: row channels first, or column channels."""
    fixed = sincos_positions(positions.shape[-1], grid)
    turned = fixed.roll(positions.shape[-1] // 2, dims=-1)
    return torch.allclose(positions, fixed, atol=1e-3) or torch.allclose(positions, turned, atol=1e-3)


def infer_config(
    state: Mapping[str, Tensor],
    source: str,
    declared: Mapping[str, Any] | None = None,
    position_mode: PositionMode = "original",
) -> ViTConfig:
    """The configuration of the ViT whose weights are `state` (our key names).

    declared: a Hugging Face `config.json`, for what tensors do not show (number of heads, norm epsilon).
    Without it, heads are 64 channels wide, except in MoCo v3 S (sine-cosine positions, width 384), which has 12 heads.
    """
    declared = declared or {}
    try:
        positions, kernel = state["pos_embed"], state["patch_embed.proj.weight"]
        first = state["blocks.0.mlp.fc1.weight"]
    except KeyError as error:
        raise SkyPartError(
            f"{source}: not a supported vision transformer (no {error.args[0]}); "
            "use a DINOv2, DINO, iBOT or MoCo v3 file, or backbone='transformers:NAME' for other models"
        ) from None
    try:
        return _infer(state, source, declared, position_mode, positions, kernel, first)
    except (ValueError, TypeError, IndexError, ArithmeticError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise SkyPartError(
            f"{source}: not a supported vision transformer ({reason}); download the file and its config.json again"
        ) from error


def _infer(
    state: Mapping[str, Tensor],
    source: str,
    declared: Mapping[str, Any],
    position_mode: PositionMode,
    positions: Tensor,
    kernel: Tensor,
    first: Tensor,
) -> ViTConfig:
    """The configuration, from tensors and settings of any shape and type."""
    dim = positions.shape[-1]
    count = positions.shape[1] - 1
    if not _square(count):
        raise SkyPartError(
            f"{source}: {count} positions do not form a square grid; the file is truncated or of another model"
        )
    grid = (round(count**0.5), round(count**0.5))
    depth = 1 + max(int(key.split(".")[1]) for key in state if key.startswith("blocks."))
    fixed = dim % 4 == 0 and _is_sincos(positions[:, 1:].float(), grid)
    heads = int(declared.get("num_attention_heads", 12 if fixed and dim == 384 else max(1, dim // 64)))
    config = ViTConfig(
        patch=kernel.shape[-1],
        dim=dim,
        depth=depth,
        heads=heads,
        hidden=first.shape[0],
        grid=grid,
        registers=state["register_tokens"].shape[1] if "register_tokens" in state else 0,
        layer_scale="blocks.0.ls1.gamma" in state,
        qkv_bias="blocks.0.attn.qkv.bias" in state,
        eps=float(declared.get("layer_norm_eps", 1e-6)),
        position_mode=position_mode,
    )
    check_shape(asdict(config))
    return config
