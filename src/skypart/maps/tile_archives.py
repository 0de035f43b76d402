"""Tiles in one file: MBTiles (SQLite) and PMTiles."""

import sqlite3
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

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
from skypart.maps.handles import HANDLES

_DAMAGED = "its table of tiles is damaged; copy or make it again"
_DEEPEST = 30
_MOST_TILES = 500_000_000
_VECTOR = "holds vector tiles, not pictures; give raster tiles (PNG, JPEG or WebP)"


class MbTiles:
    """An MBTiles file; its rows count from the south."""

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
            raise SkyPartError(f"{self.path}: cannot be read as MBTiles ({error}); copy or make it again") from error

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y, from the north, of the tiles of each zoom."""
        with self._query("SELECT zoom_level, tile_column, tile_row FROM tiles ORDER BY 1, 2, 3") as rows:
            found_rows = rows.fetchall()
        if not all(isinstance(value, int) for row in found_rows for value in row):
            raise SkyPartError(f"{self.path}: {_DAMAGED}")
        places = np.array(found_rows, dtype=np.int64).reshape(-1, 3)
        if len(places) and not 0 <= places[:, 0].min() <= places[:, 0].max() <= _DEEPEST:
            raise SkyPartError(f"{self.path}: {_DAMAGED}")
        found = {}
        for zoom in np.unique(places[:, 0]).tolist():
            xy = places[places[:, 0] == zoom, 1:]
            found[zoom] = np.stack([xy[:, 0], (1 << zoom) - 1 - xy[:, 1]], axis=1)
        return found

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The picture file of a tile, None if there is none."""
        text = "SELECT tile_data FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ?"
        with self._query(text, (z, x, (1 << z) - 1 - y)) as rows:
            row = rows.fetchone()
        if row is not None and not isinstance(row[0], bytes):
            raise SkyPartError(f"{self.path}: {_DAMAGED}")
        return None if row is None else row[0]


class PmTiles:
    """A PMTiles file, version 3; its directories are kept once read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        try:
            self._header = deserialize_header(self._bytes(0, 127))
        except (MagicNumberNotFound, SpecVersionUnsupported, ValueError) as error:
            raise SkyPartError(
                f"{path}: is no PMTiles file of version 3; convert it with the pmtiles program"
            ) from error
        if self._header["tile_type"] in (TileType.MVT, TileType.MLT):
            raise SkyPartError(f"{path}: {_VECTOR}")
        plain = (Compression.NONE, Compression.UNKNOWN)
        if self._header["internal_compression"] != Compression.GZIP or self._header["tile_compression"] not in plain:
            raise SkyPartError(f"{path}: is compressed in a way that is not read; convert it with the pmtiles program")
        self._directory = lru_cache(maxsize=256)(self._load_directory)

    def _bytes(self, offset: int, length: int) -> bytes:
        def opener() -> BinaryIO:
            return Path(self.path).open("rb")

        with HANDLES.borrow(self.path, opener) as file:
            file.seek(offset)
            data = file.read(length)
        if len(data) < length:
            raise SkyPartError(f"{self.path}: the file ends before its tiles do; copy it again")
        return data

    def _load_directory(self, offset: int, length: int) -> list[Entry]:
        try:
            entries: list[Entry] = deserialize_directory(self._bytes(offset, length))
        except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
            raise SkyPartError(f"{self.path}: its directory is damaged ({error}); copy it again") from error
        return entries

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y, from the north, of the tiles of each zoom."""
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
                    raise SkyPartError(f"{self.path}: its directories point at each other; copy it again")
                seen.add(leaf)
                waiting.append(leaf)
        if sum(count for _, count in runs) > _MOST_TILES:
            raise SkyPartError(f"{self.path}: its directory is damaged (too many tiles); copy it again")
        runs.sort()
        numbers = np.concatenate([np.arange(first, first + count) for first, count in runs] or [np.zeros(0, np.int64)])
        return from_numbers(numbers.astype(np.int64))

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The picture file of a tile, None if there is none."""
        number = zxy_to_tileid(z, x, y)
        place = (self._header["root_offset"], self._header["root_length"])
        for _ in range(4):
            entry = find_tile(self._directory(*place), number)
            if entry is None:
                return None
            if entry.run_length:
                return self._bytes(self._header["tile_data_offset"] + entry.offset, entry.length)
            place = (self._header["leaf_directory_offset"] + entry.offset, entry.length)
        return None


def from_numbers(numbers: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """(n, 2) x and y of each zoom from PMTiles' numbers (n,): zoom after zoom, along a Hilbert curve in each."""
    found = {}
    start = 0
    for zoom in range(31):
        along = numbers[(numbers >= start) & (numbers < start + 4**zoom)] - start
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
