"""A published store, read where it lies: the folder of an embedded store on object storage or a web server.

Read-only. The manifest and the footprints are read when the store is opened; vectors by range requests, in blocks that
a local cache of bounded size keeps. Blocks are named by the hash of their file, so a cached one is never out of date.
"""

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError
from skypart.maps.files import redact_address, redact_message
from skypart.maps.store import approximate
from skypart.maps.store.approximate import ApproximateIndex
from skypart.maps.store.exact import search_exact
from skypart.maps.store.interface import COLUMNS, Hit, Store, StoreStats, ViewBatch, Within, check_queries
from skypart.maps.store.manifest import MANIFEST, FileRecord, SegmentRecord, StoreManifest, parse_manifest
from skypart.maps.store.segment import Segment, Vectors, damage_error
from skypart.maps.store.snapshot import GATHER_ROWS, Positions, StoreSnapshot

BLOCK_BYTES = 1 << 20
CACHE_FOLDER, CACHE_BYTES = "SKYPART_CACHE", "SKYPART_CACHE_BYTES"
"""Environment variables: folder of the cache, and its maximum size in bytes."""
DEFAULT_BYTES = 2 << 30
_SCHEMES = ("s3", "https", "http", "file")


class Bucket:
    """Files below one address, through fsspec. Keys come from the usual variables (AWS_ACCESS_KEY_ID, ...)."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        scheme, mark, path = self.address.partition("://")
        if not mark or scheme not in _SCHEMES:
            raise SkyPartError(
                f"the store address remote:{redact_address(address)} has no known scheme; write "
                "remote:s3://BUCKET/FOLDER/store or remote:https://HOST/FOLDER/store"
            )
        self._path = path if scheme == "s3" else self.address
        self._seek = {"seekable": True} if scheme == "s3" else {}  # Arrow's default is a stream
        try:
            self._files = _file_system(scheme)
        except ImportError as error:
            raise SkyPartError(
                f"{redact_address(address)}: needs a reader of object storage; install it with "
                "`pip install 'skypart[s3]'`"
            ) from error

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """Bytes start..end of a file, or all of it. FileNotFoundError passes through."""
        try:
            content: bytes = self._files.cat_file(
                f"{self._path}/{name}", start=start, end=end, **(self._seek if end else {})
            )
            return content
        except FileNotFoundError:
            raise
        except Exception as error:  # fsspec lets the errors of each backend through
            self._fail(name, error)

    def size(self, name: str) -> int:
        """Size of a file in bytes."""
        try:
            return int(self._files.info(f"{self._path}/{name}")["size"])
        except FileNotFoundError:
            raise
        except Exception as error:
            self._fail(name, error)

    def _fail(self, name: str, error: Exception) -> NoReturn:
        place = redact_address(f"{self.address}/{name}")
        reason = " ".join(redact_message(str(error), self.address).split())[:300] or type(error).__name__
        raise SkyPartError(
            f"{place}: cannot be read ({reason}); check the address, that the server is up, and the credentials "
            "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        ) from error


def _file_system(scheme: str) -> Any:
    """An fsspec file system. S3 is Arrow's, so that no AWS library is needed."""
    import fsspec

    if scheme != "s3":
        return fsspec.filesystem(scheme)
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import S3FileSystem

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    more: dict[str, Any] = {"connect_timeout": 10, "request_timeout": 60}
    if endpoint:
        kind, _, host = endpoint.rpartition("://")
        more |= {"endpoint_override": host, "scheme": kind or "https"}
    if os.environ.get("AWS_NO_SIGN_REQUEST", "").upper() in ("YES", "TRUE", "1"):
        more["anonymous"] = True
    return ArrowFSWrapper(S3FileSystem(**more))


