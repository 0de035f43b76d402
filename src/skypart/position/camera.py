"""What a known camera says: how much ground it sees, and where it hangs."""

import math

from skypart.geo.geodesy import offset
from skypart.position.fix import Hints


def ground_width(hints: Hints) -> float | None:
    """Metres of ground across the middle of a photo, if altitude and lens are known."""
    if hints.altitude_m is None or hints.fov_deg is None:
        return None
    tilt = math.radians(hints.tilt_deg if hints.tilt_deg is not None else 60.0)
    return 2 * hints.altitude_m / math.sin(max(tilt, 0.2)) * math.tan(math.radians(hints.fov_deg) / 2)


def drone_place(
    *, latitude: float, longitude: float, heading: float | None, ground_m: float | None, hints: Hints
) -> tuple[float, float] | None:
    """Latitude and longitude of a drone with that ground in the middle of its picture, if enough is known.

    ground_m: metres of ground across the picture's middle. With the lens it says how far away the ground is; only
    where one of them is unknown the drone's height says so.
    """
    if hints.tilt_deg is None or hints.tilt_deg < 15 or (heading is None and hints.tilt_deg < 89):
        return None
    tilt = math.radians(hints.tilt_deg)
    if ground_m is not None and hints.fov_deg is not None:
        away = ground_m / (2 * math.tan(math.radians(hints.fov_deg) / 2))
    elif hints.altitude_m is not None:
        away = hints.altitude_m / math.sin(tilt)
    else:
        return None
    back = away * math.cos(tilt)
    ahead = (heading or 0.0) - (hints.turn_deg or 0.0)
    place = offset(latitude=latitude, longitude=longitude, bearing=ahead + 180.0, metres=back)
    return float(place.latitude), float(place.longitude)
