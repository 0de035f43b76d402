"""The result for one photo: a fix with its error radius, or the reason why there is none."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from skypart.geo.footprint import Footprint


class Place(NamedTuple):
    """A point in WGS 84 degrees."""

    latitude: float
    longitude: float


@dataclass(frozen=True, kw_only=True)
class Prior:
    """An approximate position: within `radius_m` metres of a point in WGS 84 degrees."""

    latitude: float
    longitude: float
    radius_m: float


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What is known about the camera; None where unknown.

    heading_deg: compass direction that is up in the photo. turn_deg: angle clockwise from the camera's direction to
    that heading, for example of a rolled gimbal. altitude_m: above the ground, or above take-off if the file has no
    other. tilt_deg: of the optical axis below the horizon, 90 = straight down. fov_deg: across the photo's width.
    """

    heading_deg: float | None = None
    turn_deg: float | None = None
    altitude_m: float | None = None
    tilt_deg: float | None = None
    fov_deg: float | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A view of the map that resembles the photo. score: cosine similarity, -1..1. map_name: the view's map."""

    footprint: Footprint
    score: float
    map_name: str


@dataclass(frozen=True, kw_only=True)
class Peak:
    """A place that the best views agree on. weight: its share of all votes, 0..1. spread_m: standard deviation."""

    latitude: float
    longitude: float
    weight: float
    spread_m: float


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the confidence and the radius of a fix are computed from.

    similarity: cosine of the best view. agreement: share of the votes for the strongest peak, 0..1. inliers: matched
    keypoints that agree on one homography; inlier_share: as a share of all matches; evenness: how evenly the
    inliers are spread over the photo, see `skypart.position.matching.evenness`; all three are 0 if no match was
    accepted. scale_m: the expected error before
    calibration, in metres. uniqueness: 1 less the inliers of the best match somewhere else, as a share of the inliers
    here; 1 if nothing else was compared, 0 without a match. layout: how clearly the photo lay on the best view, in
    standard deviations of all layouts, before it was matched; 0 without a match. tilt_deg: of the optical axis below
    the horizon, from the match, from the hints, or assumed. ground_m: metres of ground across the photo.

    Where a photo of a flight is matched around the photo before, similarity, agreement, uniqueness and layout are those
    of the last photo that was searched for.
    """

    similarity: float
    agreement: float
    inliers: float
    inlier_share: float
    evenness: float
    scale_m: float
    uniqueness: float = 1.0
    layout: float = 0.0
    tilt_deg: float = 90.0
    ground_m: float = 0.0

    @property
    def matched(self) -> bool:
        """Whether the position comes from a match with the map, not from the vote alone."""
        return self.inliers > 0

    @property
    def support(self) -> float:
        """Inliers that speak for this place.

        Those that other ground has too say nothing, and many in a small part of the photo say that only this part
        matches: two cities may have the same stadium.
        """
        return self.inliers * self.uniqueness * self.evenness


@dataclass(frozen=True)
class ErrorParts:
    """The parts of a 95 % radius in metres. They add like the legs of a right triangle.

    map_m: the map's own position error, common to all its photos. terrain_m: heights that the map does not know, seen
    obliquely. camera_m: tilt, roll and lens. matching_m: the match or the vote.
    """

    map_m: float = 0.0
    terrain_m: float = 0.0
    camera_m: float = 0.0
    matching_m: float = 0.0

    @property
    def total_m(self) -> float:
        """The radius."""
        return math.hypot(self.map_m, self.terrain_m, self.camera_m, self.matching_m)


@dataclass(frozen=True, kw_only=True)
class Fix:
    """The result for one photo.

    latitude, longitude: of the ground at the centre of the image, WGS 84 degrees; None without a fix.
    radius_m: the true position lies within it with 95 % probability. map_error_m: the part of the radius that is the
    map's own error, common to all its photos. error_parts: all parts of the radius; None without a fix. confidence:
    probability, 0..1, that the true position lies within 50 m. reason: why there is no fix; empty with one.
    refined: whether the position comes from a match with the map. calibrated: False if radius and confidence come
    from the default calibration, not from one fitted to this map.
    heading_deg: compass direction that is up in the photo; ground_m: metres of ground across the photo; both None
    unless refined. drone_latitude, drone_longitude: of the camera; None unless the tilt is known and the lens (if
    refined) or the altitude.
    candidates: the best views, best first. peaks: places they agree on, best first. seconds: time taken.
    evidence: None if the photo was not compared with the map. best_guess: the most likely position, also without a fix.
    ground: homography, row by row, from the photo as a unit square (x right, y down) to metres east and north of the
    fix; None unless refined.
    """

    photo: str
    latitude: float | None = None
    longitude: float | None = None
    radius_m: float | None = None
    map_error_m: float = 0.0
    error_parts: ErrorParts | None = None
    confidence: float = 0.0
    reason: str = ""
    refined: bool = False
    calibrated: bool = False
    heading_deg: float | None = None
    ground_m: float | None = None
    drone_latitude: float | None = None
    drone_longitude: float | None = None
    candidates: tuple[Candidate, ...] = ()
    peaks: tuple[Peak, ...] = ()
    seconds: float = 0.0
    evidence: Evidence | None = None
    best_guess: Place | None = None
    ground: tuple[float, ...] | None = None

    @property
    def found(self) -> bool:
        """Whether there is a fix."""
        return self.latitude is not None
