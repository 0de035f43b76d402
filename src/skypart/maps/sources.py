"""Open maps of every supported kind: rasters, tiles, and tables of images."""

import re
from collections.abc import Sequence
from pathlib import Path

from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.images.raster_files import detect_driver
from skypart.maps.files import absolute_path, combine_digests, file_digest, is_remote, redact_address
from skypart.maps.grid import raster_grid
from skypart.maps.image_table import open_image_table
from skypart.maps.map_source import MapImage, MapSource
from skypart.maps.pixels import PixelBox, with_overview
from skypart.maps.rasters import RasterReader, check_complete, read_raster
from skypart.maps.tile_sets import MbTiles, PmTiles, TileFolder, is_tile_folder
from skypart.maps.tiles import tile_image

SUPPORTED = (
    "GeoTIFF, COG and JPEG 2000; JPEG and PNG with a world file; MBTiles and PMTiles; folders of these rasters "
    "or of z/x/y tiles; CSV tables of images"
)
_RASTER_SUFFIXES = frozenset({".tif", ".tiff", ".jp2"})
_WORLD_SUFFIXES = {".jpg": {".jgw", ".jpgw"}, ".jpeg": {".jgw", ".jpegw"}, ".png": {".pgw", ".pngw"}}


def open_maps(paths: Sequence[str], *, network: bool = False) -> list[MapSource]:
    """Open and check one map for each path; pixels are read later.

    network: whether remote addresses (https://, s3://, /vsicurl/...) may be opened; only as GeoTIFF.
    """
    maps = []
    for path in paths:
        try:
            maps.append(_open_map(str(path), network))
        except OSError as error:
            reason = error.strerror or error
            raise SkyPartError(f"{redact_address(path)}: cannot be read ({reason}); check its permissions") from error
    return maps


def _open_map(text: str, network: bool) -> MapSource:
    if is_remote(text):
        if not network:
            raise SkyPartError(
                f"{redact_address(text)}: is not a local file; download it first, or allow network access "
                "with --network"
            )
        return _open_remote(text)
    path = Path(text)
    if not path.exists():
        raise SkyPartError(f"{path}: no such file or folder; check the path")
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        raise SkyPartError(f"{path}: is neither a file nor a folder but a pipe or device; give {SUPPORTED}")
    if path.stat().st_size == 0:
        raise SkyPartError(f"{path}: the file is empty (0 bytes); copy it again from its source")
    with path.open("rb") as file:
        start = file.read(16)
    if start == b"SQLite format 3\0":
        return MapSource(path.stem, (text,), file_digest(path), (tile_image(MbTiles(path)),))
    if start.startswith(b"PMTiles"):
        return MapSource(path.stem, (text,), file_digest(path), (tile_image(PmTiles(path)),))
    if path.suffix.lower() == ".csv":
        return open_image_table(path)
    image, digest = _open_raster(path)
    return MapSource(path.stem, (text,), digest, (image,))


def _open_raster(path: Path) -> tuple[MapImage, str]:
    """A raster and its fingerprint, which includes its georeference because that may come from sidecar files."""
    driver = detect_driver(path)
    if driver is None:
        raise SkyPartError(f"{path}: is not a supported map; give {SUPPORTED}")
    check_complete(path, driver)
    full = absolute_path(path)
    if path.is_symlink() and read_raster(full, driver, lambda raster: bool(raster.transform == Affine.identity())):
        full = str(path.resolve())  # the sidecar files may be beside the link's target
    grid = read_raster(full, driver, lambda raster: raster_grid(raster, str(path)), absolute_path(path))
    box = grid.bounds
    # Rounded to about 0.1 m, because PROJ's last digits differ between versions and machines.
    corners = [round(degrees, 6) for degrees in (box.south, box.west, box.north, box.east)]
    place = f"{grid.affine[:6]} {corners}"
    reader = RasterReader(full, driver)
    digest = combine_digests([file_digest(path), place])
    if not reader.has_overviews:
        return MapImage(grid, with_overview(reader, grid.width, grid.height)), digest
    return MapImage(grid, reader), digest


def _open_remote(address: str) -> MapSource:
    """A remote GeoTIFF; its fingerprint is that of its georeference and of some of its pixels."""
    grid = read_raster(address, "GTiff", lambda raster: raster_grid(raster, redact_address(address)))
    reader = RasterReader(address, "GTiff")
    corner = reader.read(PixelBox(0, 0, min(256, grid.width), min(256, grid.height)), 1, 1)
    digest = combine_digests([address, f"{grid.affine[:6]} {grid.width} {grid.height}", corner.rgb.tobytes().hex()])
    name = re.split(r"[/\\]", address.split("?")[0].rstrip("/"))[-1]
    return MapSource(Path(name).stem, (address,), digest, (MapImage(grid, reader),))


def _open_folder(folder: Path) -> MapSource:
    """A folder of tiles, or of rasters that together form one map."""
    name = folder.resolve().name
    if is_tile_folder(folder):
        tiles = TileFolder(folder)
        image = tile_image(tiles)  # lists the tiles, which the fingerprint needs
        return MapSource(name, (str(folder),), tiles.fingerprint(), (image,))
    every = sorted(folder.iterdir())
    beside = {(file.stem, file.suffix.lower()) for file in every if file.is_file()}
    files = [file for file in every if _is_raster(file, beside)]
    if not files:
        raise SkyPartError(f"{folder}: no map found in this folder; give {SUPPORTED}")
    found = [_open_raster(file) for file in files]
    digest = combine_digests([each[1] for each in found])
    return MapSource(name, (str(folder),), digest, tuple(each[0] for each in found))


def _is_raster(file: Path, beside: set[tuple[str, str]]) -> bool:
    """Whether a file in a folder is a map. Hidden files (macOS leaves `._town.tif` beside `town.tif`) never are.

    beside: stem, and suffix in lower case, of all files in the folder.
    """
    if file.name.startswith(".") or not file.is_file():
        return False
    suffix = file.suffix.lower()
    if suffix in _RASTER_SUFFIXES:
        return True
    worlds = _WORLD_SUFFIXES.get(suffix)
    return worlds is not None and any((file.stem, each) in beside for each in (*worlds, ".wld"))
