"""Backbones: our ViT with published weights, or any vision model of `transformers` behind the same interface."""

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
        """Prefixes of the names of parameters without weight decay, in addition to norms and biases."""
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
        """Train only the last `trainable_blocks` blocks and the final norm, and no block after the first `used`."""
        ...

    def trunk(self, images: Tensor, taps: Sequence[int] | None = None) -> Any:
        """The frozen part of the forward pass, without gradient. Returns an opaque value for `finish`."""
        ...

    def finish(self, trunk: Any, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Tokens after each block count in `taps`."""
        ...


def load_backbone(name: str, revision: str | None = None, position_mode: PositionMode | None = None) -> nn.Module:
    """Load a pretrained backbone by published name, hub name, folder or file.

    name: see `skypart.model.sources.resolve`; `transformers:NAME` loads any other vision backbone through the
        optional `transformers` package.
    position_mode: how to resample position embeddings; default: as the code that wrote the file does
        (`huggingface` for Hugging Face files, `original` for all others).
    """
    if name.startswith(TRANSFORMERS):
        from skypart.model.transformers_backbone import TransformersBackbone

        return TransformersBackbone.from_name(name.removeprefix(TRANSFORMERS), revision)
    if name.startswith(UNTRAINED):
        return untrained_backbone(name)
    return vit_from_source(resolve(name, revision), position_mode)


def check_backbone(name: str) -> None:
    """Raise if a backbone cannot be had: an unknown name, a missing file, or a hub that cannot be reached."""
    if name.startswith(UNTRAINED):
        untrained_backbone(name)
    elif not name.startswith(TRANSFORMERS):
        resolve(name)


def untrained_backbone(name: str) -> VisionTransformer:
    """`untrained:tiny` or `untrained:vits14`: random weights, for tests and for trials without a weights file."""
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
    """Build our ViT from a weights file. Reads the shape from the tensors and checks the keys strictly."""
    raw = read_state(source.file)
    state = convert_state_dict(raw)
    mode: PositionMode = position_mode or ("huggingface" if "embeddings.cls_token" in _key_tails(raw) else "original")
    config = infer_config(state, source.origin, source.config, mode)
    vit = VisionTransformer(config)
    load_strictly(vit, {key: tensor.float() for key, tensor in state.items()}, source.origin)
    return vit


def describe_backbone(backbone: nn.Module) -> dict[str, Any]:
    """What a model file stores so that `build_backbone` can rebuild the same architecture."""
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
    raise SkyPartError(f"unknown kind of backbone {kind!r}; upgrade skypart to read this file")


def _key_tails(state: dict[str, Tensor]) -> set[str]:
    """Key names from `embeddings.` on, which is enough to recognise Hugging Face naming."""
    return {key[key.find("embeddings.") :] if "embeddings." in key else key for key in state}
