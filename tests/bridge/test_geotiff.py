"""A located photo lies on the ground where its homography says, and OpenDroneMap's list has the drone's position."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
from PIL import Image
from pyproj import Transformer

from skypart.bridge.formats import choose_format, write_fixes
from skypart.bridge.geotiff import utm_zone, write_geotiffs
from skypart.position.fix import Fix

LATITUDE, LONGITUDE = 48.2, 16.4


def photo_with(tmp_path: Path, matrix: np.ndarray) -> Fix:
    pixels = np.full((80, 120, 3), 90, np.uint8)
    pixels[36:44, 56:64] = (250, 0, 0)  # the centre
    pixels[36:44, 108:116] = (0, 250, 0)  # right of it
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return Fix(
        photo=str(tmp_path / "a.png"),
        latitude=LATITUDE,
        longitude=LONGITUDE,
        radius_m=9.0,
        ground=tuple(matrix.ravel().tolist()),
    )


def centre_of(path: Path, colour: int) -> tuple[float, float]:
    """Latitude and longitude of the middle of a red (0) or green (1) patch."""
    with rasterio.open(path) as raster:
        bands = raster.read().astype(int)
        rows, columns = np.nonzero((bands[colour] > 200) & (bands[1 - colour] < 60) & (bands[3] == 255))
        x, y = raster.transform * (columns.mean() + 0.5, rows.mean() + 0.5)
        longitude, latitude = Transformer.from_crs(raster.crs, 4326, always_xy=True).transform(x, y)
    return float(latitude), float(longitude)


def test_a_photo_is_warped_onto_the_ground(tmp_path: Path) -> None:
    """Heading east: the photo's right is south. 120 m across, 80 m along."""
    matrix = np.array([[0.0, -80.0, 40.0], [-120.0, 0.0, 60.0], [0.0, 0.0, 1.0]])
    fix = photo_with(tmp_path, matrix)
    assert write_geotiffs([fix, Fix(photo="b", reason="dark")], tmp_path / "out") == 1
    out = tmp_path / "out" / "a.tif"
    red, green = centre_of(out, 0), centre_of(out, 1)
    assert red[0] == pytest.approx(LATITUDE, abs=5e-6) and red[1] == pytest.approx(LONGITUDE, abs=7e-6)
    metre = 1 / 111_200
    assert green[0] == pytest.approx(LATITUDE - 52.0 * metre, abs=8e-6) and green[1] == pytest.approx(
        LONGITUDE, abs=1e-5
    )
    with rasterio.open(out) as raster:
        assert raster.crs.to_epsg() == 32633 and raster.res[0] == pytest.approx(1.0, rel=0.01)
        assert raster.tags()["RADIUS_95_M"] == "9.0"
        corner_alpha = raster.read(4)
        assert corner_alpha.max() == 255
    lines = (tmp_path / "out" / "a.points").read_text().splitlines()
    assert lines[0] == "#CRS: EPSG:32633" and len(lines) == 2 + 25
    with rasterio.open(out) as raster:
        rows = [[float(value) for value in line.split(",")] for line in lines[2:]]
        inside = [row for row in rows if row[2:4] == [60.0, -40.0]]
        x, y = Transformer.from_crs(4326, raster.crs, always_xy=True).transform(LONGITUDE, LATITUDE)
        assert inside[0][:2] == [pytest.approx(x, abs=0.01), pytest.approx(y, abs=0.01)]


def test_the_part_near_the_horizon_is_left_out(tmp_path: Path) -> None:
    matrix = np.array([[100.0, 0.0, -50.0], [0.0, -60.0, 30.0], [0.0, 1.8, 0.1]])  # the horizon is just above the photo
    write_geotiffs([photo_with(tmp_path, matrix)], tmp_path)
    with rasterio.open(tmp_path / "a.tif") as raster:
        assert max(raster.bounds.top - raster.bounds.bottom, raster.bounds.right - raster.bounds.left) < 400.0
        assert (raster.read(4) == 0).any()


def test_zones_and_the_list_for_opendronemap(tmp_path: Path) -> None:
    assert (utm_zone(48.2, 16.4), utm_zone(-33.0, 151.0), utm_zone(1.0, 180.0)) == (32633, 32756, 32660)
    drone = Fix(photo="x/a.jpg", latitude=1.0, longitude=2.0, drone_latitude=3.0, drone_longitude=4.0)
    ground, none = Fix(photo="b.jpg", latitude=1.0, longitude=2.0), Fix(photo="c.jpg", reason="dark")
    text = write_fixes([drone, ground, none], "geo")
    assert text == "EPSG:4326\na.jpg 4.00000000 3.00000000\nb.jpg 2.00000000 1.00000000\n"
    assert choose_format("geo", tmp_path / "geo.txt").name == "geo"
