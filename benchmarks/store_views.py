"""Embeddings distributed like those of maps, for measuring the store: a million of them need no model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VIEWS_A_PLACE = 9
Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Land:
    """What embeddings are drawn from: kinds of ground of unequal share, in a subspace with a decaying spectrum.

    axes (r, d): of the subspace, scaled by the spectrum. kinds (m, d). shares (m,).
    """

    axes: Rows
    kinds: Rows
    shares: NDArray[np.float64]


def make_land(dimension: int, rank: int = 192, kinds: int = 300) -> Land:
    """300 kinds of ground, the n-th has a share in proportion to 1 / n."""
    rng = np.random.default_rng(0)
    spectrum = (1 + np.arange(rank)) ** -0.5
    axes = np.linalg.qr(rng.standard_normal((dimension, rank)))[0].T * (spectrum / np.linalg.norm(spectrum))[:, None]
    shares = 1 / (1 + np.arange(kinds))
    centres = rng.standard_normal((kinds, rank)) @ axes
    return Land(axes.astype(np.float32), centres.astype(np.float32), shares / shares.sum())


def draw_views(land: Land, count: int, rng: np.random.Generator) -> Rows:
    """(count, d) unit rows, nine overlapping views of each place one after the other.

    A view is its kind of ground, its place, something of its own and noise; neighbours have a cosine of about 0.78,
    views of other places of about 0.
    """
    places = -(-count // VIEWS_A_PLACE)
    ground = 0.6 * land.kinds[rng.choice(len(land.kinds), places, p=land.shares)] + 0.65 * _drawn(land, places, rng)
    rows = np.repeat(ground, VIEWS_A_PLACE, axis=0)[:count] + 0.35 * _drawn(land, count, rng)
    rows += 0.3 / rows.shape[1] ** 0.5 * rng.standard_normal(rows.shape, dtype=np.float32)
    return _unit(rows)


def draw_photos(land: Land, views: Rows, likeness: float, rng: np.random.Generator) -> Rows:
    """Queries of cosine `likeness` with their view; what differs is half noise, half directions that maps use too."""
    other = _unit(_drawn(land, len(views), rng)) + _unit(rng.standard_normal(views.shape, dtype=np.float32))
    other -= np.einsum("ij,ij->i", other, views)[:, None] * views
    return _unit(likeness * views + (1 - likeness**2) ** 0.5 * _unit(other))


def _drawn(land: Land, count: int, rng: np.random.Generator) -> Rows:
    rows: Rows = rng.standard_normal((count, len(land.axes)), dtype=np.float32) @ land.axes
    return rows


def _unit(rows: Rows) -> Rows:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
