"""The store without a server: one folder of segments, and a manifest that names them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.maps.store import approximate
from skypart.maps.store.approximate import Approximate
from skypart.maps.store.compaction import clear_strays, with_batch
from skypart.maps.store.exact import search_exact
from skypart.maps.store.interface import Hit, StoreStats, ViewBatch, Within, checked_queries
from skypart.maps.store.lock import WriterLock
from skypart.maps.store.manifest import MANIFEST, Manifest, read_manifest, write_manifest
from skypart.maps.store.snapshot import Snapshot
from skypart.maps.store.state import check_sizes, find_damage, open_snapshot, read_state

HASH_LIMIT = 2 << 30
"""Bytes of vectors up to which opening compares all SHA-256 (about 0.8 s a gigabyte), above it sizes and the
footprints' SHA-256 only; `verify` compares all."""


class EmbeddedStore:
    """Views in one folder, which is made by the first `add`; a context manager.

    Any number of processes may read while one writes: the first `add` or `remove` makes this object the writer until
    `close`. Searches answer from one state: that of opening, of the last own change, or of the last `refresh`.
    check: whether files that are missing or of another size are told at once; without, `remove` can mend the store.
    """

    def __init__(self, folder: str | Path, *, check: bool = True, hash_limit: int = HASH_LIMIT) -> None:
        self.folder = Path(folder)
        self._hash_limit = hash_limit
        self._mutex = threading.RLock()
        self._lock: WriterLock | None = None
        self._staged: Manifest | None = None
        self._snapshot: Snapshot | None = None
        self._cache: tuple[str, Approximate | None] = ("", None)
        self._closed = False
        self._manifest = read_manifest(self.folder)
        if check:
            self._manifest, _ = read_state(self.folder, partial(check_sizes, self.folder))

    def add(self, batch: ViewBatch) -> None:
        """Keep views of a map; they are on disk when this returns (in a `transaction`: when that ends)."""
        with self.transaction():
            assert self._staged is not None
            self._staged = with_batch(self.folder, self._staged, batch)

    def remove(self, map_name: str) -> int:
        """Forget a map; the number of its views, 0 if there is none of that name."""
        with self.transaction():
            assert self._staged is not None
            gone = [record for record in self._staged.segments if record.map_name == map_name]
            kept = tuple(record for record in self._staged.segments if record not in gone)
            dimension = self._staged.dimension if kept else 0  # an empty store takes views of any model
            self._staged = self._staged.model_copy(update={"segments": kept, "dimension": dimension})
        return sum(record.views for record in gone)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Changes made inside appear together when the block ends, or not at all: to replace a map, for one."""
        with self._mutex:
            if self._staged is not None:
                yield
                return
            self._become_writer()
            self._staged = self._manifest
            try:
                yield
                if self._staged != self._manifest:
                    write_manifest(self.folder, self._staged)
            finally:
                self._staged = None
                self._manifest = read_manifest(self.folder)  # broken off even here, what the disk says holds
                clear_strays(self.folder, self._manifest)

    def search(
        self, queries: ArrayLike, k: int, within: Within | None = None, *, exact: bool = False
    ) -> list[list[Hit]]:
        """The best `k` views for each of (q, d) queries, best first, equal scores in the order of rows.

        within: only views whose centre lies there are scored, always exactly. exact: do without the approximate cache.
        """
        snapshot, cache = self._state()
        rows = checked_queries(queries, snapshot.dimension)
        if k < 1:
            raise SkyPartError(f"a search for {k} views finds none; ask for 1 or more")
        snapshot.check_sizes()
        if within is not None:
            found = search_exact(snapshot, rows, k, snapshot.allowed(within))
        elif cache is not None and not exact:
            found = cache.search(snapshot, rows, k)
        else:
            found = search_exact(snapshot, rows, k)
        return [snapshot.hits(positions, scores) for positions, scores in found]

    def stats(self) -> StoreStats:
        """How much there is."""
        with self._mutex:
            manifest, cache = self._manifest, self._approximate()
        maps: dict[str, int] = {}
        for record in manifest.segments:
            maps[record.map_name] = maps.get(record.map_name, 0) + record.views
        return StoreStats(
            views=manifest.views,
            dimension=manifest.dimension,
            segments=len(manifest.segments),
            bytes=sum(file.bytes for record in manifest.segments for file in record.files),
            maps=maps,
            approximate=None if cache is None else cache.settings.recall,
        )

    def build_approximate(self, sample: NDArray[np.float32] | None = None) -> float | None:
        """Make searches without an area fast where there are 200,000 views or more: the recall@10, else None.

        sample (s, d): real queries to tune with. Any later change of the store makes searches exact again until this
        is called again. None too where no setting reaches a recall of 99 %; searches stay exact then.
        """
        with self._mutex:
            self._become_writer()
            snapshot, _ = self._state()
            if len(snapshot) < approximate.FROM_VIEWS:
                return None
            state = self._manifest.content_hash
            if sample is not None or approximate.load(self.folder, state) is None:
                approximate.build(self.folder, snapshot, state, sample)
                self._cache = ("", None)
            cache = self._approximate()
            return None if cache is None else cache.settings.recall

    def refresh(self) -> bool:
        """Go to the newest state that others have written; whether there was a newer one."""
        with self._mutex:
            if read_manifest(self.folder) == self._manifest:
                return False
            self._open()
            return True

    def verify(self) -> None:
        """Read every file of the store and compare it with its SHA-256; an error names all that are damaged."""
        _, problems = read_state(self.folder, partial(find_damage, self.folder))
        if problems:
            raise SkyPartError("\n".join(problems))

    def close(self) -> None:
        """Let others write, and unmap all files as soon as no search uses them."""
        with self._mutex:
            self._closed = True
            self._snapshot, self._cache = None, ("", None)
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _become_writer(self) -> None:
        """Take the lock, go to the newest state and clear what a killed writer left."""
        self._refuse_closed()
        if self._lock is not None:
            return
        lock = WriterLock(self.folder)
        try:
            self._manifest = read_manifest(self.folder)
            if not (self.folder / MANIFEST).exists():
                write_manifest(self.folder, self._manifest)
            clear_strays(self.folder, self._manifest)
        except BaseException:
            lock.close()
            raise
        self._lock = lock

    def _state(self) -> tuple[Snapshot, Approximate | None]:
        """The state to search, opened if need be."""
        with self._mutex:
            self._refuse_closed()
            if self._snapshot is None or self._snapshot.manifest is not self._manifest:
                self._open()
            assert self._snapshot is not None
            return self._snapshot, self._approximate()

    def _open(self) -> None:
        """Open the newest state; segments that are open already are kept."""
        visit = partial(open_snapshot, self.folder, open_before=self._snapshot, hash_limit=self._hash_limit)
        self._manifest, self._snapshot = read_state(self.folder, visit)

    def _approximate(self) -> Approximate | None:
        """The cache that belongs to the state, if it is worth using."""
        manifest = self._manifest
        if self._cache[0] != manifest.content_hash:
            self._cache = (manifest.content_hash, approximate.load(self.folder, manifest.content_hash))
        cache = self._cache[1]
        return cache if cache is not None and cache.settings.probes else None

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SkyPartError(f"the store {self.folder} was closed; open it again")
