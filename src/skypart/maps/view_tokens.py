"""Compact patch tokens of the views of an index, so that `locate` need not compute them again.

Each map has three files in the folder `tokens` of the index, never changed once written: the tokens, the footprints
they belong to, and a record with the size and SHA-256 of both. They lie in the index whatever store has its vectors.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.atomic import atomic_path, sync_folder, write_text
from skypart.embedding.patches import COMPACT_VERSION
from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.maps.array_file import check_hash, check_size, read_header, write_array
from skypart.maps.files import open_ordinary, read_file

TOKENS_FOLDER = "tokens"
HASH_LIMIT = 2 << 30
"""Bytes of tokens up to which opening compares their SHA-256; `verify_tokens` always does."""
MAX_RECORD_BYTES = 1 << 20
_SAME_DEGREES, _SAME_METRES = 1e-7, 0.01
_RECORD, _TOKENS, _PLACES = ".json", ".tokens.npy", ".places.npy"
TokenBlock = tuple[NDArray[np.int8], NDArray[np.float64]]
"""Tokens (n, patches, k) and footprints (n, 4) of some views."""


@dataclass(frozen=True)
class TokenFile:
    """A file of tokens or footprints."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class TokenRecord:
    """What there is of one map. version: of the compact tokens. shape: (views, patches, channels)."""

    map_name: str
    version: int
    shape: tuple[int, int, int]
    tokens: TokenFile
    places: TokenFile


class ViewTokens:
    """The tokens of one map. They are read view by view: a map may have more than fit into memory."""

    def __init__(self, folder: Path, record: TokenRecord) -> None:
        stem = _stem(record.map_name)
        self.record = record
        self.files = {folder / (stem + _TOKENS): record.tokens, folder / (stem + _PLACES): record.places}
        for path, file in self.files.items():
            _check_file(path, file, full=file.bytes <= HASH_LIMIT)
        self._path, places = self.files
        self._places = _read_places(places, record.shape[0])
        self._start = _data_start(self._path, "|i1", record.shape)

    def find(self, view: Footprint) -> NDArray[np.int8] | None:
        """The tokens (patches, k) of a view; None if it is not stored."""
        latitudes = self._places[:, 0]
        low, high = np.searchsorted(latitudes, [view.latitude - _SAME_DEGREES, view.latitude + _SAME_DEGREES])
        for _, longitude, metres, rotation, row in self._places[low:high]:
            near = abs(longitude - view.longitude) < _SAME_DEGREES and abs(metres - view.metres) < _SAME_METRES
            if near and abs(rotation - view.rotation) < _SAME_METRES:
                return self._read(int(row))
        return None

    def _read(self, row: int) -> NDArray[np.int8]:
        """The tokens of one view."""
        _, patches, channels = self.record.shape
        size = patches * channels
        try:
            with self._path.open("rb") as file:
                content = os.pread(file.fileno(), size, self._start + row * size)
        except OSError as error:
            raise _damaged(self._path, error.strerror or str(error)) from error
        if len(content) != size:
            raise _damaged(self._path, "it is too short")
        return np.frombuffer(content, dtype=np.int8).reshape(patches, channels)

    def verify(self) -> None:
        """Compare all files with their SHA-256."""
        for path, file in self.files.items():
            _check_file(path, file, full=True)


def write_tokens(folder: Path, map_name: str, blocks: Callable[[], Iterable[TokenBlock]]) -> None:
    """Write the tokens of a map. folder: of the index. blocks: makes the blocks, twice.

    A map is complete once its record is written, which comes last.
    """
    shapes = [(tokens.shape, footprints) for tokens, footprints in blocks()]
    places = np.concatenate([footprints for _, footprints in shapes])
    shape = (len(places), *shapes[0][0][1:])
    order = np.lexsort(places.T[::-1])
    table = np.column_stack([places[order], order]).astype("<f8")
    target, stem = folder / TOKENS_FOLDER, _stem(map_name)
    try:
        target.mkdir(parents=True, exist_ok=True)
        files = [
            _write_array(target / (stem + _TOKENS), "|i1", shape, (tokens for tokens, _ in blocks())),
            _write_array(target / (stem + _PLACES), "<f8", table.shape, [table]),
        ]
        record = TokenRecord(map_name, COMPACT_VERSION, shape, *files)
        write_text(target / (stem + _RECORD), json.dumps(_sealed(asdict(record)), indent=1) + "\n", durable=True)
        sync_folder(target)
    except OSError as error:
        raise SkyPartError(
            f"{error.filename or target}: cannot be written ({error.strerror or error}); free disk space, or index "
            "with --no-tokens"
        ) from error


