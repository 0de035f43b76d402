"""Tile sets: MBTiles, PMTiles, and folders of z/x/y tiles (XYZ or TMS)."""

import json
import os
import re
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray
from pmtiles.tile import (
    Compression,
    Entry,
    MagicNumberNotFound,
    SpecVersionUnsupported,
    TileType,
    deserialize_directory,
    deserialize_header,
    find_tile,
    zxy_to_tileid,
)

from skypart.errors import SkyPartError
from skypart.maps.files import HANDLES, combine_digests, file_digest

_DAMAGED = "its table of tiles is damaged; copy or recreate it"
_MAX_ZOOM = 30
_MAX_TILES = 500_000_000
_VECTOR = "contains vector tiles; give raster tiles (PNG, JPEG or WebP)"
_TILE_NAME = re.compile(r"(\d{1,10})(\.png|\.jpg|\.jpeg|\.webp)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,10}")
SAMPLED_TILES = 64
"""Number of tiles whose content, not only size, is part of the fingerprint."""


class TileSet(Protocol):
    """A source of Web Mercator tiles; y counts from the north. Thread-safe."""

    path: str

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y of the tiles at each zoom level that has any."""

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The encoded image of a tile, None if there is none."""


class MbTiles:
    """An MBTiles file (SQLite), whose rows count from the south."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        with self._query("SELECT value FROM metadata WHERE name = 'format'") as rows:
            kind = next(iter(rows), ("",))[0]
        if str(kind).lower() in ("pbf", "mvt"):
            raise SkyPartError(f"{path}: {_VECTOR}")

    @contextmanager
    def _query(self, text: str, values: tuple[int, ...] = ()) -> Generator[sqlite3.Cursor, None, None]:
        address = Path(self.path).resolve().as_uri() + "?mode=ro"
        try:
            with HANDLES.borrow(self.path, lambda: sqlite3.connect(address, uri=True, check_same_thread=False)) as base:
                yield base.execute(text, values)
        except sqlite3.Error as error:
            raise SkyPartError(f"{self.path}: cannot be read as MBTiles ({error}); copy or recreate it") from error

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y, from the north, of the tiles at each zoom level."""
        with self._query("SELECT zoom_level, tile_column, tile_row FROM tiles ORDER BY 1, 2, 3") as rows:
            found_rows = rows.fetchall()
        if not all(isinstance(value, int) for row in found_rows for value in row):
            raise SkyPartError(f"{self.path}: {_DAMAGED}")
        places = np.array(found_rows, dtype=np.int64).reshape(-1, 3)
        if len(places) and not 0 <= places[:, 0].min() <= places[:, 0].max() <= _MAX_ZOOM:
            raise SkyPartError(f"{self.path}: {_DAMAGED}")
        found = {}
        for zoom in np.unique(places[:, 0]).tolist():
            xy = places[places[:, 0] == zoom, 1:]
            found[zoom] = np.stack([xy[:, 0], (1 << zoom) - 1 - xy[:, 1]], axis=1)
        return found

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The encoded image of a tile, None if there is none."""
        text = "SELECT tile_data FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ?"
        with self._query(text, (z, x, (1 << z) - 1 - y)) as rows:
            row = rows.fetchone()
        if row is not None and not isinstance(row[0], bytes):
            raise SkyPartError(f"{self.path}: {_DAMAGED}")
        return None if row is None else row[0]


class PmTiles:
    """A PMTiles file, version 3; directories are cached."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        try:
            self._header = deserialize_header(self._bytes(0, 127))
        except (MagicNumberNotFound, SpecVersionUnsupported, ValueError) as error:
            raise SkyPartError(
                f"{path}: is not a PMTiles file of version 3; convert it with the pmtiles program"
            ) from error
        if self._header["tile_type"] in (TileType.MVT, TileType.MLT):
            raise SkyPartError(f"{path}: {_VECTOR}")
        plain = (Compression.NONE, Compression.UNKNOWN)
        if self._header["internal_compression"] != Compression.GZIP or self._header["tile_compression"] not in plain:
            raise SkyPartError(f"{path}: uses an unsupported compression; convert it with the pmtiles program")
        self._directory = lru_cache(maxsize=256)(self._load_directory)

    def _bytes(self, offset: int, length: int) -> bytes:
        def opener() -> BinaryIO:
            return Path(self.path).open("rb")

        with HANDLES.borrow(self.path, opener) as file:
            file.seek(offset)
            data = file.read(length)
        if len(data) < length:
            raise SkyPartError(f"{self.path}: the file is truncated; copy it again")
        return data

    def _load_directory(self, offset: int, length: int) -> list[Entry]:
        try:
            entries: list[Entry] = deserialize_directory(self._bytes(offset, length))
        except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
            raise SkyPartError(f"{self.path}: its directory is damaged ({error}); copy it again") from error
        return entries

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y, from the north, of the tiles at each zoom level."""
        runs: list[tuple[int, int]] = []
        waiting = [(self._header["root_offset"], self._header["root_length"])]
        seen = set(waiting)
        while waiting:
            for entry in self._directory(*waiting.pop()):
                if entry.run_length:
                    runs.append((entry.tile_id, entry.run_length))
                    continue
                leaf = (self._header["leaf_directory_offset"] + entry.offset, entry.length)
                if leaf in seen:
                    raise SkyPartError(f"{self.path}: its directories form a cycle; copy it again")
                seen.add(leaf)
                waiting.append(leaf)
        if sum(count for _, count in runs) > _MAX_TILES:
            raise SkyPartError(f"{self.path}: its directory is damaged (too many tiles); copy it again")
        runs.sort()
        ids = np.concatenate([np.arange(first, first + count) for first, count in runs] or [np.zeros(0, np.int64)])
        return tiles_from_ids(ids.astype(np.int64))

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The encoded image of a tile, None if there is none."""
        tile_id = zxy_to_tileid(z, x, y)
        place = (self._header["root_offset"], self._header["root_length"])
        for _ in range(4):
            entry = find_tile(self._directory(*place), tile_id)
            if entry is None:
                return None
            if entry.run_length:
                return self._bytes(self._header["tile_data_offset"] + entry.offset, entry.length)
            place = (self._header["leaf_directory_offset"] + entry.offset, entry.length)
        return None


