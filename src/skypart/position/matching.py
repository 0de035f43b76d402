"""Match the keypoints of a photo and a view of the map: mutual nearest neighbours that agree on one homography."""

from dataclasses import dataclass

import numpy as np

from skypart.embedding.keypoints import ImageKeypoints, mutual_neighbours
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.position.homography import Homography, Points, fit_homography, is_plausible, transform

TOLERANCE = 0.0125
"""Distance at which a match is an inlier, in edges of the image: some 4 pixels of those that are matched."""
CELLS = 6
"""Cells along each edge of a photo whose inliers are counted for `evenness`."""


@dataclass(frozen=True)
class Match:
    """How a photo matches a view of the map.

    homography: from the photo to the view. inliers: matches that agree with it. inlier_share: inliers over all matches.
    evenness: how evenly the inliers are spread over the photo, see `evenness`.
    """

    homography: Homography
    inliers: int = 0
    inlier_share: float = 0.0
    evenness: float = 0.0


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
    match: Match
    footprint: Footprint
    tilt_deg: float = 90.0
    uniqueness: float = 1.0
    layout: float = 0.0


def match_keypoints(photo: ImageKeypoints, view: ImageKeypoints) -> Match | None:
    """The homography that most mutual matches of a photo and a view agree on, or None if there is none."""
    ours, theirs = mutual_neighbours(photo, view)
    in_photo, in_view = photo.points[ours], view.points[theirs]
    found = fit_homography(in_photo, in_view, TOLERANCE)
    if found is None:
        return None
    matrix, inliers = found
    agrees = np.linalg.norm(transform(matrix, in_photo) - in_view, axis=1) <= TOLERANCE
    return Match(matrix, inliers, inliers / len(in_photo), evenness(in_photo[agrees]))


def evenness(points: Points) -> float:
    """How evenly points (n, 2) in [0, 1] are spread over an image: about 1 if at random, less if they crowd somewhere.

    The cells of a grid that have a point, over the number expected of as many points at random places.
    """
    if not len(points):
        return 0.0
    cells = np.clip((points * CELLS).astype(np.int64), 0, CELLS - 1)
    expected = CELLS**2 * (1.0 - (1.0 - 1.0 / CELLS**2) ** len(points))
    return len(np.unique(cells, axis=0)) / expected


def refine_position(match: Match, footprint: Footprint, aspect: float = 1.0) -> Refinement | None:
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
