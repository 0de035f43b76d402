"""`skypart locate`: photos from disk, with what their files say of the camera."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.images.decode import list_photos, read_rgb
from skypart.images.exif import read_camera_facts
from skypart.maps.index import MapIndex
from skypart.model.embedder import load
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.hints import hints_of
from skypart.position.locate import LocateOptions, Locator
from skypart.progress import track

NO_FIX = 3
"""Exit code when a photo has no fix."""


def open_locator(index: Path, model: str = "", device: str = "cpu", options: LocateOptions | None = None) -> Locator:
    """The index with the model it was made with, or `model`."""
    opened = MapIndex(index)
    size = opened.manifest.model.get("size")
    return Locator(opened, load(model or opened.manifest.model["name"], device, size), options)


def read_prior(near: str, radius_m: float) -> Prior | None:
    """From `--near LAT,LON --radius M`; None where nothing is said."""
    if not near:
        return None
    try:
        latitude, longitude = (float(part) for part in near.split(","))
    except ValueError as error:
        raise SkyPartError(f"--near {near}: give latitude and longitude in degrees, for instance 48.1,11.5") from error
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise SkyPartError(f"--near {near}: latitude comes first (-90..90), then longitude (-180..180)")
    if not radius_m > 0:
        raise SkyPartError("--radius must be metres greater than 0")
    return Prior(latitude=latitude, longitude=longitude, radius_m=radius_m)


def join_hints(said: Hints, read: Hints) -> Hints:
    """What the user said, and where nothing was said, what the file says."""
    chosen = {}
    for field in fields(Hints):
        mine = getattr(said, field.name)
        chosen[field.name] = mine if mine is not None else getattr(read, field.name)
    return Hints(**chosen)


def locate_photos(
    locator: Locator, sources: Sequence[Path], prior: Prior | None = None, hints: Hints | None = None
) -> list[Fix]:
    """Locate photos and folders of photos; EXIF and XMP fill in what `hints` leave open."""
    photos = list_photos(sources)
    fixes = []
    with closing(track(photos, "locating")) as bar:
        for photo in bar:
            facts = hints_of(read_camera_facts(photo))
            known = join_hints(hints or Hints(), facts)
            fixes.append(locator.locate(read_rgb(photo), name=str(photo), prior=prior, hints=known))
    return fixes
