"""Circles are round on the ground and stay on their side of the antimeridian."""

import numpy as np
import pytest

from skypart.bridge.geometry import Place, circle, lines
from skypart.geo.geodesy import distance_m


def area(ring: list[Place]) -> float:
    """Signed area in square degrees, positive anticlockwise."""
    x, y = np.array([p.longitude for p in ring]), np.array([p.latitude for p in ring])
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


@pytest.mark.parametrize("latitude", [-80.0, 0.0, 48.2, 80.0])
def test_a_circle_is_round_closed_and_anticlockwise(latitude: float) -> None:
    (ring,) = circle(latitude=latitude, longitude=16.0, radius_m=250.0)
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
def test_a_circle_on_the_antimeridian_is_cut_in_two(longitude: float) -> None:
    rings = circle(latitude=-17.0, longitude=longitude, radius_m=500.0)
    assert len(rings) == 2
    whole = circle(latitude=-17.0, longitude=10.0, radius_m=500.0)[0]
    assert sum(map(area, rings)) == pytest.approx(area(whole), rel=1e-6)
    for ring in rings:
        assert area(ring) > 0 and ring[0] == ring[-1]
        longitudes = [place.longitude for place in ring]
        assert max(longitudes) - min(longitudes) < 1 and max(map(abs, longitudes)) == 180.0


def test_no_ring_around_a_pole_and_none_of_no_size() -> None:
    assert circle(latitude=89.9999, longitude=0.0, radius_m=1000.0) == []
    assert circle(latitude=10.0, longitude=0.0, radius_m=0.0) == []
    assert circle(latitude=10.0, longitude=0.0, radius_m=float("nan")) == []


def test_lines_end_at_gaps_and_at_the_antimeridian() -> None:
    a, b, c = Place(1.0, 2.0), Place(1.0, 3.0), Place(1.0, 4.0)
    assert lines([a, b, None, c]) == [[a, b]]
    assert lines([None, a, b, None, None, b, c]) == [[a, b], [b, c]]
    assert lines([]) == []
    west = lines([Place(0.0, -179.0), Place(2.0, 179.0)])
    assert west == [[Place(0.0, -179.0), Place(1.0, -180.0)], [Place(1.0, 180.0), Place(2.0, 179.0)]]