class BlockCache:
    """Blocks of remote files on the local disk; the least recently used ones are deleted above `limit` bytes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._lock = threading.Lock()
        self._used: int | None = None

    def get(self, name: str) -> bytes | None:
        """A cached block, or None."""
        path = self.folder / name
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, body = content[:32], content[32:]
        return body if hashlib.sha256(body).digest() == digest else None

    def put(self, name: str, body: bytes) -> None:
        """Keep a block, unless it is larger than the cache. A full disk is no error: the block is just not kept."""
        if len(body) + 32 > self.limit:
            return
        with suppress(SkyPartError, OSError), atomic_path(self.folder / name) as temporary:
            temporary.write_bytes(hashlib.sha256(body).digest() + body)
        with self._lock:
            self._used = self._trim() if self._used is None else self._used + len(body) + 32
            if self._used > self.limit:
                self._used = self._trim()

    def _trim(self) -> int:
        """Delete the oldest blocks until nine tenths of the limit are used, if more than all of it is."""
        found = []
        for path in (*self.folder.glob("??/*.block"), *self.folder.glob("approximate/*/approximate.*")):
            with suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime_ns, facts.st_size, path))
        used = sum(size for _, size, _ in found)
        if used <= self.limit:
            return used
        for _, size, path in sorted(found, key=lambda each: each[0]):
            if used <= 0.9 * self.limit:
                break
            with suppress(OSError):
                path.unlink()
                used -= size
        return used


def default_cache() -> BlockCache:
    """The cache that the environment asks for."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skypart" / "blocks"
    text = os.environ.get(CACHE_BYTES, str(DEFAULT_BYTES))
    if not text.isdecimal():
        raise SkyPartError(f"{CACHE_BYTES}={text}: must be a whole number of bytes")
    return BlockCache(Path(os.environ.get(CACHE_FOLDER) or home), int(text))


class RemoteRows:
    """The vectors of one segment: (n, d) float16, read by ranges."""

    def __init__(self, bucket: Bucket, cache: BlockCache, record: SegmentRecord, dimension: int) -> None:
        self._bucket, self._cache, self._file = bucket, cache, record.vectors
        self._dimension = dimension
        self._record = record
        header = BytesIO(self._bytes(0, min(256, self._file.bytes)))
        try:
            npy.read_magic(header)
            shape, column_major, kind = npy.read_array_header_1_0(header)
        except ValueError as error:
            raise damage_error(self._place, record, str(error)) from error
        self._start = header.tell()
        wanted = self._start + 2 * record.views * dimension
        if shape != (record.views, dimension) or column_major or kind != np.dtype("<f2") or wanted != self._file.bytes:
            raise damage_error(self._place, record, f"not a {record.views:,} x {dimension:,} array of type <f2")

    def __len__(self) -> int:
        """Number of views."""
        return self._record.views

    @property
    def _place(self) -> Path:
        return Path(redact_address(f"{self._bucket.address}/{self._file.name}"))

    def span(self, first: int, last: int) -> Vectors:
        """Rows first..last - 1."""
        width = 2 * self._dimension
        body = self._bytes(self._start + first * width, self._start + last * width)
        return np.frombuffer(body, dtype="<f2").reshape(-1, self._dimension)

    def _bytes(self, start: int, end: int) -> bytes:
        blocks = [self._block(number) for number in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))]
        before = start // BLOCK_BYTES * BLOCK_BYTES
        return b"".join(blocks)[start - before : end - before]

    def _block(self, number: int) -> bytes:
        name = f"{self._file.sha256[:2]}/{self._file.sha256}-{number}.block"
        body = self._cache.get(name)
        if body is None:
            end = min((number + 1) * BLOCK_BYTES, self._file.bytes)
            body = _read(self._bucket, self._record, self._file, number * BLOCK_BYTES, end)
            self._cache.put(name, body)
        return body


def _read(bucket: Bucket, record: SegmentRecord, file: FileRecord, start: int, end: int) -> bytes:
    """A range of a file; raises if the file is gone or shorter."""
    place = Path(redact_address(f"{bucket.address}/{file.name}"))
    try:
        body = bucket.read(file.name, start, end)
    except FileNotFoundError as error:
        raise damage_error(place, record, "missing") from error
    if len(body) != end - start:
        raise damage_error(place, record, f"{len(body):,} bytes instead of {end - start:,}")
    return body


