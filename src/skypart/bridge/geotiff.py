"""Located photos warped onto the ground: a GeoTIFF each, and its control points for QGIS and GDAL."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import rasterio
from numpy.typing import NDArray
from pyproj import Transformer
from rasterio.transform import Affine

from skypart.atomic import atomic_path, write_text
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage, read_rgb
from skypart.position.fix import Fix
from skypart.position.ground import MIN_DEPTH

MAX_EDGE = 6000
"""Longest edge of a GeoTIFF in pixels; larger ones get coarser pixels."""
CONTROL_POINTS = 5
"""Control points along each edge of the photo."""
Points = NDArray[np.float64]


def utm_zone(latitude: float, longitude: float) -> int:
    """EPSG code of the UTM zone of a place."""
    return (32600 if latitude >= 0 else 32700) + min(60, int((longitude + 180.0) // 6) + 1)


def write_geotiffs(fixes: Sequence[Fix], folder: Path) -> int:
    """Write every photo with a match as NAME.tif and NAME.points; returns how many."""
    written = 0
    for fix in fixes:
        if fix.found and fix.ground is not None:
            write_geotiff(read_rgb(fix.photo), fix, folder / f"{Path(fix.photo).stem}.tif")
            written += 1
    return written


def write_geotiff(image: RgbImage, fix: Fix, path: Path) -> None:
    """Warp a photo (h, w, 3) onto the ground and write it in its UTM zone, transparent where it shows nothing.

    The part near the horizon is left out. The control points are written beside it, as PATH with the suffix .points.
    """
    assert fix.latitude is not None and fix.longitude is not None and fix.ground is not None
    height, width = image.shape[:2]
    matrix = np.array(fix.ground).reshape(3, 3)
    frame = LocalFrame(latitude=fix.latitude, longitude=fix.longitude)
    epsg = utm_zone(fix.latitude, fix.longitude)
    to_utm = Transformer.from_crs("EPSG:4326", epsg, always_xy=True)

    def on_map(points: Points) -> Points:
        """(n, 2) points of the unit square to UTM metres."""
        mapped = np.c_[points, np.ones(len(points))] @ matrix.T
        degrees = frame.to_degrees(mapped[:, 0] / mapped[:, 2], mapped[:, 1] / mapped[:, 2])
        return np.stack(to_utm.transform(degrees.longitude, degrees.latitude), axis=1)

    edge = np.linspace(0.0, 1.0, 41)
    grid = np.stack(np.meshgrid(edge, edge), axis=-1).reshape(-1, 2)
    used = grid[_depth(matrix, grid) > MIN_DEPTH]
    corners = on_map(used)
    (west, south), (east, north) = corners.min(axis=0), corners.max(axis=0)
    centre = on_map(np.array([[0.5, 0.5], [0.5 + 1.0 / width, 0.5]]))
    pixel = max(float(np.linalg.norm(centre[1] - centre[0])), max(east - west, north - south) / MAX_EDGE)
    columns, rows = math.ceil((east - west) / pixel), math.ceil((north - south) / pixel)
    x, y = np.meshgrid(west + (np.arange(columns) + 0.5) * pixel, north - (np.arange(rows) + 0.5) * pixel)
    longitude, latitude = to_utm.transform(x.ravel(), y.ravel(), direction="INVERSE")
    metres = frame.to_metres(latitude=latitude, longitude=longitude)
    back = np.stack([metres.x, metres.y, np.ones_like(metres.x)], axis=1) @ np.linalg.inv(matrix).T
    source = back[:, :2] / np.where(np.abs(back[:, 2:]) < 1e-12, 1e-12, back[:, 2:])
    seen = (source >= 0).all(axis=1) & (source <= 1).all(axis=1)
    seen &= _depth(matrix, source) > MIN_DEPTH
    at = (source * [width, height] - 0.5).clip(-10, 1e5).astype(np.float32).reshape(rows, columns, 2)
    warped = cv2.remap(image, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    alpha = np.where(seen.reshape(rows, columns), 255, 0).astype(np.uint8)
    warped = np.where(alpha[..., None] > 0, warped, 0).astype(np.uint8)
    profile = {
        "driver": "GTiff",
        "width": columns,
        "height": rows,
        "count": 4,
        "dtype": "uint8",
        "crs": f"EPSG:{epsg}",
        "transform": Affine(pixel, 0.0, west, 0.0, -pixel, north),
        "photometric": "RGB",
        "compress": "deflate",
        "tiled": True,
    }
    with atomic_path(path) as temporary, rasterio.open(temporary, "w", **profile) as raster:
        raster.write(warped.transpose(2, 0, 1), [1, 2, 3])
        raster.write(alpha, 4)
        raster.colorinterp = [rasterio.enums.ColorInterp[name] for name in ("red", "green", "blue", "alpha")]
        raster.update_tags(RADIUS_95_M=f"{fix.radius_m:.1f}", SOFTWARE="SkyPart")
    write_text(path.with_suffix(".points"), _control_points(matrix, on_map, width, height, epsg))


def _depth(matrix: Points, points: Points) -> Points:
    """(n,) how the depth of points compares with the photo's centre: 1 there, 0 at the horizon, larger when nearer."""
    there = np.c_[points, np.ones(len(points))] @ matrix[2]
    depth: Points = there / (matrix[2] @ [0.5, 0.5, 1.0])
    return depth


def _control_points(matrix: Points, on_map: "object", width: int, height: int, epsg: int) -> str:
    """Points in QGIS's format: map x and y, then pixel column and row, which counts downwards from 0 as negative."""
    assert callable(on_map)
    edge = np.linspace(0.0, 1.0, CONTROL_POINTS)
    grid = np.stack(np.meshgrid(edge, edge), axis=-1).reshape(-1, 2)
    grid = grid[_depth(matrix, grid) > MIN_DEPTH]
    text = io.StringIO()
    text.write(f"#CRS: EPSG:{epsg}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["mapX", "mapY", "sourceX", "sourceY", "enable", "dX", "dY", "residual"])
    for (x, y), (east, north) in zip(grid.tolist(), on_map(grid).tolist(), strict=True):
        writer.writerow([f"{east:.3f}", f"{north:.3f}", f"{x * width:.1f}", f"{-y * height:.1f}", 1, 0, 0, 0])
    return text.getvalue()
