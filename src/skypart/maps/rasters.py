"""Rasters read with GDAL: GeoTIFF, COG, JPEG 2000, JPEG, PNG and WebP, and no other format."""

import math
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import cv2
import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.enums import ColorInterp, MaskFlags, Resampling
from rasterio.env import get_gdal_config, set_gdal_config
from rasterio.windows import Window

from skypart.confine import run_confined
from skypart.errors import SkyPartError
from skypart.images.bands import palette_table, stretch, stretch_limits
from skypart.images.decode import RgbImage
from skypart.images.raster_files import READ_ERRORS, check_beside, open_raster, sidecars
from skypart.maps.files import HANDLES, is_remote, redact_address, redact_message
from skypart.maps.pixels import PixelBox, PixelPatch

CACHE_BYTES = 256 << 20
"""GDAL's cache of decoded blocks; its default is a share of the machine's memory. GDAL_CACHEMAX overrides it."""
OVERSAMPLING = 4
"""Palette indices cannot be averaged, so they are read up to this many times finer per axis, then averaged as RGB."""
MAX_READ_PIXELS = 1 << 31
"""Pixels that one piece may be averaged from: more take minutes, and are a sign that overviews are missing."""
MAX_PIXELS = 1 << 35
"""Of a raster without overviews, which is read as a whole to make one."""
COARSE_PIXELS = 1 << 28
"""Pixels of an overview that is coarse enough to be read as a whole again and again."""
BORDER = 15
"""Black areas narrower than this many pixels are ground, not border."""
T = TypeVar("T")
_ADD_OVERVIEWS = "add overviews with `gdaladdo -r average`, or cut it into parts"
_TRAILERS = {"PNG": b"IEND", "JPEG": b"\xff\xd9"}
_RGB = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)
_PROBES, _PROBE_EDGE = 8, 128
_HTTP_OPTIONS = {"GDAL_HTTP_TIMEOUT": "60", "GDAL_HTTP_MAX_RETRY": "3", "GDAL_HTTP_RETRY_DELAY": "1"}
"""Seconds, retries, seconds; by default GDAL waits forever and never retries."""
_cache_lock = threading.Lock()


def read_raster(path: str, driver: str, work: Callable[[Any], T], *more: str) -> T:
    """The result of `work`, which gets a rasterio dataset of `path`. Read errors become SkyPartError.

    A local file is read in a thread that can open only the file, its sidecar files and those of the paths in `more`:
    whatever a map refers to, GDAL cannot follow it.
    """

    def opened() -> T:
        with _open_raster(path, driver) as raster:
            return work(raster)

    if not Path(path).exists():
        return opened()
    files = [file for each in (path, *more) for file in sidecars(each)]
    return run_confined(opened, files, {file.parent for file in files})


@contextmanager
def _open_raster(path: str, driver: str) -> Generator[Any, None, None]:
    """A rasterio dataset of `path`, borrowed from the pool."""
    try:
        with HANDLES.borrow(path, lambda: _open(path, driver)) as raster:
            yield raster
    except READ_ERRORS as error:
        cause = redact_message(str(error.__cause__ or error), path).strip().rstrip(".")
        remedy = "the file is damaged or truncated, copy it again"
        if path.startswith(("s3://", "/vsis3/")):
            remedy = "check the address, and the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        elif is_remote(path):
            remedy = "check the address and that the server is up"
        raise SkyPartError(f"{redact_address(path)}: cannot be read ({cause}); {remedy}") from error


def _open(path: str, driver: str) -> Any:
    _limit_cache()
    remote = not Path(path).exists()
    if remote:  # GDAL reads these at every request, long after this call
        for name, value in _HTTP_OPTIONS.items():
            os.environ.setdefault(name, value)
    # Remotely, every check for a sidecar file would be a request.
    with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR" if remote else "FALSE"):
        return open_raster(path, driver, redact_address(path))


