"""Any vision transformer of the `transformers` package (DINOv3, for one) behind our backbone interface."""

from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor, nn

from skypart.errors import SkyPartError
from skypart.model.vit import Tokens


class TransformersBackbone(nn.Module):
    """Wraps a `transformers` vision model that returns (batch, prefix + patches, dim) hidden states.

    The number of prefix tokens (CLS, registers) is the number of tokens minus the number of patches.
    """

    no_weight_decay: tuple[str, ...] = ()

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        config = model.config
        try:
            self._dim, self._depth = int(config.hidden_size), int(config.num_hidden_layers)
            self._patch = int(config.patch_size)
        except (AttributeError, TypeError) as error:
            raise SkyPartError(
                f"{type(model).__name__} is not a plain patch transformer ({error}); choose a ViT-like backbone"
            ) from error
        self._find_layers(), self._norm()
        self._gradient_checkpointing = False

    @classmethod
    def from_name(cls, name: str, revision: str | None = None) -> Self:
        """Load `name` (hub name or folder) with its published weights."""
        auto = _transformers()
        try:
            model = auto.AutoModel.from_pretrained(name, revision=revision)
        except Exception as error:  # transformers lets errors of the libraries it uses through
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise SkyPartError(
                f"transformers cannot load {name!r} ({reason}); check the name, its files or the network"
            ) from error
        return cls(model)

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Self:
        """An untrained model of the stored configuration."""
        auto = _transformers()
        fields = dict(description["config"])
        return cls(auto.AutoModel.from_config(auto.AutoConfig.for_model(fields.pop("model_type"), **fields)))

    def describe(self) -> dict[str, Any]:
        """The configuration, for the model file."""
        return {"config": self.model.config.to_diff_dict() | {"model_type": self.model.config.model_type}}

    @property
    def dim(self) -> int:
        """Token width."""
        return self._dim

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self._depth

    @property
    def patch(self) -> int:
        """Edge of a patch in pixels."""
        return self._patch

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether blocks recompute their activations in the backward pass."""
        return self._gradient_checkpointing

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, wanted: bool) -> None:
        self._gradient_checkpointing = wanted
        if wanted:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        else:
            self.model.gradient_checkpointing_disable()

    def freeze(self, trainable_blocks: int, used: int | None = None) -> None:
        """Train only the last `trainable_blocks` blocks and the final norm, and no block after the first `used`.

        Frozen blocks before the first trainable one build no graph.
        """
        if not 0 <= trainable_blocks <= self.depth:
            raise SkyPartError(
                f"trainable_blocks={trainable_blocks} must be from 0 to {self.depth}, the number of blocks; change it"
            )
        everything = trainable_blocks == self.depth
        for name, parameter in self.model.named_parameters():
            # The outputs of poolers and mask tokens are not used, so these would never get a gradient.
            parameter.requires_grad_(everything and not name.startswith("pooler.") and "mask_token" not in name)
        if trainable_blocks:
            for layer in [*self._find_layers()[self.depth - trainable_blocks :], self._norm()]:
                layer.requires_grad_(True)
        self._find_layers()[used or self.depth :].requires_grad_(False)

    def trunk(self, images: Tensor, taps: Sequence[int] | None = None) -> Tensor:
        """Returns the images: models of `transformers` run in one piece, in `finish`."""
        return images

    def finish(self, trunk: Tensor, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Run the model on the images."""
        return self.forward(trunk, taps)

    def forward(self, images: Tensor, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Tokens after each block count in `taps` (default: all blocks), with the model's final norm."""
        wanted = list(taps) if taps is not None else [self.depth]
        if not wanted or min(wanted) < 1 or max(wanted) > self.depth:
            raise SkyPartError(
                f"token layers {wanted} are out of range; choose from 1 to {self.depth}, the backbone's depth"
            )
        height, width = images.shape[-2:]
        if height % self.patch or width % self.patch:
            raise SkyPartError(
                f"an input of {height} x {width} pixels is not divisible by the patch size {self.patch}; "
                "choose another input size"
            )
        grid = (height // self.patch, width // self.patch)
        extra = {"interpolate_pos_encoding": True} if self.model.config.model_type in ("vit", "ijepa", "deit") else {}
        output = self.model(pixel_values=images, output_hidden_states=True, **extra)
        prefix = output.last_hidden_state.shape[1] - grid[0] * grid[1]
        if prefix < 1:
            raise SkyPartError(f"{type(self.model).__name__} has no CLS token; choose a backbone that has one")
        result = []
        for tap in wanted:
            x = output.last_hidden_state if tap == self.depth else self._norm()(output.hidden_states[tap])
            result.append(Tokens(x[:, 0], x[:, prefix:], grid))
        return result

    def _find_layers(self) -> nn.ModuleList:
        """The list of transformer blocks, found by its length."""
        for module in self.model.modules():
            if isinstance(module, nn.ModuleList) and len(module) == self._depth:
                return module
        raise SkyPartError(
            f"{type(self.model).__name__}: no list of {self._depth} blocks found; this backbone is not supported"
        )

    def _norm(self) -> nn.Module:
        """The final layer norm."""
        for name in ("layernorm", "norm", "post_layernorm"):
            norm = getattr(self.model, name, None)
            if isinstance(norm, nn.Module):
                return norm
        raise SkyPartError(f"{type(self.model).__name__}: no final norm found; this backbone is not supported")


def _transformers() -> Any:
    """The module transformers. Raises an error that says how to install it if it is missing."""
    try:
        import transformers
    except ImportError:
        raise SkyPartError(
            "this backbone needs the optional package transformers; pip install 'skypart[transformers]'"
        ) from None
    return transformers
