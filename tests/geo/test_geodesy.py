import numpy as np
import pytest
from pyproj import CRS, Geod, Transformer

from skypart.errors import SkyPartError
from skypart.geo import geodesy
from skypart.geo.geodesy import LocalFrame, wrap_longitude

CENTRES = [
    (33.64, 72.99),
    (0.0, 0.0),
    (80.0, 15.0),
    (-80.0, -120.0),
    (-17.0, 180.0),
    (52.0, -179.999),
    (-45.0, 179.9995),
    (89.9, 30.0),
]


@pytest.mark.parametrize(("latitude", "longitude"), CENTRES)
def test_local_frame_agrees_with_proj_within_a_centimetre(latitude: float, longitude: float) -> None:
    """10,000 points in all, up to 20 km away, against PROJ's own azimuthal equidistant projection."""
    rng = np.random.default_rng(7)
    x, y = rng.uniform(-20_000, 20_000, (2, 1250))
    frame = LocalFrame(latitude=latitude, longitude=longitude)
    crs = CRS.from_proj4(f"+proj=aeqd +lat_0={latitude} +lon_0={longitude} +datum=WGS84")
    lon, lat = Transformer.from_crs(crs, "EPSG:4326", always_xy=True).transform(x, y)
    ours = frame.to_degrees(x, y)
    assert Geod(ellps="WGS84").inv(ours.longitude, ours.latitude, lon, lat)[2].max() < 0.01
    assert np.abs(ours.longitude).max() <= 180
    back = frame.to_metres(latitude=lat, longitude=lon)
    assert np.hypot(back.x - x, back.y - y).max() < 0.01


@pytest.mark.parametrize(("latitude", "longitude"), CENTRES)
def test_distances_near_the_centre_match_the_ellipsoid(latitude: float, longitude: float) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-500, 500, (2, 500))
    lat, lon = LocalFrame(latitude=latitude, longitude=longitude).to_degrees(x, y)
    apart = geodesy.distance_m(latitude=lat[:-1], longitude=lon[:-1], to_latitude=lat[1:], to_longitude=lon[1:])
    assert np.abs(apart - np.hypot(np.diff(x), np.diff(y))).max() < 0.01


def test_offset_moves_by_the_given_distance_and_bearing() -> None:
    """Against PROJ, for 10,000 pairs of places, the antimeridian and 80 degrees north and south among them."""
    rng = np.random.default_rng(1)
    latitude = rng.uniform(-80, 80, 10_000)
    longitude = rng.uniform(-180, 180, 10_000)
    longitude[:2_000] = rng.choice([-1, 1], 2_000) * rng.uniform(179.9, 180, 2_000)
    latitude[2_000:3_000] = rng.choice([-80.0, 80.0], 1_000)
    bearing, metres = rng.uniform(0, 360, 10_000), rng.uniform(0, 50_000, 10_000)
    reached = geodesy.offset(latitude=latitude, longitude=longitude, bearing=bearing, metres=metres)
    turn, _, apart = Geod(ellps="WGS84").inv(longitude, latitude, reached.longitude, reached.latitude)
    assert np.abs(apart - metres).max() < 0.01
    aside = np.radians((turn - bearing + 180) % 360 - 180) * metres
    assert np.abs(aside).max() < 0.01
    ours = geodesy.distance_m(
        latitude=latitude, longitude=longitude, to_latitude=reached.latitude, to_longitude=reached.longitude
    )
    assert np.abs(ours - metres).max() < 0.01


def test_meridian_quadrant() -> None:
    quarter = geodesy.distance_m(latitude=0.0, longitude=0.0, to_latitude=90.0, to_longitude=123.0)
    assert quarter == pytest.approx(10_001_965.729, abs=0.001)  # the WGS 84 meridian quadrant


def test_haversine_is_the_great_circle_on_the_equatorial_sphere() -> None:
    one = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, -90.0], [179.0, 0.0], [5.0, 60.0]])
    other = np.array([[90.0, 0.0], [10.0, 1.0], [0.0, 90.0], [-179.0, 0.0], [5.0, 60.0]])
    degree = np.pi * geodesy.EARTH_RADIUS_M / 180
    assert geodesy.EARTH_RADIUS_M == 6_378_137.0
    assert geodesy.haversine_m(one, other) == pytest.approx([90 * degree, degree, 180 * degree, 2 * degree, 0.0])


def test_shapes_are_kept_and_broadcast() -> None:
    lat = np.zeros((4, 1)) + np.arange(4)[:, None]
    metres = geodesy.distance_m(latitude=lat, longitude=np.zeros((1, 3)), to_latitude=0.0, to_longitude=0.0)
    assert metres.shape == (4, 3)
    assert LocalFrame(latitude=1.0, longitude=2.0).to_degrees(0.0, 0.0).latitude.shape == ()


def test_degrees_cannot_be_passed_by_position() -> None:
    with pytest.raises(TypeError):
        geodesy.distance_m(1.0, 2.0, 3.0, 4.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        LocalFrame(1.0, 2.0)  # type: ignore[call-arg]


def test_centre_outside_the_earth_is_rejected() -> None:
    with pytest.raises(SkyPartError, match="not a point on the Earth"):
        LocalFrame(latitude=372_000.0, longitude=0.0)


def test_wrap_longitude() -> None:
    assert np.allclose(wrap_longitude([181, -181, 359, 0], 0), [-179, 179, -1, 0])
    assert np.allclose(wrap_longitude([-179.5], 179.0), [180.5])
