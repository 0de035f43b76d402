"""Exact search: every allowed view is scored, and the best are proven to be the best.

A first pass in float32, with FAISS over the float16 rows for few queries and with matrix products of blocks for many,
yields more candidates than asked for. These are scored again in float64. Rounding of the first pass has a bound: where
a view that was left out could still belong to the best, the pass is repeated with more candidates. So the answer does
not depend on the way it was computed, on segments or on the number of queries, and equal views tie exactly.
"""

import threading
from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from skypart.maps.store.snapshot import Positions, Snapshot

FEW_QUERIES = 16
"""Up to this number FAISS scans the float16 rows for each; more are multiplied with float32 blocks."""
BLOCK_ROWS = 4_096
BLOCK_QUERIES = 1_024
MOST_CANDIDATES = 4_096
"""Where more views than this score alike, a query looks at all scores."""
Scores = NDArray[np.float32]
Found = tuple[Positions, NDArray[np.float64]]


def search_exact(
    snapshot: Snapshot, queries: NDArray[np.float32], k: int, positions: Positions | None = None
) -> list[Found]:
    """For each of (q, d) queries the positions and scores of the best `k` views, or of all if there are fewer.

    positions: ascending; only these are scored. Equal scores come in the order of rows.
    """
    count = len(snapshot) if positions is None else len(positions)
    k = min(k, count)
    results: list[Found] = [(np.zeros(0, dtype=np.int64), np.zeros(0))] * len(queries)
    open_queries = np.arange(len(queries) if k else 0)
    width = 2 * k + 16
    while len(open_queries) and width <= max(MOST_CANDIDATES, 2 * k + 16):
        still_open = []
        for first in range(0, len(open_queries), BLOCK_QUERIES):
            group = open_queries[first : first + BLOCK_QUERIES]
            engine = _scan if len(group) <= FEW_QUERIES else _multiply
            coarse, found = engine(snapshot, queries[group], min(width, count), positions)
            for number, scores, index in zip(group, coarse, found, strict=True):
                places = index if positions is None else positions[index]
                results[number] = best = _rescored(snapshot, queries[number], places, k)
                left_out = scores.min() + _rounding(queries[number]) if len(index) < count else -np.inf
                if best[1][-1] <= left_out:
                    still_open.append(number)
        open_queries = np.array(still_open, dtype=np.int64)
        width *= 8
    for number in open_queries:
        at_least = results[number][1][-1] - _rounding(queries[number])
        places = _sweep(snapshot, queries[number], at_least, positions)
        results[number] = _rescored(snapshot, queries[number], places, k)
    return results


def _rounding(query: NDArray[np.float32]) -> float:
    """Bound on what summing d products in float32, in any order, may err for stored rows (length 1.01 at most)."""
    return (len(query) + 2) * 2.0**-24 * 1.02 * float(np.linalg.norm(query.astype(np.float64)))


def _rescored(snapshot: Snapshot, query: NDArray[np.float32], places: Positions, k: int) -> Found:
    """The best `k` of candidates by their scores in float64, then by row."""
    scores = np.empty(len(places))
    wide = query.astype(np.float64)
    for first in range(0, len(places), BLOCK_ROWS):
        rows = snapshot.vectors(places[first : first + BLOCK_ROWS]).astype(np.float64)
        scores[first : first + BLOCK_ROWS] = np.einsum("ij,j->i", rows, wide)
    order = np.lexsort((snapshot.rows(places), -scores))[:k]
    return places[order], scores[order]


class _Scanners(threading.local):
    """FAISS's scanner of float16 rows, one a thread and dimension: FAISS's binding cannot free them."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, Any]] = {}

    def get(self, dimension: int) -> Any:
        if dimension not in self.made:
            quantizer: Any = faiss.ScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_fp16)
            scanner = quantizer.select_InvertedListScanner(faiss.METRIC_INNER_PRODUCT, None, True, None, False)
            self.made[dimension] = (quantizer, scanner)
        return self.made[dimension][1]


_scanners = _Scanners()


def _scan(
    snapshot: Snapshot, queries: NDArray[np.float32], width: int, positions: Positions | None
) -> tuple[Scores, Positions]:
    """(q, width) best scores in any order, and their numbers among the searched views, by FAISS over float16."""
    scores = np.full((len(queries), width), -np.inf, dtype=np.float32)
    labels = np.full((len(queries), width), -1, dtype=np.int64)
    scanner = _scanners.get(snapshot.dimension)
    for before, vectors in snapshot.chunks(positions, in_place=True):
        codes = faiss.swig_ptr(vectors.view(np.uint8))
        for query, heap, ids in zip(queries, scores, labels, strict=True):
            scanner.set_query(faiss.swig_ptr(query))
            scanner.set_list(before, 0.0)  # a label is (list << 32) + place in the chunk
            scanner.scan_codes(len(vectors), codes, None, faiss.swig_ptr(heap), faiss.swig_ptr(ids), width)
    return scores, (labels >> 32) + (labels & 0xFFFFFFFF)


def _multiply(
    snapshot: Snapshot, queries: NDArray[np.float32], width: int, positions: Positions | None
) -> tuple[Scores, Positions]:
    """What `_scan` returns, by matrix products of float32 blocks."""
    best = np.zeros((len(queries), 0), dtype=np.float32)
    numbers = np.zeros((len(queries), 0), dtype=np.int64)
    for before, block in _blocks(snapshot, positions):
        scores = queries @ block.T
        places = np.broadcast_to(np.arange(before, before + len(block)), scores.shape)
        if best.shape[1] == width:
            scores, places = _above(best.min(axis=1), scores, before)
        best, numbers = np.concatenate([best, scores], axis=1), np.concatenate([numbers, places], axis=1)
        if best.shape[1] > width:
            keep = np.argpartition(best, -width, axis=1)[:, -width:]
            best, numbers = np.take_along_axis(best, keep, 1), np.take_along_axis(numbers, keep, 1)
    return best, numbers


def _above(least: Scores, scores: Scores, before: int) -> tuple[Scores, Positions]:
    """The few scores (q, m) above the `least` (q,) of each query, moved to the left of a table padded with -inf."""
    query, place = np.nonzero(scores > least[:, None])
    counts = np.bincount(query, minlength=len(least))
    column = np.arange(len(query)) - (np.cumsum(counts) - counts)[query]
    few = np.full((len(least), counts.max(initial=0)), -np.inf, dtype=np.float32)
    places = np.full(few.shape, -1, dtype=np.int64)
    few[query, column], places[query, column] = scores[query, place], place + before
    return few, places


def _sweep(snapshot: Snapshot, query: NDArray[np.float32], at_least: float, positions: Positions | None) -> Positions:
    """All positions whose first-pass score is `at_least` or more."""
    found = [
        before + np.flatnonzero((block @ query).astype(np.float64) >= at_least)
        for before, block in _blocks(snapshot, positions)
    ]
    numbers = np.concatenate(found)
    return numbers if positions is None else positions[numbers]


def _blocks(snapshot: Snapshot, positions: Positions | None) -> Iterator[tuple[int, Scores]]:
    """(number of views before, (m, d) float32 block) one after the other; the block's memory is used again."""
    buffer = np.empty((min(BLOCK_ROWS, len(snapshot)), snapshot.dimension), dtype=np.float32)
    for before, vectors in snapshot.chunks(positions, in_place=False):
        for first in range(0, len(vectors), BLOCK_ROWS):
            part = vectors[first : first + BLOCK_ROWS]
            block = buffer[: len(part)]
            np.copyto(block, part)
            yield before + first, block
