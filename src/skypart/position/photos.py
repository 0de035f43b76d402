"""`skypart locate`: photos from disk, with what their files say of the camera."""

import math
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

from skypart.embedding import load
from skypart.errors import SkyPartError
from skypart.images.decode import list_photos, read_rgb
from skypart.images.exif import read_camera_facts
from skypart.maps.index import MapIndex
from skypart.position.closer import LocateOptions
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.hints import hints_of, join_hints
from skypart.position.locate import Locator
from skypart.progress import console, with_progress

RADIUS_M = 1000.0
"""Searched around a known place, where nobody says how far."""

NO_FIX = 3
"""Exit code when a photo has no fix."""


def open_locator(
    index: Path, model: str = "", device: str = "cpu", options: LocateOptions | None = None, *, network: bool = False
) -> Locator:
    """The index with the model it was made with, or `model`; maps that cannot be read are told on standard error.

    network: whether maps that lie on the network may be read.
    """
    opened = MapIndex(index, network=network)
    made_with = opened.manifest.model
    locator = Locator(opened, load(model or made_with["name"], device, made_with["size"]), options)
    outdated = [f"the calibration of {index} {locator.outdated} and is not used: calibrate again"]
    for told in [*opened.why_missing(), *(outdated if locator.outdated else [])]:
        console.print(told, style="yellow", markup=False, highlight=False, soft_wrap=True)
    return locator


def read_prior(near: str, radius_m: float | None = None) -> Prior | None:
    """From `--near LAT,LON --radius M`; None where nothing is said."""
    if not near:
        if radius_m is not None:
            raise SkyPartError("--radius is around --near; give that too")
        return None
    radius_m = RADIUS_M if radius_m is None else radius_m
    try:
        latitude, longitude = (float(part) for part in near.split(","))
    except ValueError as error:
        raise SkyPartError(f"--near {near}: give latitude and longitude in degrees, for instance 48.1,11.5") from error
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        raise SkyPartError(f"--near {near}: latitude comes first (-90..90), then longitude (-180..180)")
    if not 0 < radius_m < math.inf:
        raise SkyPartError("--radius must be metres greater than 0")
    return Prior(latitude=latitude, longitude=longitude, radius_m=radius_m)


def read_hints(
    heading: float | None = None, altitude: float | None = None, tilt: float | None = None, fov: float | None = None
) -> Hints:
    """From `--heading --altitude --tilt --fov`; what no camera can have is refused."""
    ranges = (("heading", heading, -360, 360), ("altitude", altitude, 0, 20_000), ("tilt", tilt, 0, 90))
    for name, value, low, high in (*ranges, ("fov", fov, 0, 179)):
        if value is not None and not (low <= value <= high and (value > 0 or name == "heading")):
            raise SkyPartError(f"--{name} {value:g} is out of range; it must lie between {low} and {high}")
    return Hints(
        heading_deg=None if heading is None else heading % 360.0, altitude_m=altitude, tilt_deg=tilt, fov_deg=fov
    )


def read_format(format: str, output: Path | None, formats: Collection[str]) -> str:
    """From `--format` and `-o`: what is said, else what the file's suffix asks for, else a table.

    formats: those there are; a suffix that is none of them asks for nothing. GeoJSON may be called .json.
    """
    said, asked = format.lower(), output.suffix.lower().removeprefix(".") if output is not None else ""
    if asked not in formats or (said, asked) == ("geojson", "json"):
        return said or "table"
    if said not in ("", asked):
        raise SkyPartError(
            f"{output}: its suffix asks for {asked}, --format for {said}; leave --format out or rename the file"
        )
    return asked


def locate_photo(
    locator: Locator, photo: Path, prior: Prior | None = None, hints: Hints | None = None, *, exif: bool = True
) -> Fix:
    """Locate a photo; EXIF and XMP fill in what `hints` leave open, unless `exif` is False."""
    own = hints_of(read_camera_facts(photo)) if exif else Hints()
    known = join_hints(hints or Hints(), own)
    return locator.locate(read_rgb(photo), name=str(photo), prior=prior, hints=known)


def locate_photos(
    locator: Locator,
    sources: Sequence[Path],
    prior: Prior | None = None,
    hints: Hints | None = None,
    *,
    exif: bool = True,
) -> list[Fix]:
    """Locate photos and folders of photos; EXIF and XMP fill in what `hints` leave open, unless `exif` is False.

    One that cannot be read has no fix, and the reason for it; an error only if none can.
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
