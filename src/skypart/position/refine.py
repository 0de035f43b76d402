"""A position inside a view: match the patch tokens of photo and map, and find the homography between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.embedding import Embedder, PatchTokens
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage

Points = NDArray[np.float64]
Homography = NDArray[np.float64]
PIXELS = 100.0
"""Edge of a picture for OpenCV, whose robust estimators have tolerances of their own in pixels: with an edge of 1 they
miss most homographies."""


@dataclass(frozen=True)
class Tokens:
    """Patch tokens of one picture, unit rows (n, c), and their centres (n, 2) as (x, y) in [0, 1].
    shape: height over width of the picture, before it was made square."""

    patches: NDArray[np.float32]
    centres: Points
    shape: float = 1.0


@dataclass(frozen=True)
class Fit:
    """How a photo lies on a picture of the map. matrix: homography between their unit squares. inliers: matches that
    agree; share: of all matches. alignment: by how many deviations patches that come to lie on each other are more
    alike than any two; see `aligned`."""

    matrix: Homography
    inliers: int
    share: float
    alignment: float


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """Where the middle of the photo lies. heading_deg: compass direction that is up in the photo. ground_m: metres of
    ground across the photo's middle. fit: to the picture of footprint."""

    latitude: float
    longitude: float
    heading_deg: float
    ground_m: float
    fit: Fit
    footprint: Footprint


