"""Match the patches of a photo and a view of the map: mutual nearest neighbours that agree on one homography."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skypart.embedding.patches import ImagePatches
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.position.homography import Homography, Points, fit_homography, is_plausible, transform


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
    ground_m: metres of ground across the photo's centre. match: with the image of `footprint`. tilt_deg: of the optical
    axis below the horizon, as the homography shows it. uniqueness, layout: see `skypart.position.fix.Evidence`.
    """

    latitude: float
    longitude: float
    heading_deg: float
    ground_m: float
    match: PatchMatch
    footprint: Footprint
    tilt_deg: float = 90.0
    uniqueness: float = 1.0
    layout: float = 0.0


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


def refine_position(match: PatchMatch, footprint: Footprint, aspect: float = 1.0) -> Refinement | None:
    """The position of a photo that matches the image of a footprint; None if no camera could take such a photo.

    aspect: height over width of the photo.
    """
    if not is_plausible(match.homography, aspect):
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
        tilt_deg=apparent_tilt(match.homography, aspect),
    )


def apparent_tilt(homography: Homography, aspect: float) -> float:
    """Tilt of the camera below the horizon, in degrees, from a homography to level ground.

    aspect: height over width of the photo. The sine of the tilt is the foreshortening along the line of sight.
    """
    step = 0.05
    points = np.array([[0.5 - step, 0.5], [0.5 + step, 0.5], [0.5, 0.5 - step / aspect], [0.5, 0.5 + step / aspect]])
    left, right, above, below = transform(homography, points)
    stretch = np.linalg.svd(np.stack([right - left, below - above]), compute_uv=False)
    return float(np.degrees(np.arcsin(np.clip(stretch[1] / max(stretch[0], 1e-12), 0.0, 1.0))))
