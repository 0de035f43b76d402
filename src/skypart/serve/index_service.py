"""A map index and its model behind the server."""

import io
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

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
from skypart.serve.problems import RefusedError, log
from skypart.serve.service import Example, IndexBounds, IndexInfo


class IndexService:
    """Answers the server from one index. examples: a folder of photos offered on the page, with labels if it has."""

    def __init__(self, locator: Locator, examples: Path | None = None) -> None:
        self.locator = locator
        self.folder = examples
        self.reading = threading.Lock()

    def info(self) -> IndexInfo:
        """What the index holds."""
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

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        """Find where `image` was taken."""
        with _reading():
            return self.locator.locate(image, name=name, prior=prior, hints=hints)

    def parts(self, image: RgbImage) -> bytes:
        """A PNG of `image` with its parts over it."""
        seen = self.locator.embedder.explain(image)
        picture = part_overlay(image, seen)
        draw_graph(picture, seen)
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        return buffer.getvalue()

    def view(self, footprint: Footprint, size: int) -> RgbImage:
        """The map under `footprint`."""
        with self.reading, _reading():
            picture = self.locator.index.view(footprint, size)
        if picture is not None:
            return picture
        missing = self.locator.index.missing
        if missing:  # missing_reasons() would tell where they lie, perhaps with a key
            raise SkyPartError(
                f"the map {missing[0]} cannot be read by the server; see what it said when it was started"
            )
        raise SkyPartError("the map shows nothing there; ask for a place inside it")

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8] | None:
        """A Web Mercator tile; None where the map has nothing."""
        with self.reading, _reading():
            tile = self.locator.index.tile(z, x, y)
        return tile if tile[..., 3].any() else None

    def examples(self) -> list[Example]:
        """Photos of the folder, the labelled ones with their position."""
        if self.folder is None:
            return []
        if not self.folder.is_dir():
            raise SkyPartError(f"{self.folder}: no such folder; give a folder of photos to try")
        if any((self.folder / name).is_file() for name in CSV_NAMES):
            return [
                Example(
                    name=f"{number}",
                    title=photo.path.stem,
                    load=partial(read_rgb, photo.path),
                    version=_version(photo.path),
                    latitude=photo.latitude,
                    longitude=photo.longitude,
                )
                for number, photo in enumerate(read_labelled(self.folder)[:24])
            ]
        photos = sorted(path for path in self.folder.iterdir() if is_image(path.name) and path.is_file())
        return [
            Example(name=f"{number}", title=path.stem, load=partial(read_rgb, path), version=_version(path))
            for number, path in enumerate(photos[:24])
        ]


@contextmanager
def _reading() -> Generator[None, None, None]:
    """Tell the client which map cannot be read, and the log why: paths and addresses are nobody else's business."""
    try:
        yield
    except UnreadableMapError as error:
        log.error("%s", error)
        raise RefusedError(
            503, f"the map {error.map_name} cannot be read by the server at present; its log says why"
        ) from error


def _version(photo: Path) -> str:
    """Of a photo's file: another one once it is replaced."""
    try:
        status = photo.stat()
    except OSError as error:
        raise SkyPartError(f"{photo}: cannot be read ({error.strerror}); check the folder of examples") from error
    return f"{photo.resolve()} {status.st_size} {status.st_mtime_ns}"
