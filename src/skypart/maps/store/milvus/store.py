"""A store in Milvus.

Views are entities of one collection; a second, small collection holds the committed state: which ranges of rows belong
to which map. A commit is one entity of that collection, written last. Every search is limited to the rows of one
committed state, so views of unfinished or rolled back work are never found. The next writer deletes them.
"""

import json
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.maps.store.area import area_box, check_area, is_inside
from skypart.maps.store.exact import rounding_error
from skypart.maps.store.interface import (
    Hit,
    Store,
    StoreModel,
    StoreStats,
    ViewBatch,
    Within,
    check_dimension,
    check_queries,
)
from skypart.maps.store.milvus.address import Layout, MilvusAddress, parse_address
from skypart.maps.store.milvus.client import Connection
from skypart.maps.store.milvus.collection import Area, ViewCollection, ViewTable, digest
from skypart.maps.store.milvus.state import Batch, State, StateCollection
from skypart.maps.store.staged import StagedStore

OWNER_FILE = "milvus.json"
MAX_HITS = 16_384
"""Milvus returns no more than this many hits per query."""
EXACT_AREA = 20_000
"""With an approximate index, areas of up to this many views are still searched exactly, by fetching them."""


def open_milvus(address: str, folder: Path, check: bool) -> Store:
    """Open the store at `address`. folder: keeps the writer's lock, and the id of the collection."""
    return MilvusStore(parse_address(address), folder, check=check)


