"""Homographies between a photo and the ground: robust fit, plausibility, warping, and footprints on the map.

Images are unit squares here: x to the right and y down, both in [0, 1], whatever their pixels.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage

Points = NDArray[np.float64]
Homography = NDArray[np.float64]

RANSAC_EDGE = 100.0
"""Unit squares are scaled to this edge for OpenCV. Its robust estimators have built-in tolerances in pixels and miss
most homographies if the edge is 1."""
MIN_MATCHES = 6
"""Matches needed for a fit."""

MIN_EDGE, MAX_EDGE = 0.1, 1.6
"""Limits of the edges of a square of half the photo's width, after it is mapped to the view; 0.5 if nothing changes."""
MAX_EDGE_RATIO = 5.0
"""Longest edge over shortest edge."""
MAX_CENTRE_OFFSET = 0.6
"""How far the photo's centre may lie from the view's centre along either axis."""


def fit_homography(photo: Points, view: Points, tolerance: float) -> tuple[Homography, int] | None:
    """Fit a homography from `photo` to `view`, (m, 2) each, with RANSAC.

    Returns the homography and the number of inliers within `tolerance`, or None if there is none. OpenCV's random
    generator is reset first, so equal matches give equal results.
    """
    if len(photo) < MIN_MATCHES:
        return None
    cv2.setRNGSeed(0)
    scaled = (photo * RANSAC_EDGE, view * RANSAC_EDGE, cv2.USAC_ACCURATE, tolerance * RANSAC_EDGE)
    found, mask = cv2.findHomography(*scaled, maxIters=3000, confidence=0.999)
    if found is None or mask is None:
        return None
    edges = np.array([RANSAC_EDGE, RANSAC_EDGE, 1.0])
    return np.asarray(found, dtype=np.float64) * edges[None] / edges[:, None], int(mask.sum())


def transform(matrix: Homography, points: Points) -> Points:
    """Map points (n, 2) through a homography."""
    mapped: Points = cv2.perspectiveTransform(points[None].astype(np.float64), matrix)[0]
    return mapped


def is_plausible(matrix: Homography, aspect: float = 1.0) -> bool:
    """Whether a camera above the ground can produce this homography from photo to view.

    aspect: height over width of the photo. Checked on a square of half the photo's width at its centre: it lies in
    front of the camera, is not mirrored, is neither too small, too large nor too stretched, and the photo's centre lies
    near the view.
    """
    up = min(0.25 / aspect, 0.5)
    corners = np.array([[0.25, 0.5 - up], [0.75, 0.5 - up], [0.75, 0.5 + up], [0.25, 0.5 + up]])
    depth = np.c_[corners, np.ones(4)] @ matrix[2]  # one sign if all corners are on the same side of the camera
    if abs(depth.sum()) < 1e-9 or (depth / depth.sum()).min() < 1e-6:
        return False
    mapped = transform(matrix, corners)
    edges = np.roll(mapped, -1, axis=0) - mapped
    cross = edges[:, 0] * np.roll(edges[:, 1], -1) - edges[:, 1] * np.roll(edges[:, 0], -1)
    lengths = np.linalg.norm(edges, axis=1)
    centre = transform(matrix, np.array([[0.5, 0.5]]))[0]
    sized = lengths.min() > MIN_EDGE and lengths.max() < MAX_EDGE and lengths.max() < MAX_EDGE_RATIO * lengths.min()
    return bool(cross.min() > 0 and sized and np.all(np.abs(centre - 0.5) < MAX_CENTRE_OFFSET))


def to_metres(footprint: Footprint) -> Homography:
    """From the image of a footprint to metres east and north of its centre, (3, 3)."""
    angle, edge = np.radians(footprint.rotation), footprint.metres
    rotated = edge * np.array([[np.cos(angle), -np.sin(angle)], [-np.sin(angle), -np.cos(angle)]])
    matrix = np.eye(3)
    matrix[:2, :2], matrix[:2, 2] = rotated, -rotated @ [0.5, 0.5]
    return matrix


def between_footprints(source: Footprint, target: Footprint) -> Homography:
    """From the image of one footprint to the image of another, (3, 3)."""
    frame = LocalFrame(latitude=target.latitude, longitude=target.longitude)
    east, north = frame.to_metres(latitude=[source.latitude], longitude=[source.longitude])
    from_source, from_target = to_metres(source), to_metres(target)
    from_source[:2, 2] += east[0], north[0]
    return np.asarray(np.linalg.inv(from_target) @ from_source)


def warp(view: RgbImage, matrix: Homography, shape: tuple[int, int]) -> RgbImage:
    """Warp a view (n, n, 3) into the perspective of a photo, (*shape, 3); shape: height and width.

    matrix: from the photo to the view. Pixels outside the view or above the horizon are black.
    """
    (height, width), edge = shape, len(view)
    to_unit = np.array([[1 / width, 0.0, 0.5 / width], [0.0, 1 / height, 0.5 / height], [0.0, 0.0, 1.0]])
    to_pixels = np.array([[edge, 0.0, -0.5], [0.0, edge, -0.5], [0.0, 0.0, 1.0]])
    pixels = to_pixels @ (matrix / (matrix[2] @ [0.5, 0.5, 1.0])) @ to_unit
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    warped: RgbImage = cv2.warpPerspective(view, pixels, (width, height), flags=flags)
    depth = pixels[2, 0] * np.arange(width) + pixels[2, 1] * np.arange(height)[:, None] + pixels[2, 2]
    warped[depth <= 1e-3] = 0  # 1 at the photo's centre, 0 at the horizon
    return warped


def turn_homography(angle: float) -> Homography:
    """From an image to the image turned clockwise about its centre by `angle` degrees, (3, 3)."""
    sine, cosine = np.sin(np.radians(angle)), np.cos(np.radians(angle))
    matrix = np.eye(3)
    matrix[:2, :2] = [[cosine, -sine], [sine, cosine]]
    matrix[:2, 2] = 0.5 - matrix[:2, :2] @ [0.5, 0.5]
    return matrix


def oblique_homography(tilt: float, fov: float, aspect: float, extent: float) -> Homography:
    """From a photo of a tilted camera to a view of the ground centred where the camera looks, (3, 3).

    tilt: degrees below the horizon. fov: degrees across the photo's width. aspect: height over width of the photo.
    extent: edge of the view, in widths of the ground across the photo's centre. The view's top is ahead of the camera.
    """
    sine, cosine = np.sin(np.radians(tilt)), np.cos(np.radians(tilt))
    height = aspect * np.tan(np.radians(fov / 2))
    depth = np.array([0.0, 2 * height * cosine, sine - height * cosine])
    right, down = sine / (2 * extent) * np.array([2.0, 0.0, -1.0]), aspect / (2 * extent) * np.array([0.0, 2.0, -1.0])
    return np.stack([0.5 * depth + right, 0.5 * depth + down, depth])
