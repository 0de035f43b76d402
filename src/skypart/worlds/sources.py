"""A map that can be loaded as a World, known by its files."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skypart.worlds.ground import World
from skypart.worlds.height_guess import with_guessed_heights


@dataclass(frozen=True)
class RasterSource:
    """One map on disk.

    files: images, the satellite's date first. surface: the surface model, if any.
    extent_m: width and height in metres, known without decoding. meta: entries of its index.csv row or meta file.
    loader: makes the World; a module-level function, so that the source can be pickled.
    around: images of eight other maps that surround it, in rows from the north-west; `files` is then the middle and
    extent_m that of all nine. guess_seed: seed for guessing heights of a flat map (see `height_guess`), or None.
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
        """Metres on either side, in x and y, that only surround it."""
        return (self.extent_m[0] / 3, self.extent_m[1] / 3) if self.around else (0.0, 0.0)

    def load(self) -> World:
        """Read the pixels and make the World."""
        world = self.loader(self)
        if self.guess_seed is None:
            return world
        return with_guessed_heights(world, np.random.default_rng([self.guess_seed, 12, zlib.crc32(self.name.encode())]))
