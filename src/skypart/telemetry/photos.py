"""Flight data from the EXIF and XMP of a folder of photos; their GPS position is read as truth only."""

import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from skypart.errors import SkyPartError
from skypart.images.decode import list_photos, open_image
from skypart.images.exif import read_camera_facts
from skypart.telemetry.record import Sample, Telemetry, require_values

_GPS_IFD = 0x8825


def read_photos(folder: Path) -> Telemetry:
    """Read all photos of a folder that have a time; the clock begins with the first of them."""
    timed: list[tuple[datetime, Path]] = []
    for photo in list_photos([folder]):
        moment = read_camera_facts(photo).time
        if moment is not None:
            timed.append((moment.replace(tzinfo=None), photo))
    if not timed:
        raise SkyPartError(f"{folder}: no photo has a time in its EXIF; give flight data as CSV or SRT")
    timed.sort()
    first = timed[0][0]
    samples = []
    for moment, photo in timed:
        facts = read_camera_facts(photo)
        latitude, longitude = read_gps(photo) or (None, None)
        samples.append(
            Sample(
                time_s=(moment - first).total_seconds(),
                heading_deg=facts.heading_deg,
                tilt_deg=facts.tilt_deg,
                height_m=facts.relative_altitude_m,
                latitude=latitude,
                longitude=longitude,
            )
        )
    return require_values(Telemetry(samples, source=folder.name, start=first), "give flight data as CSV or SRT")


def read_gps(photo: Path) -> tuple[float, float] | None:
    """Latitude and longitude in a photo's EXIF, degrees; None if there are none."""
    try:
        with open_image(photo) as image:
            tags: Mapping[int, Any] = dict(image.getexif().get_ifd(_GPS_IFD))
        found = _degrees(tags.get(2), tags.get(1), "S"), _degrees(tags.get(4), tags.get(3), "W")
    except Exception:  # Pillow raises anything on damaged EXIF
        return None
    latitude, longitude = found
    return None if latitude is None or longitude is None else (latitude, longitude)


def _degrees(parts: Any, letter: Any, negative: str) -> float | None:
    if not isinstance(parts, tuple) or len(parts) != 3:
        return None
    value = sum(float(part) / scale for part, scale in zip(parts, (1.0, 60.0, 3600.0), strict=True))
    sign = -1.0 if str(letter).upper().startswith(negative) else 1.0
    return sign * value if math.isfinite(value) else None
