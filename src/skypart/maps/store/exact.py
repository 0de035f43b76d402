"""Exact search: every selected view is scored, and the best are proven to be the best.

A first pass in float32 yields more candidates than asked for: FAISS scans the float16 rows for few queries, matrix
products of blocks serve many. The candidates are scored again in float64. The rounding error of the first pass is
bounded: where a view that was left out could still belong to the best, the pass is repeated with more candidates. So
the result does not depend on how it was computed, on segments or on the number of queries, and equal views tie exactly.
"""

import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

import faiss
import numpy as np
from numpy.typing import NDArray

from skypart.maps.store.snapshot import Positions, StoreSnapshot

FEW_QUERIES = 16
"""Up to this many queries, FAISS scans the float16 rows for each; more are multiplied with float32 blocks."""
BLOCK_ROWS = 4_096
BLOCK_QUERIES = 1_024
MAX_CANDIDATES = 4_096
"""If more views than this have nearly equal scores, all views above the threshold are scored again."""
Scores: TypeAlias = NDArray[np.float32]
Ranking: TypeAlias = tuple[Positions, NDArray[np.float64]]
"""Positions of the best views of one query and their scores, best first."""


def search_exact(
    snapshot: StoreSnapshot, queries: NDArray[np.float32], k: int, positions: Positions | None = None
) -> list[Ranking]:
    """For each of (q, d) queries, the best `k` views, or all of them if there are fewer.

    positions: ascending; only these views are scored. Equal scores are ordered by row.
    """
    count = len(snapshot) if positions is None else len(positions)
    k = min(k, count)
    results: list[Ranking] = [(np.zeros(0, dtype=np.int64), np.zeros(0))] * len(queries)
    undecided = np.arange(len(queries) if k else 0)
    width = 2 * k + 16
    while len(undecided) and width <= max(MAX_CANDIDATES, 2 * k + 16):
        still_undecided = []
        for first in range(0, len(undecided), BLOCK_QUERIES):
            group = undecided[first : first + BLOCK_QUERIES]
            engine = _scan if len(group) <= FEW_QUERIES else _multiply
            coarse, found = engine(snapshot, queries[group], min(width, count), positions)
            for number, scores, index in zip(group, coarse, found, strict=True):
                candidates = index if positions is None else positions[index]
                results[number] = best = _rescore(snapshot, queries[number], candidates, k)
                left_out = scores.min() + rounding_error(queries[number]) if len(index) < count else -np.inf
                if best[1][-1] <= left_out:
                    still_undecided.append(number)
        undecided = np.array(still_undecided, dtype=np.int64)
        width *= 8
    for number in undecided:
        at_least = results[number][1][-1] - rounding_error(queries[number])
        candidates = _all_above(snapshot, queries[number], at_least, positions)
        results[number] = _rescore(snapshot, queries[number], candidates, k)
    return results


def rounding_error(query: NDArray[np.float32]) -> float:
    """Bound on the error of summing d products in float32, in any order, for stored rows of length 1.01 at most."""
    return (len(query) + 2) * 2.0**-24 * 1.02 * float(np.linalg.norm(query.astype(np.float64)))


def _rescore(snapshot: StoreSnapshot, query: NDArray[np.float32], candidates: Positions, k: int) -> Ranking:
    """The best `k` candidates by score in float64, then by row."""
    scores = np.empty(len(candidates))
    wide = query.astype(np.float64)
    for first in range(0, len(candidates), BLOCK_ROWS):
        rows = snapshot.vectors(candidates[first : first + BLOCK_ROWS]).astype(np.float64)
        scores[first : first + BLOCK_ROWS] = np.einsum("ij,j->i", rows, wide)
    order = np.lexsort((snapshot.rows(candidates), -scores))[:k]
    return candidates[order], scores[order]


