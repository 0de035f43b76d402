"""Reports of a live flight: tracking, coasting and lost."""

from datetime import UTC, datetime

from skypart.position.fix import Fix
from skypart.position.live import Report
from skypart.position.track import TrackPoint

TIME = datetime(2026, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC)
TRACKING = Report(
    time=TIME,
    point=TrackPoint(
        time_s=12.25,
        latitude=-33.8567844,
        longitude=151.2152967,
        radius_m=12.0,
        confidence=0.995,
        state="tracking",
        source="matched",
        anchor_age_s=0.0,
        covariance=(25.0, 3.0, 16.0),
        protection_m=40.0,
        velocity_east=3.0,
        velocity_north=-4.0,
        heading_deg=143.5,
        of="drone",
    ),
    fix_age_s=0.4,
    processing_s=0.35,
    height_m=80.5,
    seen=50,
    dropped=20,
    located=10,
    fix=Fix(photo="a", latitude=-33.85, longitude=151.2, seconds=0.35),
)
LOST = Report(time=TIME, point=TrackPoint(time_s=13.0), lost_frames=4, ask_operator=True, located=14)
STOPPED = Report(time=TIME, point=TrackPoint(time_s=60.0), lost_frames=90, ask_operator=True, stopped=True, located=100)
