"""Open raster files from outside with GDAL so that they can read nothing but themselves: one driver, confined."""

import stat
import warnings
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import rasterio
from rasterio._err import CPLE_BaseError
from rasterio.errors import NotGeoreferencedWarning, RasterioError

from skypart.confine import run_confined
from skypart.errors import SkyPartError

MAX_BLOCK_BYTES = 512 << 20
"""GDAL decodes whole blocks (tiles or strips); larger ones than this are refused."""
MAX_SIDECARS = 64
MAX_TEXT_BYTES = 64 << 20
"""Of a sidecar file that is read as a whole: .aux.xml by GDAL, .prj by us."""
_TEXTS = (".xml", ".prj")
T = TypeVar("T")
_SIGNATURES = {
    b"II*\0": "GTiff",
    b"MM\0*": "GTiff",
    b"II+\0": "GTiff",
    b"MM\0+": "GTiff",
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JP2OpenJPEG",
}


def detect_driver(path: Path) -> str | None:
    """The GDAL driver for a file, by its first bytes; None if the format is not supported."""
    with path.open("rb") as file:
        start = file.read(16)
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "WEBP"
    return next((driver for signature, driver in _SIGNATURES.items() if start.startswith(signature)), None)


READ_ERRORS = (RasterioError, CPLE_BaseError, SystemError, UnicodeDecodeError)
"""What rasterio raises for damaged files: SystemError for errors without a message, UnicodeDecodeError for tags."""


def read_geotiff(path: Path, work: Callable[[Any], T], remedy: str = "copy it again") -> T:
    """The result of `work`, which gets a rasterio dataset of a local GeoTIFF. Read errors become SkyPartError.

    It runs in a thread that can open only the file and its sidecar files: GDAL cannot follow what the file refers to.
    remedy: the end of the message about a file that cannot be read.
    """

    def opened() -> T:
        with open_raster(str(path), "GTiff") as raster:
            return work(raster)

    try:
        if detect_driver(path) != "GTiff":
            raise SkyPartError(f"{path}: cannot be read, it is not a GeoTIFF; {remedy}")
        check_beside(path)
        return run_confined(opened, sidecars(str(path)), [path.parent])
    except (*READ_ERRORS, OSError) as error:
        raise SkyPartError(f"{path}: cannot be read as a GeoTIFF ({_one_line(error)}); {remedy}") from error


def open_raster(path: str, driver: str, name: str = "") -> Any:
    """A rasterio dataset of `path`, which refers to no other file. name: of the file in messages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        raster = rasterio.open(path, driver=driver, sharing=False)
    try:
        check_dataset(raster, name or path)
    except BaseException:
        raster.close()
        raise
    return raster


def sidecars(path: str) -> tuple[Path, ...]:
    """A file and those beside it with the same stem (world file, .prj, .ovr, .aux.xml, ...).

    Raises if one is a pipe or a device: GDAL would wait for it for ever. Raises for a link that leaves the folder of
    the file and that of its target: GDAL would read what it leads to as part of the file. Raises for texts that are
    too large: GDAL would read them into memory as a whole.
    """
    file = Path(path)
    return _sidecars(file, file.parent.stat().st_mtime_ns)


@lru_cache(maxsize=4096)
def _sidecars(file: Path, changed: int) -> tuple[Path, ...]:
    names, start = _names(file.parent, changed), f"{file.stem}."
    homes = {file.parent.resolve(), file.resolve().parent}
    beside: list[Path] = []
    for name in names[bisect_left(names, start) :]:
        if not name.startswith(start) or len(beside) > MAX_SIDECARS:
            break
        if name != file.name:
            path = file.parent / name
            check_plain(path)
            if path.is_symlink() and path.exists() and path.resolve().parent not in homes:
                raise SkyPartError(f"{path}: is a link to a file outside the folder of {file.name}; copy it there")
            if name.lower().endswith(_TEXTS) and path.is_file() and path.stat().st_size > MAX_TEXT_BYTES:
                raise SkyPartError(f"{path}: has more than {MAX_TEXT_BYTES >> 20} MB; remove it")
            beside.append(path)
    return (file, *beside)


@lru_cache(maxsize=8)
def _names(folder: Path, _: int) -> list[str]:
    """The sorted names in a folder: listed once, since a folder of n maps would be listed n times otherwise."""
    return sorted(each.name for each in folder.iterdir())


def check_plain(path: Path) -> None:
    """Raise if `path` is a pipe or a device, so that opening it may never return."""
    try:
        kind = path.stat().st_mode
    except OSError:  # nothing, or a link to nothing
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise SkyPartError(f"{path}: is not a file but a pipe or device; remove it")


def check_dataset(raster: Any, path: str) -> None:
    """Raise if a dataset refers to other files, or if reading one pixel of it would take too much memory."""
    if raster.tags(ns="OVERVIEWS"):  # OVERVIEW_FILE may be any file, address or inline VRT; GDAL would follow it
        raise SkyPartError(
            f"{path}: refers to another file for its overviews (OVERVIEW_FILE), which is not followed; remove the item "
            "from it and its .aux.xml, or convert it with `gdal_translate -co COPY_SRC_OVERVIEWS=NO`"
        )
    together = raster.count if raster.profile.get("interleave") == "pixel" else 1
    for (height, width), kind in zip(raster.block_shapes, raster.dtypes, strict=True):
        if height * width * np.dtype(kind).itemsize * together > MAX_BLOCK_BYTES and _reads_whole_blocks(raster):
            raise SkyPartError(
                f"{path}: consists of blocks of {width:,} x {height:,} pixels, which take too much memory; convert it "
                "with `gdal_translate -co TILED=YES`"
            )


def _reads_whole_blocks(raster: Any) -> bool:
    """Whether GDAL decodes a block as a whole; JPEG 2000 and PNG are read in pieces or line by line."""
    return str(raster.driver) == "GTiff"


def check_beside(path: Path, depth: int = 0) -> None:
    """Raise if a file of overviews or masks beside `path` is no TIFF, or refers to other files."""
    for suffix in (".ovr", ".msk"):
        beside = path.with_name(path.name + suffix)
        if not beside.is_file():
            continue
        if detect_driver(beside) != "GTiff" or depth > 1:
            raise SkyPartError(f"{beside}: is not a TIFF; remove it, or recreate it with gdaladdo")
        try:
            run_confined(partial(_open_and_close, str(beside)), sidecars(str(beside)), [path.parent])
        except READ_ERRORS as error:
            raise SkyPartError(
                f"{beside}: not a readable TIFF ({_one_line(error)}); remove it, or recreate it with gdaladdo"
            ) from error
        check_beside(beside, depth + 1)


def _open_and_close(path: str) -> None:
    open_raster(path, "GTiff").close()


def _one_line(error: BaseException) -> str:
    """The cause that GDAL gives, without line breaks."""
    return " ".join(str(error.__cause__ or error).split()).rstrip(".")[:200]
