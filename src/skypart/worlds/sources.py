"""A map that can be loaded as a World, known by its files."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skypart.worlds.ground import World
from skypart.worlds.guess import raised


@dataclass(frozen=True)
class RasterSource:
    """One map on disk.

    files: pictures, the satellite's date first. surface: the surface model, if any.
    extent_m: width and height in metres, known without decoding. meta: facts of its index line or meta file.
    loader: makes the World; a module-level function, so that workers can be handed the source.
    around: eight other maps' pictures, in rows from the north-west, that surround it; files and extent_m are then
    those of the middle and of the whole. guess_seed: heights are guessed from it where there are none
    (`worlds/guess.py`).
    """

    name: str
    files: tuple[Path, ...]
    surface: Path | None
    extent_m: tuple[float, float]
    loader: Callable[["RasterSource"], World]
    meta: tuple[tuple[str, str], ...] = ()
    around: tuple[tuple[Path, ...], ...] = ()
    guess_seed: int | None = None

    @property
    def margin_m(self) -> tuple[float, float]:
        """Metres at either side, across and along, that only surround it."""
        return (self.extent_m[0] / 3, self.extent_m[1] / 3) if self.around else (0.0, 0.0)

    def load(self) -> World:
        """Read the pixels and make the World."""
        world = self.loader(self)
        if self.guess_seed is None:
            return world
        return raised(world, np.random.default_rng([self.guess_seed, 12, zlib.crc32(self.name.encode())]))
