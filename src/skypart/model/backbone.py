"""Backbones: our ViT from any published checkpoint, or any vision model of `transformers` behind the same face."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol, cast

from torch import Tensor, nn

from skypart.errors import SkyPartError
from skypart.model.positions import PositionMode
from skypart.model.published_weights import convert_state_dict, infer_config
from skypart.model.sources import WeightsSource, resolve
from skypart.model.vit import Tokens, VisionTransformer, ViTConfig
from skypart.model.weights_files import load_strictly, read_state

TRANSFORMERS = "transformers:"
UNTRAINED = "untrained:"


class Backbone(Protocol):
    """What the head needs: token width, depth, patch edge in pixels, and tokens at any layer."""

    gradient_checkpointing: bool

    @property
    def no_weight_decay(self) -> tuple[str, ...]:
        """Beginnings of the names of parameters that get no weight decay, beside norms and biases."""
        ...

    @property
    def dim(self) -> int:
        """Token width."""
        ...

    @property
    def depth(self) -> int:
        """Number of blocks."""
        ...

    @property
    def patch(self) -> int:
        """Edge of a patch in pixels."""
        ...

    def freeze(self, trainable_blocks: int, used: int | None = None) -> None:
        """Let only the last `trainable_blocks` blocks and the final norm learn, and no block after the first `used`."""
        ...

    def trunk(self, images: Tensor, taps: Sequence[int] | None = None) -> Any:
        """The frozen part of the forward pass, without gradient; an opaque value for `finish`."""
        ...

    def finish(self, trunk: Any, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Tokens after each block count in `taps`."""
        ...


def load_backbone(name: str, revision: str | None = None, position_mode: PositionMode | None = None) -> nn.Module:
    """Load a pretrained backbone by published name, hub name, folder or file.

    name: see `skypart.model.sources.resolve`; `transformers:NAME` loads any other vision backbone through the
        optional `transformers` package.
    position_mode: how positions are resampled; default: as the file's own code does (Hugging Face files
        `huggingface`, all others `original`).
    """
    if name.startswith(TRANSFORMERS):
        from skypart.model.transformers_backbone import TransformersBackbone

        return TransformersBackbone.from_name(name.removeprefix(TRANSFORMERS), revision)
    if name.startswith(UNTRAINED):
        return untrained_backbone(name)
    return vit_from_source(resolve(name, revision), position_mode)


def untrained_backbone(name: str) -> VisionTransformer:
    """`untrained:tiny` or `untrained:vits14`: random weights, for tests and for trying a machine without any."""
    shapes = {
        "tiny": ViTConfig(dim=64, depth=4, heads=2, hidden=256, grid=(8, 8)),
        "vits14": ViTConfig(),
    }
    try:
        return VisionTransformer(shapes[name.removeprefix(UNTRAINED)])
    except KeyError:
        choices = ", ".join(f"{UNTRAINED}{shape}" for shape in shapes)
        raise SkyPartError(f"unknown untrained backbone {name!r}; choose one of {choices}") from None


def vit_from_source(source: WeightsSource, position_mode: PositionMode | None = None) -> VisionTransformer:
    """Build our ViT from a weights file, its shape read off the tensors, its keys checked strictly."""
    raw = read_state(source.file)
    state = convert_state_dict(raw)
    mode: PositionMode = position_mode or ("huggingface" if "embeddings.cls_token" in _inner(raw) else "original")
    config = infer_config(state, source.origin, source.config, mode)
    vit = VisionTransformer(config)
    load_strictly(vit, {key: tensor.float() for key, tensor in state.items()}, source.origin)
    return vit


def describe_backbone(backbone: nn.Module) -> dict[str, Any]:
    """What is stored in a model file so that `build_backbone` makes the same backbone again."""
    if isinstance(backbone, VisionTransformer):
        return {"kind": "vit", **asdict(backbone.config)}
    return {"kind": "transformers", **cast(Any, backbone).describe()}


def build_backbone(description: dict[str, Any]) -> nn.Module:
    """An untrained backbone of the described shape."""
    fields = dict(description)
    kind = fields.pop("kind", "vit")
    if kind == "vit":
        fields["grid"] = tuple(fields["grid"])
        return VisionTransformer(replace(ViTConfig(), **fields))
    if kind == "transformers":
        from skypart.model.transformers_backbone import TransformersBackbone

        return TransformersBackbone.from_description(fields)
    raise SkyPartError(f"unknown kind of backbone {kind!r}; this file needs a newer skypart")


def _inner(state: dict[str, Tensor]) -> set[str]:
    """Key names without a leading model prefix, enough to recognise Hugging Face naming."""
    return {key[key.find("embeddings.") :] if "embeddings." in key else key for key in state}
