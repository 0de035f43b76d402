"""Open maps of every kind that is read: rasters, tiles, tables of pictures."""

import re
from collections.abc import Sequence
from pathlib import Path

from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.maps.addresses import is_remote, lasting, told
from skypart.maps.fingerprint import combined, file_digest
from skypart.maps.georeference import raster_grid
from skypart.maps.map_source import MapSource, Part
from skypart.maps.overview import with_overview
from skypart.maps.patch import Box
from skypart.maps.pictures import csv_source
from skypart.maps.rasters import RasterPixels, check_whole, driver_of, opened
from skypart.maps.tile_archives import MbTiles, PmTiles
from skypart.maps.tile_folders import TileFolder, is_tile_folder
from skypart.maps.tiles import tile_part

__all__ = ["MapSource", "is_remote", "open_maps", "there"]

READ = (
    "GeoTIFF, COG and JPEG 2000; JPEG and PNG with a world file; MBTiles and PMTiles; folders of these rasters "
    "or of z/x/y tiles; CSV tables of pictures"
)
_RASTER_SUFFIXES = frozenset({".tif", ".tiff", ".jp2"})
_WORLD_SUFFIXES = {".jpg": {".jgw", ".jpgw"}, ".jpeg": {".jgw", ".jpegw"}, ".png": {".pgw", ".pngw"}}


def open_maps(paths: Sequence[str], *, network: bool = False) -> list[MapSource]:
    """One map for each path, opened and checked; pixels are read later.

    network: whether addresses (https://, s3://, /vsicurl/...) may be opened; as GeoTIFF only.
    """
    found = []
    for path in paths:
        try:
            found.append(_open_map(str(path), network))
        except OSError as error:
            raise SkyPartError(f"{told(path)}: cannot be read ({error.strerror or error}); check its rights") from error
    return found


def there(path: str | Path) -> bool:
    """Whether a file or folder is there and may be looked at."""
    try:
        return Path(path).exists()
    except OSError:  # in a folder of somebody else's, or on a mount that went away
        return False


def _open_map(text: str, network: bool) -> MapSource:
    if is_remote(text):
        if not network:
            raise SkyPartError(
                f"{told(text)}: is not a file on this machine; download it first, or allow the network with --network"
            )
        return _remote_source(text)
    path = Path(text)
    if not path.exists():
        raise SkyPartError(f"{path}: no such file or folder; check the path")
    if path.is_dir():
        return _folder_source(path)
    if path.stat().st_size == 0:
        raise SkyPartError(f"{path}: the file is empty (0 bytes); copy it again from its source")
    with path.open("rb") as file:
        start = file.read(16)
    if start == b"SQLite format 3\0":
        return MapSource(path.stem, (text,), file_digest(path), (tile_part(MbTiles(path)),))
    if start.startswith(b"PMTiles"):
        return MapSource(path.stem, (text,), file_digest(path), (tile_part(PmTiles(path)),))
    if path.suffix.lower() == ".csv":
        return csv_source(path)
    part, digest = _raster_part(path)
    return MapSource(path.stem, (text,), digest, (part,))


def _raster_part(path: Path) -> tuple[Part, str]:
    """A raster, and its fingerprint; which its place on Earth is a part of, as that may come from files beside it."""
    driver = driver_of(path)
    if driver is None:
        raise SkyPartError(f"{path}: is no map that is read here; give {READ}")
    check_whole(path, driver)
    full = lasting(path)
    with opened(full, driver) as raster:
        if path.is_symlink() and raster.transform == Affine.identity():
            full = str(path.resolve())  # what says where it lies may be beside the file itself
    with opened(full, driver) as raster:
        grid = raster_grid(raster, str(path))
        box = grid.bounds
        # Rounded to about 0.1 m: PROJ's last digits differ between versions and machines.
        corners = [round(degrees, 6) for degrees in (box.south, box.west, box.north, box.east)]
        place = f"{grid.affine[:6]} {corners}"
    pixels = RasterPixels(full, driver)
    digest = combined([file_digest(path), place])
    return Part(grid, pixels if pixels.has_overviews else with_overview(pixels, grid.width, grid.height)), digest


def _remote_source(address: str) -> MapSource:
    """A GeoTIFF elsewhere; its fingerprint is that of its place and of a few of its pixels."""
    with opened(address, "GTiff") as raster:
        grid = raster_grid(raster, told(address))
    pixels = RasterPixels(address, "GTiff")
    corner = pixels.read(Box(0, 0, min(256, grid.width), min(256, grid.height)), 1, 1)
    digest = combined([address, f"{grid.affine[:6]} {grid.width} {grid.height}", corner.rgb.tobytes().hex()])
    name = re.split(r"[/\\]", address.split("?")[0].rstrip("/"))[-1]
    return MapSource(Path(name).stem, (address,), digest, (Part(grid, pixels),))


def _folder_source(folder: Path) -> MapSource:
    """A folder of tiles, or of rasters that together are one map."""
    name = folder.resolve().name
    if is_tile_folder(folder):
        tiles = TileFolder(folder)
        part = tile_part(tiles)
        return MapSource(name, (str(folder),), tiles.fingerprint(), (part,))
    every = sorted(folder.iterdir())
    beside = {(file.stem, file.suffix.lower()) for file in every if file.is_file()}
    files = [file for file in every if _is_raster(file, beside)]
    if not files:
        raise SkyPartError(f"{folder}: no map found in this folder; give {READ}")
    found = [_raster_part(file) for file in files]
    digest = combined([each[1] for each in found])
    return MapSource(name, (str(folder),), digest, tuple(each[0] for each in found))


def _is_raster(file: Path, beside: set[tuple[str, str]]) -> bool:
    """Whether a file of a folder is a map; hidden ones (macOS leaves `._town.tif` beside `town.tif`) never are.

    beside: stem and suffix, in lower case, of all files of the folder.
    """
    if file.name.startswith("."):
        return False
    suffix = file.suffix.lower()
    if suffix in _RASTER_SUFFIXES:
        return True
    worlds = _WORLD_SUFFIXES.get(suffix)
    return worlds is not None and any((file.stem, each) in beside for each in (*worlds, ".wld"))