def read_tokens(folder: Path, map_names: Sequence[str]) -> dict[str, ViewTokens]:
    """The tokens of those maps that have usable ones. folder: of the index. Damaged files raise."""
    found = {}
    for name in map_names:
        file = folder / TOKENS_FOLDER / (_stem(name) + _RECORD)
        if file.is_file():
            record = _read_record(file)
            if record.map_name == name and record.version == COMPACT_VERSION:
                found[name] = ViewTokens(file.parent, record)
    return found


def verify_tokens(folder: Path, map_names: Sequence[str]) -> None:
    """Compare all tokens of these maps with their SHA-256."""
    for tokens in read_tokens(folder, map_names).values():
        tokens.verify()


def remove_unused_tokens(folder: Path, map_names: Sequence[str]) -> None:
    """Delete the tokens of all other maps, and what interrupted writers left."""
    kept = {_stem(name) + suffix for name in map_names for suffix in (_RECORD, _TOKENS, _PLACES)}
    target = folder / TOKENS_FOLDER
    if target.is_dir():
        for path in target.iterdir():
            if path.name not in kept and path.name.endswith((_RECORD, ".npy")):
                path.unlink(missing_ok=True)


def bytes_per_view(folder: Path) -> float:
    """What the tokens of one view of the index in `folder` take on disk, on average; 0 without any."""
    records = [_read_record(file) for file in sorted((folder / TOKENS_FOLDER).glob(f"*{_RECORD}"))]
    views = sum(record.shape[0] for record in records)
    return sum(record.tokens.bytes + record.places.bytes for record in records) / max(views, 1)


def _stem(map_name: str) -> str:
    """The name of the files of a map, given its name in the store."""
    return hashlib.blake2b(map_name.encode(), digest_size=12).hexdigest()


def _write_array(path: Path, kind: str, shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]) -> TokenFile:
    """Write an array block by block."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        return TokenFile(*write_array(file, kind, shape, blocks))


def _data_start(path: Path, kind: str, shape: tuple[int, ...]) -> int:
    """Where the data begin in a file whose array must be of this type and shape."""
    try:
        with path.open("rb") as file:
            start, column_major = read_header(file, path.stat().st_size, kind, shape)
        if column_major:
            raise ValueError("its rows are not contiguous")
        return start
    except (ValueError, OSError) as error:
        raise _damaged(path, str(error)) from error


def _read_places(path: Path, views: int) -> NDArray[np.float64]:
    """(views, 5) latitude, longitude, metres, rotation and row of the tokens, ordered by latitude."""
    start = _data_start(path, "<f8", (views, 5))
    try:
        return np.frombuffer(path.read_bytes(), dtype="<f8", offset=start).reshape(views, 5)
    except (ValueError, OSError) as error:
        raise _damaged(path, str(error)) from error


def _check_file(path: Path, recorded: TokenFile, full: bool) -> None:
    """Raise if a file is missing or has changed."""
    try:
        with open_ordinary(path) as file:
            check_size(file, recorded.bytes)
            if full:
                check_hash(file, recorded.sha256)
    except (ValueError, OSError) as error:
        raise _damaged(path, getattr(error, "strerror", None) or str(error)) from error


def _read_record(file: Path) -> TokenRecord:
    """A record after all checks."""
    try:
        content = json.loads(read_file(file, MAX_RECORD_BYTES))
        if _sealed({key: value for key, value in content.items() if key != "sha256"}) != content:
            raise ValueError("its SHA-256 does not match")
        views, patches, channels = (int(number) for number in content["shape"])
        return TokenRecord(
            str(content["map_name"]),
            int(content["version"]),
            (views, patches, channels),
            TokenFile(**content["tokens"]),
            TokenFile(**content["places"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(file, str(error)) from error


def _sealed(body: dict[str, Any]) -> dict[str, Any]:
    """The body with its SHA-256."""
    plain = json.loads(json.dumps(body))
    return {**plain, "sha256": hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()}


def _damaged(path: Path, how: str) -> SkyPartError:
    """The error that reports a damaged file."""
    return SkyPartError(
        f"{path}: damaged ({how}); restore it from a backup, or delete the folder {path.parent}: locate works without "
        "it, more slowly"
    )
