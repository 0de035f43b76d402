"""SkyPart: cross-view geo-localization of drone photos on satellite maps.

`open_index` or `build_index` gives an `Index`; its method `locate` gives a `PhotoFix`, its method `track` a `Track`.
`load` gives a model (`Embedder`) that embeds photos. Bad input raises `SkyPartError`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skypart.version import __version__

if TYPE_CHECKING:
    from skypart.api import Index, PhotoFix, Track, build_index, open_index
    from skypart.embedding import Embedder, load
    from skypart.errors import SkyPartError
    from skypart.model.embedder import TorchEmbedder, save

__all__ = [
    "Embedder",
    "Index",
    "PhotoFix",
    "SkyPartError",
    "TorchEmbedder",
    "Track",
    "__version__",
    "build_index",
    "load",
    "open_index",
    "save",
]

_HOMES = {
    "Embedder": "skypart.embedding.interface",
    "Index": "skypart.api",
    "PhotoFix": "skypart.api",
    "SkyPartError": "skypart.errors",
    "TorchEmbedder": "skypart.model.embedder",
    "Track": "skypart.api",
    "build_index": "skypart.api",
    "load": "skypart.embedding.runtimes",
    "open_index": "skypart.api",
    "save": "skypart.model.embedder",
}
"""Module of each public name, imported on first use so that `skypart --help` stays fast."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _HOMES:
        try:
            return getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            from skypart.embedding.runtimes import TORCH_PACKAGES, install_torch
            from skypart.errors import SkyPartError

            if error.name not in TORCH_PACKAGES:
                raise
            raise SkyPartError(f"skypart.{name} needs PyTorch; {install_torch()}") from error
    raise AttributeError(f"module 'skypart' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
