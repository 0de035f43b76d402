"""Worlds from real rasters: an orthophoto with a surface model, a GeoTIFF, or indexed images of several dates."""

import csv
import glob
import json
import re
import zlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Transformer

from skypart.errors import SkyPartError
from skypart.geo.units import US_SURVEY_FOOT
from skypart.images.decode import IMAGE_SUFFIXES, RgbImage, listed_file, open_image, read_rgb
from skypart.images.raster_files import check_plain
from skypart.worlds.geotiff import geotiff_source
from skypart.worlds.ground import FloatMap, World
from skypart.worlds.relief import ground_from_raster
from skypart.worlds.sources import RasterSource

LARGE_MAP_M = 500.0
"""Metres: maps with at least this edge are large enough for oblique views without surroundings."""


def find_sources(
    path: Path, seed: int = 0, *, surround: bool = False, guess_heights: bool = False
) -> list[RasterSource]:
    """All maps in a file or folder: GeoTIFF, image + *meta.json, or images listed in index.csv.

    surround: small maps of an index.csv are surrounded by others of their city. guess_heights: of flat maps.
    """
    found = _find(path, seed)
    if surround:
        groups: dict[tuple[str, ...], list[RasterSource]] = defaultdict(list)
        for source in found:
            groups[_group_key(source)].append(source)
        found = [_surround(source, groups[_group_key(source)], seed) for source in found]
    return [replace(source, guess_seed=seed) for source in found] if guess_heights else found


def _find(path: Path, seed: int) -> list[RasterSource]:
    if path.is_file() and path.suffix.lower() in (".tif", ".tiff"):
        return [geotiff_source(path)]
    if path.is_file() and path.name.endswith("meta.json"):
        return [_lidar_source(path)]
    if path.is_dir():
        if (path / "index.csv").is_file():
            return _indexed_sources(path, seed)
        found = [_lidar_source(meta) for meta in sorted(path.glob("*meta.json"))]
        tiffs = [each for each in sorted(path.iterdir()) if each.suffix.lower() in (".tif", ".tiff")]
        found += [geotiff_source(each) for each in tiffs if not re.search(r"_(dsm|dem|dtm)$", each.stem.lower())]
        if found:
            return found
    raise SkyPartError(
        f"{path}: no map found; pass a GeoTIFF, a folder of GeoTIFFs, a folder with *_ortho.jpg + *_dsm.png + "
        "*meta.json, a folder with index.csv, or the word procedural"
    )


def _lidar_source(meta_path: Path) -> RasterSource:
    meta = _read_json(meta_path)
    stem = meta_path.name.removesuffix("meta.json").rstrip("_")
    beside = sorted(meta_path.parent.glob(f"{glob.escape(stem) or '*'}_ortho.*"))
    images = [path for path in beside if path.suffix.lower() in IMAGE_SUFFIXES]
    surfaces = sorted(meta_path.parent.glob(f"{glob.escape(stem) or '*'}_dsm.png"))
    if len(images) != 1 or len(surfaces) != 1:
        raise SkyPartError(f"{meta_path}: needs exactly one {stem or '*'}_ortho image and one _dsm.png beside it")
    try:
        gsd = float(meta["gsd_m"])
        extent = (float(meta["width"]) * gsd, float(meta["height"]) * gsd)
        _ = float(meta["zmin_m"]), float(meta["step_m"])
    except (KeyError, TypeError, ValueError) as error:
        raise SkyPartError(
            f"{meta_path}: {error} is missing or not a number; see docs/worlds.md for the fields"
        ) from error
    name = images[0].stem.removesuffix("_ortho")
    return RasterSource(name, (images[0],), surfaces[0], extent, _load_lidar, (("meta", str(meta_path)),))


def _load_lidar(source: RasterSource) -> World:
    meta = _read_json(Path(dict(source.meta)["meta"]))
    rgb = read_rgb(source.files[0])
    assert source.surface is not None
    with open_image(source.surface) as surface:
        steps: NDArray[np.float32] = np.asarray(surface).astype(np.float32)
    if steps.shape != rgb.shape[:2]:
        raise SkyPartError(f"{source.surface}: {steps.shape} cells, but the image has {rgb.shape[:2]}; use one grid")
    heights: FloatMap = (float(meta["zmin_m"]) + (steps - 1) * float(meta["step_m"])).astype(np.float32)
    valid = (steps > 0) & (rgb.max(axis=2) > 8)
    heights[~valid] = 0.0
    gsd = float(meta["gsd_m"])
    origin, epsg, unit = _lidar_georeference(meta, rgb.shape[0] * gsd, source.surface)
    return World(source.name, [ground_from_raster(rgb, heights, valid, gsd)], origin, epsg, unit, valid)


def _lidar_georeference(meta: dict[str, Any], height_m: float, path: Path) -> tuple[tuple[float, float], int, float]:
    """Upper left corner, EPSG code and metres per unit of a meta.json."""
    corner_ft = meta.get("origin_lower_left_ft_ky_single_zone")
    if isinstance(corner_ft, list):
        return (float(corner_ft[0]), float(corner_ft[1]) + height_m / US_SURVEY_FOOT), 3089, US_SURVEY_FOOT
    corner_m = meta.get("origin_ll_m")
    epsg = meta.get("epsg", 2993 if "Oregon" in str(meta.get("crs")) else None)
    if isinstance(corner_m, list) and isinstance(epsg, int):
        return (float(corner_m[0]), float(corner_m[1]) + height_m), epsg, 1.0
    raise SkyPartError(f"{path}: its meta.json has no georeference; add origin_ll_m [x, y] and epsg")


