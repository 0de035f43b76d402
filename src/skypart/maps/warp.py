"""Draw ground given in degrees from a map's pixels, reading no more of them than the picture needs."""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.maps.grid import Grid
from skypart.maps.mesh import OUTSIDE, Locate, Mesh, between, make_mesh
from skypart.maps.patch import Box, Patch, PixelReader

MAX_SIDE = 8192
"""Pixels along an edge of a patch; larger ones are read coarser."""


class Sample(NamedTuple):
    """rgb (h, w, 3), black where there is no map; valid (h, w) is False there."""

    rgb: RgbImage
    valid: NDArray[np.bool_]


class Edges(NamedTuple):
    """A rectangle in pixels of a patch."""

    left: float
    top: float
    right: float
    bottom: float


def warp(grid: Grid, reader: PixelReader, locate: Locate, shape: tuple[int, int]) -> Sample:
    """Draw (h, w) pixels: averaged where they are coarser than the map's, else interpolated."""
    mesh = make_mesh(grid, locate, shape)
    box = _box(grid, mesh)
    if box is None:
        return Sample(np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.bool_))
    fine = 2 if max(mesh.steps) > 1.05 else 1  # coarser pixels are drawn as 2 x 2 finer ones, then averaged
    step_x = max(1.0, mesh.steps[0] / fine, (box.right - box.left) / MAX_SIDE)
    step_y = max(1.0, mesh.steps[1] / fine, (box.bottom - box.top) / MAX_SIDE)
    patch = reader.read(box, step_x, step_y)
    rows, columns = ((np.arange(length * fine) + 0.5) / fine - 0.5 for length in shape)
    x = between(mesh, (mesh.pixels.column - patch.left) / patch.step_x - 0.5, rows, columns)
    y = between(mesh, (mesh.pixels.row - patch.top) / patch.step_y - 0.5, rows, columns)
    edges = _edges(grid, patch)
    inside = None
    if x.min() < edges.left or x.max() > edges.right or y.min() < edges.top or y.max() > edges.bottom:
        inside = (x >= edges.left) & (x <= edges.right) & (y >= edges.top) & (y <= edges.bottom)
    return _draw(patch, x, y, inside, fine)


def _box(grid: Grid, mesh: Mesh) -> Box | None:
    """The map's pixels that the mesh touches, with a margin for interpolation; None if there are none."""
    edges = []
    for values, step, length in zip(mesh.pixels, mesh.steps, (grid.width, grid.height), strict=True):
        inner = values[values > OUTSIDE]
        if not inner.size or inner.max() < 0 or inner.min() > length:
            return None
        margin = 2 * max(step, 1.0)
        low = int(np.clip(np.floor(inner.min() - margin), 0, length - 1))
        edges.append((low, int(np.clip(np.ceil(inner.max() + margin), low + 1, length))))
    return Box(edges[0][0], edges[1][0], edges[0][1], edges[1][1])


def _edges(grid: Grid, patch: Patch) -> Edges:
    """The map's edges in pixels of a patch, counted from the middle of its first."""
    left, right = (-patch.left / patch.step_x - 0.5, (grid.width - patch.left) / patch.step_x - 0.5)
    top, bottom = (-patch.top / patch.step_y - 0.5, (grid.height - patch.top) / patch.step_y - 0.5)
    return Edges(left, top, right, bottom)


def _draw(
    patch: Patch,
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    inside: NDArray[np.bool_] | None,
    fine: int,
) -> Sample:
    """Colours at places (h * fine, w * fine) of a patch; invalid pixels have no weight in them."""
    rgb, share = patch.rgb, None
    if patch.valid is not None:
        known = patch.valid.astype(np.uint8) * np.uint8(255)
        share = cv2.remap(known, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        rgb = cv2.bitwise_and(rgb, rgb, mask=known)
    rgb = cv2.remap(rgb, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    if inside is not None:
        whole = inside.astype(np.uint8) * np.uint8(255)
        share = whole if share is None else cv2.bitwise_and(share, whole)
        rgb = cv2.bitwise_and(rgb, rgb, mask=whole)
    size = (x.shape[1] // fine, x.shape[0] // fine)
    rgb = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA) if fine > 1 else rgb
    if share is None:
        return Sample(rgb, np.ones(size[::-1], np.bool_))
    share = cv2.resize(share, size, interpolation=cv2.INTER_AREA) if fine > 1 else share
    valid: NDArray[np.bool_] = share >= 128
    mixed = valid & (share < 255)
    if mixed.any():
        rgb[mixed] = np.minimum(np.rint(rgb[mixed] * (255.0 / share[mixed][:, None])), 255).astype(np.uint8)
    return Sample(cv2.bitwise_and(rgb, rgb, mask=valid.astype(np.uint8)), valid)
