"""What the server needs of an index: a small protocol, so that it can be tested without a model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NotRequired, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from skypart.geo.footprint import Footprint
from skypart.images.decode import RgbImage
from skypart.position.fix import Fix, Hints, Prior


class IndexBounds(TypedDict):
    """A box in WGS 84 degrees; west is greater than east where it crosses the antimeridian."""

    south: float
    west: float
    north: float
    east: float


class IndexInfo(TypedDict):
    """What there is to know about an index.

    name: of the index. maps: names of the maps in it. views: their number. model: hash of the model that embedded
    them. bounds: of all maps together. attribution: plain text shown on the map. calibrated: whether confidence and
    radius were fitted on labelled photos. gsd_m: metres of ground a pixel of the finest map, where known.
    fingerprints: texts that change when the pixels of a map do, or a map is missing, so that no old tile is shown.
    """

    name: str
    maps: list[str]
    views: int
    model: str
    bounds: IndexBounds
    attribution: str
    calibrated: bool
    gsd_m: NotRequired[float]
    fingerprints: NotRequired[list[str]]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A photo offered on the page.

    name: short and unique, its address. title: what the page calls it. load: reads it, when it is asked for.
    latitude, longitude: where the centre of the image truly lies, None where that is unknown or not in the map.
    version: changes with the photo, which browsers keep for long.
    """

    name: str
    title: str
    load: Callable[[], RgbImage]
    latitude: float | None = None
    longitude: float | None = None
    version: str = ""


class LocateService(Protocol):
    """An index with its model.

    `locate` and `parts` are called from the inference threads (one by default), `view`, `tile` and the examples from
    one other thread, at the same time: what they share needs a lock. `info` and `examples` are called once, at the
    start. Bad input raises SkyPartError.
    """

    def info(self) -> IndexInfo:
        """What the index holds."""

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        """Find where `image` was taken; `name` is what the fix calls it, never a path."""

    def parts(self, image: RgbImage) -> bytes:
        """A PNG of `image` with its parts over it, framed as the photo is (any size; stretched to the photo's)."""

    def view(self, footprint: Footprint, size: int) -> RgbImage:
        """The map under `footprint`, (size, size, 3)."""

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8] | None:
        """A Web Mercator tile, (256, 256, 4) RGBA; None where the map has nothing."""

    def examples(self) -> list[Example]:
        """Photos to try."""
