"""A view store in memory: the worked example of docs/extending.md. Stores of one process share views by address."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.maps.store import (
    Hit,
    Store,
    StoreBase,
    StoreModel,
    StoreStats,
    ViewBatch,
    Within,
    check_queries,
    is_inside,
)


class View(NamedTuple):
    row: int
    map_name: str
    vector: NDArray[np.float16]
    footprint: Footprint


COMMITTED: dict[str, tuple[View, ...]] = {}
MODELS: dict[str, StoreModel] = {}
NEXT_ROW: Counter[str] = Counter()  # survives removals: row numbers are never reused


def open_memory(address: str, folder: Path, check: bool) -> Store:
    return MemoryStore(address)  # such as memory:town; it needs no folder, and has nothing to check


class MemoryStore(StoreBase):
    def __init__(self, address: str) -> None:
        self._address = address
        self._views = COMMITTED.get(address, ())
        self._staged: tuple[View, ...] | None = None

    @property
    def location(self) -> str:
        return self._address

    @property
    def model(self) -> StoreModel | None:
        return MODELS.get(self.location)

    def record_model(self, model: StoreModel) -> None:
        MODELS[self.location] = model

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._check_open()
        if self._staged is not None:  # nested: the outermost transaction commits
            yield
            return
        self._staged = COMMITTED.get(self.location, ())
        try:
            yield
            COMMITTED[self.location] = self._views = self._staged
        finally:
            self._staged = None

    def add(self, batch: ViewBatch) -> None:
        with self.transaction():
            assert self._staged is not None
            if self._staged and len(self._staged[0].vector) != batch.vectors.shape[1]:
                raise SkyPartError(f"{self.location}: has views of another dimension; use one model for all maps")
            for vector, (latitude, longitude, metres, rotation) in zip(batch.vectors, batch.footprints, strict=True):
                footprint = Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation)
                self._staged += (View(NEXT_ROW[self.location], batch.map_name, vector, footprint),)
                NEXT_ROW[self.location] += 1

    def remove(self, map_name: str) -> int:
        with self.transaction():
            assert self._staged is not None
            before = len(self._staged)
            self._staged = tuple(view for view in self._staged if view.map_name != map_name)
            return before - len(self._staged)

    def search(
        self, queries: ArrayLike, k: int, within: Within | None = None, *, exact: bool = False
    ) -> list[list[Hit]]:
        self._check_open()
        rows = check_queries(queries, k, self.stats().dimension).astype(np.float64)
        latitude = np.array([view.footprint.latitude for view in self._views])
        longitude = np.array([view.footprint.longitude for view in self._views])
        inside = within is None or is_inside(within, latitude=latitude, longitude=longitude)
        views = [self._views[i] for i in np.flatnonzero(np.broadcast_to(inside, len(self._views)))]
        found = [
            [
                Hit(map_name=v.map_name, footprint=v.footprint, score=float((v.vector * row).sum()), row=v.row)
                for v in views
            ]
            for row in rows
        ]
        return [sorted(hits, key=lambda hit: (-hit.score, hit.row))[:k] for hits in found]

    def stats(self) -> StoreStats:
        dimension = len(self._views[0].vector) if self._views else 0
        maps = dict(Counter(view.map_name for view in self._views))
        size = len(self._views) * (2 * dimension + 32)
        return StoreStats(views=len(self._views), dimension=dimension, segments=len(maps), bytes=size, maps=maps)

    def optimize(self, sample: NDArray[np.float32] | None = None) -> float | None:
        return None  # searches stay exact

    def verify(self) -> None:
        for view in self._views:
            if abs(np.linalg.norm(view.vector.astype(np.float64)) - 1) > 0.01:
                raise SkyPartError(f"{self.location}: row {view.row} of {view.map_name} is damaged; index it again")

    def refresh(self) -> bool:
        before, self._views = self._views, COMMITTED.get(self.location, ())
        return self._views is not before
