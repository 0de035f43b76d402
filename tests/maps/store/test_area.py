"""Boxes and circles, at the antimeridian and the poles too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Geod

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import FloatArray
from skypart.maps.store import Circle, area
from skypart.maps.store.area import is_inside
from skypart.maps.store.interface import Within


def test_edges_of_a_box_are_inside() -> None:
    box = Bounds(south=10, west=20, north=11, east=21)
    latitude = np.array([10, 11, 10.5, 9.999, 11.001, 10.5, 10.5])
    longitude = np.array([20, 21, 20.5, 20.5, 20.5, 19.999, 21.001])
    assert is_inside(box, latitude=latitude, longitude=longitude).tolist() == [True] * 3 + [False] * 4


@pytest.mark.parametrize("turn", [0, 360])
def test_box_across_the_antimeridian(turn: float) -> None:
    box = Bounds(south=-20, west=179, north=-10, east=-179)
    longitude = np.array([179, 179.5, 180, -180, -179.5, -179, 178.9, -178.9, 0]) + turn
    found = is_inside(box, latitude=np.full(9, -15.0), longitude=longitude)
    assert found.tolist() == [True] * 6 + [False] * 3


def test_box_around_the_whole_world() -> None:
    world = Bounds(south=-90, west=-180, north=90, east=180)
    longitude = np.array([-180.0, 0.0, 180.0, 17.3])
    assert is_inside(world, latitude=np.array([-90.0, 0.0, 90.0, 5.0]), longitude=longitude).all()


def test_box_without_width_is_a_line() -> None:
    line = Bounds(south=0, west=7, north=1, east=7)
    assert is_inside(line, latitude=np.array([0.5, 0.5]), longitude=np.array([7.0, 7.0001])).tolist() == [True, False]


@settings(max_examples=150, deadline=None)
@given(
    centre=st.one_of(
        st.tuples(st.floats(-90, 90), st.floats(-180, 180)),
        st.sampled_from([(90.0, 0.0), (-90.0, 120.0), (89.99, -170.0), (0.0, 180.0)]),
        st.sampled_from([(52.0, -180.0), (-77.0, 179.99), (84.0, 30.0)]),
    ),
    radius=st.sampled_from([0.0, 3.0, 250.0, 12_345.6, 400_000.0, 9_000_000.0, 25_000_000.0]),
    seed=st.integers(0, 1000),
)
def test_circle_matches_distances_on_the_ellipsoid(centre: tuple[float, float], radius: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    geod = Geod(ellps="WGS84")
    count = 60
    reach = rng.uniform(0.98, 1.02, count) * radius  # many at the edge, where sphere and ellipsoid disagree
    start = np.full(count, centre[1]), np.full(count, centre[0])
    longitude, latitude, _ = geod.fwd(*start, rng.uniform(0, 360, count), reach)
    longitude = np.append(longitude, [*rng.uniform(-180, 180, 20), centre[1]])
    latitude = np.append(latitude, [*rng.uniform(-90, 90, 20), centre[0]])
    many = np.ones(len(latitude))
    _, _, metres = geod.inv(centre[1] * many, centre[0] * many, longitude, latitude)
    found = is_inside(
        Circle(latitude=centre[0], longitude=centre[1], radius_m=radius), latitude=latitude, longitude=longitude
    )
    assert found.tolist() == (metres <= radius).tolist()


@pytest.mark.parametrize(
    "within",
    [
        Bounds(south=2, west=0, north=1, east=1),
        Bounds(south=0, west=0, north=90.1, east=1),
        Bounds(south=-90.1, west=0, north=0, east=1),
        Bounds(south=0, west=float("nan"), north=1, east=1),
        Circle(latitude=90.1, longitude=0, radius_m=1),
        Circle(latitude=-90.1, longitude=0, radius_m=1),
        Circle(latitude=0, longitude=0, radius_m=-0.1),
        Circle(latitude=0, longitude=float("inf"), radius_m=1),
    ],
)
def test_invalid_areas_are_rejected(within: Within) -> None:
    with pytest.raises(SkyPartError, match="is not a valid area"):
        is_inside(within, latitude=np.zeros(1), longitude=np.zeros(1))


@pytest.mark.parametrize(
    "within",
    [
        Bounds(south=-90, west=0, north=-90, east=1),
        Bounds(south=90, west=0, north=90, east=1),
        Circle(latitude=90, longitude=0, radius_m=0),
        Circle(latitude=-90, longitude=999, radius_m=1),
    ],
)
def test_extreme_areas_are_valid(within: Within) -> None:
    centre = within.north if isinstance(within, Bounds) else within.latitude
    longitude = 0.5 if isinstance(within, Bounds) else within.longitude
    assert is_inside(within, latitude=np.array([centre, 0.0]), longitude=np.array([longitude, 170.0])).tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize("radius", [0.3, 300.0, 20_000.0, 400_000.0])
@pytest.mark.parametrize("latitude", [0.0, 30.0, -60.0, 80.0, 89.9])
def test_edge_of_a_circle_is_decided_on_the_ellipsoid(latitude: float, radius: float) -> None:
    """Along meridians, the sphere is 0.7 % too long near the equator and 0.3 % too short near a pole."""
    shares = np.array([0.5, 0.985, 0.99, 0.995, 0.998, 0.9995, 1.0005, 1.002, 1.005, 1.01, 1.015, 2.0])
    bearing = np.repeat([0.0, 45.0, 90.0, 180.0, 270.0], len(shares))
    metres = np.tile(shares, 5) * radius
    start = np.zeros(len(metres)), np.full(len(metres), latitude)
    longitude, north, _ = Geod(ellps="WGS84").fwd(*start, bearing, metres)
    found = is_inside(Circle(latitude=latitude, longitude=0.0, radius_m=radius), latitude=north, longitude=longitude)
    assert found.tolist() == (metres < radius).tolist()


def test_only_points_near_the_edge_are_computed_on_the_ellipsoid(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    latitude, longitude = 48 + rng.uniform(-0.1, 0.1, 20_000), 16 + rng.uniform(-0.1, 0.1, 20_000)
    exact, computed = area._ellipsoid_metres, []

    def counted(circle: Circle, latitude: FloatArray, longitude: FloatArray) -> FloatArray:
        computed.append(len(latitude))
        return exact(circle, latitude, longitude)

    monkeypatch.setattr(area, "_ellipsoid_metres", counted)
    found = is_inside(Circle(latitude=48, longitude=16, radius_m=5_000.0), latitude=latitude, longitude=longitude)
    assert 4_000 < found.sum() < 6_000
    assert 0 < sum(computed) < 0.06 * found.sum()  # a ring of 1 % of the radius to either side


def test_preselection_keeps_all_points_inside_and_drops_most_others() -> None:
    rng = np.random.default_rng(0)
    latitude, longitude = rng.uniform(-90, 90, 200_000), rng.uniform(-180, 180, 200_000)
    for centre in (0.0, 60.0, -85.0):
        circle = Circle(latitude=centre, longitude=179.0, radius_m=300_000.0)
        near = area._in_frame(circle, latitude, longitude)
        inside = np.flatnonzero(area._ellipsoid_metres(circle, latitude, longitude) <= circle.radius_m)
        assert len(inside) > 50 and set(inside) <= set(near)
        assert len(near) < 2 * len(inside)
