"""What the server needs from an index: the `LocateService` protocol, and `IndexService`, which implements it."""

import io
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NotRequired, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from skypart.embedding.parts_figure import draw_graph, part_overlay
from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.images.decode import RgbImage, is_image, read_rgb
from skypart.maps.files import redact_address
from skypart.maps.map_source import UnreadableMapError
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.labelled import CSV_NAMES, read_labelled
from skypart.position.locate import Locator
from skypart.serve.errors import HttpError, log

MAX_EXAMPLES = 24


class IndexBounds(TypedDict):
    """A box in WGS 84 degrees; west is greater than east if it crosses the antimeridian."""

    south: float
    west: float
    north: float
    east: float


class IndexInfo(TypedDict):
    """Facts about an index.

    name: of the index. maps: names of its maps. views: number of map views. model: digest of the model that embedded
    them. bounds: of all maps together. attribution: plain text shown on the map. calibrated: whether confidence and
    radius were fitted on labelled photos. gsd_m: ground sampling distance of the finest map, metres per pixel.
    fingerprints: strings that change when a map's pixels change or a map is missing, so that no stale tile is shown.
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
    """An example photo for the page.

    name: short and unique; part of its URL. title: shown on the page. load: reads the photo on demand.
    latitude, longitude: true position of the image centre; None if unknown or outside the map.
    version: changes when the photo changes, because browsers cache it for long.
    """

    name: str
    title: str
    load: Callable[[], RgbImage]
    latitude: float | None = None
    longitude: float | None = None
    version: str = ""


class LocateService(Protocol):
    """An index with its model. Tests implement it without a model.

    `locate` and `parts` are called from the inference threads (one by default); `view`, `tile` and the examples from
    one other thread, concurrently: shared state needs a lock. `info` and `examples` are called once, at startup. Bad
    input raises SkyPartError.
    """

    def info(self) -> IndexInfo:
        """Facts about the index."""

    @property
    def photo_edge(self) -> int | None:
        """Edge in pixels of the square that `locate` resizes a photo to at most; None: it wants all pixels."""

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        """Find where `image` was taken. `name` is what the fix calls the photo, never a path."""

    def parts(self, image: RgbImage) -> bytes:
        """A PNG of `image` overlaid with its parts; the client stretches it to the photo's size."""

    def view(self, footprint: Footprint, size: int) -> RgbImage:
        """The map under `footprint`, (size, size, 3)."""

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8] | None:
        """A Web Mercator tile, (256, 256, 4) RGBA; None where the map has nothing."""

    def examples(self) -> list[Example]:
        """Example photos."""


class IndexService:
    """Serves one map index. examples: a folder of example photos, optionally with a table of their positions."""

    def __init__(self, locator: Locator, examples: Path | None = None) -> None:
        self.locator = locator
        self.folder = examples
        self._map_lock = threading.Lock()

    def info(self) -> IndexInfo:
        """Facts about the index."""
        index = self.locator.index
        box = index.bounds
        gsd = [source.gsd_m for source in index.sources.values()]
        info = IndexInfo(
            name=index.name,
            maps=[entry.name for entry in index.manifest.maps],
            views=sum(entry.views for entry in index.manifest.maps),
            model=index.manifest.model["digest"],
            bounds=IndexBounds(south=box.south, west=box.west, north=box.north, east=box.east),
            attribution=", ".join(
                Path(redact_address(path)).name for entry in index.manifest.maps for path in entry.paths[:1]
            ),
            calibrated=self.locator.calibrated,
            fingerprints=[e.fingerprint for e in index.manifest.maps if e.name in index.sources],
        )
        if gsd:
            info["gsd_m"] = min(gsd)
        return info

    @property
    def photo_edge(self) -> int | None:
        """Edge in pixels of the square that `locate` resizes a photo to at most."""
        return self.locator.photo_edge

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        """Find where `image` was taken."""
        with _map_errors():
            return self.locator.locate(image, name=name, prior=prior, hints=hints)

    def parts(self, image: RgbImage) -> bytes:
        """A PNG of `image` overlaid with its parts."""
        explanation = self.locator.embedder.explain(image)
        overlay = part_overlay(image, explanation)
        draw_graph(overlay, explanation)
        buffer = io.BytesIO()
        overlay.save(buffer, "PNG")
        return buffer.getvalue()

    def view(self, footprint: Footprint, size: int) -> RgbImage:
        """The map under `footprint`, (size, size, 3)."""
        with self._map_lock, _map_errors():
            view = self.locator.index.view(footprint, size)
        if view is not None:
            return view
        missing = self.locator.index.missing
        if missing:  # missing_reasons() would reveal their paths or URLs, perhaps with a key
            raise SkyPartError(f"the server cannot read the map {missing[0]}; see what it printed at startup")
        raise SkyPartError("the map shows nothing there; choose a point inside it")

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8] | None:
        """A Web Mercator tile, (256, 256, 4) RGBA; None where the map has nothing."""
        with self._map_lock, _map_errors():
            tile = self.locator.index.tile(z, x, y)
        return tile if tile[..., 3].any() else None

    def examples(self) -> list[Example]:
        """The first photos of the folder, with their true positions if it has a table of them."""
        if self.folder is None:
            return []
        if not self.folder.is_dir():
            raise SkyPartError(f"{self.folder}: no such folder; give a folder of example photos")
        if any((self.folder / name).is_file() for name in CSV_NAMES):
            labelled = read_labelled(self.folder)[:MAX_EXAMPLES]
            titles = _titles([photo.path for photo in labelled])
            return [
                Example(
                    name=f"{number}",
                    title=titles[number],
                    load=partial(read_rgb, photo.path),
                    version=_file_version(photo.path),
                    latitude=photo.latitude,
                    longitude=photo.longitude,
                )
                for number, photo in enumerate(labelled)
            ]
        photos = sorted(path for path in self.folder.iterdir() if is_image(path.name) and path.is_file())
        return [
            Example(name=f"{number}", title=path.stem, load=partial(read_rgb, path), version=_file_version(path))
            for number, path in enumerate(photos[:MAX_EXAMPLES])
        ]


@contextmanager
def _map_errors() -> Generator[None, None, None]:
    """Name an unreadable map to the client; log the details, because paths and URLs are private."""
    try:
        yield
    except UnreadableMapError as error:
        log.error("%s", error)
        raise HttpError(
            503, f"the server cannot read the map {error.map_name} at present; see the server's log"
        ) from error


def _titles(photos: Sequence[Path]) -> list[str]:
    """Names of photos without suffix, with as many folders before them as tell them apart."""
    paths = [photo.with_suffix("").parts for photo in photos]
    depths = range(1, 5)  # more would show folders of the server
    length = next((n for n in depths if len({path[-n:] for path in paths}) == len(paths)), 1)
    return ["/".join(path[-length:]) for path in paths]


def _file_version(photo: Path) -> str:
    """A string that changes when a photo's file is replaced."""
    try:
        status = photo.stat()
    except OSError as error:
        raise SkyPartError(f"{photo}: cannot be read ({error.strerror}); check the folder of examples") from error
    return f"{photo.resolve()} {status.st_size} {status.st_mtime_ns}"
