"""R@k, R@top1 and AP as the benchmarks' own evaluation code defines them."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.evaluation.ranking import Ranks, rank_positives
from skypart.evaluation.scores import GalleryMode

ApMode: TypeAlias = Literal["official", "standard"]
KS = (1, 5, 10)


def retrieval_metrics(
    query: ArrayLike,
    query_ids: ArrayLike,
    gallery: ArrayLike,
    gallery_ids: ArrayLike,
    ap: ApMode = "official",
    gallery_mode: GalleryMode = "full",
) -> dict[str, float]:
    """Retrieval metrics in percent: keys R@1 R@5 R@10 R@top1 AP.

    query (q, d) and gallery (g, d) are L2-normalised features, arrays or torch tensors; ids are (q,) and (g,).
    Gallery label -1 is junk. A query without a positive scores 0 and stays in the denominator.
    ap: `official` (trapezoid, as in the benchmarks' code) or `standard`.
    gallery_mode: `full`, or `masked` (gallery ids that no query has become junk; R@top1 uses the unmasked size).
    """
    return metrics_from_ranks(rank_positives(query, query_ids, gallery, gallery_ids, gallery_mode), ap)


def metrics_from_ranks(ranks: Ranks, ap: ApMode = "official") -> dict[str, float]:
    """The metrics of `retrieval_metrics`, from precomputed ranks."""
    if ap not in ("official", "standard"):
        raise SkyPartError(f"unknown AP mode {ap!r}; choose official or standard")
    has_positive = np.bincount(ranks.query, minlength=ranks.queries) > 0
    first = ranks.first()[has_positive]
    result = {f"R@{k}": _percent(int(np.count_nonzero(first < k)), ranks.queries) for k in KS}
    result["R@top1"] = _percent(int(np.count_nonzero(first < top1_rank(ranks.gallery))), ranks.queries)
    result["AP"] = _percent(float(average_precision(ranks, ap).sum()), ranks.queries)
    return result


def top1_rank(gallery: int) -> int:
    """The last 1-based rank that counts for R@top1: 1 % of the gallery, rounded, plus one."""
    return round(0.01 * gallery) + 1


def average_precision(ranks: Ranks, ap: ApMode = "official") -> NDArray[np.float64]:
    """(queries,) AP of each query in 0..1; 0 for a query without a positive."""
    counts = np.bincount(ranks.query, minlength=ranks.queries)
    ordinal = np.arange(len(ranks.ranks)) - np.repeat(np.cumsum(counts) - counts, counts)
    precision = (ordinal + 1) / (ranks.ranks + 1)
    if ap == "official":
        before = np.ones(len(ordinal))
        np.divide(ordinal, ranks.ranks, out=before, where=ranks.ranks > 0)
        precision = (before + precision) / 2
    sums = np.bincount(ranks.query, weights=precision, minlength=ranks.queries)
    return sums / np.maximum(counts, 1)


def _percent(part: float, whole: int) -> float:
    return 100.0 * part / whole
