"""Over hills, the drone's position is computed with heights, and is at least twice as good as with a plane."""

import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame, distance_m, offset
from skypart.position.camera import drone_position
from skypart.position.fix import Fix, Hints, Place
from skypart.position.fly import locate_with
from skypart.position.frames import Frame
from skypart.position.locate import Locator
from skypart.position.terrain import Terrain, add_terrain, parse_place
from tests.maps.makers import write_raster
from tests.position.test_follow import Recording

FRAME = LocalFrame(latitude=48.0, longitude=9.0)  # on the central meridian of UTM zone 32
EAST, NORTH = 500_000.0, 5_316_300.0


def hill(east: float, north: float) -> float:
    """Metres of a valley between hills, around the centre of the raster."""
    return 400.0 + 60.0 * math.sin(east / 170.0) * math.cos(north / 210.0) + 0.05 * north


@pytest.fixture(scope="module")
def terrain(tmp_path_factory: pytest.TempPathFactory) -> Terrain:
    cells = (np.arange(400) + 0.5) * 4.0 - 800.0
    heights = np.array([[hill(x, -y) for x in cells] for y in cells], dtype=np.float32)
    path = tmp_path_factory.mktemp("dem") / "dem.tif"
    affine = Affine(4.0, 0.0, EAST - 800.0, 0.0, -4.0, NORTH + 800.0)
    return Terrain.read(write_raster(path, heights[None], "EPSG:32632", affine))


def degrees(east: float, north: float) -> Place:
    from pyproj import Transformer

    longitude, latitude = Transformer.from_crs(32632, 4326, always_xy=True).transform(EAST + east, NORTH + north)
    return Place(float(latitude), float(longitude))


def test_heights_are_interpolated_and_unknown_outside(terrain: Terrain) -> None:
    for east, north in ((0.0, 0.0), (123.4, -321.0), (-700.0, 650.0)):
        assert terrain.height(*degrees(east, north)) == pytest.approx(hill(east, north), abs=0.1)
    assert math.isnan(terrain.height(*degrees(900.0, 0.0)))


def march(drone: tuple[float, float, float], heading: float, tilt: float) -> tuple[float, float]:
    """Where a ray meets the hill, by small steps: independent of what is tested. Grid north is true north here."""
    turn, down = math.radians(heading), math.tan(math.radians(tilt))
    for step in range(200_000):
        run = 0.02 * step
        east, north = drone[0] + run * math.sin(turn), drone[1] + run * math.cos(turn)
        if drone[2] - down * run <= hill(east, north):
            return east, north
    raise AssertionError("the ray meets nothing")


def test_over_hills_the_error_of_the_drone_is_at_most_half_of_that_over_a_plane(terrain: Terrain) -> None:
    rng = np.random.default_rng(1)
    takeoff = degrees(50.0, -100.0)
    takeoff_m = hill(50.0, -100.0)
    plane: list[float] = []
    over_heights: list[float] = []
    for _ in range(40):
        east, north = rng.uniform(-350, 350, 2)
        altitude, heading, tilt = takeoff_m + rng.uniform(110, 180), rng.uniform(0, 360), rng.uniform(35, 70)
        ground = march((east, north, altitude), heading, tilt)
        hints = Hints(tilt_deg=tilt + rng.normal() * 0.5, altitude_m=altitude - takeoff_m + rng.normal() * 2.0)
        seen = degrees(ground[0] + rng.normal() * 3.0, ground[1] + rng.normal() * 3.0)
        flat = drone_position(
            latitude=seen.latitude, longitude=seen.longitude, heading=heading, ground_m=None, hints=hints
        )
        fix = Fix(photo="a", latitude=seen.latitude, longitude=seen.longitude, radius_m=9.0, heading_deg=heading)
        hilly = add_terrain(fix, hints, terrain, terrain.height(*takeoff))
        assert flat is not None and hilly.drone_latitude is not None and hilly.drone_longitude is not None
        true = degrees(east, north)
        for place, errors in ((flat, plane), (Place(hilly.drone_latitude, hilly.drone_longitude), over_heights)):
            metres = distance_m(
                latitude=true.latitude,
                longitude=true.longitude,
                to_latitude=place.latitude,
                to_longitude=place.longitude,
            )
            errors.append(float(metres))
    assert np.mean(over_heights) < 0.5 * np.mean(plane)
    assert np.median(over_heights) < 8.0 < np.median(plane)


