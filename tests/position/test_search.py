"""The search for a place: the vote of the best views, and the matching at the places it finds."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame, distance_m
from skypart.images.decode import RgbImage
from skypart.maps.store import Hit
from skypart.position.confidence import MATCHING_VERSION, default_calibration
from skypart.position.fix import Hints, Peak
from skypart.position.homography import transform, warp
from skypart.position.matching import ImagePatches, PatchMatch, PatchReader, Refinement
from skypart.position.search import (
    MAX_PEAKS,
    GroundView,
    LocateOptions,
    MatchSearch,
    find_peaks,
    match_quality,
    tilted_view,
    tilts_to_try,
)
from tests.position.stand_in import ColourEmbedder, quilt
from tests.position.test_homography import similarity

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


# --- matching -------------------------------------------------------------------------------------------------------

PATCHES = 200
PHOTO = ImagePatches(np.zeros((PATCHES, 9), np.float32), np.zeros((PATCHES, 2)), aspect=0.75)


def refinement(inliers: int, alignment: float = 1.0, heading: float = 0.0) -> Refinement:
    footprint = Footprint(latitude=48.1, longitude=11.5, metres=120.0)
    match = PatchMatch(np.eye(3), inliers, 0.5, alignment)
    return Refinement(
        latitude=48.1, longitude=11.5, heading_deg=heading, ground_m=100.0, match=match, footprint=footprint
    )


class ScriptedSearch(MatchSearch):
    """Answers `match_views` from a list, then with None; records the views asked for."""

    def __init__(self, results: Sequence[Refinement | None], options: LocateOptions) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, options)
        self.results = list(results)
        self.asked: list[list[GroundView]] = []

    def match_views(self, photo: ImagePatches, views: Sequence[GroundView]) -> Refinement | None:
        self.asked.append(list(views))
        return self.results.pop(0) if self.results else None


def inliers_of(found: Refinement | None) -> int | None:
    return None if found is None else found.match.inliers


def find(search: MatchSearch, places: int = 1, hints: Hints | None = None) -> Refinement | None:
    """Search at places 1 km apart."""
    found = hits([(1000.0 * i, 0.0, 0.8 - 0.1 * i) for i in range(places)])
    return search.find(PHOTO, found, find_peaks(found), hints or Hints())


def test_the_defaults_are_those_of_the_shipped_calibration() -> None:
    """Other defaults give other evidence: increment MATCHING_VERSION and fit the default calibration again."""
    assert LocateOptions() == LocateOptions(
        views=48, places=4, headings=8, min_inlier_share=0.11, stop_inlier_share=0.2, rewarp_rounds=2
    )
    assert MATCHING_VERSION == default_calibration().matching == 3


class QuiltIndex:
    """Shows the same quilt everywhere south of 48.5 degrees and nothing north of it; records what is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []

    def view(self, ground: Footprint, size: int) -> RgbImage | None:
        self.asked.append((ground.metres, size))
        return None if ground.latitude > 48.5 else np.asarray(cv2.resize(quilt(1, 112), (size, size)), np.uint8)


def test_views_are_rendered_warped_and_compared() -> None:
    """The photo is a part of the map: its own view matches best, a view without map data is skipped."""
    index: Any = QuiltIndex()
    reader = PatchReader(ColourEmbedder())
    photo = reader.read([quilt(1, 112)])[0]
    search = MatchSearch(index, reader, LocateOptions())
    here = Footprint(latitude=48.1, longitude=11.5, metres=100.0)
    north = replace(here, latitude=49.0)
    assert search.match_views(photo, []) is None
    assert search.match_views(photo, [GroundView(north), GroundView(north, np.eye(3))]) is None
    assert index.asked == [(100.0, 112), (100.0, 224)], "a view to be warped is rendered at twice the size"
    plain = search.match_views(photo, [GroundView(north), GroundView(here)])
    assert plain is not None and plain.match.inliers > 150 and plain.ground_m == pytest.approx(100.0, rel=0.02)
    magnified = similarity(0.7)
    for views in ([GroundView(here, magnified), GroundView(here)], [GroundView(here), GroundView(here, magnified)]):
        best = search.match_views(photo, views)
        assert best is not None and best.match.inliers > 150, "the better of two views"


def test_the_homography_of_a_warped_view_leads_to_the_ground() -> None:
    """A view warped by half the map's edge: the photo that shows it has half the ground width."""
    index: Any = QuiltIndex()
    reader = PatchReader(ColourEmbedder())
    half = similarity(0.5)
    photo = reader.read([warp(cv2.resize(quilt(1, 112), (224, 224)), half, 112)])[0]
    ground = Footprint(latitude=48.1, longitude=11.5, metres=100.0)
    found = MatchSearch(index, reader, LocateOptions()).match_views(photo, [GroundView(ground, half)])
    assert found is not None and found.ground_m == pytest.approx(50.0, rel=0.02)


@pytest.mark.parametrize(("inliers", "accepted"), [(6, False), (21, False), (22, True)])
def test_a_match_needs_inliers_in_eleven_of_a_hundred_patches(inliers: int, accepted: bool) -> None:
    found = find(ScriptedSearch([refinement(inliers)], LocateOptions(rewarp_rounds=0)))
    assert (found is not None) == accepted


@pytest.mark.parametrize(("inliers", "searched"), [(39, 3), (40, 1)])
def test_the_search_ends_at_inliers_in_a_fifth_of_the_patches(inliers: int, searched: int) -> None:
    search = ScriptedSearch([refinement(inliers)], LocateOptions(rewarp_rounds=0))
    assert inliers_of(find(search, places=3)) == inliers
    assert len(search.asked) == searched