class MilvusStore(StagedStore[State]):
    """Views in a Milvus collection; see `Store` for the methods.

    Rows of a removed map are deleted by the next writer: a store object that still searches the state before must
    `refresh` by then.
    """

    def __init__(self, address: MilvusAddress, folder: Path, *, check: bool = True) -> None:
        super().__init__(folder)
        self._address = address
        self._connection = Connection(address)
        self._views = ViewCollection(self._connection)
        self._states = StateCollection(self._connection)
        self._counted = -1  # version of the last state that was found complete
        try:
            self._state = self._read_state()
            if check:
                self._check_owner()
        except BaseException:
            self._connection.close()
            raise

    @property
    def location(self) -> str:
        """The address, without credentials."""
        return self._address.shown

    @property
    def model(self) -> StoreModel | None:
        """The model of the committed state; None if a version of SkyPart before 0.3 wrote it."""
        return self._state.model

    def record_model(self, model: StoreModel) -> None:
        """Make the model part of the state; it is committed with the enclosing transaction."""
        with self.transaction():
            assert self._staged is not None
            self._staged = replace(self._staged, model=model)

    def add(self, batch: ViewBatch) -> None:
        """Insert views; committed when this returns, or when the enclosing transaction ends."""
        with self.transaction():
            assert self._staged is not None
            count, dimension = batch.vectors.shape
            if not count:
                return
            check_dimension(batch, self._staged.dimension, self.location)
            if not self._staged.batches:
                self._make_collection(dimension)
            first = self._staged.next_row
            self._views.insert(batch, first, self._layout(self._staged))
            hashed = digest(ViewTable(np.arange(count), batch.footprints, batch.vectors))
            batches = (*self._staged.batches, Batch(batch.map_name, first, count, hashed))
            self._staged = replace(self._staged, next_row=first + count, batches=batches)

    def remove(self, map_name: str) -> int:
        """Take a map out of the state. Returns the number of its views, 0 if there is no map of that name."""
        with self.transaction():
            assert self._staged is not None
            removed = self._staged.maps.get(map_name, 0)
            kept = tuple(batch for batch in self._staged.batches if batch.map_name != map_name)
            self._staged = replace(self._staged, batches=kept, dimension=self._staged.dimension if kept else 0)
        return removed

    def search(
        self, queries: ArrayLike, k: int, within: Within | None = None, *, exact: bool = False
    ) -> list[list[Hit]]:
        """The best `k` views for each of (q, d) queries, best first; equal scores are ordered by row.

        Exact with the index type FLAT. With others, `exact` and areas of up to EXACT_AREA views fetch the views.
        """
        with self._mutex:
            self._check_open()
            state = self._state
        rows = check_queries(queries, k, state.dimension)
        if within is not None:
            check_area(within)
        if not state.batches:
            return [[] for _ in rows]
        self._views.load()
        self._check_complete(state)
        layout = self._layout(state)
        area = Area(state.filter())
        if within is not None:
            area = self._views.area(area.filter, area_box(within), layout)
        count = state.views if within is None else self._views.count(area)
        if not count:
            return [[] for _ in rows]
        if not layout.is_exact and (exact or (within is not None and count <= EXACT_AREA)):
            fetched = self._views.fetch(area, state.dimension)
            return [_rank(state, row, k, within, fetched) for row in rows]
        return [self._search_engine(state, row, k, within, area, count) for row in rows]

    def stats(self) -> StoreStats:
        """What the store holds; the size is that of the vectors and footprints."""
        with self._mutex:
            state = self._state
        width = (2 if self._layout(state).half else 4) * state.dimension + 32
        return StoreStats(
            views=state.views,
            dimension=state.dimension,
            segments=len(state.batches),
            bytes=state.views * width,
            maps=state.maps,
        )

    def optimize(self, sample: NDArray[np.float32] | None = None) -> float | None:
        """Load the collection, whose index Milvus builds by itself. With `sample`, return the measured recall@10."""
        with self._mutex:
            self._check_open()
            state = self._state
        if not state.batches:
            return None
        self._views.load()
        if self._layout(state).is_exact or sample is None:
            return None
        truth = self.search(sample, 10, exact=True)
        found = self.search(sample, 10)
        shared = [len({h.row for h in a} & {h.row for h in b}) for a, b in zip(truth, found, strict=True)]
        return sum(shared) / max(1, sum(len(hits) for hits in truth))

    def verify(self) -> None:
        """Fetch every view and compare it with the digest of its batch; the error names all damaged maps."""
        with self._mutex:
            self._check_open()
            state = self._state
        problems = []
        self._views.load()
        for batch in state.batches:
            found = self._views.fetch(Area(batch.filter), state.dimension)
            if len(found.rows) != batch.count or digest(found) != batch.digest:
                problems.append(
                    f"{self.location}: the views of {batch.map_name} are damaged or incomplete ({len(found.rows):,} "
                    f"of {batch.count:,} found); restore the collection from a backup, or remove the map and index it "
                    "again"
                )
        if problems:
            raise SkyPartError("\n".join(problems))

    def refresh(self) -> bool:
        """Switch to the newest committed state. Returns whether there was a newer one."""
        with self._mutex:
            self._check_open()
            newest = self._read_state()
            changed = newest.version != self._state.version
            self._state = newest
            return changed

    def _layout(self, state: State) -> Layout:
        """How the collection was made, for all that the state knows."""
        return state.layout or self._address.layout

    def _read_state(self) -> State:
        """The newest committed state, whose collection has the layout that the address asks for."""
        state = self._states.read()
        if state.batches and state.layout is not None:
            self._address.check_layout(state.layout)
        return state

    def _committed(self) -> State:
        return self._state

    def _commit(self, state: State) -> None:
        if self._states.read().version != self._state.version:
            raise SkyPartError(f"{self.location}: another process has changed this collection; run the command again")
        owner = self._owner() or uuid.uuid4().hex
        if not self._owner():
            write_text(self.folder / OWNER_FILE, json.dumps({"owner": owner}) + "\n")
        state = replace(state, version=self._state.version + 1, owner=owner)
        self._views.flush()
        self._states.write(state)
        self._state = state
        self._states.delete_before(state.version)

    def _prepare_to_write(self) -> None:
        self._state = self._read_state()
        self._check_owner()
        self._states.create()  # before any view: a collection without a state is not ours
        if not self._state.batches:
            self._views.drop()
        elif self._views.exists():
            self._views.load()
            for gap in self._state.gaps():
                self._views.delete(gap)

    def _release(self) -> None:
        self._connection.close()

    def _make_collection(self, dimension: int) -> None:
        """Make the collection for the first views of a state. The views of the state before may still be needed."""
        assert self._staged is not None
        layout = self._address.layout
        if not self._state.batches:
            self._views.drop()
            self._views.create(dimension, layout)
        elif dimension == self._state.dimension:
            layout = self._layout(self._state)
        else:
            raise SkyPartError(
                f"{self.location}: holds views of dimension {self._state.dimension} until their removal is committed; "
                f"add views of dimension {dimension} in a transaction of its own"
            )
        self._staged = replace(self._staged, dimension=dimension, layout=layout)

    def _owner(self) -> str:
        """The id of the collection that belongs to this index; '' if there is none yet."""
        file = self.folder / OWNER_FILE
        try:
            return str(json.loads(file.read_text(encoding="utf-8"))["owner"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SkyPartError(f"{file}: damaged ({error}); restore it from a backup") from error

    def _check_owner(self) -> None:
        """Raise if the collection belongs to another index, perhaps of another model, or lost its views."""
        owner = self._owner()
        if owner and self._state.owner and owner != self._state.owner:
            raise SkyPartError(
                f"{self.location}: contains the views of another index, perhaps of another model; give the store "
                "address that this index was made with"
            )
        if owner and not self._state.owner:
            raise SkyPartError(
                f"{self.location}: the collection of this index is gone; restore it from a backup, or delete the index "
                "and index the maps again"
            )

    def _check_complete(self, state: State) -> None:
        """Raise if views of a committed state are missing, as after a restore that was broken off; once per state."""
        if self._counted == state.version:
            return
        found = self._views.count(Area(state.filter())) if self._views.exists() else 0
        if found != state.views:
            raise SkyPartError(
                f"{self.location}: has {found:,} of its {state.views:,} views; wait until it is filled or restored "
                "completely, or index the maps again"
            )
        self._counted = state.version

    def _search_engine(
        self, state: State, query: NDArray[np.float32], k: int, within: Within | None, area: Area, count: int
    ) -> list[Hit]:
        """Candidates from the engine, scored again in float64; more of them while the answer is not certain."""
        width = 2 * k + 16
        while True:
            width = min(width, MAX_HITS, count)
            found, lowest = self._views.nearest(query, width, area, self._layout(state))
            hits = _rank(state, query, k, within, found)
            if len(found.rows) < width or width in (count, MAX_HITS):
                return hits
            if len(hits) == k and hits[-1].score > lowest + rounding_error(query):
                return hits
            width *= 8


def _rank(state: State, query: NDArray[np.float32], k: int, within: Within | None, found: ViewTable) -> list[Hit]:
    """The best `k` of some views by score in float64, then by row."""
    rows, footprints, vectors = found
    if within is not None and len(rows):
        inside = is_inside(within, latitude=footprints[:, 0], longitude=footprints[:, 1])
        rows, footprints, vectors = rows[inside], footprints[inside], vectors[inside]
    scores = np.einsum("ij,j->i", vectors.astype(np.float64), query.astype(np.float64))
    firsts = [batch.first for batch in state.batches]
    hits = []
    for place in np.lexsort((rows, -scores))[:k]:
        latitude, longitude, metres, rotation = footprints[place].tolist()
        owner = state.batches[int(np.searchsorted(firsts, rows[place], side="right")) - 1]
        hits.append(
            Hit(
                map_name=owner.map_name,
                footprint=Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation),
                score=float(scores[place]),
                row=int(rows[place]),
            )
        )
    return hits
