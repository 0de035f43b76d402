"""Inference-time departures from the single-pass protocol that only need embeddings: query expansion, re-ranking.

Neither is used by default: they measure something else than the embedding, and need the whole gallery.
"""

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError

Vectors = NDArray[np.float32]


def expand_queries(query: Vectors, gallery: Vectors, neighbours: int = 5, power: float = 3.0) -> Vectors:
    """Average query expansion with weights: each query (q, d) plus its best gallery rows, each times similarity^power.

    gallery: (g, d) unit rows. Returns (q, d) unit rows.
    """
    if not 1 <= neighbours <= len(gallery):
        raise SkyPartError(f"query expansion with {neighbours} neighbours needs as many gallery images")
    scores = query @ gallery.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :neighbours]
    weights = np.clip(np.take_along_axis(scores, best, axis=1), 0.0, None) ** power
    expanded = query + np.einsum("qk,qkd->qd", weights, gallery[best])
    unit: Vectors = (expanded / np.linalg.norm(expanded, axis=1, keepdims=True)).astype(np.float32)
    return unit


def k_reciprocal_scores(
    query: Vectors, gallery: Vectors, k1: int = 20, k2: int = 6, share: float = 0.3
) -> NDArray[np.float64]:
    """Scores (q, g) after k-reciprocal re-ranking (Zhong et al., 2017); larger is better.

    Two images that have the same reciprocal neighbours are alike. k1: neighbours that are compared. k2: neighbours over
    which the comparison is smoothed. share: of the original distance in the final one.
    """
    every = np.concatenate([query, gallery]).astype(np.float64)
    if not 1 <= k2 <= k1 < len(every):
        raise SkyPartError(f"re-ranking needs 1 <= k2 <= k1 < {len(every)} images, not k1={k1}, k2={k2}")
    distance = np.clip(2.0 - 2.0 * (every @ every.T), 0.0, None)
    distance /= distance.max(axis=0, keepdims=True).clip(1e-12)
    order = np.argsort(distance, axis=1, kind="stable")
    weights = np.zeros_like(distance)
    for row in range(len(every)):
        members = _reciprocal(order, row, k1)
        expanded = members
        for member in members:
            others = _reciprocal(order, int(member), round(k1 / 2))
            if len(np.intersect1d(others, members)) > 2 / 3 * len(others):
                expanded = np.union1d(expanded, others)
        kernel = np.exp(-distance[row, expanded])
        weights[row, expanded] = kernel / kernel.sum()
    if k2 > 1:
        weights = np.stack([weights[order[row, :k2]].mean(axis=0) for row in range(len(every))])
    count = len(query)
    overlap = np.stack([np.minimum(weights[row], weights[count:]).sum(axis=1) for row in range(count)])
    jaccard = 1.0 - overlap / (2.0 - overlap)
    final: NDArray[np.float64] = (1 - share) * jaccard + share * distance[:count, count:]
    return -final


def _reciprocal(order: NDArray[np.int64], row: int, k: int) -> NDArray[np.int64]:
    """Images among the k + 1 nearest of `row` that have `row` among theirs."""
    forward = order[row, : k + 1]
    mutual: NDArray[np.int64] = forward[(order[forward, : k + 1] == row).any(axis=1)]
    return mutual