def _indexed_sources(folder: Path, seed: int) -> list[RasterSource]:
    """Maps of an index.csv; images with the same city and place are dates of one map, in an order drawn from `seed`."""
    listing = folder / "index.csv"
    try:
        return _read_index(folder, listing, seed)
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise SkyPartError(
            f"{listing}: {error} is missing or invalid; it needs the columns file, gsd_m, width, height and "
            "epsg, x_ul, y_ul or lon_nw, lat_nw (docs/worlds.md), in UTF-8"
        ) from error


def _read_index(folder: Path, listing: Path, seed: int) -> list[RasterSource]:
    """`_indexed_sources`, without translating errors."""
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    with listing.open(newline="", encoding="utf-8-sig") as lines:
        for line in csv.DictReader(lines):
            key = f"{line['city']}_{line['place']}" if "place" in line else Path(line["file"]).stem
            groups[key].append(line)
    sources = []
    for index, (name, lines_of_place) in enumerate(sorted(groups.items())):
        rng = np.random.default_rng([seed, 11, index])
        dated = [lines_of_place[i] for i in rng.permutation(len(lines_of_place))]
        first = dated[0]
        files = tuple(listed_file(folder, line["file"], str(listing)) for line in dated)
        extent = (float(first["width"]) * float(first["gsd_m"]), float(first["height"]) * float(first["gsd_m"]))
        for corner in ("epsg", "x_ul", "y_ul") if "epsg" in first else ("lon_nw", "lat_nw"):
            float(first[corner])
        sources.append(RasterSource(name, files, None, extent, _load_indexed, tuple(first.items())))
    return sources


def _group_key(source: RasterSource) -> tuple[str, ...]:
    """City, resolution and size: maps with the same key may surround each other; empty without a city."""
    facts = dict(source.meta)
    return tuple(facts[key] for key in ("city", "gsd_m", "width", "height")) if "city" in facts else ()


def _surround(source: RasterSource, candidates: list[RasterSource], seed: int) -> RasterSource:
    """The map surrounded by eight of `candidates`, drawn from `seed`; unchanged if it is large or there are none."""
    others = [other for other in candidates if other is not source]
    if not others or not _group_key(source) or min(source.extent_m) >= LARGE_MAP_M:
        return source
    rng = np.random.default_rng([seed, 13, zlib.crc32(source.name.encode())])
    chosen = [others[i] for i in rng.choice(len(others), 8, replace=len(others) < 8)]
    around = tuple(tuple(each.files[i % len(each.files)] for i in range(len(source.files))) for each in chosen)
    return replace(source, extent_m=(3 * source.extent_m[0], 3 * source.extent_m[1]), around=around)


def _join_tiles(images: list[RgbImage]) -> RgbImage:
    """(3 h, 3 w, 3) from nine (h, w, 3) images: the middle, then those around it in rows from the upper left."""
    cells = [*images[1:5], images[0], *images[5:]]
    return np.vstack([np.hstack(cells[row : row + 3]) for row in (0, 3, 6)])


def _load_indexed(source: RasterSource) -> World:
    meta = dict(source.meta)
    gsd = float(meta["gsd_m"])
    files = [file for date in zip(source.files, *source.around, strict=True) for file in date]
    read = [read_rgb(file) for file in files]
    for file, image in zip(files, read, strict=True):
        if image.shape != read[0].shape:
            raise SkyPartError(
                f"{file}: {image.shape[1]} x {image.shape[0]} pixels, {source.files[0]} has "
                f"{read[0].shape[1]} x {read[0].shape[0]}; crop all dates of a place to the size in index.csv"
            )
    each = 1 + len(source.around)
    dated = [read[start : start + each] for start in range(0, len(read), each)]
    images = [_join_tiles(date) if source.around else date[0] for date in dated]
    holes = np.any([image.max(axis=2) == 0 for image in images], axis=0)
    valid: NDArray[np.bool_] | None = ~holes if holes.mean() > 0.002 else None
    if "epsg" in meta:
        epsg, origin = int(float(meta["epsg"])), (float(meta["x_ul"]), float(meta["y_ul"]))
    else:
        epsg, origin = _utm_corner(float(meta["lon_nw"]), float(meta["lat_nw"]))
    origin = (origin[0] - source.margin_m[0], origin[1] + source.margin_m[1])
    dates = [ground_from_raster(image, None, valid, gsd) for image in images]
    return World(source.name, dates, origin, epsg, 1.0, valid, source.margin_m)


def _utm_corner(lon: float, lat: float) -> tuple[int, tuple[float, float]]:
    """EPSG code of the UTM zone of a point, and the point in it."""
    epsg = (32600 if lat >= 0 else 32700) + int((lon + 180) // 6) + 1
    x, y = Transformer.from_crs("EPSG:4326", CRS.from_epsg(epsg), always_xy=True).transform(lon, lat)
    return epsg, (float(x), float(y))


def _read_json(path: Path) -> dict[str, Any]:
    check_plain(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SkyPartError(f"{path}: is not valid JSON ({error}); fix it") from error
    if not isinstance(content, dict):
        raise SkyPartError(f"{path}: must contain one JSON object; see docs/worlds.md for the fields")
    return content
