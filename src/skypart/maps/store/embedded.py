"""The store without a server: one folder of segments, and a manifest that names them."""

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.maps.store import approximate
from skypart.maps.store.approximate import ApproximateIndex, search_snapshot
from skypart.maps.store.interface import Hit, Store, StoreModel, StoreStats, ViewBatch, Within, check_queries
from skypart.maps.store.manifest import (
    MANIFEST,
    StoreManifest,
    read_manifest,
    read_model,
    write_manifest,
    write_model,
)
from skypart.maps.store.snapshot import StoreSnapshot, check_file_sizes, find_damage, open_snapshot, read_state
from skypart.maps.store.staged import StagedStore
from skypart.maps.store.writer import delete_unused_files, write_batch

HASH_LIMIT = 2 << 30
"""Total bytes of vectors up to which opening compares every SHA-256 (about 0.8 s per gigabyte). Above it, only sizes
and the SHA-256 of footprints are compared; `verify` compares everything."""


def open_embedded(address: str, folder: Path, check: bool) -> Store:
    """Open the store in `folder`; the address `embedded:` has no further parts."""
    if address != "embedded:":
        raise SkyPartError(f"{folder}: the store address {address!r} must be just 'embedded:'; correct it")
    return EmbeddedStore(folder, check=check)


class EmbeddedStore(StagedStore[StoreManifest]):
    """Views in one folder, which the first change creates; see `Store` for the methods.

    Any number of processes may read while one writes: the first change makes this object the writer until `close`.
    check: report missing or truncated files when opening; without, `remove` can repair a damaged store.
    """

    def __init__(self, folder: str | Path, *, check: bool = True, hash_limit: int = HASH_LIMIT) -> None:
        super().__init__(Path(folder))
        self._hash_limit = hash_limit
        self._snapshot: StoreSnapshot | None = None
        self._cache: tuple[str, ApproximateIndex | None] = ("", None)
        self._manifest = read_manifest(self.folder)
        if check:
            self._manifest, _ = read_state(self.folder, partial(check_file_sizes, self.folder))

    @property
    def location(self) -> str:
        """The store's folder."""
        return str(self.folder)

    @property
    def model(self) -> StoreModel | None:
        """The recorded model; None in a store that a version before 0.3 wrote."""
        return read_model(self.folder)

    def record_model(self, model: StoreModel) -> None:
        """Write the model's name and digest beside the manifest, where a published copy has them too."""
        with self.transaction():
            if read_model(self.folder) != model:
                write_model(self.folder, model)

    def add(self, batch: ViewBatch) -> None:
        """Add views to a map; on disk when this returns, or when the enclosing transaction ends."""
        with self.transaction():
            assert self._staged is not None
            self._staged = write_batch(self.folder, self._staged, batch)

    def remove(self, map_name: str) -> int:
        """Delete a map. Returns the number of its views, 0 if there is no map of that name."""
        with self.transaction():
            assert self._staged is not None
            removed = [record for record in self._staged.segments if record.map_name == map_name]
            kept = tuple(record for record in self._staged.segments if record not in removed)
            dimension = self._staged.dimension if kept else 0  # an empty store accepts views of any model
            self._staged = self._staged.model_copy(update={"segments": kept, "dimension": dimension})
        return sum(record.views for record in removed)

    def search(
        self, queries: ArrayLike, k: int, within: Within | None = None, *, exact: bool = False
    ) -> list[list[Hit]]:
        """The best `k` views for each of (q, d) queries, best first; equal scores are ordered by row.

        within: search only views whose centre lies in this area; always exact. exact: do not use the approximate cache.
        """
        snapshot, cache = self._open_state()
        rows = check_queries(queries, k, snapshot.dimension)
        snapshot.check_sizes()
        return search_snapshot(snapshot, cache, rows, k, within, exact=exact)

    def snapshot(self) -> StoreSnapshot:
        """The state that searches see, for copying it."""
        return self._open_state()[0]

    def stats(self) -> StoreStats:
        """What the store holds."""
        with self._mutex:
            manifest, cache = self._manifest, self._current_cache()
        return manifest.stats(None if cache is None else cache.settings.recall)

    def optimize(self, sample: NDArray[np.float32] | None = None) -> float | None:
        """Build the approximate cache if the store has 200,000 views or more; see `Store.optimize`.

        Any later change makes searches exact again until this is called again. If no setting reaches a recall of 99 %,
        searches stay exact. A smaller store is left untouched, and its lock is not taken.
        """
        with self._mutex:
            self._check_open()
            if self._manifest.views < approximate.MIN_VIEWS:
                return None
            self._become_writer()
            snapshot, _ = self._open_state()
            if len(snapshot) < approximate.MIN_VIEWS:  # another writer has removed views since this store was opened
                return None
            state = self._manifest.content_hash
            if sample is not None or approximate.load_cache(self.folder, state) is None:
                approximate.build_cache(self.folder, snapshot, state, sample)
                self._cache = ("", None)
            cache = self._current_cache()
            return None if cache is None else cache.settings.recall

    def refresh(self) -> bool:
        """Switch to the newest state that other writers have committed. Returns whether there was a newer one."""
        with self._mutex:
            if read_manifest(self.folder) == self._manifest:
                return False
            self._open_snapshot()
            return True

    def verify(self) -> None:
        """Read every file and compare it with its SHA-256; the error names all damaged files."""
        _, problems = read_state(self.folder, partial(find_damage, self.folder))
        if problems:
            raise SkyPartError("\n".join(problems))

    def _committed(self) -> StoreManifest:
        return self._manifest

    def _commit(self, state: StoreManifest) -> None:
        write_manifest(self.folder, state)

    def _prepare_to_write(self) -> None:
        self._manifest = read_manifest(self.folder)
        if not (self.folder / MANIFEST).exists():
            write_manifest(self.folder, self._manifest)
        delete_unused_files(self.folder, self._manifest)

    def _end_transaction(self) -> None:
        self._manifest = read_manifest(self.folder)  # what is on disk counts, even after an interrupt
        delete_unused_files(self.folder, self._manifest)

    def _release(self) -> None:
        """Files are unmapped as soon as no search uses them."""
        self._snapshot, self._cache = None, ("", None)

    def _open_state(self) -> tuple[StoreSnapshot, ApproximateIndex | None]:
        """The state to search, opened if it is not open yet."""
        with self._mutex:
            self._check_open()
            if self._snapshot is None or self._snapshot.manifest is not self._manifest:
                self._open_snapshot()
            assert self._snapshot is not None
            return self._snapshot, self._current_cache()

    def _open_snapshot(self) -> None:
        """Open the newest state; segments that are already open are reused."""
        visit = partial(open_snapshot, self.folder, previous=self._snapshot, hash_limit=self._hash_limit)
        self._manifest, self._snapshot = read_state(self.folder, visit)

    def _current_cache(self) -> ApproximateIndex | None:
        """The cache that belongs to the current state, if it reaches the recall."""
        state = self._manifest.content_hash
        if self._cache[0] != state:
            self._cache = (state, approximate.load_cache(self.folder, state))
        cache = self._cache[1]
        return cache if cache is not None and cache.settings.probes else None
