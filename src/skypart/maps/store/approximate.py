"""A cache that makes large stores fast: an inverted file of 4-bit codes (FAISS IVF, product quantizer, fast scan).

A search compares the query with the codes of the views around the nearest centroids, and scores the most promising
views exactly, from the store. How many centroids and views is tuned when the cache is built, so that 99 % of the exact
ten best are found. The cache belongs to one state of the store. Without it searches are exact, and slower.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import faiss
import numpy as np
from numpy.typing import NDArray

from skypart.atomic import atomic_path, write_text
from skypart.errors import SkyPartError
from skypart.maps.store.exact import Ranking, search_exact
from skypart.maps.store.interface import Hit, Within
from skypart.maps.store.snapshot import StoreSnapshot
from skypart.progress import with_progress

MIN_VIEWS = 200_000
"""Number of views from which a cache is built."""
MIN_RECALL = 0.99
"""Share of the exact ten best that must be found."""
CODES, SETTINGS = "approximate.faiss", "approximate.json"
_MARGIN = 0.003
"""Added to MIN_RECALL when tuning, because the recall of other queries may be a little lower than the sample's."""
_NEIGHBOURS = 10
_SAMPLE = 512
_SIMILARITY = 0.6
"""Cosine between a stored view and the query synthesised from it: a pessimistic guess for a photo of the place."""
_WIDTHS = (50, 100, 200, 400, 800, 1600, 3200)
_RESCORE_COST = 50
"""Scoring a view exactly takes as long as comparing this many codes."""
_BLOCK = 16_384
_NOT_FOUND = 1 << 30
Queries: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class CacheSettings:
    """The tuned search.

    state: content hash of the store that the cache belongs to. sha256: of the file of codes. probes: centroids visited
    per query; 0 if no setting reaches the recall. width: views scored exactly when ten are asked for. recall: recall@10
    of the tuning sample.
    """

    state: str
    sha256: str
    probes: int
    width: int
    recall: float


@dataclass(frozen=True, eq=False)
class ApproximateIndex:
    """A cache in memory. codes: the FAISS index."""

    codes: Any
    settings: CacheSettings

    def search(self, snapshot: StoreSnapshot, queries: Queries, k: int) -> list[Ranking]:
        """As `search_exact`, among the most promising views; exact where there are fewer of them than `k`."""
        width = -(-self.settings.width * max(k, _NEIGHBOURS) // _NEIGHBOURS)
        results: list[Ranking] = []
        for query, places in zip(queries, _candidates(self.codes, queries, self.settings.probes, width), strict=True):
            found = np.sort(places[places >= 0])
            results += search_exact(snapshot, query[None], k, found if len(found) >= k else None)
        return results


def search_snapshot(
    snapshot: StoreSnapshot,
    cache: ApproximateIndex | None,
    queries: Queries,
    k: int,
    within: Within | None = None,
    *,
    exact: bool = False,
) -> list[list[Hit]]:
    """The best `k` views for each of (q, d) queries, best first. The cache serves searches of the whole store.

    within: search only views whose centre lies in this area. exact: do without the cache.
    """
    if within is not None:
        found = search_exact(snapshot, queries, k, snapshot.positions_within(within))
    elif cache is not None and not exact:
        found = cache.search(snapshot, queries, k)
    else:
        found = search_exact(snapshot, queries, k)
    return [snapshot.hits(positions, scores) for positions, scores in found]


def _candidates(codes: Any, queries: Queries, probes: int, width: int) -> NDArray[np.int64]:
    """(q, width) positions of the most promising views, best first, padded with -1."""
    parameters: Any = faiss.SearchParametersIVF()
    parameters.nprobe = probes
    places: NDArray[np.int64] = codes.search(queries, min(width, codes.ntotal), params=parameters)[1]
    return places


def build_cache(folder: Path, snapshot: StoreSnapshot, state: str, sample: Queries | None = None) -> None:
    """Encode all views, tune, and write the cache for the store's `state`.

    sample (s, d): real queries to tune with; by default they are synthesised from stored views.
    """
    rng = np.random.default_rng(0)
    codes = _encode_views(snapshot, rng)
    samples = [sample] if sample is not None else _synthetic_queries(snapshot, rng)
    probes, width, recall = _tune(snapshot, codes, [np.ascontiguousarray(each, dtype=np.float32) for each in samples])
    with atomic_path(folder / CODES) as temporary:
        try:
            faiss.write_index(codes, str(temporary))
        except RuntimeError as error:  # FAISS raises this for a full disk
            raise SkyPartError(
                f"cannot write {folder / CODES}: the disk is full or not writable; free disk space and run the same "
                "command again"
            ) from error
        with temporary.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    write_text(
        folder / SETTINGS, json.dumps(asdict(CacheSettings(state, digest, probes, width, recall)), indent=1) + "\n"
    )


def load_cache(folder: Path, state: str) -> ApproximateIndex | None:
    """The cache for the store's `state`; None if there is none, or if it is damaged or belongs to another state."""
    try:
        return parse_cache((folder / SETTINGS).read_bytes(), lambda _: (folder / CODES).read_bytes(), state)
    except OSError:
        return None


def parse_cache(content: bytes, read_codes: Callable[[str], bytes], state: str) -> ApproximateIndex | None:
    """The cache that the content of its file of settings describes. read_codes: returns the codes, given their SHA-256.

    None if it is damaged or belongs to another state of the store.
    """
    try:
        settings = CacheSettings(**json.loads(content))
    except (ValueError, TypeError):
        return None
    if settings.state != state:
        return None
    content = read_codes(settings.sha256)
    if hashlib.sha256(content).hexdigest() != settings.sha256:
        return None
    return ApproximateIndex(faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8)), settings)


