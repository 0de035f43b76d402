import math

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.evaluation.rerank import expand_queries, k_reciprocal_scores


def unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def vectors(seed: int, count: int, dim: int = 5) -> NDArray[np.float32]:
    return unit(np.random.default_rng(seed).normal(size=(count, dim)))


def test_query_expansion_by_loops() -> None:
    query, gallery = vectors(1, 3), vectors(2, 7)
    found = expand_queries(query, gallery, neighbours=3, power=2.0)
    for q in range(3):
        scores = [float(sum(a * b for a, b in zip(query[q], row, strict=True))) for row in gallery]
        best = sorted(range(7), key=lambda i: -scores[i])[:3]
        total = query[q].astype(float)
        for i in best:
            total = total + max(scores[i], 0.0) ** 2 * gallery[i]
        np.testing.assert_allclose(found[q], total / math.sqrt(float((total**2).sum())), atol=1e-6)
    with pytest.raises(SkyPartError, match="8 neighbours"):
        expand_queries(query, gallery, neighbours=8)


def reranked_by_loops(
    query: NDArray[np.float32], gallery: NDArray[np.float32], k1: int, k2: int, share: float
) -> list[list[float]]:
    """The method of Zhong et al., image by image with sets."""
    rows = [list(map(float, row)) for row in (*query, *gallery)]
    total = len(rows)
    raw = [[max(0.0, 2 - 2 * sum(a * b for a, b in zip(x, y, strict=True))) for y in rows] for x in rows]
    worst = [max(raw[i][j] for i in range(total)) for j in range(total)]
    distance = [[raw[i][j] / worst[j] for j in range(total)] for i in range(total)]
    order = [sorted(range(total), key=lambda j: (distance[i][j], j)) for i in range(total)]

    def reciprocal(i: int, k: int) -> set[int]:
        return {j for j in order[i][: k + 1] if i in order[j][: k + 1]}

    weights = [[0.0] * total for _ in range(total)]
    for i in range(total):
        members = reciprocal(i, k1)
        grown = set(members)
        for j in members:
            others = reciprocal(j, round(k1 / 2))
            if len(others & members) > 2 / 3 * len(others):
                grown |= others
        mass = sum(math.exp(-distance[i][j]) for j in grown)
        for j in grown:
            weights[i][j] = math.exp(-distance[i][j]) / mass
    smooth = [[sum(weights[n][j] for n in order[i][:k2]) / k2 for j in range(total)] for i in range(total)]
    scores = []
    for i in range(len(query)):
        row = []
        for j in range(len(query), total):
            shared = sum(min(smooth[i][c], smooth[j][c]) for c in range(total))
            row.append(-((1 - share) * (1 - shared / (2 - shared)) + share * distance[i][j]))
        scores.append(row)
    return scores


@pytest.mark.parametrize(("k1", "k2", "share"), [(4, 2, 0.3), (6, 1, 0.0), (3, 3, 0.5)])
def test_k_reciprocal_re_ranking_by_loops(k1: int, k2: int, share: float) -> None:
    query, gallery = vectors(3, 4), vectors(4, 9)
    found = k_reciprocal_scores(query, gallery, k1, k2, share)
    np.testing.assert_allclose(found, reranked_by_loops(query, gallery, k1, k2, share), atol=1e-5)


def test_re_ranking_finds_the_member_of_the_cluster() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 16))
    gallery = unit(np.repeat(centres, 6, axis=0) + 0.35 * rng.normal(size=(24, 16)))
    query = unit(centres + 0.6 * rng.normal(size=(4, 16)))
    best = k_reciprocal_scores(query, gallery, 6, 3).argmax(axis=1)
    assert (best // 6).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("k1", "k2"), [(0, 0), (20, 3), (2, 3)])
def test_impossible_neighbourhoods_are_refused(k1: int, k2: int) -> None:
    with pytest.raises(SkyPartError, match="re-ranking needs"):
        k_reciprocal_scores(vectors(1, 3), vectors(2, 5), k1, k2)
