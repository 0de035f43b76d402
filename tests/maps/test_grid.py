"""Pixels to degrees and back, compared with pyproj."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pyproj import Geod
from rasterio.transform import Affine

from skypart.geo.geodesy import Degrees, LocalFrame
from skypart.maps.grid import MapGrid, crs_plane
from skypart.maps.warp import _interpolate, _make_mesh
from tests.maps.makers import centred_affine, to_degrees

PLACES = [
    ("EPSG:32643", (33.64, 72.99)),
    ("EPSG:32760", (-17.0, 180.0)),
    ("EPSG:32601", (65.0, -179.999)),
    ("EPSG:4326", (51.0, 180.0)),
    ("EPSG:4326", (-80.0, 12.0)),
    ("EPSG:3857", (-16.5, 179.9999)),
    ("EPSG:3857", (80.0, -30.0)),
    ("EPSG:3413", (80.0, -45.0)),
    ("EPSG:3031", (-80.0, 179.99)),
    ("EPSG:2263", (40.75, -73.98)),
    ("EPSG:27700", (51.5, -0.1)),
    ("EPSG:2154", (47.0, 2.0)),
    ("EPSG:3832", (-17.0, 180.0)),
]


@pytest.mark.parametrize("kind", ["north", "south", "rotated"])
@pytest.mark.parametrize(("crs", "around"), PLACES)
def test_pixels_and_degrees_agree_with_pyproj_within_a_centimetre(
    crs: str, around: tuple[float, float], kind: str
) -> None:
    """39 grids of 260 points: 10,140."""
    size = (40_000, 30_000)
    affine = centred_affine(crs, around, 0.5, size, kind)
    rng = np.random.default_rng(2)
    column, row = rng.uniform(0, size[0], 260), rng.uniform(0, size[1], 260)
    x, y = affine.a * column + affine.b * row + affine.c, affine.d * column + affine.e * row + affine.f
    lon, lat = to_degrees(crs).transform(x, y)
    grid = MapGrid(crs_plane(crs), affine, *size)
    ours = grid.to_degrees(column, row)
    assert Geod(ellps="WGS84").inv(ours.longitude, ours.latitude, lon, lat)[2].max() < 0.01
    assert np.abs(ours.longitude).max() <= 180
    back = grid.to_pixels(latitude=lat, longitude=lon)
    assert np.hypot(back.column - column, back.row - row).max() < 0.01 / 0.5
    middle = affine.a * 20_000 + affine.b * 15_000 + affine.c, affine.d * 20_000 + affine.e * 15_000 + affine.f
    steps = [(0.0, 0.0), (affine.a, affine.d), (affine.b, affine.e)]
    spots = [to_degrees(crs).transform(middle[0] + dx, middle[1] + dy) for dx, dy in steps]
    across, down = (Geod(ellps="WGS84").inv(*spots[0], *spot)[2] for spot in spots[1:])
    assert grid.gsd_m == pytest.approx((across * down) ** 0.5, rel=1e-3)


@pytest.mark.parametrize(("crs", "around"), PLACES)
def test_bounds_are_tight_around_all_pixels(crs: str, around: tuple[float, float]) -> None:
    grid = MapGrid(crs_plane(crs), centred_affine(crs, around, 1.0, (900, 700)), 900, 700)
    box = grid.bounds
    width = (box.east - box.west) % 360
    lat, lon = grid.to_degrees(*np.meshgrid(np.linspace(0, 900, 50), np.linspace(0, 700, 50)))
    beyond_west = (lon - box.west + 180) % 360 - 180
    slack = 2e-6
    assert lat.min() >= box.south - slack and lat.max() <= box.north + slack
    assert beyond_west.min() >= -slack and beyond_west.max() <= width + slack
    assert lat.max() == pytest.approx(box.north, abs=1e-5)
    assert beyond_west.max() == pytest.approx(width, abs=1e-4)


def test_bounds_cross_the_antimeridian() -> None:
    grid = MapGrid(crs_plane("EPSG:4326"), Affine(0.001, 0, 179.9, 0, -0.001, -16.9), 200, 200)
    assert grid.bounds.west == pytest.approx(179.9)
    assert grid.bounds.east == pytest.approx(-179.9)


def test_map_with_a_pole_has_bounds_around_the_world() -> None:
    grid = MapGrid(crs_plane("EPSG:3413"), Affine(100, 0, -5_000, 0, -100, 5_000), 100, 100)
    assert (grid.bounds.north, grid.bounds.west, grid.bounds.east) == (90.0, -180.0, 180.0)
    assert grid.bounds.south == pytest.approx(90 - 5 * 2**0.5 / 111.7, abs=2e-3)


def test_longitudes_from_0_to_360_are_accepted() -> None:
    grid = MapGrid(crs_plane("EPSG:4326"), Affine(0.01, 0, 300.0, 0, -0.01, 10.0), 100, 100)
    column, row = grid.to_pixels(latitude=9.5, longitude=-59.5)
    assert (float(column), float(row)) == pytest.approx((50.0, 50.0))


def view_of(centre: tuple[float, float], metres: float, size: int) -> Any:
    frame = LocalFrame(latitude=centre[0], longitude=centre[1])

    def locate(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Degrees:
        across = (columns + 0.5 - size / 2) * metres / size
        return frame.to_degrees(across[None, :], (size / 2 - rows[:, None] - 0.5) * metres / size)

    return locate


@pytest.mark.parametrize("metres", [150.0, 3_000.0, 60_000.0])
@pytest.mark.parametrize(("crs", "around"), PLACES)
def test_mesh_interpolation_errs_by_less_than_a_tenth_of_a_pixel(
    crs: str, around: tuple[float, float], metres: float
) -> None:
    size = 224
    grid = MapGrid(crs_plane(crs), centred_affine(crs, around, 0.5, (8_000, 8_000)), 8_000, 8_000)
    locate = view_of(around, metres, size)
    mesh = _make_mesh(grid, locate, (size, size))
    every = np.append(np.arange(0, size, 5), size - 1)
    latitude, longitude = locate(every, every)
    exact = grid.to_pixels(latitude=latitude, longitude=longitude)
    coarser = max(1.0, min(mesh.steps))
    for values, truth in zip(mesh.pixels, exact, strict=True):
        first = values[0, 0]
        found = _interpolate(mesh, values - first, every, every) + first
        assert np.abs(found - truth).max() < 0.1 * coarser
    assert mesh.steps[0] * mesh.steps[1] == pytest.approx((metres / size / 0.5) ** 2, rel=0.1)
