"""What is known about where a photo was taken: a fix with its error radius, or the reason why there is none."""

from dataclasses import dataclass, field

from skypart.geo.footprint import Footprint


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Where the photo is thought to be: within `radius_m` metres of a point in WGS 84 degrees."""

    latitude: float
    longitude: float
    radius_m: float


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What is known of the camera, None where it is not.

    heading_deg: compass direction that is up in the photo. turn_deg: how far that lies clockwise of where the camera
    points, as of a rolled gimbal. altitude_m: above the ground, or above take-off where that
    is all the file says. tilt_deg: of the optical axis below the horizon, 90 = straight down. fov_deg: across the
    photo's width.
    """

    heading_deg: float | None = None
    turn_deg: float | None = None
    altitude_m: float | None = None
    tilt_deg: float | None = None
    fov_deg: float | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One view of the map that resembles the photo. score: cosine similarity, -1..1. map_name: of the map it is of."""

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
class Fix:
    """The answer for one photo.

    latitude, longitude: of the ground at the centre of the image, WGS 84 degrees; None without a fix.
    radius_m: the true position lies within it with 95 % probability. map_error_m: what of it, as a leg of a right
    triangle, is the map's own error and common to all photos of the map. confidence: probability, 0..1, that the true
    position lies within 50 m. reason: why there is no fix, empty with one. refined: whether patch tokens of photo and
    map were matched. calibrated: False where radius and confidence are those of the default
    model on maps of ours, not fitted to this map.
    heading_deg: compass direction that is up in the photo; ground_m: metres of ground across the photo; both None
    unless refined. drone_latitude, drone_longitude: of the camera, None unless its tilt is known, and its lens (if
    refined) or altitude.
    candidates: the best views, best first. peaks: places they agree on, best first. seconds: time taken.
    """

    photo: str
    latitude: float | None = None
    longitude: float | None = None
    radius_m: float | None = None
    map_error_m: float = 0.0
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
    evidence: dict[str, float] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        """Whether there is a fix."""
        return self.latitude is not None
