"""A store that others wrote, opened for searching where it lies.

Read-only. The manifest and the footprints are read when the store is opened; vectors by range requests, in blocks that
a local cache of bounded size keeps. Blocks are named by the hash of their file, so a cached one is never out of date.
"""

import hashlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.maps.files import redact_address
from skypart.maps.store import approximate
from skypart.maps.store.approximate import ApproximateIndex, search_snapshot
from skypart.maps.store.interface import (
    COLUMNS,
    Hit,
    Store,
    StoreBase,
    StoreModel,
    StoreStats,
    ViewBatch,
    Within,
    check_queries,
)
from skypart.maps.store.manifest import (
    MANIFEST,
    MODEL,
    FileRecord,
    SegmentRecord,
    StoreManifest,
    parse_manifest,
    parse_model,
)
from skypart.maps.store.remote.bucket import Bucket
from skypart.maps.store.remote.cache import BlockCache, default_cache
from skypart.maps.store.remote.rows import RemoteRows, RemoteSnapshot
from skypart.maps.store.segment import Segment


def open_remote(address: str, folder: Path, check: bool) -> Store:
    """Open the store at `remote:URL`; it keeps nothing in `folder`."""
    return RemoteStore(Bucket(address.removeprefix("remote:")), default_cache())


class RemoteStore(StoreBase):
    """A store that others wrote, opened for searching; see `Store` for the methods."""

    def __init__(self, bucket: Bucket, cache: BlockCache) -> None:
        self._bucket, self._cache = bucket, cache
        self._mutex = threading.RLock()
        self._manifest = self._read_manifest()
        self._snapshot: RemoteSnapshot | None = None
        self._approximate: ApproximateIndex | None = None

    @property
    def location(self) -> str:
        """The address, without credentials."""
        return f"remote:{redact_address(self._bucket.address)}"

    @property
    def model(self) -> StoreModel | None:
        """The model that was published with the views; None if a version of SkyPart before 0.3 wrote them."""
        try:
            return parse_model(self._bucket.read(MODEL), self._bucket.place(MODEL))
        except FileNotFoundError:
            return None

    def record_model(self, model: StoreModel) -> None:
        """Not possible."""
        self._refuse()

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
        snapshot, cache = self._open()
        rows = check_queries(queries, k, snapshot.dimension)
        return search_snapshot(snapshot, cache, rows, k, within, exact=exact)

    def stats(self) -> StoreStats:
        """What the store holds."""
        return self._manifest.stats(None if self._approximate is None else self._approximate.settings.recall)

    def optimize(self, sample: NDArray[np.float32] | None = None) -> float | None:
        """Nothing to do: an approximate index is published with the store."""
        return self.stats().recall

    def verify(self) -> None:
        """Read every file and compare it with its SHA-256; the error names all damaged files."""
        problems = []
        for record in self._manifest.segments:
            for file in record.files:
                try:
                    self._bucket.read_whole(file)
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
                self._manifest, self._snapshot, self._approximate = newest, None, None
            return changed

    def close(self) -> None:
        """Release memory; the cache stays."""
        self._closed, self._snapshot, self._approximate = True, None, None

    def _refuse(self) -> NoReturn:
        raise SkyPartError(f"{self.location}: is read-only; change the index it was published from")

    def _read_manifest(self) -> StoreManifest:
        place = self._bucket.place(MANIFEST)
        try:
            return parse_manifest(self._bucket.read(MANIFEST), place)
        except FileNotFoundError as error:
            raise SkyPartError(
                f"{place}: there is no store; check the address, and publish the folder `store` of an index there"
            ) from error

    def _open(self) -> tuple[RemoteSnapshot, ApproximateIndex | None]:
        """The state to search, and its approximate index; opened if they are not open yet."""
        with self._mutex:
            self._check_open()
            if self._snapshot is None:
                records = self._manifest.segments
                rows = [RemoteRows(self._bucket, self._cache, each, self._manifest.dimension) for each in records]
                segments = [self._segment(record) for record in records]
                self._approximate = self._load_approximate()
                self._snapshot = RemoteSnapshot(self._manifest, segments, rows)
            return self._snapshot, self._approximate

    def _segment(self, record: SegmentRecord) -> Segment:
        """A segment without its vectors."""
        vectors = np.empty((record.views, 0), dtype=np.float16)
        return Segment(Path(record.vectors.name), record, vectors, self._footprints(record.footprints), None)

    def _footprints(self, file: FileRecord) -> NDArray[np.float64]:
        """The footprints (n, 4) of a segment."""
        content = self._cached(file.sha256, lambda: self._bucket.read_whole(file))
        table: NDArray[np.float64] = np.load(BytesIO(content), allow_pickle=False)
        return table.reshape(-1, len(COLUMNS))

    def _load_approximate(self) -> ApproximateIndex | None:
        """The approximate index that is published beside the segments, if it belongs to this state."""
        try:
            settings = self._bucket.read(approximate.SETTINGS)
            found = approximate.parse_cache(
                settings,
                lambda digest: self._cached(digest, lambda: self._bucket.read(approximate.CODES)),
                self._manifest.content_hash,
            )
        except FileNotFoundError:
            return None
        return found if found is not None and found.settings.probes else None

    def _cached(self, digest: str, read: Callable[[], bytes]) -> bytes:
        """A whole file with this SHA-256, from the cache or by `read`."""
        name = f"{digest[:2]}/{digest}.block"
        content = self._cache.get(name)
        if content is None:
            content = read()
            if hashlib.sha256(content).hexdigest() == digest:
                self._cache.put(name, content)
        return content
