"""Distance of the matches from the true positions: SDM@K and MA@m of DenseUAV."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.geo.geodesy import haversine_m

SdmMode: TypeAlias = Literal["official", "exact"]
DECAY = 5_000.0
"""SDM's decay per degree."""
_CHUNK = 4_096


def sdm(
    query_lonlat: ArrayLike,
    gallery_lonlat: ArrayLike,
    ranking: ArrayLike,
    ks: Sequence[int],
    mode: SdmMode = "official",
) -> dict[str, float]:
    """SDM@K in percent for each K of `ks`: keys `SDM@K`.

    query_lonlat (q, 2) and gallery_lonlat (g, 2): degrees, longitude first. ranking (q, >= max K): gallery
    indices, best first. mode `official` stores degrees in float32, as DenseUAV's code does, which quantises
    them (7.6e-6 degrees at 120 E); `exact` uses float64.
    """
    each = sdm_of_queries(query_lonlat, gallery_lonlat, ranking, ks, mode)
    return {f"SDM@{k}": float(100.0 * column.mean()) for k, column in zip(ks, each.T, strict=True)}


def sdm_of_queries(
    query_lonlat: ArrayLike,
    gallery_lonlat: ArrayLike,
    ranking: ArrayLike,
    ks: Sequence[int],
    mode: SdmMode = "official",
) -> NDArray[np.float64]:
    """SDM@K of each query, (q, len(ks)) in 0..1; arguments as for `sdm`."""
    if mode not in ("official", "exact"):
        raise SkyPartError(f"unknown SDM mode {mode!r}; choose official or exact")
    query, gallery, ranked = _validate(query_lonlat, gallery_lonlat, ranking)
    deepest = max(ks, default=0)
    if any(k < 1 for k in ks) or deepest > ranked.shape[1]:
        raise SkyPartError(f"SDM@{deepest} needs {deepest} ranked images per query, the ranking has {ranked.shape[1]}")
    dtype = np.float32 if mode == "official" else np.float64
    query, gallery = query.astype(dtype), gallery.astype(dtype)
    found = np.empty((len(query), len(ks)))
    for first in range(0, len(query), _CHUNK):
        rows = slice(first, first + _CHUNK)
        offset = (gallery[ranked[rows, :deepest]] - query[rows, None]).astype(np.float64)
        closeness = np.exp(-DECAY * np.hypot(offset[..., 0], offset[..., 1]))
        for i, k in enumerate(ks):
            weight = np.arange(k, 0, -1, dtype=np.float64)
            found[rows, i] = closeness[:, :k] @ weight / weight.sum()
    return found


def meter_accuracy(
    query_lonlat: ArrayLike,
    gallery_lonlat: ArrayLike,
    ranking: ArrayLike,
    metres: Sequence[float] = (5, 10, 20, 50),
) -> dict[str, float]:
    """Percentage of queries whose first match is closer than each of `metres`: keys `MA@5m` ..."""
    errors = match_errors(query_lonlat, gallery_lonlat, ranking)
    return {f"MA@{m:g}m": float(100.0 * np.count_nonzero(errors < m) / len(errors)) for m in metres}


def match_errors(query_lonlat: ArrayLike, gallery_lonlat: ArrayLike, ranking: ArrayLike) -> NDArray[np.float64]:
    """(q,) distance in metres from each query to its first match."""
    query, gallery, ranked = _validate(query_lonlat, gallery_lonlat, ranking)
    return haversine_m(query, gallery[ranked[:, 0]])


def _validate(
    query: Any, gallery: Any, ranking: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    positions = [
        np.asarray(v.detach().cpu() if hasattr(v, "detach") else v, dtype=np.float64) for v in (query, gallery)
    ]
    for name, position in zip(("query", "gallery"), positions, strict=True):
        if position.ndim != 2 or position.shape[1] != 2 or len(position) == 0:
            raise SkyPartError(f"{name} positions must be (images, 2) degrees, longitude first, not {position.shape}")
    ranked = np.asarray(ranking.detach().cpu() if hasattr(ranking, "detach") else ranking, dtype=np.int64)
    if ranked.ndim != 2 or len(ranked) != len(positions[0]) or ranked.shape[1] == 0:
        raise SkyPartError(f"the ranking must be ({len(positions[0])} queries, K or more), not {ranked.shape}")
    if ranked.min() < 0 or ranked.max() >= len(positions[1]):
        raise SkyPartError(f"the ranking points outside the {len(positions[1])} gallery images")
    return positions[0], positions[1], ranked
