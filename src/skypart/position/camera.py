"""What is known about the camera: hints from photo metadata, the ground it sees, and its position."""

import math
from dataclasses import fields

from skypart.geo.geodesy import offset
from skypart.images.exif import CameraFacts
from skypart.position.fix import Hints, Place
from skypart.telemetry.record import Sample

MAX_GIMBAL_TILT = 95.0
"""Tilts between 90 degrees and this one mean straight down: gimbals report 90.1 and the like."""
ASSUMED_TILT = 60.0
"""Degrees below the horizon, for the width of the ground if the tilt is unknown."""
MIN_POSITION_TILT = 15.0
"""Below this tilt, in degrees, the ground in the photo's centre says too little about the camera's position."""
VERTICAL_TILT = 89.0
"""From this tilt on, in degrees, the camera is above the photo's centre, whatever its heading."""

MIN_GROUND_M, MAX_GROUND_M = 0.5, 1e6
"""Metres of ground across a photo that hints may give."""
MIN_FOV_DEG = 0.1


def hints_from_facts(facts: CameraFacts) -> Hints:
    """Hints from the metadata of a photo.

    An altitude that is not positive (a photo from the take-off point, or from below it) is dropped, and so is a tilt
    above the horizon or beyond MAX_GIMBAL_TILT.
    """
    altitude, tilt = facts.relative_altitude_m, facts.tilt_deg
    return Hints(
        heading_deg=facts.heading_deg,
        turn_deg=facts.turn_deg,
        altitude_m=altitude if altitude is not None and altitude > 0.0 else None,
        tilt_deg=min(tilt, 90.0) if tilt is not None and 0.0 <= tilt <= MAX_GIMBAL_TILT else None,
        fov_deg=facts.fov_deg,
    )


def hints_from_telemetry(sample: Sample) -> Hints:
    """Hints from flight data. Heights below 1 m and tilts above the horizon are dropped."""
    tilt, height = sample.tilt_deg, sample.height_m
    return Hints(
        heading_deg=sample.heading_deg,
        altitude_m=height if height is not None and height >= 1.0 else None,
        tilt_deg=min(tilt, 90.0) if tilt is not None and 0.0 <= tilt <= MAX_GIMBAL_TILT else None,
    )


def merge_hints(given: Hints, metadata: Hints) -> Hints:
    """The hints of the user, completed from the metadata of the photo."""
    merged = {}
    for field in fields(Hints):
        value = getattr(given, field.name)
        merged[field.name] = value if value is not None else getattr(metadata, field.name)
    return Hints(**merged)


def ground_width(hints: Hints) -> float | None:
    """Metres of ground across the centre of a photo, if altitude and lens are known."""
    if hints.altitude_m is None or hints.fov_deg is None:
        return None
    tilt = math.radians(hints.tilt_deg if hints.tilt_deg is not None else ASSUMED_TILT)
    width = 2 * hints.altitude_m / math.sin(max(tilt, 0.2)) * math.tan(math.radians(hints.fov_deg) / 2)
    return width if MIN_GROUND_M <= width <= MAX_GROUND_M else None  # else one of the hints is nonsense


def drone_position(
    *, latitude: float, longitude: float, heading: float | None, ground_m: float | None, hints: Hints
) -> Place | None:
    """Position of a drone whose photo is centred on this ground, if enough is known.

    ground_m: metres of ground across the photo's centre. With the lens it gives the distance to the ground; the
    altitude is used only if one of the two is unknown.
    """
    tilt_deg = hints.tilt_deg
    if tilt_deg is None or tilt_deg < MIN_POSITION_TILT or (heading is None and tilt_deg < VERTICAL_TILT):
        return None
    tilt = math.radians(tilt_deg)
    if ground_m is not None and hints.fov_deg is not None and hints.fov_deg >= MIN_FOV_DEG:
        distance = ground_m / (2 * math.tan(math.radians(hints.fov_deg) / 2))
    elif hints.altitude_m is not None:
        distance = hints.altitude_m / math.sin(tilt)
    else:
        return None
    direction = (heading or 0.0) - (hints.turn_deg or 0.0)
    place = offset(latitude=latitude, longitude=longitude, bearing=direction + 180.0, metres=distance * math.cos(tilt))
    return Place(float(place.latitude), float(place.longitude))