def tiles_from_ids(ids: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """(n, 2) x and y at each zoom level of PMTiles tile ids (n,), which follow a Hilbert curve level by level."""
    found = {}
    start = 0
    for zoom in range(31):
        along = ids[(ids >= start) & (ids < start + 4**zoom)] - start
        start += 4**zoom
        if not along.size:
            continue
        x, y = np.zeros_like(along), np.zeros_like(along)
        for bit in range(zoom):
            side = 1 << bit
            right = (along >> 1) & 1
            low = (along ^ right) & 1
            turned = (low == 0) & (right == 1)
            x, y = np.where(turned, side - 1 - x, x), np.where(turned, side - 1 - y, y)
            x, y = np.where(low == 0, y, x) + side * right, np.where(low == 0, x, y) + side * low
            along = along >> 2
        found[zoom] = np.stack([x, y], axis=1)
    return found


def is_tile_folder(folder: Path) -> bool:
    """Whether a folder contains z/x/y images."""
    return next(_walk_tiles(folder), None) is not None


def _walk_tiles(folder: Path) -> Iterator[tuple[int, int, int, os.DirEntry[str]]]:
    """Zoom, x, y as in the file name, and the file, of every tile; in no particular order."""
    for level in _numbered_folders(folder):
        for column in _numbered_folders(Path(level.path)):
            with os.scandir(column.path) as files:
                for file in files:
                    name = _TILE_NAME.fullmatch(file.name)
                    if name:
                        yield int(level.name), int(column.name), int(name[1]), file


def _numbered_folders(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from (entry for entry in entries if _NUMBER.fullmatch(entry.name) and entry.is_dir())


class TileFolder:
    """A folder of tiles z/x/y.png, .jpg or .webp, rows counted from the north (XYZ) or from the south (TMS)."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        self._folder = folder
        self._from_south = _counts_from_south(folder)
        self._suffixes: dict[str, None] = {}
        self._sizes: list[str] = []

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y, from the north, of the tiles at each zoom level; sorted."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        sizes = []
        for zoom, x, y, file in _walk_tiles(self._folder):
            if zoom > 30 or x >> zoom or y >> zoom:
                raise SkyPartError(f"{file.path}: no such tile exists at zoom {zoom}; remove it")
            found[zoom].append((x, (1 << zoom) - 1 - y if self._from_south else y))
            self._suffixes[Path(file.name).suffix] = None
            sizes.append(f"{zoom}/{x}/{file.name} {file.stat().st_size}")
        self._sizes = sorted(sizes)
        return {zoom: np.array(sorted(places), dtype=np.int64) for zoom, places in found.items()}

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The encoded image of a tile, None if there is none."""
        row = (1 << z) - 1 - y if self._from_south else y
        for suffix in self._suffixes:
            try:
                return (self._folder / str(z) / str(x) / f"{row}{suffix}").read_bytes()
            except FileNotFoundError:
                continue
        return None

    def fingerprint(self) -> str:
        """Fingerprint of the names and sizes of all tiles, as last listed, and of the content of some."""
        chosen = [self._sizes[i] for i in np.unique(np.linspace(0, len(self._sizes) - 1, SAMPLED_TILES).astype(int))]
        contents = [file_digest(self._folder / line.rsplit(" ", 1)[0]) for line in chosen]
        return combine_digests([str(self._from_south), *self._sizes, *contents])


def _counts_from_south(folder: Path) -> bool:
    """Whether tiles are TMS: tilemapresource.xml, or "scheme": "tms" in metadata.json or tiles.json, says so."""
    resource = folder / "tilemapresource.xml"
    if resource.is_file():
        text = resource.read_text(encoding="utf-8", errors="replace")
        if re.search(r"profile=[\"'](global-)?geodetic", text) or re.search(r"<SRS>\s*EPSG:4326", text):
            raise SkyPartError(
                f"{resource}: its tiles are in degrees; create them in Web Mercator (gdal2tiles -p mercator)"
            )
        profile = re.search(r"\bprofile\s*=\s*[\"']([^\"']*)[\"']", text)
        if profile and profile[1].lower() not in ("mercator", "global-mercator"):
            raise SkyPartError(
                f"{resource}: its tiles have the profile {profile[1]}, which does not georeference them; create them "
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
