"""Which bands of a raster are its colours, and how they become 8-bit RGB."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.windows import Window

from skypart.errors import SkyPartError
from skypart.images.bands import palette_table, stretch_limits

_RGB = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)
_PROBES, _PROBE_EDGE = 8, 128


class Colours(NamedTuple):
    """bands: numbers, from 1, of red, green and blue, or of grey alone. table: (values, 4) palette.

    limits: values that become 0 and 255, None where bands are 8-bit. masked: whether some pixels may be invalid.
    """

    bands: tuple[int, ...]
    table: NDArray[np.uint8] | None
    limits: tuple[float, float] | None
    masked: bool


def read_colours(raster: Any, path: str) -> Colours:
    """Settle the colours of a rasterio dataset. Wider numbers than 8 bits are stretched alike in the whole file."""
    meaning = raster.colorinterp
    kind = np.dtype(raster.dtypes[0])
    if kind.kind not in "uif":
        raise SkyPartError(f"{path}: holds {kind} numbers, not colours; give a raster of 8-bit, 16-bit or float bands")
    if ColorInterp.cyan in meaning:
        raise SkyPartError(f"{path}: its colours are CMYK; convert it to RGB first")
    masked = any(MaskFlags.all_valid not in flags for flags in raster.mask_flag_enums)
    if meaning[0] == ColorInterp.palette:
        return Colours((1,), palette_table(raster.colormap(1), 1 << (8 * kind.itemsize)), None, masked)
    if all(colour in meaning for colour in _RGB):
        bands = tuple(meaning.index(colour) + 1 for colour in _RGB)
    else:
        seen = [number for number, each in enumerate(meaning, 1) if each != ColorInterp.alpha]
        if not seen:
            raise SkyPartError(f"{path}: has an alpha band alone and no colours; give the raster it belongs to")
        bands = tuple(seen[:3]) if len(seen) >= 3 else (seen[0],)
    limits = None if kind == np.uint8 else _limits(raster, bands)
    return Colours(bands, None, limits, masked)


def _limits(raster: Any, bands: tuple[int, ...]) -> tuple[float, float]:
    """Percentiles of small windows spread over the raster, or, where these show nothing valid, of all of it."""
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
