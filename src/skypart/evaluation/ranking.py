"""Ranks of the positives and the best matches, without sorting the whole gallery for every query.

Ties are broken by gallery order.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from skypart.errors import SkyPartError
from skypart.evaluation.scores import Floats, GalleryMode, Integers, features, is_junk, labels_of, score_blocks

COUNTED_POSITIVES = 8
"""Up to this many positives per query are ranked by counting; more by sorting the scores that matter."""


@dataclass(frozen=True)
class Ranks:
    """Ranks of all positives of all queries.

    ranks: (positives,) 0-based rank of each positive in its query's gallery, ascending within a query.
    query: (positives,) index of the query each one belongs to, ascending.
    queries: number of queries, with or without positives.
    gallery: number of gallery images before junk was removed.
    """

    ranks: Integers
    query: Integers
    queries: int
    gallery: int

    def first(self) -> Integers:
        """(queries,) rank of each query's first positive; `gallery` where there is none."""
        first = np.full(self.queries, self.gallery, dtype=np.int64)
        np.minimum.at(first, self.query, self.ranks)
        return first


def rank_positives(
    query: ArrayLike, query_ids: ArrayLike, gallery: ArrayLike, gallery_ids: ArrayLike, mode: GalleryMode = "full"
) -> Ranks:
    """Rank every positive.

    query (q, d), query_ids (q,), gallery (g, d), gallery_ids (g,). Gallery label -1 is junk and excluded; mode
    `masked` also excludes gallery images whose id no query has.
    """
    queries, images = features(query, "query"), features(gallery, "gallery")
    labels, gallery_labels = labels_of(query_ids, len(queries), "query"), labels_of(gallery_ids, len(images), "gallery")
    if queries.shape[1] != images.shape[1]:
        raise SkyPartError(f"query features have {queries.shape[1]} dimensions, gallery features {images.shape[1]}")
    if (labels.dtype.kind in "iu") != (gallery_labels.dtype.kind in "iu"):
        raise SkyPartError("query ids and gallery ids must both be numbers or both be names")
    junk = is_junk(labels, gallery_labels, mode)
    order = np.argsort(gallery_labels, kind="stable")
    order = order[~junk[order]]
    start = np.searchsorted(gallery_labels[order], labels, side="left")
    counts = np.searchsorted(gallery_labels[order], labels, side="right") - start
    found = np.empty(int(counts.sum()), dtype=np.int64)
    filled = 0
    for rows, scores in score_blocks(queries, images, junk):
        count = counts[rows]
        positives = _positives(order, start[rows], count)
        size = int(count.sum())
        found[filled : filled + size] = _ranks_in_block(scores, positives, count)
        filled += size
    return Ranks(found, np.repeat(np.arange(len(queries)), counts), len(queries), len(images))


def top_matches(
    query: ArrayLike, gallery: ArrayLike, k: int, gallery_ids: ArrayLike | None = None
) -> tuple[Integers, Floats]:
    """The k best gallery indices (q, k) and their scores (q, k), best first; junk (id -1) never appears."""
    queries, images = features(query, "query"), features(gallery, "gallery")
    junk = np.zeros(len(images), dtype=bool)
    if gallery_ids is not None:
        labels = labels_of(gallery_ids, len(images), "gallery")
        junk = is_junk(labels, labels, "full")
    k = min(k, int((~junk).sum()))
    best = np.empty((len(queries), k), dtype=np.int64)
    score = np.empty((len(queries), k), dtype=queries.dtype)
    for rows, scores in score_blocks(queries, images, junk):
        best[rows] = _best(scores, k)
        score[rows] = np.take_along_axis(scores, best[rows], axis=1)
    return best, score


def _positives(order: Integers, start: Integers, count: Integers) -> Integers:
    """(sum of count,) gallery indices of the positives, query after query, ascending within each."""
    ends = np.cumsum(count)
    offsets = np.arange(int(count.sum())) - np.repeat(ends - count, count)
    positives: Integers = order[np.repeat(start, count) + offsets]
    return positives


def _ranks_in_block(scores: Floats, positives: Integers, count: Integers) -> Integers:
    """Ranks of `positives` (count[i] of them for row i), sorted within each row."""
    ranks = np.empty(len(positives), dtype=np.int64)
    begin = np.cumsum(count) - count
    few = (count > 0) & (count <= COUNTED_POSITIVES)
    for j in range(int(count[few].max(initial=0))):
        rows = np.flatnonzero(few & (count > j))
        ranks[begin[rows] + j] = _count_better(scores, rows, positives[begin[rows] + j])

    def finish(row: int) -> None:
        span = slice(begin[row], begin[row] + count[row])
        if not few[row]:
            ranks[span] = _ranks_in_row(scores[row], positives[span])
        ranks[span].sort()

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # numpy sorts without holding the GIL
        list(pool.map(finish, np.flatnonzero(count > COUNTED_POSITIVES)))
    for row in np.flatnonzero(few & (count > 1)):
        finish(int(row))
    return ranks


def _count_better(scores: Floats, rows: Integers, positive: Integers) -> Integers:
    """Rank of one positive in each of `rows`: the number of higher scores, and of equal scores before it."""
    block = scores if len(rows) == len(scores) else scores[rows]
    own = block[np.arange(len(rows)), positive][:, None]
    # Twice as fast as count_nonzero, which widens to 64 bits.
    above: Integers = (block > own).sum(axis=1, dtype=np.int32).astype(np.int64)
    tied = np.flatnonzero((block >= own).sum(axis=1, dtype=np.int32) - above > 1)
    for i in tied:
        above[i] += np.count_nonzero(block[i, : positive[i]] == own[i])
    return above


def _ranks_in_row(scores: Floats, positives: Integers) -> Integers:
    """Ranks of many positives of one query, from the sorted scores that are not below the worst of them."""
    own = scores[positives]
    rivals = np.sort(scores[scores >= own.min()])
    above: Integers = len(rivals) - np.searchsorted(rivals, own, side="right")
    equal = len(rivals) - np.searchsorted(rivals, own, side="left") - above
    for i in np.flatnonzero(equal > 1):
        above[i] += np.count_nonzero(scores[: positives[i]] == own[i])
    return above


def _best(scores: Floats, k: int) -> Integers:
    """(rows, k) indices of the k largest scores, ties in gallery order."""
    if k >= scores.shape[1] // 4:
        return np.argsort(-scores, axis=1, kind="stable")[:, :k]
    threshold = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k]
    best = np.empty((len(scores), k), dtype=np.int64)
    for row, values in enumerate(scores):
        candidates = np.flatnonzero(values >= threshold[row])
        best[row] = candidates[np.argsort(-values[candidates], kind="stable")[:k]]
    return best