class TokenReader:
    """Patch tokens of pictures, without what they say of their place in the picture.

    A token also carries its position: two blank pictures match patch by patch, though they show nothing. What tokens of
    pictures of one grey say beyond their mean is position alone, and is taken off.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def __call__(self, pictures: Sequence[RgbImage]) -> list[Tokens]:
        """Tokens of pictures, in one batch."""
        return self._placed(self.embedder.patch_tokens(self.embedder.preprocess(pictures)))

    def photo(self, picture: RgbImage) -> tuple[NDArray[np.float32], Tokens]:
        """The embedding (dim,) of one picture, and its tokens."""
        embedding, patches = self.embedder.embed_with_patches(self.embedder.preprocess([picture]))
        return embedding[0], replace(self._placed(patches)[0], shape=picture.shape[0] / picture.shape[1])

    def _placed(self, patches: PatchTokens) -> list[Tokens]:
        """Unit tokens of a batch with their centres: each patch's tokens of all blocks in one row."""
        rows, columns = patches.grid
        y, x = np.meshgrid((np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij")
        centres = np.stack([x.ravel(), y.ravel()], axis=1)
        # what all patches share tells none apart
        centred = patches.tokens - patches.tokens.mean(axis=(1, 2), keepdims=True) - self._position
        unit = centred / np.linalg.norm(centred, axis=-1, keepdims=True).clip(1e-6)
        joined = np.concatenate(unit / np.sqrt(len(unit)), axis=-1)
        return [Tokens(each, centres) for each in joined.astype(np.float32)]

    @cached_property
    def _position(self) -> NDArray[np.float32]:
        """(blocks, 1, n, c) what tokens say of their position."""
        edge = self.embedder.size
        greys = [np.full((edge, edge, 3), level, dtype=np.uint8) for level in (60, 120, 180)]
        blank = self.embedder.patch_tokens(self.embedder.preprocess(greys)).tokens.mean(axis=1, keepdims=True)
        position: NDArray[np.float32] = blank - blank.mean(axis=2, keepdims=True)
        return position


def match(photo: Tokens, view: Tokens, similar: NDArray[np.float32]) -> tuple[Points, Points]:
    """Centres (m, 2) of mutually nearest patches in photo and view; similar: cosines of all pairs (n, n)."""
    there, back = similar.argmax(axis=1), similar.argmax(axis=0)
    mutual = back[there] == np.arange(len(there))
    return photo.centres[mutual], view.centres[there[mutual]]


def homography(photo: Points, view: Points, tolerance: float) -> tuple[NDArray[np.float64], int] | None:
    """The homography from photo to view (m, 2) by RANSAC, and how many agree within `tolerance`; None if there is none.

    The generator is reset first, so that the same matches give the same answer.
    """
    if len(photo) < 6:
        return None
    cv2.setRNGSeed(0)
    scaled = (photo * PIXELS, view * PIXELS, cv2.USAC_ACCURATE, tolerance * PIXELS)
    found, mask = cv2.findHomography(*scaled, maxIters=3000, confidence=0.999)
    if found is None or mask is None:
        return None
    edges = np.array([PIXELS, PIXELS, 1.0])
    return np.asarray(found, dtype=np.float64) * edges[None] / edges[:, None], int(mask.sum())


def apply(matrix: NDArray[np.float64], points: Points) -> Points:
    """Points (n, 2) through a homography."""
    mapped: Points = cv2.perspectiveTransform(points[None].astype(np.float64), matrix)[0]
    return mapped


def plausible(matrix: NDArray[np.float64]) -> bool:
    """Whether a homography from photo to view (unit squares) is one that a camera above the ground can make."""
    rim = np.array([[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75]])
    depth = np.c_[rim, np.ones(4)] @ matrix[2]  # of one sign where all are before the camera, or all behind it
    if abs(depth.sum()) < 1e-9 or (depth / depth.sum()).min() < 1e-6:
        return False
    seen = apply(matrix, rim)
    edges = np.roll(seen, -1, axis=0) - seen
    turns = edges[:, 0] * np.roll(edges[:, 1], -1) - edges[:, 1] * np.roll(edges[:, 0], -1)
    lengths = np.linalg.norm(edges, axis=1)
    centre = apply(matrix, np.array([[0.5, 0.5]]))[0]
    sized = lengths.min() > 0.1 and lengths.max() < 1.6 and lengths.max() < 5 * lengths.min()
    return bool(turns.min() > 0 and sized and np.all(np.abs(centre - 0.5) < 0.6))


def aligned(photo: Tokens, view: Tokens, similar: NDArray[np.float32], matrix: NDArray[np.float64]) -> float:
    """How much more alike the photo's patches are to the view's that a homography lays them on than to any others, in
    standard deviations of all pairs; less where much of the photo falls outside the view. similar: as for `match`."""
    apart = np.linalg.norm(apply(matrix, photo.centres)[:, None] - view.centres[None], axis=-1)
    nearest = apart.argmin(axis=1)
    inside = np.flatnonzero(apart.min(axis=1) < 1 / np.sqrt(len(view.centres)))
    if not len(inside):
        return 0.0
    gain = float(similar[inside, nearest[inside]].mean() - similar.mean()) / max(float(similar.std()), 1e-6)
    return gain * float(np.sqrt(len(inside) / len(photo.centres)))


def fit(photo: Tokens, view: Tokens) -> Fit | None:
    """The homography that most matching patches of a photo and a view agree on, if there is one."""
    similar = photo.patches @ view.patches.T
    here, there = match(photo, view, similar)
    found = homography(here, there, 1 / np.sqrt(len(photo.patches)))
    if found is None:
        return None
    matrix, inliers = found
    return Fit(matrix, inliers, inliers / max(len(here), 1), aligned(photo, view, similar, matrix))


def refine(fitted: Fit, footprint: Footprint) -> Refinement | None:
    """The middle of the photo on the ground, of a photo that fits a view of a footprint as a camera can."""
    if not plausible(fitted.matrix):
        return None
    seen = np.array([[0.5, 0.5], [0.5, 0.4], [0.4, 0.5], [0.6, 0.5]])
    middle, above, left, right = apply(_to_metres(footprint) @ fitted.matrix, seen)
    forward = above - middle
    frame = LocalFrame(latitude=footprint.latitude, longitude=footprint.longitude)
    place = frame.to_degrees(middle[0], middle[1])
    return Refinement(
        latitude=float(place.latitude),
        longitude=float(place.longitude),
        heading_deg=float(np.degrees(np.arctan2(forward[0], forward[1])) % 360),
        ground_m=float(np.linalg.norm(right - left) / 0.2),
        fit=fitted,
        footprint=footprint,
    )


def between(here: Footprint, there: Footprint) -> Homography:
    """The homography from the unit square of one footprint's picture to that of another, (3, 3)."""
    frame = LocalFrame(latitude=there.latitude, longitude=there.longitude)
    east, north = frame.to_metres(latitude=[here.latitude], longitude=[here.longitude])
    from_here, from_there = _to_metres(here), _to_metres(there)
    from_here[:2, 2] += east[0], north[0]
    return np.asarray(np.linalg.inv(from_there) @ from_here)


def _to_metres(footprint: Footprint) -> Homography:
    """From the unit square of a footprint's picture to metres east and north of its centre, (3, 3)."""
    turn, edge = np.radians(footprint.rotation), footprint.metres
    turned = edge * np.array([[np.cos(turn), -np.sin(turn)], [-np.sin(turn), -np.cos(turn)]])
    matrix = np.eye(3)
    matrix[:2, :2], matrix[:2, 2] = turned, -turned @ [0.5, 0.5]
    return matrix


def laid(view: RgbImage, matrix: Homography, size: int) -> RgbImage:
    """A view (h, w, 3) as a photo shows it that a homography (unit squares) lays on it, (size, size, 3); black where
    it does not reach, and above the horizon."""
    edge = len(view)
    rows, columns = np.meshgrid((np.arange(size) + 0.5) / size, (np.arange(size) + 0.5) / size, indexing="ij")
    seen = np.stack([columns, rows, np.ones_like(rows)], axis=-1) @ matrix.T
    depth = seen[..., 2:] / (matrix[2] @ [0.5, 0.5, 1.0])  # 1 in the middle, none at the horizon
    ahead = depth > 1e-3
    points = np.where(ahead, seen[..., :2] / np.where(ahead, seen[..., 2:], 1.0), -9.0) * edge - 0.5
    points = np.clip(points, -4.0 * edge, 5.0 * edge).astype(np.float32)
    picture: RgbImage = cv2.remap(view, points, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
    return picture


def perspective(tilt: float, fov: float, shape: float, widths: float) -> Homography:
    """From the unit square of a photo, taken `tilt` degrees below the horizon, `fov` degrees across, `shape` as high as
    wide, to that of a view around its middle, up where the photo looks, `widths` times as wide as the ground across
    the photo's middle."""
    sine, cosine = np.sin(np.radians(tilt)), np.cos(np.radians(tilt))
    height = shape * np.tan(np.radians(fov / 2))
    depth = np.array([0.0, 2 * height * cosine, sine - height * cosine])
    right, down = sine / (2 * widths) * np.array([2.0, 0.0, -1.0]), shape / (2 * widths) * np.array([0.0, 2.0, -1.0])
    return np.stack([0.5 * depth + right, 0.5 * depth + down, depth])