class _Scanners(threading.local):
    """FAISS scanners of float16 rows, one per thread and dimension: the FAISS binding cannot free them."""

    def __init__(self) -> None:
        self._scanners: dict[int, tuple[Any, Any]] = {}

    def get(self, dimension: int) -> Any:
        if dimension not in self._scanners:
            quantizer: Any = faiss.ScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_fp16)
            scanner = quantizer.select_InvertedListScanner(faiss.METRIC_INNER_PRODUCT, None, True, None, False)
            self._scanners[dimension] = (quantizer, scanner)
        return self._scanners[dimension][1]


_scanners = _Scanners()


def _scan(
    snapshot: StoreSnapshot, queries: NDArray[np.float32], width: int, positions: Positions | None
) -> tuple[Scores, Positions]:
    """(q, width) best scores in any order, and their indices among the searched views, by FAISS over float16."""
    scores = np.full((len(queries), width), -np.inf, dtype=np.float32)
    labels = np.full((len(queries), width), -1, dtype=np.int64)
    scanner = _scanners.get(snapshot.dimension)
    for before, vectors in snapshot.chunks(positions, in_place=True):
        codes = faiss.swig_ptr(vectors.view(np.uint8))
        for query, heap, ids in zip(queries, scores, labels, strict=True):
            scanner.set_query(faiss.swig_ptr(query))
            scanner.set_list(before, 0.0)  # a label is (list << 32) + index in the chunk
            scanner.scan_codes(len(vectors), codes, None, faiss.swig_ptr(heap), faiss.swig_ptr(ids), width)
    return scores, (labels >> 32) + (labels & 0xFFFFFFFF)


def _multiply(
    snapshot: StoreSnapshot, queries: NDArray[np.float32], width: int, positions: Positions | None
) -> tuple[Scores, Positions]:
    """The same as `_scan`, by matrix products of float32 blocks."""
    best = np.zeros((len(queries), 0), dtype=np.float32)
    indices = np.zeros((len(queries), 0), dtype=np.int64)
    for before, block in _float_blocks(snapshot, positions):
        scores = queries @ block.T
        new = np.broadcast_to(np.arange(before, before + len(block)), scores.shape)
        if best.shape[1] == width:
            scores, new = _keep_above(best.min(axis=1), scores, before)
        best, indices = np.concatenate([best, scores], axis=1), np.concatenate([indices, new], axis=1)
        if best.shape[1] > width:
            keep = np.argpartition(best, -width, axis=1)[:, -width:]
            best, indices = np.take_along_axis(best, keep, 1), np.take_along_axis(indices, keep, 1)
    return best, indices


def _keep_above(threshold: Scores, scores: Scores, before: int) -> tuple[Scores, Positions]:
    """The few scores (q, m) above the threshold (q,) of each query, packed to the left and padded with -inf."""
    query, place = np.nonzero(scores > threshold[:, None])
    counts = np.bincount(query, minlength=len(threshold))
    column = np.arange(len(query)) - (np.cumsum(counts) - counts)[query]
    few = np.full((len(threshold), counts.max(initial=0)), -np.inf, dtype=np.float32)
    indices = np.full(few.shape, -1, dtype=np.int64)
    few[query, column], indices[query, column] = scores[query, place], place + before
    return few, indices


def _all_above(
    snapshot: StoreSnapshot, query: NDArray[np.float32], at_least: float, positions: Positions | None
) -> Positions:
    """All positions whose first-pass score is `at_least` or more."""
    found = [
        before + np.flatnonzero((block @ query).astype(np.float64) >= at_least)
        for before, block in _float_blocks(snapshot, positions)
    ]
    indices = np.concatenate(found)
    return indices if positions is None else positions[indices]


def _float_blocks(snapshot: StoreSnapshot, positions: Positions | None) -> Iterator[tuple[int, Scores]]:
    """(number of views before, (m, d) float32 block), one after the other; the block's memory is reused."""
    buffer = np.empty((min(BLOCK_ROWS, len(snapshot)), snapshot.dimension), dtype=np.float32)
    for before, vectors in snapshot.chunks(positions, in_place=False):
        for first in range(0, len(vectors), BLOCK_ROWS):
            rows = vectors[first : first + BLOCK_ROWS]
            block = buffer[: len(rows)]
            np.copyto(block, rows)
            yield before + first, block
