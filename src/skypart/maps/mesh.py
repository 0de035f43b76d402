"""Positions on a map computed at the nodes of a coarse mesh, and straight lines in between."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skypart.geo.geodesy import Degrees, FloatArray
from skypart.maps.grid import Grid, Pixels

Locate: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], Degrees]
"""From rows (n,) and columns (m,) of the picture to draw to the (n, m) degrees of their centres."""

TOLERANCE = 0.1
"""Pixels by which a position between the nodes of the mesh may be wrong."""
OUTSIDE = -1e9
"""Stands for a position that the map's projection does not reach."""


class Mesh(NamedTuple):
    """Map pixels at some rows (n,) and columns (m,) of the picture to draw: pixels (n, m).

    steps: map pixels, across and down, between neighbours of the picture to draw; 1 where it has no neighbours.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    pixels: Pixels
    steps: tuple[float, float]


def make_mesh(grid: Grid, locate: Locate, shape: tuple[int, int]) -> Mesh:
    """Map pixels at nodes so dense that lines between them stay within TOLERANCE, of the coarser pixel."""
    nodes = 9
    while True:
        rows, columns = _nodes(shape[0], nodes), _nodes(shape[1], nodes)
        latitude, longitude = locate(rows, columns)
        pixels = grid.to_pixels(latitude=latitude, longitude=longitude)
        known = np.isfinite(pixels.column) & np.isfinite(pixels.row)
        if not known.all():
            pixels = Pixels(*(np.where(known, values, OUTSIDE) for values in pixels))
        mesh = Mesh(rows, columns, pixels, _steps(rows, columns, pixels))
        if max(shape) <= nodes or (known.all() and _error(mesh) <= 2 * TOLERANCE * max(1.0, min(mesh.steps))):
            return mesh
        nodes = 2 * nodes - 1


def _steps(rows: NDArray[np.int64], columns: NDArray[np.int64], pixels: Pixels) -> tuple[float, float]:
    steps = []
    for values in pixels:
        slopes = []
        if len(rows) > 1:
            slopes.append(float(np.median(np.abs(np.diff(values, axis=0) / np.diff(rows)[:, None]))))
        if len(columns) > 1:
            slopes.append(float(np.median(np.abs(np.diff(values, axis=1) / np.diff(columns)))))
        steps.append(math.hypot(*slopes) or 1.0)
    return steps[0], steps[1]


def _error(mesh: Mesh) -> float:
    """Largest error, in map pixels, that every second node alone would make; all nodes make a quarter of it."""
    rows, columns = _every_second(len(mesh.rows)), _every_second(len(mesh.columns))
    coarse = Mesh(mesh.rows[rows], mesh.columns[columns], mesh.pixels, mesh.steps)
    chosen = np.ix_(rows, columns)
    small = [values - values[0, 0] for values in mesh.pixels]  # float32 holds these, not columns of a wide map
    return max(float(np.abs(between(coarse, each[chosen], mesh.rows, mesh.columns) - each).max()) for each in small)


def _every_second(count: int) -> NDArray[np.int64]:
    """Of `count` nodes, the last one always."""
    return np.unique(np.append(np.arange(0, count, 2), count - 1))


@lru_cache(maxsize=64)
def _nodes(length: int, count: int) -> NDArray[np.int64]:
    """At most `count` pixels spread over 0..length - 1, both ends included."""
    return np.unique(np.round(np.linspace(0, length - 1, min(count, length))).astype(np.int64))


def between(mesh: Mesh, values: FloatArray, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float32]:
    """Values at the nodes of a mesh, interpolated (and continued beyond the last nodes) to rows x columns."""
    low, share = _between_nodes(mesh.rows, rows)
    lines = values if share is None else values[low] * (1 - share)[:, None] + values[low + 1] * share[:, None]
    lines = lines.astype(np.float32)
    low, share = _between_nodes(mesh.columns, columns)
    if share is None:
        return np.broadcast_to(lines, (len(rows), len(columns)))
    slope = np.diff(lines, axis=1)[:, low]
    slope *= share.astype(np.float32)
    slope += lines[:, low]
    return np.broadcast_to(slope, (len(rows), len(columns)))


def _between_nodes(nodes: NDArray[np.int64], at: NDArray[Any]) -> tuple[NDArray[np.intp], FloatArray | None]:
    """Number of the node before each position, and how far on to the next it lies; None if there is one node."""
    if len(nodes) == 1:
        return np.zeros(len(at), np.intp), None
    low = np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, len(nodes) - 2)
    return low, (at - nodes[low]) / (nodes[low + 1] - nodes[low])
