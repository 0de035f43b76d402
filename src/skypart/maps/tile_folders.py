"""Folders of tiles: z/x/y.png, jpg or webp, rows counted from the north (XYZ) or from the south (TMS)."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.maps.fingerprint import combined, file_digest

_NAME = re.compile(r"(\d{1,10})(\.png|\.jpg|\.jpeg|\.webp)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,10}")
SAMPLED = 64
"""Tiles whose content, not only size, is part of the fingerprint."""


def is_tile_folder(folder: Path) -> bool:
    """Whether a folder holds z/x/y pictures."""
    return next(_walk(folder), None) is not None


def _walk(folder: Path) -> Iterator[tuple[int, int, int, os.DirEntry[str]]]:
    """Zoom, x, y as named, and the file, of every tile; in no order."""
    for level in _numbered(folder):
        for column in _numbered(Path(level.path)):
            with os.scandir(column.path) as files:
                for file in files:
                    name = _NAME.fullmatch(file.name)
                    if name:
                        yield int(level.name), int(column.name), int(name[1]), file


def _numbered(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from (entry for entry in entries if _NUMBER.fullmatch(entry.name) and entry.is_dir())


class TileFolder:
    """A folder of tiles; all of them should be in one picture format."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        self._folder = folder
        self._from_south = _counts_from_south(folder)
        self._suffixes: dict[str, None] = {}
        self._sizes: list[str] = []

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y, from the north, of the tiles of each zoom; in order."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        sizes = []
        for zoom, x, y, file in _walk(self._folder):
            if zoom > 30 or x >> zoom or y >> zoom:
                raise SkyPartError(f"{file.path}: there is no such tile at zoom {zoom}; remove it")
            found[zoom].append((x, (1 << zoom) - 1 - y if self._from_south else y))
            self._suffixes[Path(file.name).suffix] = None
            sizes.append(f"{zoom}/{x}/{file.name} {file.stat().st_size}")
        self._sizes = sorted(sizes)
        return {zoom: np.array(sorted(places), dtype=np.int64) for zoom, places in found.items()}

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The picture file of a tile, None if there is none."""
        row = (1 << z) - 1 - y if self._from_south else y
        for suffix in self._suffixes:
            try:
                return (self._folder / str(z) / str(x) / f"{row}{suffix}").read_bytes()
            except FileNotFoundError:
                continue
        return None

    def fingerprint(self) -> str:
        """Of the names and sizes of all tiles, as listed last, and the content of some."""
        chosen = [self._sizes[i] for i in np.unique(np.linspace(0, len(self._sizes) - 1, SAMPLED).astype(int))]
        contents = [file_digest(self._folder / line.rsplit(" ", 1)[0]) for line in chosen]
        return combined([str(self._from_south), *self._sizes, *contents])


def _counts_from_south(folder: Path) -> bool:
    """TMS is told by tilemapresource.xml, or by "scheme": "tms" in metadata.json or tiles.json."""
    resource = folder / "tilemapresource.xml"
    if resource.is_file():
        text = resource.read_text(encoding="utf-8", errors="replace")
        if re.search(r"profile=[\"'](global-)?geodetic", text) or re.search(r"<SRS>\s*EPSG:4326", text):
            raise SkyPartError(
                f"{resource}: its tiles are in degrees; make them in Web Mercator (gdal2tiles -p mercator)"
            )
        profile = re.search(r"\bprofile\s*=\s*[\"']([^\"']*)[\"']", text)
        if profile and profile[1].lower() not in ("mercator", "global-mercator"):
            raise SkyPartError(
                f"{resource}: its tiles are of the profile {profile[1]}, which does not say where they lie; make them "
                "in Web Mercator (gdal2tiles -p mercator)"
            )
        return True
    for name in ("metadata.json", "tiles.json"):
        if (folder / name).is_file():
            try:
                content = json.loads((folder / name).read_text(encoding="utf-8"))
            except ValueError as error:
                raise SkyPartError(f"{folder / name}: cannot be read as JSON ({error}); repair or remove it") from error
            return isinstance(content, dict) and str(content.get("scheme", "xyz")).lower() == "tms"
    return False
