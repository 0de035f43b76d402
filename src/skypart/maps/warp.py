"""Warp a map: compute an image of ground given in degrees, reading no more map pixels than it needs.

Positions on the map are computed exactly at the nodes of a coarse mesh and interpolated linearly in between.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.geo.geodesy import Degrees, FloatArray
from skypart.images.decode import RgbImage
from skypart.maps.grid import MapGrid, Pixels
from skypart.maps.pixels import PixelBox, PixelPatch, PixelReader

Locate: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], Degrees]
"""Maps rows (n,) and columns (m,) of the output image to the (n, m) degrees of the pixel centres."""
TOLERANCE = 0.1
"""Maximum error, in pixels, of a position interpolated between the nodes of the mesh."""
OUTSIDE = -1e9
"""Marks a position outside the range of the map's projection."""
MAX_SIDE = 8192
"""Maximum pixels along an edge of a patch; larger ones are read at a coarser resolution."""


class WarpedImage(NamedTuple):
    """rgb (h, w, 3), black where there is no map; valid (h, w) is False there."""

    rgb: RgbImage
    valid: NDArray[np.bool_]


class Edges(NamedTuple):
    """A rectangle in pixels of a patch."""

    left: float
    top: float
    right: float
    bottom: float


class Mesh(NamedTuple):
    """Map positions at some rows (n,) and columns (m,) of the output image: pixels (n, m).

    steps: map pixels, across and down, per output pixel; 1 for an output of a single pixel.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    pixels: Pixels
    steps: tuple[float, float]


def warp(grid: MapGrid, reader: PixelReader, locate: Locate, shape: tuple[int, int]) -> WarpedImage:
    """Compute (h, w) pixels: averaged where they are coarser than the map's, interpolated elsewhere."""
    mesh = _make_mesh(grid, locate, shape)
    box = _covered_box(grid, mesh)
    if box is None:
        return WarpedImage(np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.bool_))
    fine = 2 if max(mesh.steps) > 1.05 else 1  # coarser pixels are sampled 2 x 2 times, then averaged
    step_x = max(1.0, mesh.steps[0] / fine, (box.right - box.left) / MAX_SIDE)
    step_y = max(1.0, mesh.steps[1] / fine, (box.bottom - box.top) / MAX_SIDE)
    patch = reader.read(box, step_x, step_y)
    edges = _map_edges(grid, patch)
    affine = _fit_affine(mesh)
    if affine is not None:
        matrix = _to_patch(affine, patch, fine)
        size = (shape[1] * fine, shape[0] * fine)
        far = np.array([[0, 0, 1], [size[0] - 1, 0, 1], [0, size[1] - 1, 1], [size[0] - 1, size[1] - 1, 1]]) @ matrix.T
        low, high = far.min(axis=0), far.max(axis=0)
        if low[0] >= edges.left and high[0] <= edges.right and low[1] >= edges.top and high[1] <= edges.bottom:
            flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            turned = partial(cv2.warpAffine, M=matrix, dsize=size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
            return _sample_patch(patch, turned, None, fine)
    rows, columns = ((np.arange(length * fine) + 0.5) / fine - 0.5 for length in shape)
    x = _interpolate(mesh, (mesh.pixels.column - patch.left) / patch.step_x - 0.5, rows, columns)
    y = _interpolate(mesh, (mesh.pixels.row - patch.top) / patch.step_y - 0.5, rows, columns)
    inside = None
    if x.min() < edges.left or x.max() > edges.right or y.min() < edges.top or y.max() > edges.bottom:
        inside = (x >= edges.left) & (x <= edges.right) & (y >= edges.top) & (y <= edges.bottom)
    sample = partial(cv2.remap, map1=x, map2=y, interpolation=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return _sample_patch(patch, sample, inside, fine)


def _fit_affine(mesh: Mesh) -> FloatArray | None:
    """(2, 3) from (column, row, 1) of the output to the map's pixels, if that errs by TOLERANCE at most."""
    columns, rows = np.meshgrid(mesh.columns, mesh.rows)
    nodes = np.column_stack([columns.ravel(), rows.ravel(), np.ones(columns.size)])
    pixels = np.column_stack([values.ravel() for values in mesh.pixels])
    if len(nodes) < 3:
        return None
    fitted = np.asarray(np.linalg.lstsq(nodes, pixels, rcond=None)[0], dtype=np.float64)
    return fitted.T if np.abs(nodes @ fitted - pixels).max() <= TOLERANCE else None


def _to_patch(affine: FloatArray, patch: PixelPatch, fine: int) -> FloatArray:
    """(2, 3) from (column, row, 1) of an output sampled `fine` times finer to pixels of a patch."""
    matrix = affine.copy()
    matrix[:, :2] /= fine
    matrix[:, 2] += affine[:, :2].sum(axis=1) * (0.5 / fine - 0.5)
    matrix[:, 2] -= patch.left, patch.top
    matrix /= np.array([[patch.step_x], [patch.step_y]])
    matrix[:, 2] -= 0.5
    return matrix


def _covered_box(grid: MapGrid, mesh: Mesh) -> PixelBox | None:
    """The map pixels that the mesh covers, with a margin for interpolation; None if there are none."""
    edges = []
    for values, step, length in zip(mesh.pixels, mesh.steps, (grid.width, grid.height), strict=True):
        inner = values[values > OUTSIDE]
        if not inner.size or inner.max() < 0 or inner.min() > length:
            return None
        margin = 2 * max(step, 1.0)
        low = int(np.clip(np.floor(inner.min() - margin), 0, length - 1))
        edges.append((low, int(np.clip(np.ceil(inner.max() + margin), low + 1, length))))
    return PixelBox(edges[0][0], edges[1][0], edges[0][1], edges[1][1])


def _map_edges(grid: MapGrid, patch: PixelPatch) -> Edges:
    """The edges of the map in patch pixels; the centre of the first pixel is 0."""
    left, right = (-patch.left / patch.step_x - 0.5, (grid.width - patch.left) / patch.step_x - 0.5)
    top, bottom = (-patch.top / patch.step_y - 0.5, (grid.height - patch.top) / patch.step_y - 0.5)
    return Edges(left, top, right, bottom)


def _sample_patch(
    patch: PixelPatch,
    sample: Callable[[NDArray[np.uint8]], NDArray[np.uint8]],
    inside: NDArray[np.bool_] | None,
    fine: int,
) -> WarpedImage:
    """Sample a patch at (h * fine, w * fine) positions and average; invalid pixels have no weight."""
    rgb, share = patch.rgb, None
    if patch.valid is not None:
        known = patch.valid.astype(np.uint8) * np.uint8(255)
        share = sample(known)
        rgb = cv2.bitwise_and(rgb, rgb, mask=known)
    rgb = sample(rgb)
    if inside is not None:
        whole = inside.astype(np.uint8) * np.uint8(255)
        share = whole if share is None else cv2.bitwise_and(share, whole)
        rgb = cv2.bitwise_and(rgb, rgb, mask=whole)
    size = (rgb.shape[1] // fine, rgb.shape[0] // fine)
    rgb = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA) if fine > 1 else rgb
    if share is None:
        return WarpedImage(rgb, np.ones(size[::-1], np.bool_))
    share = cv2.resize(share, size, interpolation=cv2.INTER_AREA) if fine > 1 else share
    valid: NDArray[np.bool_] = share >= 128
    mixed = valid & (share < 255)
    if mixed.any():
        rgb[mixed] = np.minimum(np.rint(rgb[mixed] * (255.0 / share[mixed][:, None])), 255).astype(np.uint8)
    return WarpedImage(cv2.bitwise_and(rgb, rgb, mask=valid.astype(np.uint8)), valid)


def _make_mesh(grid: MapGrid, locate: Locate, shape: tuple[int, int]) -> Mesh:
    """A mesh dense enough that interpolation errs by at most TOLERANCE map or output pixels, whichever is coarser."""
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
    """Largest error, in map pixels, with only every second node; with all nodes it is a quarter of that."""
    rows, columns = _every_second(len(mesh.rows)), _every_second(len(mesh.columns))
    coarse = Mesh(mesh.rows[rows], mesh.columns[columns], mesh.pixels, mesh.steps)
    chosen = np.ix_(rows, columns)
    small = [values - values[0, 0] for values in mesh.pixels]  # float32 holds these, not columns of a wide map
    return max(
        float(np.abs(_interpolate(coarse, each[chosen], mesh.rows, mesh.columns) - each).max()) for each in small
    )


def _every_second(count: int) -> NDArray[np.int64]:
    """Every second index of `count` nodes, and always the last one."""
    return np.unique(np.append(np.arange(0, count, 2), count - 1))


@lru_cache(maxsize=64)
def _nodes(length: int, count: int) -> NDArray[np.int64]:
    """At most `count` indices spread over 0..length - 1, both ends included."""
    return np.unique(np.round(np.linspace(0, length - 1, min(count, length))).astype(np.int64))


def _interpolate(mesh: Mesh, values: FloatArray, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float32]:
    """Values at the nodes of a mesh, interpolated (and extrapolated beyond the last nodes) to rows x columns."""
    lines = (_node_weights(mesh.rows, rows) @ values).astype(np.float32)
    found: NDArray[np.float32] = lines @ _node_weights(mesh.columns, columns).T.astype(np.float32)
    return found


def _node_weights(nodes: NDArray[np.int64], at: NDArray[Any]) -> FloatArray:
    """Weights (positions, nodes) of the nodes before and after each position."""
    weights = np.zeros((len(at), len(nodes)))
    if len(nodes) == 1:
        weights[:] = 1.0
        return weights
    low = np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, len(nodes) - 2)
    fraction = (at - nodes[low]) / (nodes[low + 1] - nodes[low])
    each = np.arange(len(at))
    weights[each, low], weights[each, low + 1] = 1.0 - fraction, fraction
    return weights
