"""Fixes and a track with values that are hard to write."""

from skypart.geo.footprint import Footprint
from skypart.position.fix import Candidate, Evidence, Fix, Peak, Place
from skypart.position.track import TrackPoint

NAME = 'Dach & Hof <1>, "Süd".jpg'
GOOD = Fix(
    photo=NAME,
    latitude=48.20817,
    longitude=16.37382,
    radius_m=23.5,
    confidence=0.93,
    refined=True,
    calibrated=True,
    heading_deg=271.25,
    ground_m=180.0,
    candidates=(
        Candidate(footprint=Footprint(latitude=48.2, longitude=16.3, metres=200.0), score=0.71, map_name="town"),
    ),
    peaks=(Peak(latitude=48.208, longitude=16.373, weight=0.6, spread_m=40.0),),
    seconds=0.8,
    evidence=Evidence(
        similarity=0.71, agreement=0.6, inliers=31.0, inlier_share=0.4, evenness=float("nan"), scale_m=20.9
    ),
    best_guess=Place(48.20817, 16.37382),
)
BAD = Fix(photo="nacht\x01\udcff.jpg", reason="the photo is almost black; nothing can be seen in it", confidence=0.02)
EDGE = Fix(photo="fiji.jpg", latitude=-17.0, longitude=179.9999, radius_m=100.0, confidence=0.5)
BROKEN = Fix(photo="nan.jpg", latitude=float("nan"), longitude=1.0, radius_m=float("inf"), confidence=0.5)
FIXES = [GOOD, BAD, EDGE, BROKEN]


def point(time_s: float, latitude: float | None, longitude: float | None, raw: Fix | None = None) -> TrackPoint:
    """A track point; lost without a position."""
    if latitude is None:
        return TrackPoint(time_s=time_s, raw=raw)
    return TrackPoint(
        time_s=time_s,
        latitude=latitude,
        longitude=longitude,
        radius_m=12.0,
        confidence=0.9,
        state="tracking" if raw else "coasting",
        raw=raw,
    )


TRACK = [
    point(0.0, None, None, BAD),
    point(1.0, 48.20, 16.30, GOOD),
    point(2.5, 48.21, 16.31),
    point(3.0, None, None),
    point(4.0, 48.25, 16.40, GOOD),
    point(5.0, 48.26, 16.41, GOOD),
]
CROSSING = [point(0.0, -17.0, 179.998), point(1.0, -17.0, 179.9995), point(2.0, -17.001, -179.999)]
