"""Rasters by GDAL: GeoTIFF, COG, JPEG 2000, JPEG, PNG, WebP, and nothing else."""

import math
import os
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.env import get_gdal_config, set_gdal_config
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.windows import Window

from skypart.errors import SkyPartError
from skypart.images.bands import stretch
from skypart.images.decode import RgbImage
from skypart.maps.addresses import told, told_in
from skypart.maps.colours import Colours, read_colours
from skypart.maps.handles import HANDLES
from skypart.maps.patch import Box, Patch

CACHE_BYTES = 256 << 20
"""Decoded blocks that GDAL keeps; its own default is a share of the machine's memory. GDAL_CACHEMAX overrides it."""
OVERSAMPLING = 4
"""Palettes cannot be averaged before they are looked up: so many times finer they are read, at most, an axis."""
BORDER = 15
_SIGNATURES = {
    b"II*\0": "GTiff",
    b"MM\0*": "GTiff",
    b"II+\0": "GTiff",
    b"MM\0+": "GTiff",
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JP2OpenJPEG",
}
_TRAILERS = {"PNG": b"IEND", "JPEG": b"\xff\xd9"}
_cache_lock = threading.Lock()


def driver_of(path: Path) -> str | None:
    """The one GDAL driver that may open the file, by its first bytes; None if it is no raster that is read here."""
    with path.open("rb") as file:
        start = file.read(16)
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "WEBP"
    return next((driver for signature, driver in _SIGNATURES.items() if start.startswith(signature)), None)


@contextmanager
def opened(path: str, driver: str) -> Generator[Any, None, None]:
    """A rasterio dataset of `path`, borrowed from those that are open; failures to read it in one sentence."""
    try:
        with HANDLES.borrow(path, lambda: _open(path, driver)) as raster:
            yield raster
    except RasterioError as error:
        cause = told_in(str(error.__cause__ or error), path).strip().rstrip(".")
        raise SkyPartError(
            f"{told(path)}: cannot be read ({cause}); the file is damaged or cut short, copy it again"
        ) from error


_PATIENCE = {"GDAL_HTTP_TIMEOUT": "60", "GDAL_HTTP_MAX_RETRY": "3", "GDAL_HTTP_RETRY_DELAY": "1"}
"""Seconds, tries, seconds; GDAL's own are to wait for ever and never to try again."""


def _open(path: str, driver: str) -> Any:
    _limit_cache()
    remote = not Path(path).exists()  # where every look for a file beside it is a request
    if remote:  # read again at every request, long after this one
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
    with warnings.catch_warnings(), rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR" if remote else "FALSE"):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        return rasterio.open(path, driver=driver, sharing=False)


def _limit_cache() -> None:
    with _cache_lock:
        if "GDAL_CACHEMAX" not in os.environ and get_gdal_config("GDAL_CACHEMAX") != CACHE_BYTES:
            set_gdal_config("GDAL_CACHEMAX", CACHE_BYTES)


def check_whole(path: Path, driver: str) -> None:
    """Refuse a file that was cut short, as far as that can be seen without decoding all of it."""
    for ending in (".ovr", ".msk"):
        beside = path.with_name(path.name + ending)
        if beside.is_file() and driver_of(beside) != "GTiff":
            raise SkyPartError(f"{beside}: is not a TIFF; remove it, or make it again with gdaladdo")
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - (1 << 16)))
        if _TRAILERS.get(driver, b"") not in file.read():
            raise SkyPartError(f"{path}: the file ends before its picture does; copy it again")
    if driver == "GTiff":
        with opened(str(path), driver) as raster:
            for part in (0.0, 0.5, 1.0):
                corner = Window(int(part * (raster.width - 1)), int(part * (raster.height - 1)), 1, 1)
                raster.read(1, window=corner)


class RasterPixels:
    """Reads pieces of one raster; its colours are settled when it is opened."""

    def __init__(self, path: str, driver: str) -> None:
        self._path = path
        self._driver = driver
        with opened(path, driver) as raster:
            self._colours: Colours = read_colours(raster, told(path))
            self.has_overviews = bool(raster.overviews(1))

    def read(self, box: Box, step_x: float, step_y: float) -> Patch:
        """The pixels of `box`, each averaged over step_x x step_y of the map's; steps below 2 are taken as 1."""
        width, height = box.right - box.left, box.bottom - box.top
        shape = (
            math.ceil(height / step_y) if step_y >= 2 else height,
            math.ceil(width / step_x) if step_x >= 2 else width,
        )
        window = Window(box.left, box.top, width, height)
        with opened(self._path, self._driver) as raster:
            if self._colours.table is not None:
                rgb, valid = self._read_palette(raster, window, shape, self._colours.table)
            else:
                rgb, valid = self._read_bands(raster, window, shape)
            if self._colours.masked:
                mask = raster.dataset_mask(window=window, out_shape=shape, resampling=Resampling.average) > 127
                valid = mask if valid is None else valid & mask
            elif valid is None:
                valid = _without_border(rgb)
        everywhere = valid is None or bool(valid.all())
        return Patch(rgb, None if everywhere else valid, box.left, box.top, width / shape[1], height / shape[0])

    def _read_bands(
        self, raster: Any, window: Window, shape: tuple[int, int]
    ) -> tuple[RgbImage, NDArray[np.bool_] | None]:
        bands = raster.read(
            list(self._colours.bands), window=window, out_shape=(len(self._colours.bands), *shape),
            resampling=Resampling.average,
        )  # fmt: skip
        valid = None
        if self._colours.limits is not None:
            if bands.dtype.kind == "f":
                valid = np.isfinite(bands).all(axis=0)
            bands = stretch(bands, self._colours.limits)
        return cv2.merge([bands[0], bands[-1 if len(bands) == 1 else 1], bands[-1]]), valid

    @staticmethod
    def _read_palette(
        raster: Any, window: Window, shape: tuple[int, int], table: NDArray[np.uint8]
    ) -> tuple[RgbImage, NDArray[np.bool_] | None]:
        finer = (
            min(int(window.height), shape[0] * OVERSAMPLING),
            min(int(window.width), shape[1] * OVERSAMPLING),
        )
        values = raster.read(1, window=window, out_shape=finer)
        channels = [np.take(table[:, channel], values) for channel in range(4)]
        if finer != shape:
            channels = [cv2.resize(each, shape[::-1], interpolation=cv2.INTER_AREA) for each in channels]
        return cv2.merge(channels[:3]), None if table[:, 3].all() else channels[3] > 127


def _without_border(rgb: RgbImage) -> NDArray[np.bool_] | None:
    """Where a map (h, w, 3) that does not tell its border from its ground is not plain black; None: everywhere.

    Black patches narrower than BORDER pixels are ground.
    """
    black = cv2.inRange(rgb, (0, 0, 0), (2, 2, 2))
    if cv2.countNonZero(black) == 0:
        return None
    black = cv2.morphologyEx(black, cv2.MORPH_OPEN, np.ones((BORDER, BORDER), np.uint8))
    return None if cv2.countNonZero(black) == 0 else black == 0
