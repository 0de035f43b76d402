"""Locate photo files, with hints from the caller and from their metadata."""

import logging
import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from skypart.embedding import load_fastest
from skypart.embedding.runtimes import is_on_hub
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import EARTH_RADIUS_M
from skypart.images.decode import list_photos, read_photo
from skypart.images.exif import read_camera_facts
from skypart.maps.index import MapIndex
from skypart.position.camera import hints_from_facts, merge_hints
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.locate import Locator
from skypart.position.search import LocateOptions
from skypart.progress import with_progress

log = logging.getLogger(__name__)

DEFAULT_RADIUS_M = 1000.0
"""Search radius around --near if --radius is not given."""

NO_FIX = 3
"""Exit code if a photo has no fix."""


def open_locator(
    index: Path,
    model: str = "",
    device: str = "cpu",
    options: LocateOptions | None = None,
    *,
    network: bool = False,
    store: str = "",
) -> Locator:
    """Open an index with the model it was made with, or with `model`.

    Maps that cannot be read, and a calibration that cannot be used, are logged as warnings. network: whether
    maps, views and the index's own model may be read from the network. store: address of a copy of the index's views.
    """
    opened = MapIndex(index, network=network, store=store)
    made_with = opened.manifest.model
    if not model and not network and is_on_hub(made_with["name"]):  # an index may come from somebody else
        raise SkyPartError(
            f"{index}: was made with the model {made_with['name'][:120]} of the hub, used only with --network; add it, "
            "or give a model with --model"
        )
    locator = Locator(opened, load_fastest(model or made_with["name"], device, made_with["size"]), options)
    warnings = opened.missing_reasons()
    if locator.outdated:
        warnings = [*warnings, f"the calibration of {index} {locator.outdated} and is not used: calibrate again"]
    for warning in warnings:
        log.warning("%s", warning)
    return locator


def read_prior(near: str, radius_m: float | None = None) -> Prior | None:
    """Parse `--near LAT,LON --radius M`; None if neither is given."""
    if not near:
        if radius_m is not None:
            raise SkyPartError("--radius needs --near; give both")
        return None
    try:
        latitude, longitude = (float(part) for part in near.split(","))
    except ValueError as error:
        raise SkyPartError(f"--near {near}: give latitude and longitude in degrees, for instance 48.1,11.5") from error
    return check_prior(latitude, longitude, radius_m, f"--near {near}", "--radius")


def check_prior(
    latitude: float, longitude: float, radius_m: float | None, near: str = "near", radius: str = "radius_m"
) -> Prior:
    """The search area around a point; impossible values raise an error. near, radius: their names in messages."""
    radius_m = DEFAULT_RADIUS_M if radius_m is None else radius_m
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        raise SkyPartError(f"{near}: latitude comes first (-90..90), then longitude (-180..180)")
    if not 0 < radius_m < math.inf:
        raise SkyPartError(f"{radius} must be a positive number of metres")
    return Prior(latitude=latitude, longitude=longitude, radius_m=radius_m)


def check_prior_order(prior: Prior | None, bounds: Bounds) -> None:
    """Raise if no map is within the radius of a point, but one is with latitude and longitude swapped."""
    if prior is None or _reaches(bounds, prior.latitude, prior.longitude, prior.radius_m):
        return
    if abs(prior.longitude) <= 90 and _reaches(bounds, prior.longitude, prior.latitude, prior.radius_m):
        raise SkyPartError(
            f"the point {prior.latitude:g},{prior.longitude:g} to search around is outside the map, but "
            f"{prior.longitude:g},{prior.latitude:g} is in or near it; give latitude first, then longitude"
        )


def _reaches(bounds: Bounds, latitude: float, longitude: float, radius_m: float) -> bool:
    """Whether a point lies in a box, widened by a radius in metres; the box may cross the antimeridian."""
    north = math.degrees(radius_m / EARTH_RADIUS_M)
    east = north / max(math.cos(math.radians(latitude)), 1e-6)
    inside = bounds.south - north <= latitude <= bounds.north + north
    return inside and (longitude - bounds.west + east) % 360 <= bounds.degrees_wide + 2 * east


_RANGES = {"heading": (-360, 360), "altitude": (0, 20_000), "tilt": (0, 90), "fov": (0, 179)}
_FIELDS = {"heading": "heading_deg", "altitude": "altitude_m", "tilt": "tilt_deg", "fov": "fov_deg"}


def read_hints(
    heading: float | None = None,
    altitude: float | None = None,
    tilt: float | None = None,
    fov: float | None = None,
    *,
    options: bool = True,
) -> Hints:
    """What the caller knows about the camera; impossible values raise an error.

    options: whether messages name the options of the command line (`--tilt`) or the fields of `Hints` (`tilt_deg`).
    """
    for name, value in {"heading": heading, "altitude": altitude, "tilt": tilt, "fov": fov}.items():
        low, high = _RANGES[name]
        if value is not None and not (low <= value <= high and (value > 0 or name == "heading")):
            label = f"--{name} {value:g}" if options else f"{_FIELDS[name]}={value:g}"
            raise SkyPartError(f"{label} is out of range; it must be between {low} and {high}")
    return Hints(
        heading_deg=None if heading is None else heading % 360.0, altitude_m=altitude, tilt_deg=tilt, fov_deg=fov
    )


def locate_photo(
    locator: Locator, photo: Path, prior: Prior | None = None, hints: Hints | None = None, *, exif: bool = True
) -> Fix:
    """Locate a photo file. EXIF and XMP complete the `hints`, unless `exif` is False."""
    metadata = hints_from_facts(read_camera_facts(photo)) if exif else Hints()
    merged = merge_hints(hints or Hints(), metadata)
    return locator.locate(read_photo(photo, locator.photo_edge), name=str(photo), prior=prior, hints=merged)


def locate_photos(
    locator: Locator,
    sources: Sequence[Path],
    prior: Prior | None = None,
    hints: Hints | None = None,
    *,
    exif: bool = True,
) -> list[Fix]:
    """Locate photo files and folders of photos. EXIF and XMP complete the `hints`, unless `exif` is False.

    The result for a photo that cannot be read has no fix but a reason; an error is raised only if no photo can be read.
    """
    fixes, errors = [], []
    with closing(with_progress(list_photos(sources), "locating")) as bar:
        for photo in bar:
            try:
                fixes.append(locate_photo(locator, photo, prior, hints, exif=exif))
            except SkyPartError as error:
                errors.append(error)
                fixes.append(Fix(photo=str(photo), reason=str(error), calibrated=locator.calibrated))
    if len(errors) == len(fixes):
        raise errors[0]
    return fixes
