"""A cache of embeddings on disk, keyed by image content, model, preprocessing and corruption.

There is one folder per model, and it contains shards. Each run appends to its own shard, batch by batch, and never
writes to another, so that stopping it in any way (Ctrl-C, kill -9, full disk) loses at most the current batch. A shard
is two files, `*.vectors` (float32 rows) and `*.keys` (key and checksum of each row). A row is valid only if both files
have it and the checksum matches.
"""

import os
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError

KEY_BYTES = 16
_ENTRY = np.dtype([("key", f"V{KEY_BYTES}"), ("checksum", "<u4")])


def default_folder() -> Path:
    """`~/.cache/skypart/embeddings`, or `skypart/embeddings` in XDG_CACHE_HOME."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skypart" / "embeddings"


def content_key(content: str, *settings: object) -> bytes:
    """Key of an image with hash `content` under `settings` (size, interpolation, flip, corruption)."""
    return blake2b("|".join([content, *map(str, settings)]).encode(), digest_size=KEY_BYTES).digest()


def content_hash(path: Path) -> str:
    """Hash of a file's bytes."""
    try:
        return blake2b(path.read_bytes(), digest_size=KEY_BYTES).hexdigest()
    except OSError as error:
        raise SkyPartError(f"cannot read {path}: {error.strerror or error}; run `skypart data check`") from error


@dataclass
class _Shard:
    """The embeddings of one run: files `base.vectors` and `base.keys`; rows are read on demand."""

    base: Path
    checksums: list[int]
    vectors: BinaryIO | None = None
    keys: BinaryIO | None = None

    def row(self, index: int, row_bytes: int) -> bytes:
        """The bytes of one row."""
        if self.vectors is None:
            self.vectors = self.base.with_suffix(".vectors").open("rb", buffering=0)
        return os.pread(self.vectors.fileno(), row_bytes, row_bytes * index)

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        for file in (self.vectors, self.keys):
            if file is not None:
                file.close()
        self.vectors = self.keys = None


class EmbeddingCache:
    """Embeddings of one model, `dim` numbers each, in `folder/<digest>/`. A context manager."""

    def __init__(self, folder: Path, digest: str, dim: int) -> None:
        self.folder = folder / digest
        self.dim = dim
        self._where: dict[bytes, tuple[_Shard, int]] = {}
        self._shards: list[_Shard] = []
        self._own: _Shard | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for keys in sorted(self.folder.glob("*.keys")):
                self._read_shard(keys)
        except OSError as error:
            raise SkyPartError(
                f"cannot use the cache {self.folder}: {error.strerror}; choose another --cache"
            ) from error

    def _read_shard(self, keys: Path) -> None:
        vectors = keys.with_suffix(".vectors")
        rows = vectors.stat().st_size // (4 * self.dim) if vectors.exists() else 0
        entries = np.fromfile(keys, dtype=_ENTRY, count=min(keys.stat().st_size // _ENTRY.itemsize, rows))
        shard = _Shard(keys.with_suffix(""), entries["checksum"].tolist())
        self._shards.append(shard)
        self._where.update((key.tobytes(), (shard, row)) for row, key in enumerate(entries["key"]))

    def __len__(self) -> int:
        """Number of embeddings stored."""
        return len(self._where)

    def get(self, key: bytes) -> NDArray[np.float32] | None:
        """The (dim,) embedding of `key`, or None if it is missing or damaged."""
        found = self._where.get(key)
        if found is None:
            return None
        shard, row = found
        data = shard.row(row, 4 * self.dim)
        if zlib.crc32(key + data) != shard.checksums[row]:
            del self._where[key]
            return None
        return np.frombuffer(data, dtype="<f4")

    def put(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Append a batch of (n, dim) embeddings to disk."""
        rows = np.ascontiguousarray(vectors, dtype="<f4")
        checksums = [zlib.crc32(key + row.tobytes()) for key, row in zip(keys, rows, strict=True)]
        entries = np.empty(len(keys), dtype=_ENTRY)
        entries["key"] = np.frombuffer(b"".join(keys), dtype=f"V{KEY_BYTES}")
        entries["checksum"] = checksums
        try:
            shard = self._own or self._start_shard()
            assert shard.vectors is not None and shard.keys is not None
            _write_all(shard.vectors, rows.tobytes())
            _write_all(shard.keys, entries.tobytes())
        except OSError as error:
            self.close()
            raise SkyPartError(
                f"cannot write to the cache {self.folder}: {error.strerror or error}; finished embeddings are kept: "
                "free disk space or choose another --cache, then run the same command again"
            ) from error
        first = len(shard.checksums)
        shard.checksums += checksums
        self._where.update((key, (shard, first + i)) for i, key in enumerate(keys))

    def _start_shard(self) -> _Shard:
        shard = _Shard(self.folder / uuid.uuid4().hex, [])
        self._shards.append(shard)
        shard.vectors = shard.base.with_suffix(".vectors").open("x+b", buffering=0)
        shard.keys = shard.base.with_suffix(".keys").open("xb", buffering=0)
        self._own = shard
        return shard

    def close(self) -> None:
        """Close all files; later calls of `put` start a new shard."""
        for shard in self._shards:
            shard.close()
        self._own = None

    def __enter__(self) -> "EmbeddingCache":
        """The cache itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all files."""
        self.close()


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all of `data`; one write to an unbuffered file may be partial."""
    view = memoryview(data)
    while view:
        written = file.write(view)
        view = view[written:]
