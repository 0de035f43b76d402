"""The interface of a view store: what any engine must implement, and the types that go in and come out."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds, Footprint

COLUMNS = ("latitude", "longitude", "metres", "rotation")
"""Columns of a footprint table."""
_NORM_TOLERANCE = 0.01
_NORM_BLOCK = 8_192


@dataclass(frozen=True, kw_only=True)
class Circle:
    """All points within `radius_m` metres of a point in WGS 84 degrees, measured along the ellipsoid."""

    latitude: float
    longitude: float
    radius_m: float


Within: TypeAlias = Bounds | Circle
"""The area that the centre of a view must lie in."""


@dataclass(frozen=True, eq=False)
class ViewBatch:
    """Views of one map.

    vectors (n, d): float16 rows of length 1. footprints (n, 4): float64 columns latitude, longitude (of the centre,
    WGS 84 degrees), metres (edge) and rotation (compass degrees). Both are converted and validated.
    """

    map_name: str
    vectors: NDArray[np.float16]
    footprints: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Convert the arrays and reject invalid ones."""
        vectors = np.ascontiguousarray(self.vectors, dtype="<f2")
        footprints = np.ascontiguousarray(self.footprints, dtype="<f8")
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "footprints", footprints)
        if not self.map_name:
            raise SkyPartError("a map in a store needs a name; pass map_name")
        if vectors.ndim != 2 or vectors.shape[1] == 0 or footprints.shape != (len(vectors), len(COLUMNS)):
            raise SkyPartError(
                f"views of {self.map_name}: vectors {vectors.shape} and footprints {footprints.shape} must have the "
                "shapes (n, d) and (n, 4)"
            )
        if not np.all(np.abs(row_norms(vectors) - 1) < _NORM_TOLERANCE):  # also False for NaN
            raise SkyPartError(f"views of {self.map_name}: a vector does not have length 1; normalise the embeddings")
        latitude, _, metres, _ = footprints.T
        if not np.isfinite(footprints).all() or np.any(np.abs(latitude) > 90) or np.any(metres <= 0):
            raise SkyPartError(
                f"views of {self.map_name}: a footprint is invalid; latitudes must be in -90..90, metres above 0, and "
                "all values finite"
            )


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One view that a search found.

    score: dot product with the query, the cosine for unit vectors. row: number of the view, which never changes and is
    never reused.
    """

    map_name: str
    footprint: Footprint
    score: float
    row: int


@dataclass(frozen=True, kw_only=True)
class StoreStats:
    """What a store holds.

    dimension: of the vectors, 0 when the store is empty. segments: files or partitions, whatever the engine counts.
    bytes: size of the stored views. maps: number of views of each map. recall: measured recall@10 of searches without
    `within`; None where they are exact.
    """

    views: int
    dimension: int
    segments: int
    bytes: int
    maps: dict[str, int]
    recall: float | None = None


@dataclass(frozen=True)
class StoreModel:
    """The model that the views of a store were embedded with. digest: of its weights. name: as the user gave it."""

    digest: str
    name: str


class Store(Protocol):
    """Views of maps, searched by similarity and position; a context manager that closes the store.

    A store object searches one state: that of its first search, of its own last change, or of its last `refresh`. Rows
    are numbered in the order of adding. Errors that a user can fix are SkyPartError.
    """

    @property
    def location(self) -> str:
        """Where the views are stored, as error messages name it; without credentials."""

    @property
    def model(self) -> StoreModel | None:
        """The recorded model; None if the store does not know it."""

    def record_model(self, model: StoreModel) -> None:
        """Record the model that the views come from. Call this in the transaction that adds the first ones."""

    def add(self, batch: ViewBatch) -> None:
        """Add views to a map. They are stored durably when this returns, or when the enclosing transaction ends."""

    def remove(self, map_name: str) -> int:
        """Delete a map. Returns the number of its views, 0 if there is no map of that name."""

    def transaction(self) -> AbstractContextManager[None]:
        """Changes inside the block are committed together at its end; an exception discards all of them.

        Searches inside the block still answer from the state before it. Transactions nest: the outermost one commits.
        """

    def search(
        self, queries: ArrayLike, k: int, within: Within | None = None, *, exact: bool = False
    ) -> list[list[Hit]]:
        """The best `k` views for each of (q, d) queries, best first; equal scores are ordered by row.

        within: search only views whose centre lies in this area; always exact. exact: do not approximate.
        """

    def stats(self) -> StoreStats:
        """What the store holds."""

    def optimize(self, sample: NDArray[np.float32] | None = None) -> float | None:
        """Speed up later searches if the store is large enough for that to pay. Call this after changes.

        sample (s, d): real queries to tune with. Returns the recall@10 of approximate searches, None where searches
        stay exact.
        """

    def verify(self) -> None:
        """Check all stored data. Raises one error that names everything that is damaged."""

    def refresh(self) -> bool:
        """Switch to the newest state that other writers have committed. Returns whether there was a newer one."""

    def close(self) -> None:
        """Release locks and resources; the store cannot be used afterwards."""

    def __enter__(self) -> Self:
        """Returns the store itself."""

    def __exit__(self, *_: object) -> None:
        """Close the store."""


class StoreBase(ABC):
    """What the engines share: the context manager, the check for a closed store, and a store without a model."""

    _closed = False

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the views are stored, as error messages name it; without credentials."""

    @property
    def model(self) -> StoreModel | None:
        """The recorded model; None if the store does not know it."""
        return None

    def record_model(self, model: StoreModel) -> None:  # noqa: B027
        """Record the model that the views come from; an engine that cannot leaves this out."""

    def close(self) -> None:
        """Release locks and resources; the store cannot be used afterwards."""
        self._closed = True

    def __enter__(self) -> Self:
        """Returns the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    def _check_open(self) -> None:
        """Raise if the store is closed."""
        if self._closed:
            raise SkyPartError(f"the store {self.location} is closed; open it again")


def check_dimension(batch: ViewBatch, dimension: int, location: str) -> None:
    """Raise if the views of a batch do not have the dimension of those in the store; 0 accepts any."""
    found = batch.vectors.shape[1]
    if dimension not in (0, found):
        raise SkyPartError(
            f"views of {batch.map_name} have dimension {found} and those in {location} {dimension}; use one model for "
            "all maps of a store"
        )


def row_norms(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """(n,) lengths of (n, d) rows, in float32, computed block by block."""
    norms = np.empty(len(vectors), dtype=np.float32)
    for first in range(0, len(vectors), _NORM_BLOCK):
        block = vectors[first : first + _NORM_BLOCK].astype(np.float32)
        norms[first : first + _NORM_BLOCK] = np.sqrt(np.einsum("ij,ij->i", block, block))
    return norms


def check_queries(queries: ArrayLike, k: int, dimension: int) -> NDArray[np.float32]:
    """The queries as a float32 array (q, d); raises if they, or `k`, are invalid. dimension: 0 accepts any d."""
    rows = np.ascontiguousarray(queries, dtype=np.float32)
    if rows.ndim != 2:
        raise SkyPartError(f"queries must have the shape (queries, {dimension or 'd'}), not {rows.shape}")
    if dimension and rows.shape[1] != dimension:
        raise SkyPartError(
            f"queries have dimension {rows.shape[1]} and the stored views {dimension}; "
            "use the model the views were embedded with"
        )
    bad = np.flatnonzero(~np.isfinite(row_norms(rows)))
    if len(bad):
        raise SkyPartError(f"query {bad[0]} contains a value that is not finite; check the image it comes from")
    if k < 1:
        raise SkyPartError(f"cannot search for {k} views; ask for 1 or more")
    return rows