def test_a_match_that_ends_the_search_is_also_acceptable() -> None:
    strict = LocateOptions(rewarp_rounds=0, min_inlier_share=0.3)
    search = ScriptedSearch([refinement(45), refinement(60)], strict)
    assert inliers_of(find(search, places=2)) == 60


def test_the_best_match_wins_wherever_it_was_found() -> None:
    best, others = refinement(38), [refinement(25), None, refinement(30)]
    for number in range(4):
        results = [*others[:number], best, *others[number:]]
        assert find(ScriptedSearch(results, LocateOptions(rewarp_rounds=0)), places=4) is best
    assert match_quality(refinement(30, alignment=2.0)) > match_quality(refinement(30, alignment=1.5))
    assert match_quality(refinement(31, alignment=0.0)) > match_quality(refinement(30, alignment=9.0))


@pytest.mark.parametrize("places", [1, 3, 6])
def test_only_the_best_places_are_matched(places: int) -> None:
    search = ScriptedSearch([], LocateOptions(places=3))
    assert find(search, places) is None
    assert len(search.asked) == min(places, 3)


@pytest.mark.parametrize(
    ("results", "kept", "rounds"),
    [
        ([refinement(29)], 30, 1),
        ([refinement(30)], 30, 1),
        ([None], 30, 1),
        ([refinement(33), refinement(32)], 33, 2),
        ([refinement(33), refinement(36), refinement(39)], 36, 2),
    ],
    ids=["worse", "equal", "no match", "worse in the second round", "better in every round"],
)
def test_a_rewarped_match_is_kept_only_if_it_is_better(
    results: list[Refinement | None], kept: int, rounds: int
) -> None:
    search = ScriptedSearch([refinement(30), *results], LocateOptions(rewarp_rounds=2))
    assert inliers_of(find(search)) == kept
    assert len(search.asked) == 1 + rounds


def test_equal_inliers_and_a_better_alignment_count_as_better() -> None:
    search = ScriptedSearch([refinement(30), refinement(30, alignment=1.1)], LocateOptions(rewarp_rounds=1))
    found = find(search)
    assert found is not None and found.match.alignment == 1.1


def test_rewarping_shows_the_ground_around_the_match_in_the_photos_perspective() -> None:
    """Three ground widths around the refined place, its top where the photo's top is."""
    search = ScriptedSearch([refinement(30, heading=90.0)], LocateOptions(rewarp_rounds=1))
    find(search)
    (view,) = search.asked[1]
    assert view.ground == Footprint(latitude=48.1, longitude=11.5, metres=300.0, rotation=90.0)
    assert view.homography is not None
    points = np.array([[0.5, 0.5], [0.5, 0.0], [1.0, 0.5]])
    # The match maps the photo onto a 120 m square whose top is north: up in the photo is left in the new view.
    np.testing.assert_allclose(transform(view.homography, points), [[0.5, 0.5], [0.3, 0.5], [0.5, 0.3]], atol=1e-6)


def test_all_headings_are_tried_unless_the_heading_is_known() -> None:
    search = ScriptedSearch([], LocateOptions(headings=8))
    find(search)
    assert [view.ground.rotation for view in search.asked[0]] == [0, 45, 90, 135, 180, 225, 270, 315]
    assert {view.ground.metres for view in search.asked[0]} == {120.0}, "a margin of a fifth around the view"
    known = ScriptedSearch([], LocateOptions(headings=8))
    find(known, hints=Hints(heading_deg=-30.0))
    assert [view.ground.rotation for view in known.asked[0]] == [330.0]


def test_a_place_is_as_wide_as_the_best_view_near_it() -> None:
    """The second peak is sized after the view at its place, although the best view is wider."""
    far, near = hits([(0.0, 0.0, 0.9)], metres=250.0), hits([(1000.0, 0.0, 0.8)], metres=100.0)
    search = ScriptedSearch([], LocateOptions(headings=1))
    found = [*far, *near]
    search.find(PHOTO, found, find_peaks(found), Hints())
    assert [views[0].ground.metres for views in search.asked] == pytest.approx([300.0, 120.0])
    orphan = Peak(latitude=48.2, longitude=11.5, weight=1.0, spread_m=10.0)
    search.find(PHOTO, found, [orphan], Hints())
    assert search.asked[-1][0].ground.metres == pytest.approx(300.0), "the best view if none is near"


@pytest.mark.parametrize(
    ("tilt", "tried"),
    [
        (None, [90.0]),
        (88.0, [90.0]),
        (70.0, [90.0]),
        (69.0, [69.0, 90.0]),
        (50.0, [50.0, 90.0]),
        (21.0, [21.0, 90.0]),
        (5.0, [20.0, 90.0]),
    ],
)
def test_the_photos_own_tilt_is_tried_first(tilt: float | None, tried: list[float]) -> None:
    assert tilts_to_try(Hints(tilt_deg=tilt)) == tried
    search = ScriptedSearch([], LocateOptions(headings=1))
    find(search, places=2, hints=Hints(tilt_deg=tilt))
    oblique = [views[0].homography is not None for views in search.asked]
    assert oblique == [tilt != 90.0 for tilt in tried for _ in range(2)]


def test_an_oblique_view_covers_more_ground_and_uses_the_lens() -> None:
    place = Footprint(latitude=48.1, longitude=11.5, metres=120.0, rotation=45.0)
    assert tilted_view(place, 70.0, 0.75, 60.0) == GroundView(place)
    known, unknown, default = (tilted_view(place, 50.0, 0.75, fov) for fov in (80.0, None, 55.0))
    assert known.ground == Footprint(latitude=48.1, longitude=11.5, metres=300.0, rotation=45.0)
    assert known.homography is not None and unknown.homography is not None and default.homography is not None
    np.testing.assert_array_equal(unknown.homography, default.homography)
    assert not np.allclose(known.homography, default.homography)