class RemoteSnapshot(StoreSnapshot):
    """A state whose vectors are read by ranges; footprints are in memory."""

    def __init__(self, manifest: StoreManifest, segments: Sequence[Segment], rows: Sequence[RemoteRows]) -> None:
        super().__init__(manifest, segments)
        self._remote = tuple(rows)

    def chunks(self, positions: Positions | None, in_place: bool) -> Iterator[tuple[int, Vectors]]:
        """As in `StoreSnapshot`, but chunks always have at most GATHER_ROWS rows."""
        if positions is None:
            for start, rows in zip(self._starts, self._remote, strict=False):
                for first in range(0, len(rows), GATHER_ROWS):
                    yield int(start) + first, rows.span(first, min(first + GATHER_ROWS, len(rows)))
            return
        for first in range(0, len(positions), GATHER_ROWS):
            yield first, self.vectors(positions[first : first + GATHER_ROWS])

    def vectors(self, positions: Positions) -> Vectors:
        """(m, d) vectors at positions, which may be in any order; neighbours are read together."""
        gathered = np.empty((len(positions), self.dimension), dtype=np.float16)
        order = np.argsort(positions, kind="stable")
        ordered = positions[order]
        owner = np.searchsorted(self._starts, ordered, side="right") - 1
        per_block = max(1, BLOCK_BYTES // (2 * self.dimension))
        breaks = np.flatnonzero((np.diff(ordered) > per_block) | (np.diff(owner) != 0)) + 1
        for run in np.split(np.arange(len(ordered)), breaks) if len(ordered) else ():
            for piece in np.split(run, range(GATHER_ROWS, len(run), GATHER_ROWS)):
                local = ordered[piece] - self._starts[owner[piece[0]]]
                rows = self._remote[owner[piece[0]]].span(int(local[0]), int(local[-1]) + 1)
                gathered[order[piece]] = rows[local - local[0]]
        return gathered


def open_remote(address: str, folder: Path, check: bool) -> Store:
    """Open the store at `remote:URL`; it keeps nothing in `folder`."""
    return RemoteStore(Bucket(address.removeprefix("remote:")), default_cache())


class RemoteStore:
    """A store that others wrote, opened for searching; see `Store` for the methods."""

    def __init__(self, bucket: Bucket, cache: BlockCache) -> None:
        self._bucket, self._cache = bucket, cache
        self._closed = False
        self._mutex = threading.RLock()
        self._manifest = self._read_manifest()
        self._snapshot: RemoteSnapshot | None = None
        self._approximate: ApproximateIndex | None = None

    @property
    def location(self) -> str:
        """The address, without credentials."""
        return f"remote:{redact_address(self._bucket.address)}"

    def add(self, batch: ViewBatch) -> None:
        """Not possible."""
        self._refuse()

    def remove(self, map_name: str) -> int:
        """Not possible."""
        self._refuse()

    def transaction(self) -> AbstractContextManager[None]:
        """Not possible."""
        self._refuse()

    def search(
        self, queries: ArrayLike, k: int, within: Within | None = None, *, exact: bool = False
    ) -> list[list[Hit]]:
        """The best `k` views for each of (q, d) queries. Within an area only the blocks of its views are read."""
        snapshot = self._open()
        rows = check_queries(queries, k, snapshot.dimension)
        if within is not None:
            found = search_exact(snapshot, rows, k, snapshot.positions_within(within))
        elif self._approximate is not None and not exact:
            found = self._approximate.search(snapshot, rows, k)
        else:
            found = search_exact(snapshot, rows, k)
        return [snapshot.hits(positions, scores) for positions, scores in found]

    def stats(self) -> StoreStats:
        """What the store holds."""
        maps: dict[str, int] = {}
        for record in self._manifest.segments:
            maps[record.map_name] = maps.get(record.map_name, 0) + record.views
        return StoreStats(
            views=self._manifest.views,
            dimension=self._manifest.dimension,
            segments=len(self._manifest.segments),
            bytes=sum(file.bytes for record in self._manifest.segments for file in record.files),
            maps=maps,
            recall=None if self._approximate is None else self._approximate.settings.recall,
        )

    def optimize(self, sample: NDArray[np.float32] | None = None) -> float | None:
        """Nothing to do: an approximate index is published with the store."""
        return self.stats().recall

    def verify(self) -> None:
        """Read every file and compare it with its SHA-256; the error names all damaged files."""
        problems = []
        for record in self._manifest.segments:
            for file in record.files:
                place = Path(redact_address(f"{self._bucket.address}/{file.name}"))
                try:
                    if hashlib.sha256(_read(self._bucket, record, file, 0, file.bytes)).hexdigest() != file.sha256:
                        raise damage_error(place, record, "its SHA-256 has changed")
                except SkyPartError as error:
                    problems.append(str(error))
        if problems:
            raise SkyPartError("\n".join(problems))

    def refresh(self) -> bool:
        """Switch to the state that is published now. Returns whether it is another one."""
        with self._mutex:
            newest = self._read_manifest()
            changed = newest != self._manifest
            if changed:
                self._manifest, self._snapshot = newest, None
            return changed

    def close(self) -> None:
        """Release memory; the cache stays."""
        self._closed, self._snapshot, self._approximate = True, None, None

    def __enter__(self) -> Self:
        """Returns the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    def _refuse(self) -> NoReturn:
        raise SkyPartError(f"{self.location}: is read-only; change the index it was published from")

    def _read_manifest(self) -> StoreManifest:
        place = redact_address(f"{self._bucket.address}/{MANIFEST}")
        try:
            return parse_manifest(self._bucket.read(MANIFEST), place)
        except FileNotFoundError as error:
            raise SkyPartError(
                f"{place}: there is no store; check the address, and publish the folder `store` of an index there"
            ) from error

    def _open(self) -> RemoteSnapshot:
        with self._mutex:
            if self._closed:
                raise SkyPartError(f"the store {self.location} is closed; open it again")
            if self._snapshot is None:
                rows = [
                    RemoteRows(self._bucket, self._cache, record, self._manifest.dimension)
                    for record in self._manifest.segments
                ]
                tables = [self._footprints(record) for record in self._manifest.segments]
                segments = [
                    Segment(
                        Path(record.vectors.name), record, np.empty((record.views, 0), dtype=np.float16), table, None
                    )
                    for record, table in zip(self._manifest.segments, tables, strict=True)
                ]
                self._snapshot = RemoteSnapshot(self._manifest, segments, rows)
                self._approximate = self._load_approximate()
            return self._snapshot

    def _footprints(self, record: SegmentRecord) -> NDArray[np.float64]:
        """The footprints (n, 4) of a segment, checked by their SHA-256."""
        file = record.footprints
        name = f"{file.sha256[:2]}/{file.sha256}.block"
        content = self._cache.get(name)
        if content is None:
            content = _read(self._bucket, record, file, 0, file.bytes)
            if hashlib.sha256(content).hexdigest() != file.sha256:
                place = Path(redact_address(f"{self._bucket.address}/{file.name}"))
                raise damage_error(place, record, "its SHA-256 has changed")
            self._cache.put(name, content)
        table: NDArray[np.float64] = np.load(BytesIO(content), allow_pickle=False)
        return table.reshape(-1, len(COLUMNS))

    def _load_approximate(self) -> ApproximateIndex | None:
        """The approximate index that is published beside the segments, if it belongs to this state."""
        folder = self._cache.folder / "approximate" / self._manifest.content_hash[:16]
        found = approximate.load_cache(folder, self._manifest.content_hash)
        if found is None:
            try:
                contents = {name: self._bucket.read(name) for name in (approximate.SETTINGS, approximate.CODES)}
            except FileNotFoundError:
                return None
            for name, content in contents.items():
                with atomic_path(folder / name) as temporary:
                    temporary.write_bytes(content)
            found = approximate.load_cache(folder, self._manifest.content_hash)
        return found if found is not None and found.settings.probes else None
