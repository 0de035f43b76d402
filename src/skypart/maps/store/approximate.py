"""A cache that makes large stores fast: which views lie near which of a few hundred centres (an inverted file).

A search then scores, exactly, only the views of the centres nearest to the query. How many centres that are is
measured when the cache is built, so that a search finds 99 % of the exact ten best. The cache holds no vectors, and
belongs to one state of the store; without it searches are exact and slower.
"""

from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.maps.store.exact import Found, search_exact
from skypart.maps.store.snapshot import Positions, Snapshot
from skypart.progress import track

FROM_VIEWS = 200_000
"""Views from which a cache is built."""
RECALL = 0.99
"""Share of the exact ten best that must be found; see `_MARGIN`."""
FILE = "approximate.npz"
_MARGIN = 0.003
"""What the tuned recall exceeds RECALL by: queries of another sample score a little lower."""
_NEIGHBOURS = 10
_SAMPLE = 512
_LIKENESS = 0.7
"""Cosine between a stored view and the noisy query made of it: a photo resembles its view no better."""
_MOST_SHARE = 0.25
"""Of all centres; if a query must look at more, the cache is not worth having."""
_BLOCK = 16_384


@dataclass(frozen=True, eq=False)
class Approximate:
    """centres (c, d) float32; order (n,): positions, grouped by centre, ascending within; starts (c + 1,).

    probes: centres a query looks at; recall: of the ten best, measured when it was built.
    """

    centres: NDArray[np.float32]
    order: Positions
    starts: NDArray[np.int64]
    probes: int
    recall: float

    @property
    def worthwhile(self) -> bool:
        """Whether it spares most of the work."""
        return self.probes <= _MOST_SHARE * len(self.centres)

    def search(self, snapshot: Snapshot, queries: NDArray[np.float32], k: int) -> list[Found]:
        """As `search_exact`, over the views of the nearest centres, or over all if these hold fewer than `k`."""
        results: list[Found] = []
        _, nearest = faiss.knn(queries, self.centres, self.probes, metric=faiss.METRIC_INNER_PRODUCT)
        for query, centres in zip(queries, nearest, strict=True):
            lists = [self.order[self.starts[c] : self.starts[c + 1]] for c in centres]
            positions = np.sort(np.concatenate(lists))
            some = positions if len(positions) >= k else None
            results += search_exact(snapshot, query[None], k, some)
        return results


def build(snapshot: Snapshot, sample: NDArray[np.float32] | None = None) -> Approximate:
    """Group all views around centres and tune the number of probes.

    sample (s, d): real queries to tune with; None takes stored views, half of them with noise.
    """
    rng = np.random.default_rng(0)
    centres = _centres(snapshot, rng)
    count = len(centres)
    owner = np.empty(len(snapshot), dtype=np.int64)
    blocks = range(0, len(snapshot), _BLOCK)
    for first in track(blocks, "grouping views"):
        places = np.arange(first, min(first + _BLOCK, len(snapshot)))
        rows = snapshot.vectors(places).astype(np.float32)
        owner[places] = faiss.knn(rows, centres, 1, metric=faiss.METRIC_INNER_PRODUCT)[1][:, 0]
    order = np.argsort(owner, kind="stable").astype(np.int64)
    starts = np.searchsorted(owner[order], np.arange(count + 1))
    kinds = [sample] if sample is not None else _sample(snapshot, rng)
    found = [_recalls(snapshot, queries, centres, owner) for queries in kinds]
    worst = np.minimum.reduce(found)
    enough = np.flatnonzero(worst >= RECALL + _MARGIN)
    probes = int(enough[0]) + 1
    return Approximate(centres, order, starts, probes, float(worst[probes - 1]))


def _centres(snapshot: Snapshot, rng: np.random.Generator) -> NDArray[np.float32]:
    """About sqrt(n) centres of length 1, by k-means over a sample."""
    count = max(1, round(len(snapshot) ** 0.5))
    some = np.sort(rng.choice(len(snapshot), min(len(snapshot), 64 * count), replace=False))
    means = faiss.Kmeans(
        snapshot.dimension,
        count,
        niter=10,
        spherical=True,
        seed=1,
        min_points_per_centroid=1,
        max_points_per_centroid=64,
    )
    means.train(snapshot.vectors(some).astype(np.float32))
    return np.ascontiguousarray(means.centroids, dtype=np.float32)


def _sample(snapshot: Snapshot, rng: np.random.Generator) -> list[NDArray[np.float32]]:
    """Queries like stored views, and queries that resemble one as a photo does."""
    some = np.sort(rng.choice(len(snapshot), min(len(snapshot), _SAMPLE), replace=False))
    plain = snapshot.vectors(some).astype(np.float32)
    noise = rng.standard_normal(plain.shape, dtype=np.float32)
    noise -= np.einsum("ij,ij->i", noise, plain)[:, None] * plain
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    noisy = _LIKENESS * plain + (1 - _LIKENESS**2) ** 0.5 * noise
    return [plain, noisy.astype(np.float32)]


def _recalls(
    snapshot: Snapshot, queries: NDArray[np.float32], centres: NDArray[np.float32], owner: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(c,) recall of the ten best when looking at 1, 2, ... c centres."""
    similarity = queries @ centres.T
    rank = np.empty(similarity.shape, dtype=np.int64)
    np.put_along_axis(rank, np.argsort(-similarity, axis=1, kind="stable"), np.arange(len(centres))[None], axis=1)
    needed = np.concatenate(
        [rank[i, owner[places]] for i, (places, _) in enumerate(search_exact(snapshot, queries, _NEIGHBOURS))]
    )
    return np.cumsum(np.bincount(needed, minlength=len(centres))) / len(needed)


def save(folder: Path, cache: Approximate, content_hash: str) -> None:
    """Write the cache of the store's state `content_hash`."""
    with atomic_path(folder / FILE) as temporary:
        np.savez(
            temporary,
            state=np.array(content_hash),
            centres=cache.centres,
            order=cache.order,
            starts=cache.starts,
            probes=np.array(cache.probes),
            recall=np.array(cache.recall),
        )


def load(folder: Path, content_hash: str, views: int, dimension: int) -> Approximate | None:
    """The cache of the state `content_hash`; None if there is none, or another state's, or a damaged one."""
    try:
        with np.load(folder / FILE, allow_pickle=False) as content:
            if str(content["state"]) != content_hash:
                return None
            cache = Approximate(
                content["centres"],
                content["order"],
                content["starts"],
                int(content["probes"]),
                float(content["recall"]),
            )
    except Exception:  # whatever numpy or zipfile find wrong with it: the cache is only there to save time
        return None
    fits = (
        cache.centres.shape == (len(cache.starts) - 1, dimension)
        and cache.order.shape == (views,)
        and (cache.starts[0], cache.starts[-1]) == (0, views)
    )
    return cache if fits else None
