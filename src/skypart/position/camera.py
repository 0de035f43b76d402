"""What a known camera says: how much ground it sees, and where it hangs."""

import math

from skypart.position.fix import Hints
from skypart.position.geodesy import offset


def ground_width(hints: Hints) -> float | None:
    """Metres of ground across the middle of a photo, if altitude and lens are known."""
    if hints.altitude_m is None or hints.fov_deg is None:
        return None
    tilt = math.radians(hints.tilt_deg if hints.tilt_deg is not None else 60.0)
    return 2 * hints.altitude_m / math.sin(max(tilt, 0.2)) * math.tan(math.radians(hints.fov_deg) / 2)


def drone_place(
    *, latitude: float, longitude: float, heading: float | None, hints: Hints
) -> tuple[float, float] | None:
    """Latitude and longitude of a drone with that ground in the middle of its picture, if enough is known."""
    if hints.altitude_m is None or hints.tilt_deg is None or (heading is None and hints.tilt_deg < 89):
        return None
    if hints.tilt_deg < 15:
        return None
    back = hints.altitude_m / math.tan(math.radians(hints.tilt_deg)) if hints.tilt_deg < 90 else 0.0
    place = offset(latitude=latitude, longitude=longitude, bearing=(heading or 0.0) + 180.0, metres=back)
    return float(place.latitude), float(place.longitude)