def _limit_cache() -> None:
    with _cache_lock:
        if "GDAL_CACHEMAX" not in os.environ and get_gdal_config("GDAL_CACHEMAX") != CACHE_BYTES:
            set_gdal_config("GDAL_CACHEMAX", CACHE_BYTES)


def check_complete(path: Path, driver: str) -> None:
    """Raise if a file is truncated, as far as that is visible without decoding all of it."""
    check_beside(path)
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - (1 << 16)))
        if _TRAILERS.get(driver, b"") not in file.read():
            raise SkyPartError(f"{path}: the file is truncated; copy it again")
    if driver == "GTiff":
        read_raster(str(path), driver, _probe)


def _probe(raster: Any) -> None:
    """Read three pixels of a dataset, spread over it."""
    for fraction in (0.0, 0.5, 1.0):
        corner = Window(int(fraction * (raster.width - 1)), int(fraction * (raster.height - 1)), 1, 1)
        raster.read(1, window=corner)


class BandMapping(NamedTuple):
    """How the bands of a raster become 8-bit RGB.

    bands: numbers, from 1, of red, green and blue, or of grey alone. table: (values, 4) palette. limits: values that
    become 0 and 255, None for 8-bit bands. masked: whether pixels may be invalid.
    """

    bands: tuple[int, ...]
    table: NDArray[np.uint8] | None
    limits: tuple[float, float] | None
    masked: bool


def _map_bands(raster: Any, path: str) -> BandMapping:
    """Choose the bands of a rasterio dataset. Values wider than 8 bits get one contrast stretch per file."""
    interpretation = raster.colorinterp
    kind = np.dtype(raster.dtypes[0])
    if kind.kind not in "uif":
        raise SkyPartError(f"{path}: has bands of type {kind}; give a raster with 8-bit, 16-bit or float bands")
    if ColorInterp.cyan in interpretation:
        raise SkyPartError(f"{path}: its colours are CMYK; convert it to RGB first")
    masked = any(MaskFlags.all_valid not in flags for flags in raster.mask_flag_enums)
    if interpretation[0] == ColorInterp.palette:
        return BandMapping((1,), palette_table(raster.colormap(1), 1 << (8 * kind.itemsize)), None, masked)
    if all(colour in interpretation for colour in _RGB):
        bands = tuple(interpretation.index(colour) + 1 for colour in _RGB)
    else:
        visible = [number for number, each in enumerate(interpretation, 1) if each != ColorInterp.alpha]
        if not visible:
            raise SkyPartError(f"{path}: has only an alpha band; give the raster it belongs to")
        bands = tuple(visible[:3]) if len(visible) >= 3 else (visible[0],)
        if len(visible) == 1 and kind.kind in "if":
            raise SkyPartError(
                f"{path}: has one band of {kind} values, like an elevation model, and is not an image; give an "
                "orthophoto, or convert a grey image with `gdal_translate -ot Byte -scale`"
            )
    limits = None if kind == np.uint8 else _sample_limits(raster, bands)
    return BandMapping(bands, None, limits, masked)


def _sample_limits(raster: Any, bands: tuple[int, ...]) -> tuple[float, float]:
    """Percentiles of small windows spread over the raster; of all of it if the windows have no valid pixels."""
    edge = min(_PROBE_EDGE, raster.width, raster.height)
    found = []
    for left in np.unique(np.linspace(0, raster.width - edge, _PROBES).astype(int)):
        for top in np.unique(np.linspace(0, raster.height - edge, _PROBES).astype(int)):
            window = Window(int(left), int(top), edge, edge)
            found.append(_valid_values(raster, bands, window, (edge, edge)))
    if not any(values.size for values in found):
        shape = (min(512, raster.height), min(512, raster.width))
        found = [_valid_values(raster, bands, Window(0, 0, raster.width, raster.height), shape)]
    return stretch_limits(np.concatenate(found))


