"""What a store of views can do, and what goes in and comes out; any engine can stand behind it."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds, Footprint

COLUMNS = ("latitude", "longitude", "metres", "rotation")
"""Columns of a table of footprints."""
_NORM_TOLERANCE = 0.01


@dataclass(frozen=True, kw_only=True)
class Circle:
    """All points within `radius_m` metres of a point in WGS 84 degrees, along the ellipsoid."""

    latitude: float
    longitude: float
    radius_m: float


Within: TypeAlias = Bounds | Circle
"""Where the centre of a view must lie."""


@dataclass(frozen=True, eq=False)
class ViewBatch:
    """Views of one map.

    vectors (n, d): float16 rows of length 1. footprints (n, 4): float64 columns latitude, longitude (of the centre,
    WGS 84 degrees), metres (edge) and rotation (compass degrees). Both are converted and checked.
    """

    map_name: str
    vectors: NDArray[np.float16]
    footprints: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Refuse what could not be found again."""
        vectors = np.ascontiguousarray(self.vectors, dtype="<f2")
        footprints = np.ascontiguousarray(self.footprints, dtype="<f8")
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "footprints", footprints)
        if not self.map_name:
            raise SkyPartError("a map in a store needs a name; pass map_name")
        if vectors.ndim != 2 or vectors.shape[1] == 0 or footprints.shape != (len(vectors), len(COLUMNS)):
            raise SkyPartError(
                f"views of {self.map_name}: vectors {vectors.shape} and footprints {footprints.shape} must be (n, d) "
                "and (n, 4)"
            )
        if not np.all(np.abs(row_norms(vectors) - 1) < _NORM_TOLERANCE):  # also where a value is not a number
            raise SkyPartError(f"views of {self.map_name}: a vector is not of length 1; normalise the embeddings")
        latitude, _, metres, _ = footprints.T
        if not np.isfinite(footprints).all() or np.any(np.abs(latitude) > 90) or np.any(metres <= 0):
            raise SkyPartError(
                f"views of {self.map_name}: a footprint is not a place (latitude -90..90, metres > 0, all finite)"
            )


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One view that was found. score: dot product with the query, cosine for unit rows. row: its number for life."""

    map_name: str
    footprint: Footprint
    score: float
    row: int


@dataclass(frozen=True, kw_only=True)
class StoreStats:
    """What a store holds. dimension: 0 when empty. maps: views of each map. approximate: recall@10 of the cache that
    answers searches without an area, None where they are exact.
    """

    views: int
    dimension: int
    segments: int
    bytes: int
    maps: dict[str, int]
    approximate: float | None = None


class Store(Protocol):
    """Views of maps, found by likeness and place."""

    def add(self, batch: ViewBatch) -> None:
        """Keep views; when this returns they are there for good, and before that not at all."""

    def search(self, queries: ArrayLike, k: int, within: Within | None = None) -> list[list[Hit]]:
        """The best `k` views for each of (q, d) queries, best first, equal scores in the order of rows.

        within: only views whose centre lies there are scored.
        """

    def remove(self, map_name: str) -> int:
        """Forget a map; the number of its views, 0 if there is none of that name."""

    def stats(self) -> StoreStats:
        """How much there is."""


def row_norms(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """(n,) lengths of (n, d) rows, in float32, block by block."""
    norms = np.empty(len(vectors), dtype=np.float32)
    for first in range(0, len(vectors), 8_192):
        block = vectors[first : first + 8_192].astype(np.float32)
        norms[first : first + 8_192] = np.sqrt(np.einsum("ij,ij->i", block, block))
    return norms


def checked_queries(queries: ArrayLike, dimension: int) -> NDArray[np.float32]:
    """(q, d) queries as float32; a clear sentence where they are not that."""
    rows = np.ascontiguousarray(queries, dtype=np.float32)
    if rows.ndim != 2:
        raise SkyPartError(f"queries must be (queries, {dimension or 'd'}), not {rows.shape}")
    if dimension and rows.shape[1] != dimension:
        raise SkyPartError(
            f"queries have {rows.shape[1]} numbers and the stored views {dimension}; "
            "use the model the views were embedded with"
        )
    bad = np.flatnonzero(~np.isfinite(row_norms(rows)))
    if len(bad):
        raise SkyPartError(f"query {bad[0]} holds a value that is not a finite number; check the image it comes from")
    return rows
