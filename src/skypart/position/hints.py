"""From what a photo says of itself to hints for locating it."""

from dataclasses import fields

from skypart.images.exif import CameraFacts
from skypart.position.fix import Hints

BEYOND = 95.0
"""Degrees below the horizon up to which a gimbal is taken to hang straight down: they write 90.1 and the like."""


def hints_of(facts: CameraFacts) -> Hints:
    """Heading, height, tilt and field of view.

    A height that is not positive (a photo from the take-off point, or from above a valley's edge) and a tilt above
    the horizon are no use and dropped. A tilt up to BEYOND degrees is straight down, a greater one is dropped.
    """
    height, tilt = facts.relative_altitude_m, facts.tilt_deg
    return Hints(
        heading_deg=facts.heading_deg,
        turn_deg=facts.turn_deg,
        altitude_m=height if height is not None and height > 0.0 else None,
        tilt_deg=min(tilt, 90.0) if tilt is not None and 0.0 <= tilt <= BEYOND else None,
        fov_deg=facts.fov_deg,
    )


def join_hints(said: Hints, read: Hints) -> Hints:
    """What the user said, and where nothing was said, what the file says."""
    chosen = {}
    for field in fields(Hints):
        mine = getattr(said, field.name)
        chosen[field.name] = mine if mine is not None else getattr(read, field.name)
    return Hints(**chosen)
