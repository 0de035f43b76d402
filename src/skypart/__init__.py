"""SkyPart: cross-view geo-localization of drone photos on satellite maps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skypart.version import __version__

if TYPE_CHECKING:
    from skypart.embedding import Embedder, load
    from skypart.model.embedder import TorchEmbedder, save

__all__ = ["Embedder", "TorchEmbedder", "__version__", "load", "save"]

_HOMES = {
    "Embedder": "skypart.embedding.interface",
    "TorchEmbedder": "skypart.model.embedder",
    "load": "skypart.embedding.runtimes",
    "save": "skypart.model.embedder",
}
"""Module of each public name, imported on first use so that `skypart --help` stays fast."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'skypart' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
