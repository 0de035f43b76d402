"""Coarse alignment of a photo and a view of the map: the turn, scale and shift under which their patches agree best.

Every pair of patches votes by its similarity, so no single match has to be right. A photo of any heading is found in a
north-up view from the patches of the two images alone, without a forward pass for each turn.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from skypart.position.homography import Homography, oblique_homography, turn_homography

TURNS = tuple(15.0 * number for number in range(24))
"""Angles by which a photo of unknown heading is turned clockwise, in degrees."""
SCALES = (0.4, 0.55, 0.75, 1.0, 1.35)
"""Widths of the ground across the photo's centre, in edges of the view."""
TILTS = (90.0, 50.0)
"""Tilts below the horizon of a photo whose tilt is unknown, in degrees."""
DEFAULT_FOV = 55.0
"""Field of view across the photo's width, in degrees, if the lens is unknown."""
POOLED_EDGE = 8
"""The photo's patches are averaged to a grid of this edge."""
MARGIN = 0.125
"""The photo's centre is looked for in the view without this share at each side: neighbouring views overlap."""
_NEAR_HORIZON = 0.05
"""Depth, as a share of that at the photo's centre, below which a patch shows no ground."""


@dataclass(frozen=True)
class LayoutRange:
    """The layouts that are tried. turns, tilts, fov in degrees; scales as in SCALES."""

    turns: tuple[float, ...] = TURNS
    scales: tuple[float, ...] = SCALES
    tilts: tuple[float, ...] = TILTS
    fov: float = DEFAULT_FOV


@dataclass(frozen=True)
class Layout:
    """One way to lay a photo on a view.

    homography: from the photo to the view. score: similarity of the patches under it, in standard deviations above the
    mean of all layouts that were tried.
    """

    homography: Homography
    score: float


@dataclass(frozen=True, eq=False)
class _Grid:
    """homographies: (h, 3, 3) with the photo's centre on the view's. steps: (h, p, 2) rows and columns of patches."""

    homographies: NDArray[np.float64]
    steps: NDArray[np.int64]


def pool_tokens(tokens: NDArray[np.float32]) -> NDArray[np.float32]:
    """Tokens (n, c) of a square grid, averaged over a coarser grid: (p, c), row by row."""
    edge = grid_edge(len(tokens))
    cell = np.arange(edge) * min(POOLED_EDGE, edge) // edge
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    counts = np.diff(np.append(starts, edge)).astype(np.float32)
    grid = tokens.reshape(edge, edge, -1)
    summed = np.add.reduceat(np.add.reduceat(grid, starts, axis=0), starts, axis=1)
    mean: NDArray[np.float32] = summed / (counts[:, None, None] * counts[None, :, None])
    return mean.reshape(-1, tokens.shape[1])


def find_layout(
    photo: NDArray[np.float32], view: NDArray[np.float32], aspect: float, tried: LayoutRange
) -> Layout | None:
    """The best layout of a photo on a view; None if all are equally good.

    photo: (p, c) pooled tokens. view: (n, c) tokens of a square grid. aspect: height over width of the photo.
    """
    edge = grid_edge(len(view))
    grid = _layouts(tried, round(aspect, 2), grid_edge(len(photo)), edge)
    similarity = photo @ view.T
    similarity -= similarity.mean()
    first = round(MARGIN * edge)
    size = edge - 2 * first
    padded = np.zeros((len(photo), 3 * edge, 3 * edge), dtype=np.float32)
    padded[:, edge : 2 * edge, edge : 2 * edge] = similarity.reshape(-1, edge, edge)
    windows = sliding_window_view(padded, (size, size), axis=(1, 2))  # (p, 3 edge - size + 1, ..., size, size)
    rows, columns = grid.steps[..., 0] + edge + first, grid.steps[..., 1] + edge + first
    total = np.zeros((len(rows), size, size), dtype=np.float32)
    for patch, shifted in enumerate(windows):
        total += shifted[rows[:, patch], columns[:, patch]]
    spread = float(total.std())
    if spread < 1e-9:
        return None
    layout, row, column = np.unravel_index(int(total.argmax()), total.shape)
    shift = np.eye(3)
    shift[:2, 2] = (column + first + 0.5) / edge - 0.5, (row + first + 0.5) / edge - 0.5
    score = (float(total[layout, row, column]) - float(total.mean())) / spread
    return Layout(shift @ grid.homographies[layout], score)


def grid_edge(patches: int) -> int:
    """Edge of a square grid of patches."""
    return math.isqrt(patches)


@lru_cache(maxsize=32)
def _layouts(tried: LayoutRange, aspect: float, pooled: int, edge: int) -> _Grid:
    """All turns, scales and tilts. pooled: edge of the photo's grid. edge: of the view's."""
    steps = (np.arange(pooled) + 0.5) / pooled
    y, x = np.meshgrid(steps, steps, indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), np.ones(pooled**2)])
    matrices = np.stack(
        [
            turn_homography(turn) @ oblique_homography(tilt, tried.fov, aspect, 1.0 / scale)
            for turn in tried.turns
            for scale in tried.scales
            for tilt in tried.tilts
        ]
    )
    mapped = matrices @ points  # (h, 3, p)
    depth = mapped[:, 2] / (matrices[:, 2] @ [0.5, 0.5, 1.0])[:, None]
    ahead = depth > _NEAR_HORIZON
    centred = np.where(ahead[:, None], mapped[:, :2] / np.where(ahead, mapped[:, 2], 1.0)[:, None] - 0.5, 9.0)
    moved = np.clip(np.rint(edge * centred), -edge, edge).astype(np.int64)  # beyond the view counts as no evidence
    return _Grid(matrices, np.ascontiguousarray(moved[:, ::-1].transpose(0, 2, 1)))


def turns_near(heading: float, rotation: float, tolerance: float = 10.0) -> tuple[float, ...]:
    """Turns of a photo of known heading on a view with `rotation`, compass degrees."""
    return tuple((heading - rotation + offset) % 360.0 for offset in (-tolerance, 0.0, tolerance))
