"""Scores between queries and gallery in blocks, to limit memory.

The score is the dot product of the features as given (embeddings are L2-normalised).
"""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError

Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
GalleryMode: TypeAlias = Literal["full", "masked"]

SCORE_BYTES = 96_000_000
"""Size of one block of scores; ranking needs about as much memory again."""


def features(values: ArrayLike, name: str) -> Floats:
    """(n, d) float32 or float64 array from an array or a torch tensor; raises for a wrong shape or NaN."""
    array = to_numpy(values)
    if array.ndim != 2:
        raise SkyPartError(f"{name} features must be (images, dimensions), not {array.shape}")
    if len(array) == 0:
        raise SkyPartError(f"the {name} is empty: nothing to rank")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32)
    # If the sum is finite, so are all values; this avoids a mask as large as the features.
    if not np.isfinite(array.sum(dtype=np.float64)) and not np.isfinite(array).all():
        raise SkyPartError(f"{name} features contain NaN or infinity; the model or its weights are damaged")
    return array


def labels_of(ids: ArrayLike, length: int, name: str) -> NDArray[Any]:
    """(n,) integer or string labels from `ids`, one for each of `length` features."""
    labels = to_numpy(ids)
    if labels.shape != (length,):
        raise SkyPartError(f"{name} has {length} features but ids of shape {labels.shape}")
    return labels if labels.dtype.kind in "iuUS" else labels.astype(str if labels.dtype.kind == "O" else np.int64)


def is_junk(labels: NDArray[Any], gallery_labels: NDArray[Any], mode: GalleryMode) -> NDArray[np.bool_]:
    """(g,) which gallery images are excluded from ranking."""
    if mode not in ("full", "masked"):
        raise SkyPartError(f"unknown gallery mode {mode!r}; choose full or masked")
    junk: NDArray[np.bool_] = gallery_labels == (-1 if gallery_labels.dtype.kind in "iu" else "-1")
    return junk | ~np.isin(gallery_labels, labels) if mode == "masked" else junk


def score_blocks(query: Floats, gallery: Floats, junk: NDArray[np.bool_]) -> Iterator[tuple[slice, Floats]]:
    """Yield (rows of the queries, their scores (rows, g)) in blocks; junk scores -infinity.

    The block is reused: copy what you need after the next iteration.
    """
    dtype = np.result_type(query, gallery)
    rows = max(1, min(len(query), SCORE_BYTES // (len(gallery) * dtype.itemsize)))
    buffer = np.empty((rows, len(gallery)), dtype=dtype)
    columns = gallery.T if gallery.dtype == dtype else gallery.astype(dtype).T
    copies, originals = _duplicates(gallery)
    excluded = np.flatnonzero(junk)
    for first in range(0, len(query), rows):
        part = np.asarray(query[first : first + rows], dtype=dtype)
        scores = buffer[: len(part)]
        np.matmul(part, columns, out=scores)
        if len(copies):
            # BLAS may round the same product differently in another column, but equal images must tie exactly.
            scores[:, copies] = scores[:, originals]
        if len(excluded):
            scores[:, excluded] = -np.inf
        yield slice(first, first + len(part)), scores


def _duplicates(gallery: Floats) -> tuple[Integers, Integers]:
    """Indices of rows equal to an earlier row, and of that earlier row."""
    seen: dict[tuple[int, float], int] = {}
    sums = gallery.sum(axis=1, dtype=np.float64)
    order = np.argsort(sums, kind="stable")
    same = np.flatnonzero(np.diff(sums[order]) == 0)
    copies: list[int] = []
    originals: list[int] = []
    for index in sorted({int(order[i]) for i in (*same, *(same + 1))}):
        key = (hash(gallery[index].tobytes()), float(sums[index]))
        if key in seen and np.array_equal(gallery[seen[key]], gallery[index]):
            copies.append(index)
            originals.append(seen[key])
        else:
            seen.setdefault(key, index)
    return np.array(copies, dtype=np.int64), np.array(originals, dtype=np.int64)


def to_numpy(values: Any) -> NDArray[Any]:
    """A numpy array from an array-like or a torch tensor on any device, without importing torch."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)
