"""Tile sets: MBTiles, PMTiles, and folders of z/x/y tiles (XYZ or TMS)."""

import gzip
import json
import os
import re
import sqlite3
import stat
import struct
import threading
import time
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
    MagicNumberNotFound,
    SpecVersionUnsupported,
    TileType,
    deserialize_directory,
    deserialize_header,
    zxy_to_tileid,
)

from skypart.errors import SkyPartError
from skypart.images.raster_files import check_plain
from skypart.maps.files import HANDLES, combine_digests, file_digest, read_file

_DAMAGED = "its table of tiles is damaged; copy or recreate it"
_MAX_ZOOM = 30
_MAX_TILES = 50_000_000
"""Entries of a tile set; as many tiles of zoom 19 cover more than a million square kilometres at the equator."""
_FREE_TILES, _BYTES_PER_TILE = 1_000_000, 16
"""Tiles that a file of any size may list; and the bytes of a file for each further one. An image has more than 60, but
many tiles, as those of the sea, may be one image."""
_MAX_DIRECTORY_BYTES, _MAX_DIRECTORIES, _MAX_ENTRIES = 8 << 20, 100_000, 1 << 18
"""Of PMTiles: bytes of one directory, number of directories, entries of one. Writers keep to some thousand entries."""
_CACHED_DIRECTORIES = 16
_MAX_TILE_BYTES = 64 << 20
_MAX_METADATA_BYTES = 16 << 20
QUERY_SECONDS, MORE_SECONDS = 60.0, 0.1
"""Of the processor, for all queries of an MBTiles file together; and for each query in addition."""
_STEPS = 10_000
_VECTOR = "contains vector tiles; give raster tiles (PNG, JPEG or WebP)"
_TILE_NAME = re.compile(r"(\d{1,10})(\.png|\.jpg|\.jpeg|\.webp)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,10}")
_WORD = re.compile(r"\w+")
_MAX_SCHEMA = 1_000
_ODD_WORDS = frozenset(
    ("RECURSIVE", "WITH", "UNION", "INTERSECT", "EXCEPT", "RANDOMBLOB", "ZEROBLOB", "PRINTF", "GROUP_CONCAT", "CROSS"),
)
"""Words that do not occur in the views of real MBTiles files, and that can make a query endless or its rows huge."""
_END_ID = (4 ** (_MAX_ZOOM + 1) - 1) // 3
"""The first PMTiles id beyond the deepest zoom level."""
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
        self._seconds_left, self._lock = QUERY_SECONDS, threading.Lock()
        real = path.resolve()
        for suffix in ("-journal", "-wal", "-shm"):  # SQLite opens these, too, and makes those it lacks
            beside = real.with_name(real.name + suffix)
            if beside.is_symlink():
                raise SkyPartError(f"{beside}: is a link; remove it")
            check_plain(beside)
        self._check_schema()
        with self._query("SELECT value FROM metadata WHERE name = 'format'") as rows:
            kind = next(iter(rows), ("",))[0]
        if str(kind).lower() in ("pbf", "mvt"):
            raise SkyPartError(f"{path}: {_VECTOR}")

    def _check_schema(self) -> None:
        """Raise if the schema has virtual tables or odd views: their queries may never end.

        Plain joins of tables, which many programs write to share equal tiles, are allowed.
        """
        with self._query("SELECT type, name, sql FROM sqlite_master") as rows:
            schema = rows.fetchmany(_MAX_SCHEMA)
        for kind, name, text in schema:
            words = set(_WORD.findall(str(text).upper()))
            odd = kind == "view" and not words.isdisjoint(_ODD_WORDS)
            if len(schema) == _MAX_SCHEMA or odd or "VIRTUAL" in words:
                raise SkyPartError(
                    f"{self.path}: its {kind} {str(name)[:60]!r} is not supported; recreate the file with plain tables"
                )

    def _connect(self) -> sqlite3.Connection:
        """Open the file for reading, without trust in its schema."""
        base = sqlite3.connect(
            Path(self.path).resolve().as_uri() + "?mode=ro", uri=True, check_same_thread=False, timeout=5.0
        )
        base.execute("PRAGMA trusted_schema = OFF")
        base.execute("PRAGMA cell_size_check = ON")
        base.execute("PRAGMA mmap_size = 0")
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_TILE_BYTES)
        base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        base.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 50)
        return base

    @contextmanager
    def _query(self, text: str, values: tuple[int, ...] = ()) -> Generator[sqlite3.Cursor, None, None]:
        begun = time.thread_time()
        with self._lock:
            self._seconds_left += MORE_SECONDS
            end = begun + self._seconds_left
        try:
            with HANDLES.borrow(self.path, self._connect) as base:
                base.set_progress_handler(lambda: time.thread_time() > end, _STEPS)
                yield base.execute(text, values)
        except (sqlite3.Error, OverflowError, MemoryError, UnicodeDecodeError) as error:
            raise SkyPartError(f"{self.path}: cannot be read as MBTiles ({error}); copy or recreate it") from error
        finally:
            with self._lock:
                self._seconds_left -= time.thread_time() - begun

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y, from the north, of the tiles at each zoom level."""
        with self._query("SELECT zoom_level, tile_column, tile_row FROM tiles") as rows:  # SQLite would sort on disk
            places = self._places(rows)
        places = places[np.lexsort(places.T[::-1])]
        if len(places) and not 0 <= places[:, 0].min() <= places[:, 0].max() <= _MAX_ZOOM:
            raise SkyPartError(f"{self.path}: {_DAMAGED}")
        if len(places) and (np.any(places < 0) or np.any(places[:, 1:] >> places[:, :1])):
            raise SkyPartError(f"{self.path}: {_DAMAGED}")
        found = {}
        for zoom in np.unique(places[:, 0]).tolist():
            xy = places[places[:, 0] == zoom, 1:]
            found[zoom] = np.stack([xy[:, 0], (1 << zoom) - 1 - xy[:, 1]], axis=1)
        return found

    def _places(self, rows: sqlite3.Cursor) -> NDArray[np.int64]:
        """(n, 3) zoom, column and row of all tiles, fetched piece by piece."""
        pieces, count, most = [], 0, _most_tiles(self.path)
        while found := rows.fetchmany(100_000):
            count += len(found)
            if count > most or not all(isinstance(value, int) for row in found for value in row):
                raise SkyPartError(f"{self.path}: {_DAMAGED}")
            pieces.append(np.array(found, dtype=np.int64))
        return np.concatenate(pieces) if pieces else np.zeros((0, 3), np.int64)

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
        except (MagicNumberNotFound, SpecVersionUnsupported, ValueError, IndexError, struct.error) as error:
            raise SkyPartError(
                f"{path}: is not a PMTiles file of version 3; convert it with the pmtiles program"
            ) from error
        if self._header["tile_type"] in (TileType.MVT, TileType.MLT):
            raise SkyPartError(f"{path}: {_VECTOR}")
        plain = (Compression.NONE, Compression.UNKNOWN)
        if self._header["internal_compression"] != Compression.GZIP or self._header["tile_compression"] not in plain:
            raise SkyPartError(f"{path}: uses an unsupported compression; convert it with the pmtiles program")
        self._directory = lru_cache(maxsize=_CACHED_DIRECTORIES)(self._load_directory)

    def _bytes(self, offset: int, length: int) -> bytes:
        size = Path(self.path).stat().st_size
        if offset + length > size:
            raise SkyPartError(f"{self.path}: the file is truncated; copy it again")
        if length > _MAX_TILE_BYTES:
            raise SkyPartError(f"{self.path}: its directory is damaged (an entry of {length:,} bytes); copy it again")

        def opener() -> BinaryIO:
            return Path(self.path).open("rb")

        with HANDLES.borrow(self.path, opener) as file:
            file.seek(offset)
            data = file.read(length)
        if len(data) < length:
            raise SkyPartError(f"{self.path}: the file is truncated; copy it again")
        return data

    def _load_directory(self, offset: int, length: int) -> NDArray[np.int64]:
        """(n, 4) first tile id, run length (0 for a directory), offset and length of the entries of a directory."""
        try:
            content = _unzip(self._bytes(offset, length))
            _check_entry_count(content)
            entries = deserialize_directory(gzip.compress(content, 0))
            rows = [(each.tile_id, each.run_length, each.offset, each.length) for each in entries]
            return np.array(rows, dtype=np.int64).reshape(-1, 4)
        except (OSError, EOFError, ValueError, IndexError, TypeError, OverflowError, zlib.error, struct.error) as error:
            raise SkyPartError(f"{self.path}: its directory is damaged ({error}); copy it again") from error

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y, from the north, of the tiles at each zoom level."""
        found: list[NDArray[np.int64]] = []
        waiting = [(self._header["root_offset"], self._header["root_length"])]
        seen = set(waiting)
        total, listed, most = 0, 0, _most_tiles(self.path)
        bytes_left = Path(self.path).stat().st_size
        while waiting:
            place = waiting.pop()
            entries = self._directory(*place)
            listed, bytes_left = listed + len(entries), bytes_left - place[1]
            if listed > most or bytes_left < 0:
                raise SkyPartError(f"{self.path}: its directories are larger than the file; copy it again")
            runs = entries[entries[:, 1] > 0, :2]
            if len(runs) and not (runs[:, 0].min() >= 0 and (runs[:, 0] < _END_ID - runs[:, 1]).all()):
                raise SkyPartError(f"{self.path}: its directory is damaged (ids beyond the last tile); copy it again")
            total += sum(runs[:, 1].tolist())
            if total > most:
                raise SkyPartError(
                    f"{self.path}: lists more than {most:,} tiles in {Path(self.path).stat().st_size:,} bytes, so most "
                    "are copies of each other; recreate it from the tiles of the area that you need"
                )
            found.append(runs)
            for _, _, offset, length in entries[entries[:, 1] == 0].tolist():
                leaf = (self._header["leaf_directory_offset"] + offset, length)
                if leaf in seen:
                    raise SkyPartError(f"{self.path}: its directories form a cycle; copy it again")
                seen.add(leaf)
                waiting.append(leaf)
                if len(seen) > _MAX_DIRECTORIES:
                    raise SkyPartError(f"{self.path}: has too many directories; recreate it")
        return tiles_from_ids(_ids_of(np.concatenate(found)))

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The encoded image of a tile, None if there is none."""
        tile_id = zxy_to_tileid(z, x, y)
        place = (self._header["root_offset"], self._header["root_length"])
        for _ in range(4):
            entries = self._directory(*place)
            index = int(np.searchsorted(entries[:, 0], tile_id, side="right")) - 1
            if index < 0:
                return None
            first, run, offset, length = entries[index].tolist()
            if run:
                inside = tile_id < first + run
                return self._bytes(self._header["tile_data_offset"] + offset, length) if inside else None
            place = (self._header["leaf_directory_offset"] + offset, length)
        return None


def _most_tiles(path: str) -> int:
    """The number of tiles that a file may list: what they take in memory is bounded by its size."""
    return min(_MAX_TILES, max(_FREE_TILES, Path(path).stat().st_size // _BYTES_PER_TILE))


def _ids_of(runs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sorted ids (n,) of runs (m, 2) of a first id and a length."""
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    ends = np.cumsum(runs[:, 1])
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - runs[:, 1], runs[:, 1])
    ids: NDArray[np.int64] = np.repeat(runs[:, 0], runs[:, 1]) + within
    return ids