@pytest.mark.parametrize(("height_error", "lens_error"), [(15.0, 0.0), (0.0, 0.1)])
def test_heights_and_the_match_s_size_make_up_for_each_other(
    terrain: Terrain, height_error: float, lens_error: float
) -> None:
    """A wrong height and a wrong lens: the mean is nearer than the worse of both, and between them."""
    takeoff, tilt, heading, altitude = degrees(50.0, -100.0), 50.0, 30.0, hill(50.0, -100.0) + 120.0
    ground = march((0.0, 0.0, altitude), heading, tilt)
    seen, distance = degrees(*ground), (altitude - hill(*ground)) / math.sin(math.radians(tilt))
    hints = Hints(tilt_deg=tilt, altitude_m=120.0 + height_error, fov_deg=50.0)
    size = 2.0 * distance * math.tan(math.radians(25.0)) * (1.0 + lens_error)
    place = drone_position(
        latitude=seen.latitude, longitude=seen.longitude, heading=heading, ground_m=size, hints=hints
    )
    assert place is not None
    fix = Fix(photo="a", latitude=seen.latitude, longitude=seen.longitude, heading_deg=heading, ground_m=size)
    by_size = replace(fix, drone_latitude=place.latitude, drone_longitude=place.longitude)
    takeoff_m = terrain.height(*takeoff)
    true, errors = degrees(0.0, 0.0), []
    for each in (
        by_size,
        add_terrain(by_size, replace(hints, fov_deg=None), terrain, takeoff_m),
        add_terrain(by_size, hints, terrain, takeoff_m),
    ):
        assert each.drone_latitude is not None and each.drone_longitude is not None
        metres = distance_m(
            latitude=true.latitude,
            longitude=true.longitude,
            to_latitude=each.drone_latitude,
            to_longitude=each.drone_longitude,
        )
        errors.append(float(metres))
    size_error, height_only, both = errors
    assert min(size_error, height_only) < 1.0 and max(size_error, height_only) > 8.0
    assert min(size_error, height_only) < both < 0.85 * max(size_error, height_only)


def test_fly_locates_over_heights_from_the_take_off(terrain: Terrain) -> None:
    takeoff, altitude = degrees(50.0, -100.0), hill(50.0, -100.0) + 120.0
    seen = degrees(*march((0.0, 0.0, altitude), 30.0, 50.0))
    fix = Fix(photo="a", latitude=seen.latitude, longitude=seen.longitude, radius_m=9.0, heading_deg=30.0)
    frame, hints = Frame(0.0, np.zeros((8, 8, 3), np.uint8), "a"), Hints(tilt_deg=50.0, altitude_m=120.0)
    found = locate_with(cast("Locator", Recording([fix])), terrain, takeoff)(frame, hints, None)
    true = degrees(0.0, 0.0)
    assert found.drone_latitude is not None and found.drone_longitude is not None
    metres = distance_m(
        latitude=true.latitude,
        longitude=true.longitude,
        to_latitude=found.drone_latitude,
        to_longitude=found.drone_longitude,
    )
    assert float(metres) < 1.0
    with pytest.raises(SkyPartError, match="is not on the raster of heights"):
        locate_with(cast("Locator", Recording([])), terrain, degrees(5_000.0, 0.0))


def test_the_line_of_sight_meets_the_ground_where_the_ray_does(terrain: Terrain) -> None:
    for heading, tilt in ((20.0, 30.0), (140.0, 50.0), (290.0, 80.0)):
        east, north = march((0.0, 0.0, 560.0), heading, tilt)
        found = terrain.sight(degrees(0.0, 0.0), 560.0, heading_deg=heading, tilt_deg=tilt)
        assert found is not None
        true = degrees(east, north)
        metres = distance_m(
            latitude=true.latitude, longitude=true.longitude, to_latitude=found.latitude, to_longitude=found.longitude
        )
        assert float(metres) < 1.5
    assert terrain.sight(degrees(0.0, 0.0), 560.0, heading_deg=0.0, tilt_deg=1.0) is None


def test_a_height_above_the_ground_below_needs_no_take_off(terrain: Terrain) -> None:
    ground = degrees(100.0, 100.0)
    found = terrain.drone_above(ground, heading_deg=45.0, tilt_deg=60.0, height_m=120.0)
    assert found is not None
    place, altitude = found
    assert altitude - terrain.height(*place) == pytest.approx(120.0, abs=0.1)
    away = offset(latitude=ground.latitude, longitude=ground.longitude, bearing=225.0, metres=1.0)
    assert (place.latitude < ground.latitude) == (float(away.latitude) < ground.latitude)


def test_unknown_angles_and_places_leave_a_fix_as_it_is(terrain: Terrain) -> None:
    here = degrees(0.0, 0.0)
    fix = Fix(photo="a", latitude=here.latitude, longitude=here.longitude, radius_m=9.0)
    assert add_terrain(fix, Hints(altitude_m=100.0), terrain, None) is fix
    assert add_terrain(fix, Hints(altitude_m=100.0, tilt_deg=50.0), terrain, None) is fix  # no heading
    outside = degrees(5_000.0, 0.0)
    far = Fix(photo="a", latitude=outside.latitude, longitude=outside.longitude, heading_deg=0.0)
    assert add_terrain(far, Hints(altitude_m=100.0, tilt_deg=50.0), terrain, None) is far


def test_bad_rasters_and_places_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="no such file"):
        Terrain.read(tmp_path / "none.tif")
    (tmp_path / "bad.tif").write_text("no raster")
    with pytest.raises(SkyPartError, match="cannot be read"):
        Terrain.read(tmp_path / "bad.tif")
    with pytest.raises(SkyPartError, match="give latitude and longitude"):
        parse_place("here", "--takeoff")
    with pytest.raises(SkyPartError, match="latitude comes first"):
        parse_place("100,20", "--takeoff")
