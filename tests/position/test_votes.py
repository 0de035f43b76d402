"""The vote of the best views for places."""

import math

import numpy as np
import pytest

from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame, distance_m
from skypart.maps.store import Hit
from skypart.position.fix import Peak
from skypart.position.votes import MAX_PEAKS, find_peaks

MUNICH = LocalFrame(latitude=48.1, longitude=11.5)


def hits(places: list[tuple[float, float, float]], frame: LocalFrame = MUNICH, metres: float = 100.0) -> list[Hit]:
    """Hits at (east, north, score), best first."""
    found = []
    for row, (east, north, score) in enumerate(sorted(places, key=lambda each: -each[2])):
        place = frame.to_degrees(np.array([east]), np.array([north]))
        footprint = Footprint(latitude=float(place.latitude[0]), longitude=float(place.longitude[0]), metres=metres)
        found.append(Hit(map_name="m", footprint=footprint, score=score, row=row))
    return found


def distance(peak: Peak | Footprint, east: float, north: float, frame: LocalFrame = MUNICH) -> float:
    """Metres from a peak to a point of the frame."""
    place = frame.to_degrees(np.array([east]), np.array([north]))
    metres = distance_m(
        latitude=peak.latitude,
        longitude=peak.longitude,
        to_latitude=place.latitude[0],
        to_longitude=place.longitude[0],
    )
    return float(metres)


def test_no_hits_give_no_peaks() -> None:
    assert find_peaks([]) == []


def test_one_hit_is_one_peak_with_all_votes() -> None:
    (peak,) = find_peaks(hits([(30.0, -40.0, 0.8)]))
    assert distance(peak, 30.0, -40.0) < 0.01
    assert peak.weight == pytest.approx(1.0)
    assert peak.spread_m == pytest.approx(12.5), "half the standard deviation of a single vote"


def test_several_hits_that_agree_outvote_the_best_one() -> None:
    """Three clusters: one single best hit, four good ones that agree, two poor ones."""
    single, agreed, poor = (0.0, 0.0), (1000.0, 500.0), (-2000.0, 100.0)
    places = [(*single, 0.80)]
    places += [(agreed[0] + dx, agreed[1] + dy, 0.79) for dx, dy in ((0, 0), (20, 0), (0, 20), (-20, -20))]
    places += [(poor[0], poor[1], 0.6), (poor[0] + 10, poor[1], 0.6)]
    peaks = find_peaks(hits(places))
    assert len(peaks) == 3
    assert distance(peaks[0], *agreed) < 10 and distance(peaks[1], *single) < 1 and distance(peaks[2], *poor) < 6
    votes = np.exp(np.array([0.0, -0.01, -0.20]) / 0.05) * [1, 4, 2]
    expected = votes / votes.sum()
    assert [peaks[1].weight, peaks[0].weight, peaks[2].weight] == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_peak_lies_nearer_to_the_better_view() -> None:
    even = find_peaks(hits([(-12.0, 0.0, 0.8), (12.0, 0.0, 0.8)]))[0]
    assert distance(even, 0.0, 0.0) < 4.2
    better = find_peaks(hits([(-12.0, 0.0, 0.7), (12.0, 0.0, 0.8)]))[0]
    assert distance(better, 12.0, 0.0) < distance(better, -12.0, 0.0)


def test_a_peak_is_the_mean_of_its_views_weighted_by_one_over_their_size() -> None:
    """A wide view first, then a small one of the same score: the peak lies near the small one."""
    wide, small = hits([(-12.0, 0.0, 0.8)], metres=240.0), hits([(12.0, 0.0, 0.8)], metres=60.0)
    peak = find_peaks([*wide, *small])[0]
    kernel = math.exp(-0.5 * 24.0**2 / 60.0**2)
    pull_wide, pull_small = 1.0 / 60.0, kernel / 15.0
    east = 12.0 * (pull_small - pull_wide) / (pull_small + pull_wide)
    assert east > 6.0 and distance(peak, east, 0.0) < 0.01
    variance = (pull_wide * (east + 12.0) ** 2 + pull_small * (12.0 - east) ** 2) / (pull_wide + pull_small)
    assert peak.spread_m == pytest.approx(math.sqrt(variance + 30.0**2), rel=1e-4)


def test_weights_sum_to_one_at_most_and_spread_grows_with_disagreement() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        count = int(rng.integers(1, 60))
        places = [(*rng.uniform(-3000, 3000, 2), float(rng.uniform(0.2, 0.9))) for _ in range(count)]
        peaks = find_peaks(hits(places))
        assert 1 <= len(peaks) <= MAX_PEAKS
        assert sum(peak.weight for peak in peaks) <= 1 + 1e-9 and all(0 < peak.weight <= 1 for peak in peaks)
        if count <= MAX_PEAKS:
            assert sum(peak.weight for peak in peaks) == pytest.approx(1.0)
    tight = find_peaks(hits([(dx, 0.0, 0.8) for dx in (-2.0, 0.0, 2.0)]))[0]
    loose = find_peaks(hits([(dx, 0.0, 0.8) for dx in (-25.0, 0.0, 25.0)]))[0]
    assert tight.spread_m < loose.spread_m


@pytest.mark.parametrize("latitude", [0.0, -17.0, 70.0])
def test_views_on_both_sides_of_the_antimeridian_agree(latitude: float) -> None:
    frame = LocalFrame(latitude=latitude, longitude=180.0)
    both = hits([(-12.0, 0.0, 0.8), (12.0, 0.0, 0.8), (0.0, 12.0, 0.79)], frame)
    assert {hit.footprint.longitude > 0 for hit in both} == {True, False}
    (peak,) = find_peaks(both)
    assert distance(peak, 0.0, 4.0, frame) < 6 and peak.weight == pytest.approx(1.0)
    assert -180 <= peak.longitude <= 180


@pytest.mark.parametrize(("apart", "peaks"), [(29.0, 1), (30.0, 2), (60.0, 2)])
def test_views_are_another_place_once_the_vote_has_fallen_to_half(apart: float, peaks: int) -> None:
    """Votes of views of 100 m deviate by 25 m, so they fall to a half at 29.4 m."""
    found = find_peaks(hits([(0.0, 0.0, 0.8), (apart, 0.0, 0.79)]))
    assert len(found) == peaks
    assert sum(peak.weight for peak in found) == pytest.approx(1.0)


def test_many_poor_views_do_not_outvote_two_good_ones() -> None:
    """Ten votes of 0.01 around the best view weigh less than two votes of 0.9 that agree."""
    poor, good = 0.8 + 0.05 * math.log(0.01), 0.8 + 0.05 * math.log(0.9)
    crowd = [(0.0, 0.0, 0.8), *((1.0 + i, 0.0, poor) for i in range(10))]
    peaks = find_peaks(hits([*crowd, (1000.0, 0.0, good), (1000.0, 1.0, good)]))
    assert distance(peaks[0], 1000.0, 0.5) < 1.0 and peaks[0].weight == pytest.approx(1.8 / 2.9, abs=1e-3)


def test_there_are_at_most_five_peaks() -> None:
    found = find_peaks(hits([(1000.0 * i, 0.0, 0.8 - 0.01 * i) for i in range(8)]))
    assert [round(distance(peak, 0.0, 0.0) / 1000.0) for peak in found] == [0, 1, 2, 3, 4]
