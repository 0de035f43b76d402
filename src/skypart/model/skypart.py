"""The model: a backbone and a head."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from skypart.images.preprocess import Preprocessing
from skypart.model.backbone import Backbone, load_backbone
from skypart.model.heads import (
    DEFAULT_KIND,
    HeadOutput,
    HeadSettings,
    build_head,
    settings_class,
)
from skypart.model.hub import HubMixin
from skypart.model.parameter_rules import ParameterRule, default_rules

_HEAD = "head."


def stored_name(name: str) -> str:
    """The name of a parameter or buffer in model files: the name in the module, without the prefix `head.`.

    Files from before there was a choice of heads have no such prefix, and new files stay compatible.
    """
    return name.removeprefix(_HEAD)


class SkyPart(nn.Module, HubMixin):
    """The deployed model. `model(images)` returns the output of the head, whose `embedding` has unit rows.

    config: settings of the head, including its kind. preprocessing: how photos become model inputs.
    recipe, provenance: how the model was trained; stored in the model file.
    """

    def __init__(self, backbone: nn.Module, config: HeadSettings | None = None) -> None:
        super().__init__()
        self.preprocessing = Preprocessing()
        self.recipe: dict[str, Any] = {}
        self.provenance: dict[str, Any] = {}
        self.backbone = backbone
        self.head = build_head(config or settings_class(DEFAULT_KIND)(), self.backbone_interface.dim)
        self.register_state_dict_post_hook(_drop_head_prefix)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_add_head_prefix)  # type: ignore[no-untyped-call]

    @classmethod
    def from_backbone(cls, name: str, config: HeadSettings | None = None, seed: int = 0) -> "SkyPart":
        """A new head, initialised from `seed`, on the pretrained backbone `name` (see `load_backbone`)."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls(load_backbone(name), config)

    @property
    def backbone_interface(self) -> Backbone:
        """`backbone`, typed as the interface `Backbone`."""
        return cast(Backbone, self.backbone)

    @property
    def config(self) -> HeadSettings:
        """The settings of the head."""
        return self.head.settings

    def with_readout(self, readout: str) -> "SkyPart":
        """Switch this model to another readout, in place; weights are unchanged."""
        self.head.set_readout(readout)
        return self

    def freeze(self, trainable_blocks: int) -> None:
        """Train only the last `trainable_blocks` blocks of the backbone and the parts of the head its readout uses."""
        self.backbone_interface.freeze(trainable_blocks, max(self.taps))
        self.head.freeze_unused()

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """How each parameter learns, by name, from the rules of backbone and head."""
        backbone = default_rules(self.backbone, self.backbone_interface.no_weight_decay, rate="backbone")
        rules = {f"backbone.{name}": rule for name, rule in backbone.items()}
        return rules | {f"{_HEAD}{name}": rule for name, rule in self.head.parameter_rules().items()}

    def forward(self, images: Tensor, altitude: Tensor | None = None, noise: Tensor | None = None) -> HeadOutput:
        """Embed images (b, 3, height, width), normalised as `skypart.images.preprocess` does.

        altitude: (b,) metres, NaN where unknown; used only in training. noise: the head's random numbers in training;
        drawn if None. The head runs in float32, even under autocast.
        """
        return self.finish(self.trunk(images), altitude, noise)

    @property
    def taps(self) -> tuple[int, ...]:
        """The blocks whose tokens the head reads."""
        return self.head.taps(self.backbone_interface.depth)

    def trunk(self, images: Tensor) -> Any:
        """The frozen part of the backbone on images (b, 3, height, width); shared by student and moving average."""
        return self.backbone_interface.trunk(images, self.taps)

    def finish(self, trunk: Any, altitude: Tensor | None = None, noise: Tensor | None = None) -> HeadOutput:
        """The rest of the forward pass; see `forward`."""
        tokens = self.backbone_interface.finish(trunk, self.taps)
        with torch.autocast(tokens[0].cls.device.type, enabled=False):
            output: HeadOutput = self.head([each.float() for each in tokens], altitude, noise)
        return output


def _drop_head_prefix(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Rename the head's tensors from module names to file names."""
    for key in [key for key in state if key.startswith(prefix + _HEAD)]:
        state[prefix + stored_name(key[len(prefix) :])] = state.pop(key)


def _add_head_prefix(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Rename the head's tensors from file names to module names."""
    own = {stored_name(name): name for name, _ in module.named_parameters() if name.startswith(_HEAD)}
    own |= {stored_name(name): name for name, _ in module.named_buffers() if name.startswith(_HEAD)}
    for key in [key for key in state if key.startswith(prefix) and key[len(prefix) :] in own]:
        state[prefix + own[key[len(prefix) :]]] = state.pop(key)
