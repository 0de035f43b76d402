"""The metrics, one query at a time, written directly from their definitions."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def plain_metrics(
    query: NDArray[np.float64],
    query_ids: Sequence[int],
    gallery: NDArray[np.float64],
    gallery_ids: Sequence[int],
    ap: str,
    masked: bool,
) -> dict[str, float]:
    size = len(gallery_ids)
    shown = [i for i in range(size) if gallery_ids[i] != -1 and (not masked or gallery_ids[i] in query_ids)]
    totals = dict.fromkeys(("R@1", "R@5", "R@10", "R@top1", "AP"), 0.0)
    for feature, label in zip(query, query_ids, strict=True):
        scores = [math.fsum(float(a) * float(b) for a, b in zip(feature, gallery[i], strict=True)) for i in shown]
        order = sorted(range(len(shown)), key=lambda i: (-scores[i], i))
        ranks = [place for place, i in enumerate(order) if gallery_ids[shown[i]] == label]
        if not ranks:
            continue
        for k in (1, 5, 10):
            totals[f"R@{k}"] += ranks[0] < k
        totals["R@top1"] += ranks[0] + 1 <= round(0.01 * size) + 1
        area = 0.0
        for i, rank in enumerate(ranks):
            precision = (i + 1) / (rank + 1)
            old = i / rank if rank else 1.0
            area += precision if ap == "standard" else (old + precision) / 2
        totals["AP"] += area / len(ranks)
    return {name: 100 * total / len(query_ids) for name, total in totals.items()}


def plain_sdm(
    query: NDArray[np.float64], gallery: NDArray[np.float64], ranking: NDArray[np.int64], k: int, single: bool
) -> float:
    total = 0.0
    for here, ranked in zip(query, ranking, strict=True):
        score = 0.0
        for i in range(1, k + 1):
            there = gallery[ranked[i - 1]]
            hold = (lambda v: float(np.float32(v))) if single else float
            d = math.sqrt((hold(here[0]) - hold(there[0])) ** 2 + (hold(here[1]) - hold(there[1])) ** 2)
            score += (k - i + 1) * math.exp(-5000 * d)
        total += score / sum(k - i + 1 for i in range(1, k + 1))
    return 100 * total / len(query)
