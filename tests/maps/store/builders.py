"""Reproducible batches of views, and a brute-force search to compare with."""

import numpy as np
from numpy.typing import NDArray

from skypart.maps.store import Hit, ViewBatch

DIMENSION = 24


def unit_vectors(count: int, seed: int, dimension: int = DIMENSION) -> NDArray[np.float32]:
    """(count, dimension) random unit vectors."""
    rows = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def footprints(count: int, seed: int) -> NDArray[np.float64]:
    """(count, 4) random footprints all over the world."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [rng.uniform(-90, 90, count), rng.uniform(-180, 180, count), rng.uniform(50, 300, count), np.arange(count)]
    )


def make_batch(count: int, seed: int, map_name: str = "town", dimension: int = DIMENSION) -> ViewBatch:
    """`count` views of a map, determined by the seed."""
    return ViewBatch(map_name, unit_vectors(count, seed, dimension).astype(np.float16), footprints(count, seed))


def brute_force(
    vectors: NDArray[np.float16], queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
) -> list[list[int]]:
    """Rows of the best `k` views for each query, by sorting all of them by float64 score, then by row."""
    answers = []
    for query in queries.astype(np.float64):
        scores = (vectors.astype(np.float64) * query).sum(axis=1).tolist()
        ranked = sorted(range(len(vectors)), key=lambda row: (-scores[row], row))
        answers.append([row for row in ranked if allowed is None or allowed[row]][:k])
    return answers


def rows_of(answers: list[list[Hit]]) -> list[list[int]]:
    """Row numbers of the hits."""
    return [[hit.row for hit in hits] for hits in answers]
