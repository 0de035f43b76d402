"""A cache that makes large stores fast: an inverted file of 4-bit codes (FAISS IVF, product quantizer, fast scan).

A search looks at the codes of the views around the centres nearest to the query, and scores the most promising views
exactly, from the store. How many centres and views is measured when the cache is built, so that 99 % of the exact ten
best are found. The cache belongs to one state of the store; without it searches are exact and slower.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from skypart.atomic import atomic_path, write_text
from skypart.errors import SkyPartError
from skypart.maps.store.exact import Found, search_exact
from skypart.maps.store.snapshot import Snapshot
from skypart.progress import with_progress

FROM_VIEWS = 200_000
"""Views from which a cache is built."""
RECALL = 0.99
"""Share of the exact ten best that must be found."""
CODES, SETTINGS = "approximate.faiss", "approximate.json"
_MARGIN = 0.003
"""What the recall of the tuning sample exceeds RECALL by, since that of other queries may be a little lower."""
_NEIGHBOURS = 10
_SAMPLE = 512
_LIKENESS = 0.6
"""Cosine between a stored view and the query made of it: as little as a photo of the place may resemble it."""
_WIDTHS = (50, 100, 200, 400, 800, 1600, 3200)
_RESCORED_COST = 50
"""Scoring a view exactly takes as long as looking at this many codes."""
_BLOCK = 16_384
Queries = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """state: of the store that the cache belongs to; sha256: of the codes' file. probes: centres a query looks at.

    width: views scored exactly, when ten are asked for. recall: of the ten best, of the tuning sample.
    """

    state: str
    sha256: str
    probes: int
    width: int
    recall: float


@dataclass(frozen=True, eq=False)
class Approximate:
    """A cache in memory."""

    codes: Any
    settings: Settings

    def search(self, snapshot: Snapshot, queries: Queries, k: int) -> list[Found]:
        """As `search_exact`, among the most promising views; exact where these are fewer than `k`."""
        width = -(-self.settings.width * max(k, _NEIGHBOURS) // _NEIGHBOURS)
        results: list[Found] = []
        for query, places in zip(queries, _candidates(self.codes, queries, self.settings.probes, width), strict=True):
            found = np.sort(places[places >= 0])
            results += search_exact(snapshot, query[None], k, found if len(found) >= k else None)
        return results


def _candidates(codes: Any, queries: Queries, probes: int, width: int) -> NDArray[np.int64]:
    """(q, width) positions of the most promising views, best first, padded with -1."""
    asked: Any = faiss.SearchParametersIVF()
    asked.nprobe = probes
    places: NDArray[np.int64] = codes.search(queries, min(width, codes.ntotal), params=asked)[1]
    return places


def build(folder: Path, snapshot: Snapshot, state: str, sample: Queries | None = None) -> None:
    """Encode all views, tune, and write the cache for the store's `state`.

    sample (s, d): real queries to tune with; None makes some of stored views.
    """
    rng = np.random.default_rng(0)
    codes = _encoded(snapshot, rng)
    kinds = [sample] if sample is not None else _sample(snapshot, rng)
    probes, width, recall = _tuned(snapshot, codes, [np.ascontiguousarray(kind, dtype=np.float32) for kind in kinds])
    with atomic_path(folder / CODES) as temporary:
        try:
            faiss.write_index(codes, str(temporary))
        except RuntimeError as error:  # what FAISS makes of a full disk
            raise SkyPartError(
                f"cannot write {folder / CODES}: the disk is full or may not be written; free it and run the same "
                "command again"
            ) from error
        with temporary.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    write_text(folder / SETTINGS, json.dumps(asdict(Settings(state, digest, probes, width, recall)), indent=1) + "\n")


def load(folder: Path, state: str) -> Approximate | None:
    """The cache of the store's `state`; None if there is none, or another state's, or a damaged one."""
    try:
        settings = Settings(**json.loads((folder / SETTINGS).read_bytes()))
        if settings.state != state:
            return None
        content = (folder / CODES).read_bytes()
    except (OSError, ValueError, TypeError):
        return None
    if hashlib.sha256(content).hexdigest() != settings.sha256:
        return None
    return Approximate(faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8)), settings)


def _encoded(snapshot: Snapshot, rng: np.random.Generator) -> Any:
    """An index of about sqrt(n) centres, with a code of 4 bits for every 4 numbers (or 3, 2, 1, as divides d)."""
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


def _sample(snapshot: Snapshot, rng: np.random.Generator) -> list[Queries]:
    """Stored views as queries; and mixtures of a view, in equal parts, with noise and another view."""
    count = min(len(snapshot), _SAMPLE)
    some, others = (np.sort(rng.choice(len(snapshot), count, replace=False)) for _ in range(2))
    plain = snapshot.vectors(some).astype(np.float32)
    noise = rng.standard_normal(plain.shape, dtype=np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    noise += rng.permutation(snapshot.vectors(others)).astype(np.float32)
    noise -= np.einsum("ij,ij->i", noise, plain)[:, None] * plain
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return [plain, np.float32(_LIKENESS) * plain + np.float32((1 - _LIKENESS**2) ** 0.5) * noise]


def _tuned(snapshot: Snapshot, codes: Any, kinds: list[Queries]) -> tuple[int, int, float]:
    """(probes, width, recall) of the cheapest search that reaches RECALL for every kind of query; else 0 probes."""
    best, cost = (0, 0, 0.0), float("inf")
    truth = [np.stack([places for places, _ in search_exact(snapshot, queries, _NEIGHBOURS)]) for queries in kinds]
    for probes in _steps(codes.nlist):
        found = [_candidates(codes, queries, probes, max(_WIDTHS)) for queries in kinds]
        ranks = [_ranks(*pair) for pair in zip(truth, found, strict=True)]
        for width in _WIDTHS:
            recall = min(float(np.mean(rank < width)) for rank in ranks)
            price = probes / codes.nlist * len(snapshot) + _RESCORED_COST * width
            if recall >= RECALL + _MARGIN and price < cost:
                best, cost = (probes, width, recall), price
    return best


def _steps(most: int) -> Iterator[int]:
    """1, 2, 4, ... most."""
    step = 1
    while step < most:
        yield step
        step *= 2
    yield most


def _ranks(truth: NDArray[np.int64], found: NDArray[np.int64]) -> NDArray[np.int64]:
    """(q, 10) which of (q, width) found positions each of the true best is; a large number for none."""
    same = truth[:, :, None] == found[:, None, :]
    ranks: NDArray[np.int64] = np.where(same.any(axis=2), same.argmax(axis=2), 1 << 30)
    return ranks