def _valid_values(raster: Any, bands: tuple[int, ...], window: Window, shape: tuple[int, int]) -> NDArray[np.generic]:
    values = raster.read(list(bands), window=window, out_shape=(len(bands), *shape))
    mask = raster.dataset_mask(window=window, out_shape=shape) > 0
    kept: NDArray[np.generic] = values[:, mask].ravel()
    return kept


class RasterReader:
    """Reads pieces of one raster; how to convert its bands to RGB is decided when it is opened."""

    def __init__(self, path: str, driver: str) -> None:
        self._path = path
        self._driver = driver
        self._bands: BandMapping

        def look(raster: Any) -> tuple[BandMapping, list[int], int]:
            return _map_bands(raster, redact_address(path)), raster.overviews(1), raster.width * raster.height

        self._bands, self._reductions, pixels = read_raster(path, driver, look)
        coarsest = pixels // max(self._reductions, default=1) ** 2
        self.has_overviews = bool(self._reductions) and coarsest <= COARSE_PIXELS
        if coarsest > MAX_PIXELS:
            raise SkyPartError(f"{redact_address(path)}: has {coarsest:.3g} pixels and no overviews; {_ADD_OVERVIEWS}")

    def read(self, box: PixelBox, step_x: float, step_y: float) -> PixelPatch:
        """The pixels of `box`, each averaged over step_x x step_y map pixels; steps below 2 count as 1."""
        width, height = box.right - box.left, box.bottom - box.top
        shape = (
            math.ceil(height / step_y) if step_y >= 2 else height,
            math.ceil(width / step_x) if step_x >= 2 else width,
        )
        reduction = max((each for each in self._reductions if each <= min(step_x, step_y)), default=1)
        if width * height > MAX_READ_PIXELS * reduction**2:
            raise SkyPartError(
                f"{redact_address(self._path)}: a piece of it has {width:,} x {height:,} pixels; {_ADD_OVERVIEWS}"
            )
        window = Window(box.left, box.top, width, height)
        rgb, valid = read_raster(self._path, self._driver, lambda raster: self._read_window(raster, window, shape))
        if not self._bands.masked and valid is None:
            valid = _mask_border(rgb)
        everywhere = valid is None or bool(valid.all())
        return PixelPatch(rgb, None if everywhere else valid, box.left, box.top, width / shape[1], height / shape[0])

    def _read_window(
        self, raster: Any, window: Window, shape: tuple[int, int]
    ) -> tuple[RgbImage, NDArray[np.bool_] | None]:
        if self._bands.table is not None:
            rgb, valid = self._read_palette(raster, window, shape, self._bands.table)
        else:
            rgb, valid = self._read_bands(raster, window, shape)
        if self._bands.masked:
            mask = raster.dataset_mask(window=window, out_shape=shape, resampling=Resampling.average) > 127
            valid = mask if valid is None else valid & mask
        return rgb, valid

    def _read_bands(
        self, raster: Any, window: Window, shape: tuple[int, int]
    ) -> tuple[RgbImage, NDArray[np.bool_] | None]:
        bands = raster.read(
            list(self._bands.bands), window=window, out_shape=(len(self._bands.bands), *shape),
            resampling=Resampling.average,
        )  # fmt: skip
        valid = None
        if self._bands.limits is not None:
            if bands.dtype.kind == "f":
                valid = np.isfinite(bands).all(axis=0)
            bands = stretch(bands, self._bands.limits)
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


def _mask_border(rgb: RgbImage) -> NDArray[np.bool_] | None:
    """(h, w) False on the black border of a map (h, w, 3) that has no mask; None if there is no border."""
    black = cv2.inRange(rgb, (0, 0, 0), (2, 2, 2))
    if cv2.countNonZero(black) == 0:
        return None
    black = cv2.morphologyEx(black, cv2.MORPH_OPEN, np.ones((BORDER, BORDER), np.uint8))
    return None if cv2.countNonZero(black) == 0 else black == 0
