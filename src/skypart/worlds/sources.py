"""A map that can be loaded as a World, known by its files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skypart.worlds.ground import World


@dataclass(frozen=True)
class RasterSource:
    """One map on disk.

    files: pictures, the satellite's date first. surface: the surface model, if any.
    extent_m: width and height in metres, known without decoding. meta: facts of its index line or meta file.
    loader: makes the World; a module-level function, so that workers can be handed the source.
    """

    name: str
    files: tuple[Path, ...]
    surface: Path | None
    extent_m: tuple[float, float]
    loader: Callable[["RasterSource"], World]
    meta: tuple[tuple[str, str], ...] = ()

    def load(self) -> World:
        """Read the pixels and make the World."""
        return self.loader(self)
