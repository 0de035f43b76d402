"""SkyPart: cross-view geo-localization of drone photos on satellite maps."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from skypart.model.embedder import Embedder, load, save

__all__ = ["Embedder", "__version__", "load", "save"]


def __getattr__(name: str) -> Any:
    """Import torch and the model only when they are asked for: `skypart --help` stays quick."""
    if name in ("load", "save", "Embedder"):
        from skypart.model import embedder

        return getattr(embedder, name)
    raise AttributeError(f"module 'skypart' has no attribute {name!r}")
