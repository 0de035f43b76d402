"""Circles are round on the ground and are split at the antimeridian; so are lines."""

import numpy as np
import pytest

from skypart.bridge.geometry import circle_rings, split_path
from skypart.geo.geodesy import distance_m
from skypart.position.fix import Place


def area(ring: list[Place]) -> float:
    """Signed area in square degrees, positive anticlockwise."""
    x, y = np.array([p.longitude for p in ring]), np.array([p.latitude for p in ring])
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


@pytest.mark.parametrize("latitude", [-80.0, 0.0, 48.2, 80.0])
def test_a_circle_is_round_closed_and_anticlockwise(latitude: float) -> None:
    (ring,) = circle_rings(Place(latitude, 16.0), 250.0)
    assert ring[0] == pytest.approx(ring[-1]) and len(ring) == 65
    far = distance_m(
        latitude=latitude,
        longitude=16.0,
        to_latitude=np.array([place.latitude for place in ring]),
        to_longitude=np.array([place.longitude for place in ring]),
    )
    np.testing.assert_allclose(far, 250.0, atol=1e-3)
    assert area(ring) > 0


@pytest.mark.parametrize("longitude", [179.9995, -179.9995, 180.0, -180.0])
def test_a_circle_on_the_antimeridian_is_split(longitude: float) -> None:
    rings = circle_rings(Place(-17.0, longitude), 500.0)
    assert len(rings) == 2
    whole = circle_rings(Place(-17.0, 10.0), 500.0)[0]
    assert sum(map(area, rings)) == pytest.approx(area(whole), rel=1e-6)
    for ring in rings:
        assert area(ring) > 0 and ring[0] == ring[-1]
        longitudes = [place.longitude for place in ring]
        assert max(longitudes) - min(longitudes) < 1 and max(map(abs, longitudes)) == 180.0


def test_circles_around_a_pole_or_without_a_radius_have_no_rings() -> None:
    assert circle_rings(Place(89.9999, 0.0), 1000.0) == []
    assert circle_rings(Place(10.0, 0.0), 0.0) == []
    assert circle_rings(Place(10.0, 0.0), float("nan")) == []


def test_paths_are_split_at_gaps_and_at_the_antimeridian() -> None:
    a, b, c = Place(1.0, 2.0), Place(1.0, 3.0), Place(1.0, 4.0)
    assert split_path([a, b, None, c]) == [[a, b]]
    assert split_path([None, a, b, None, None, b, c]) == [[a, b], [b, c]]
    assert split_path([]) == []
    west = split_path([Place(0.0, -179.0), Place(2.0, 179.0)])
    assert west == [[Place(0.0, -179.0), Place(1.0, -180.0)], [Place(1.0, 180.0), Place(2.0, 179.0)]]