def _encode_views(snapshot: StoreSnapshot, rng: np.random.Generator) -> Any:
    """A FAISS index with about sqrt(n) centroids and a 4-bit code for every 4 values (or 3, 2, 1, as divides d)."""
    count = max(1, round(len(snapshot) ** 0.5))
    dimension = snapshot.dimension
    pieces = dimension // next(size for size in (4, 3, 2, 1) if dimension % size == 0)
    codes: Any = faiss.index_factory(dimension, f"IVF{count},PQ{pieces}x4fs", faiss.METRIC_INNER_PRODUCT)
    some = np.sort(rng.choice(len(snapshot), min(len(snapshot), 64 * count), replace=False))
    codes.train(snapshot.vectors(some).astype(np.float32))
    for first in with_progress(range(0, len(snapshot), _BLOCK), "encoding views"):
        places = np.arange(first, min(first + _BLOCK, len(snapshot)))
        codes.add(snapshot.vectors(places).astype(np.float32))
    return codes


def _synthetic_queries(snapshot: StoreSnapshot, rng: np.random.Generator) -> list[Queries]:
    """Two samples of queries: stored views, and stored views mixed with noise and other views in equal parts."""
    count = min(len(snapshot), _SAMPLE)
    some, others = (np.sort(rng.choice(len(snapshot), count, replace=False)) for _ in range(2))
    plain = snapshot.vectors(some).astype(np.float32)
    noise = rng.standard_normal(plain.shape, dtype=np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    noise += rng.permutation(snapshot.vectors(others)).astype(np.float32)
    noise -= np.einsum("ij,ij->i", noise, plain)[:, None] * plain
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return [plain, np.float32(_SIMILARITY) * plain + np.float32((1 - _SIMILARITY**2) ** 0.5) * noise]


def _tune(snapshot: StoreSnapshot, codes: Any, samples: list[Queries]) -> tuple[int, int, float]:
    """(probes, width, recall) of the cheapest search that reaches the recall for all samples; 0 probes if none does."""
    best, best_cost = (0, 0, 0.0), float("inf")
    truth = [np.stack([places for places, _ in search_exact(snapshot, queries, _NEIGHBOURS)]) for queries in samples]
    for probes in _doubling(codes.nlist):
        found = [_candidates(codes, queries, probes, max(_WIDTHS)) for queries in samples]
        ranks = [_ranks(*pair) for pair in zip(truth, found, strict=True)]
        for width in _WIDTHS:
            recall = min(float(np.mean(rank < width)) for rank in ranks)
            cost = probes / codes.nlist * len(snapshot) + _RESCORE_COST * width
            if recall >= MIN_RECALL + _MARGIN and cost < best_cost:
                best, best_cost = (probes, width, recall), cost
    return best


def _doubling(last: int) -> Iterator[int]:
    """1, 2, 4, ... last."""
    step = 1
    while step < last:
        yield step
        step *= 2
    yield last


def _ranks(truth: NDArray[np.int64], found: NDArray[np.int64]) -> NDArray[np.int64]:
    """(q, 10) index among (q, width) found positions of each true neighbour; a large number if it was not found."""
    same = truth[:, :, None] == found[:, None, :]
    ranks: NDArray[np.int64] = np.where(same.any(axis=2), same.argmax(axis=2), _NOT_FOUND)
    return ranks
