"""The vote of the best views: places they agree on, and how much."""

import numpy as np
import pytest

from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame, distance_m
from skypart.maps.store import Hit
from skypart.position.vote import PEAKS, find_peaks


def hits(places: list[tuple[float, float, float]], frame: LocalFrame, metres: float = 100.0) -> list[Hit]:
    """Hits at (east, north, score), best first."""
    found = []
    for row, (east, north, score) in enumerate(sorted(places, key=lambda each: -each[2])):
        spot = frame.to_degrees(np.array([east]), np.array([north]))
        footprint = Footprint(latitude=float(spot.latitude[0]), longitude=float(spot.longitude[0]), metres=metres)
        found.append(Hit(map_name="m", footprint=footprint, score=score, row=row))
    return found


def off(peak: object, frame: LocalFrame, east: float, north: float) -> float:
    spot = frame.to_degrees(np.array([east]), np.array([north]))
    return float(
        distance_m(
            latitude=peak.latitude,  # type: ignore[attr-defined]
            longitude=peak.longitude,  # type: ignore[attr-defined]
            to_latitude=spot.latitude[0],
            to_longitude=spot.longitude[0],
        )
    )


MUNICH = LocalFrame(latitude=48.1, longitude=11.5)


def test_no_hits_have_no_peaks() -> None:
    assert find_peaks([]) == []


def test_one_hit_is_one_peak_with_all_votes() -> None:
    (peak,) = find_peaks(hits([(30.0, -40.0, 0.8)], MUNICH))
    assert off(peak, MUNICH, 30.0, -40.0) < 0.01
    assert peak.weight == pytest.approx(1.0) and 0 < peak.spread_m < 50


def test_many_that_agree_outvote_the_single_best() -> None:
    """Three clusters: one lone best hit, four good ones that agree, two poor ones."""
    lone, agreed, poor = (0.0, 0.0), (1000.0, 500.0), (-2000.0, 100.0)
    places = [(*lone, 0.80)]
    places += [(agreed[0] + dx, agreed[1] + dy, 0.79) for dx, dy in ((0, 0), (20, 0), (0, 20), (-20, -20))]
    places += [(poor[0], poor[1], 0.6), (poor[0] + 10, poor[1], 0.6)]
    peaks = find_peaks(hits(places, MUNICH))
    assert len(peaks) == 3
    assert off(peaks[0], MUNICH, *agreed) < 10 and off(peaks[1], MUNICH, *lone) < 1 and off(peaks[2], MUNICH, *poor) < 6
    votes = np.exp(np.array([0.0, -0.01, -0.20]) / 0.05) * [1, 4, 2]
    expected = votes / votes.sum()
    assert [peaks[1].weight, peaks[0].weight, peaks[2].weight] == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_peak_lies_between_its_views_nearer_to_the_better_and_the_smaller() -> None:
    even = find_peaks(hits([(-12.0, 0.0, 0.8), (12.0, 0.0, 0.8)], MUNICH))[0]
    assert off(even, MUNICH, 0.0, 0.0) < 0.1 * 12 + 3
    better = find_peaks(hits([(-12.0, 0.0, 0.7), (12.0, 0.0, 0.8)], MUNICH))[0]
    assert off(better, MUNICH, 12.0, 0.0) < off(better, MUNICH, -12.0, 0.0)
    small, wide = hits([(12.0, 0.0, 0.8)], MUNICH, 60.0), hits([(-12.0, 0.0, 0.8)], MUNICH, 240.0)
    mixed = find_peaks([*small, *wide])[0]
    assert off(mixed, MUNICH, 12.0, 0.0) < off(mixed, MUNICH, -12.0, 0.0)


def test_weights_sum_to_one_at_most_and_spread_grows_with_disagreement() -> None:
    dice = np.random.default_rng(0)
    for _ in range(20):
        count = int(dice.integers(1, 60))
        places = [(*dice.uniform(-3000, 3000, 2), float(dice.uniform(0.2, 0.9))) for _ in range(count)]
        peaks = find_peaks(hits(places, MUNICH))
        assert 1 <= len(peaks) <= PEAKS
        assert sum(peak.weight for peak in peaks) <= 1 + 1e-9 and all(0 < peak.weight <= 1 for peak in peaks)
        if count <= PEAKS:
            assert sum(peak.weight for peak in peaks) == pytest.approx(1.0)
    tight = find_peaks(hits([(dx, 0.0, 0.8) for dx in (-2.0, 0.0, 2.0)], MUNICH))[0]
    loose = find_peaks(hits([(dx, 0.0, 0.8) for dx in (-25.0, 0.0, 25.0)], MUNICH))[0]
    assert tight.spread_m < loose.spread_m


@pytest.mark.parametrize("latitude", [0.0, -17.0, 70.0])
def test_views_on_both_sides_of_the_antimeridian_agree(latitude: float) -> None:
    frame = LocalFrame(latitude=latitude, longitude=180.0)
    both = hits([(-12.0, 0.0, 0.8), (12.0, 0.0, 0.8), (0.0, 12.0, 0.79)], frame)
    assert {hit.footprint.longitude > 0 for hit in both} == {True, False}
    (peak,) = find_peaks(both)
    assert off(peak, frame, 0.0, 4.0) < 6 and peak.weight == pytest.approx(1.0)
    assert -180 <= peak.longitude <= 180


def test_a_place_beside_a_stronger_one_is_a_peak_of_its_own() -> None:
    """Views of 100 m whose middles lie 60 m apart share 40 % of their ground, and show two places."""
    strong = [(dx, 0.0, 0.8) for dx in (-6.0, 0.0, 6.0)]
    peaks = find_peaks(hits([*strong, (60.0, 0.0, 0.79)], MUNICH))
    assert len(peaks) == 2 and peaks[0].weight > peaks[1].weight
    assert sum(peak.weight for peak in peaks) == pytest.approx(1.0)
