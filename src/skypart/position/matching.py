"""Match the patches of a photo and a view of the map: mutual nearest neighbours that agree on one homography."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skypart.embedding import Embedder, PatchTokens
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage
from skypart.position.homography import Homography, Points, fit_homography, is_plausible, transform

GREY_LEVELS = (60, 120, 180)
"""Blank images from which the positional part of patch tokens is measured."""


@dataclass(frozen=True)
class ImagePatches:
    """The patches of one image.

    tokens: (n, c) unit rows. centres: (n, 2) as (x, y) in [0, 1]. aspect: height over width of the image before it was
    resized to a square.
    """

    tokens: NDArray[np.float32]
    centres: Points
    aspect: float = 1.0


@dataclass(frozen=True)
class PatchMatch:
    """How a photo matches a view of the map.

    homography: from the photo to the view. inliers: matches that agree with it. inlier_share: inliers over all matches.
    alignment: see `alignment_score`.
    """

    homography: Homography
    inliers: int
    inlier_share: float
    alignment: float


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """The position of a photo from a match with the map.

    latitude, longitude: of the ground at the photo's centre. heading_deg: compass direction that is up in the photo.
    ground_m: metres of ground across the photo's centre. match: with the image of `footprint`.
    """

    latitude: float
    longitude: float
    heading_deg: float
    ground_m: float
    match: PatchMatch
    footprint: Footprint


class PatchReader:
    """Reads patch tokens from images and removes their positional part.

    A token also encodes its position in the image, so even two blank images match patch by patch. In an image of
    uniform grey the tokens differ by position only; that difference is subtracted.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def read(self, images: Sequence[RgbImage]) -> list[ImagePatches]:
        """Patches of images, computed in one batch."""
        return self._normalize(self.embedder.patch_tokens(self.embedder.preprocess(images)))

    def read_photo(self, image: RgbImage) -> tuple[NDArray[np.float32], ImagePatches]:
        """The embedding (dim,) of one photo, and its patches."""
        embedding, patches = self.embedder.embed_with_patches(self.embedder.preprocess([image]))
        return embedding[0], replace(self._normalize(patches)[0], aspect=image.shape[0] / image.shape[1])

    def _normalize(self, patches: PatchTokens) -> list[ImagePatches]:
        """Centre the tokens, scale them to unit length, and concatenate the blocks of each patch."""
        rows, columns = patches.grid
        y, x = np.meshgrid((np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij")
        centres = np.stack([x.ravel(), y.ravel()], axis=1)
        # The mean of all patches does not help to distinguish them.
        centred = patches.tokens - patches.tokens.mean(axis=(1, 2), keepdims=True) - self._positional_part
        unit = centred / np.linalg.norm(centred, axis=-1, keepdims=True).clip(1e-6)
        joined = np.concatenate(unit / np.sqrt(len(unit)), axis=-1)
        return [ImagePatches(each, centres) for each in joined.astype(np.float32)]

    @cached_property
    def _positional_part(self) -> NDArray[np.float32]:
        """(blocks, 1, n, c) what tokens encode about their position."""
        edge = self.embedder.size
        greys = [np.full((edge, edge, 3), level, dtype=np.uint8) for level in GREY_LEVELS]
        blank = self.embedder.patch_tokens(self.embedder.preprocess(greys)).tokens.mean(axis=1, keepdims=True)
        positional: NDArray[np.float32] = blank - blank.mean(axis=2, keepdims=True)
        return positional


def mutual_matches(photo: ImagePatches, view: ImagePatches, cosines: NDArray[np.float32]) -> tuple[Points, Points]:
    """Centres (m, 2) of mutual nearest neighbours, in the photo and in the view; cosines: of all pairs (n, n)."""
    forward, backward = cosines.argmax(axis=1), cosines.argmax(axis=0)
    mutual = backward[forward] == np.arange(len(forward))
    return photo.centres[mutual], view.centres[forward[mutual]]


def alignment_score(photo: ImagePatches, view: ImagePatches, cosines: NDArray[np.float32], matrix: Homography) -> float:
    """How much more similar overlapping patches are than arbitrary pairs, in standard deviations of all cosines.

    The score falls with the share of the photo that lies outside the view. cosines: of all pairs (n, n).
    """
    distance = np.linalg.norm(transform(matrix, photo.centres)[:, None] - view.centres[None], axis=-1)
    nearest = distance.argmin(axis=1)
    inside = np.flatnonzero(distance.min(axis=1) < 1 / np.sqrt(len(view.centres)))
    if not len(inside):
        return 0.0
    gain = float(cosines[inside, nearest[inside]].mean() - cosines.mean()) / max(float(cosines.std()), 1e-6)
    return gain * float(np.sqrt(len(inside) / len(photo.centres)))


def match_patches(photo: ImagePatches, view: ImagePatches) -> PatchMatch | None:
    """The homography that most mutual matches of a photo and a view agree on, or None if there is none."""
    cosines = photo.tokens @ view.tokens.T
    in_photo, in_view = mutual_matches(photo, view, cosines)
    found = fit_homography(in_photo, in_view, 1 / np.sqrt(len(photo.tokens)))
    if found is None:
        return None
    matrix, inliers = found
    score = alignment_score(photo, view, cosines, matrix)
    return PatchMatch(matrix, inliers, inliers / max(len(in_photo), 1), score)


def refine_position(match: PatchMatch, footprint: Footprint) -> Refinement | None:
    """The position of a photo that matches the image of a footprint; None if no camera could take such a photo."""
    if not is_plausible(match.homography):
        return None
    points = np.array([[0.5, 0.5], [0.5, 0.4], [0.4, 0.5], [0.6, 0.5]])
    centre, above, left, right = transform(match.homography, points)
    rotation = np.radians(footprint.rotation)
    east = np.array([np.cos(rotation), -np.sin(rotation)])
    up = np.array([np.sin(rotation), np.cos(rotation)])
    offset = footprint.metres * ((centre[0] - 0.5) * east + (0.5 - centre[1]) * up)
    forward = (above[0] - centre[0]) * east + (centre[1] - above[1]) * up
    frame = LocalFrame(latitude=footprint.latitude, longitude=footprint.longitude)
    place = frame.to_degrees(offset[0], offset[1])
    return Refinement(
        latitude=float(place.latitude),
        longitude=float(place.longitude),
        heading_deg=float(np.degrees(np.arctan2(forward[0], forward[1])) % 360),
        ground_m=float(np.linalg.norm(right - left) / 0.2 * footprint.metres),
        match=match,
        footprint=footprint,
    )