def _unzip(data: bytes) -> bytes:
    """A gzipped directory, of at most _MAX_DIRECTORY_BYTES when unpacked."""
    unpacker = zlib.decompressobj(wbits=31)
    content = unpacker.decompress(data, _MAX_DIRECTORY_BYTES)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is truncated, too large, or followed by something else")
    return content


def _check_entry_count(content: bytes) -> None:
    """Raise if an unpacked directory claims too many entries, or not as many as fit: each takes 4 to 40 bytes."""
    count = shift = 0
    for byte in content[:10]:
        count |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if not 4 * count <= len(content) <= 40 * count + 10 or count > _MAX_ENTRIES:
        raise ValueError(f"{count:,} entries in {len(content):,} bytes")


def tiles_from_ids(ids: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """(n, 2) x and y at each zoom level of PMTiles tile ids (n,), which follow a Hilbert curve level by level."""
    found = {}
    start = 0
    for zoom in range(_MAX_ZOOM + 1):
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
    root = os.path.realpath(folder)
    for level in _numbered_folders(folder):
        for column in _numbered_folders(Path(level.path)):
            with os.scandir(column.path) as files:
                for file in files:
                    name = _TILE_NAME.fullmatch(file.name)
                    if name and _is_inside(Path(file.path), root):
                        yield int(level.name), int(column.name), int(name[1]), file


def _numbered_folders(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from (entry for entry in entries if _NUMBER.fullmatch(entry.name) and entry.is_dir())


def _is_inside(file: Path, root: str) -> bool:
    """Whether a tile is an ordinary file of its folder. Links that leave it, pipes and devices are an error."""
    status = file.lstat()
    if stat.S_ISLNK(status.st_mode) or Path(os.path.realpath(file.parent)) != file.parent:
        if not os.path.realpath(file).startswith(f"{root}{os.sep}"):
            raise SkyPartError(f"{file}: is a link to a file outside the tiles' folder; copy the file there instead")
        try:
            status = file.stat()
        except OSError:
            return False
    if not stat.S_ISREG(status.st_mode):
        raise SkyPartError(f"{file}: is not a file but a pipe, device or folder; remove it")
    return True


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
            if len(sizes) > _MAX_TILES:
                raise SkyPartError(f"{self.path}: has more than {_MAX_TILES:,} tiles; split it")
        self._sizes = sorted(sizes)
        return {zoom: np.array(sorted(places), dtype=np.int64) for zoom, places in found.items()}

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The encoded image of a tile, None if there is none."""
        row = (1 << z) - 1 - y if self._from_south else y
        for suffix in self._suffixes:
            try:
                return read_file(self._folder / str(z) / str(x) / f"{row}{suffix}", _MAX_TILE_BYTES)
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
        text = read_file(resource, _MAX_METADATA_BYTES).decode("utf-8", errors="replace")
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
                content = json.loads(read_file(folder / name, _MAX_METADATA_BYTES).decode("utf-8"))
            except (ValueError, RecursionError) as error:
                raise SkyPartError(f"{folder / name}: cannot be read as JSON ({error}); repair or remove it") from error
            return isinstance(content, dict) and str(content.get("scheme", "xyz")).lower() == "tms"
    return False
