"""The search for a place: laying the photo on views, and matching it with the map in its perspective."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.embedding.keypoints import ImageKeypoints
from skypart.embedding.patches import PatchReader, compact_tokens
from skypart.geo.footprint import Footprint
from skypart.images.decode import RgbImage
from skypart.maps.store import Hit
from skypart.position.confidence import MATCHING_VERSION, default_calibration
from skypart.position.fix import Hints
from skypart.position.homography import oblique_homography, transform, warp
from skypart.position.layouts import SCALES, TILTS, TURNS
from skypart.position.matching import Match, Refinement
from skypart.position.search import (
    GroundView,
    LocateOptions,
    MatchSearch,
    PhotoKeypoints,
    around,
    layouts_to_try,
    match_quality,
    rival_second,
    spread_views,
)
from tests.position.stand_in import ColourEmbedder, quilt
from tests.position.test_homography import similarity
from tests.position.test_votes import MUNICH, hits

PHOTO = PhotoKeypoints(ImageKeypoints(np.zeros((0, 2)), np.zeros((0, 64), np.float32)), (256, 320), aspect=0.75)


def refinement(inliers: int, east: float = 0.0, evenness: float = 0.5, heading: float = 0.0) -> Refinement:
    """A match of a photo with 100 m of ground, `east` metres from the first one."""
    place = MUNICH.to_degrees(np.array([east]), np.array([0.0]))
    footprint = Footprint(latitude=float(place.latitude[0]), longitude=float(place.longitude[0]), metres=120.0)
    return Refinement(
        latitude=footprint.latitude,
        longitude=footprint.longitude,
        heading_deg=heading,
        ground_m=100.0,
        match=Match(np.eye(3), inliers, 0.5, evenness),
        footprint=footprint,
        layout=4.0,
    )


class ScriptedSearch(MatchSearch):
    """Answers `match` with given inliers (None: no match); records the views asked for."""

    def __init__(
        self, layouts: Sequence[Refinement], results: Sequence[int | None], options: LocateOptions | None = None
    ) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, options or LocateOptions())
        self.layouts, self.results = list(layouts), list(results)
        self.asked: list[GroundView] = []

    def match(self, photo: PhotoKeypoints, view: GroundView) -> Refinement | None:
        self.asked.append(view)
        inliers = self.results.pop(0) if self.results else None
        place = replace(
            refinement(inliers or 0), latitude=view.ground.latitude, longitude=view.ground.longitude, layout=0.0
        )
        return None if inliers is None else place


def far(count: int) -> list[Refinement]:
    """Layouts 1 km apart, best first."""
    return [refinement(0, 1000.0 * number) for number in range(count)]


def find(search: ScriptedSearch) -> Refinement | None:
    return search.find(PHOTO, search.layouts)


def inliers_of(found: Refinement | None) -> int | None:
    return None if found is None else found.match.inliers


def test_the_defaults_are_those_of_the_shipped_calibration() -> None:
    """Other defaults give other evidence: increment MATCHING_VERSION and fit the default calibration again."""
    assert LocateOptions() == LocateOptions(
        views=48,
        aligned=8,
        per_place=3,
        matched=8,
        doubtful=2,
        tried_again=2,
        edge=320,
        min_inliers=18,
        stop_inliers=40,
        enough_inliers=150,
        weak_inliers=14,
        promising_inliers=30,
        follow_inliers=80,
    )
    assert MATCHING_VERSION == default_calibration().matching == 7


class QuiltIndex:
    """Shows the same quilt everywhere south of 48.5 degrees and nothing north of it; records what is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []
        self.tokens: dict[int, NDArray[np.int8]] = {}

    def view(self, ground: Footprint, size: int) -> RgbImage | None:
        self.asked.append((ground.metres, size))
        return None if ground.latitude > 48.5 else np.asarray(cv2.resize(quilt(1, 112), (size, size)), np.uint8)

    def view_tokens(self, hit: Hit) -> NDArray[np.int8] | None:
        return self.tokens.get(hit.row)


def test_views_are_rendered_warped_and_compared() -> None:
    index: Any = QuiltIndex()
    search = MatchSearch(index, PatchReader(ColourEmbedder()), LocateOptions())
    photo = search.read_keypoints(cv2.resize(quilt(1, 112), (320, 320)))
    assert photo.shape == (320, 320) and photo.aspect == 1.0 and len(photo.keypoints.points) > 200
    here = Footprint(latitude=48.1, longitude=11.5, metres=100.0)
    assert search.match(photo, GroundView(replace(here, latitude=49.0), np.eye(3))) is None
    assert index.asked == [(100.0, 480)], "a view is rendered larger than it is shown"
    same, magnified = (search.match(photo, GroundView(here, onto)) for onto in (np.eye(3), similarity(0.7)))
    assert same is not None and same.match.inliers > 150
    assert same.ground_m == pytest.approx(100.0, rel=0.02)
    assert magnified is None or magnified.match.inliers < same.match.inliers


def test_the_homography_of_a_warped_view_leads_to_the_ground() -> None:
    """A view warped by half the map's edge: the photo that shows it has half the ground width."""
    index: Any = QuiltIndex()
    half = similarity(0.5)
    search = MatchSearch(index, PatchReader(ColourEmbedder()), LocateOptions())
    photo = search.read_keypoints(warp(cv2.resize(quilt(1, 112), (480, 480)), half, (320, 320)))
    found = search.match(photo, GroundView(Footprint(latitude=48.1, longitude=11.5, metres=100.0), half))
    assert found is not None and found.ground_m == pytest.approx(50.0, rel=0.02)


@pytest.mark.parametrize(
    ("shape", "wanted"), [((480, 640), (288, 384)), ((720, 1280), (256, 416)), ((90, 90), (320, 320))]
)
def test_photos_keep_their_aspect_for_the_detector(shape: tuple[int, int], wanted: tuple[int, int]) -> None:
    nothing: Any = None
    photo = MatchSearch(nothing, nothing, LocateOptions()).read_keypoints(quilt(1, 1280)[: shape[0], : shape[1]])
    assert photo.shape == wanted and photo.aspect == shape[0] / shape[1]


def test_tokens_of_the_index_save_the_forward_passes_of_views() -> None:
    """Without them, each view passes through the network once, however often it is a candidate."""
    index: Any = QuiltIndex()
    embedder = ColourEmbedder()
    reader = PatchReader(embedder)
    photo = reader.read([quilt(1, 112)])[0]
    candidates = hits([(0.0, 0.0, 0.9), (500.0, 0.0, 0.8)])
    passes, layouts = [], []
    search = MatchSearch(index, reader, LocateOptions())
    for _ in range(2):
        before = embedder.calls
        layouts.append(search.lay_out(photo, candidates, Hints()))
        passes.append(embedder.calls - before)
    index.tokens = {hit.row: compact_tokens(photo.tokens) for hit in candidates}
    before = embedder.calls
    layouts.append(MatchSearch(index, reader, LocateOptions()).lay_out(photo, candidates, Hints()))
    passes.append(embedder.calls - before)
    assert passes == [2, 0, 0]
    assert [[round(place.ground_m) for place in each] for each in layouts] == [[100, 100]] * 3
    assert layouts[0][0].layout > layouts[0][1].layout > 0.0, "weighted with the similarity of the view"


def test_views_without_map_data_are_left_out() -> None:
    index: Any = QuiltIndex()
    reader = PatchReader(ColourEmbedder())
    photo = reader.read([quilt(1, 112)])[0]
    north = hits([(0.0, 60_000.0, 0.9)])
    search = MatchSearch(index, reader, LocateOptions())
    assert search.lay_out(photo, north, Hints()) == [] and search.lay_out(photo, north, Hints()) == []
    assert len(index.asked) == 1, "that it is missing is remembered"


@pytest.mark.parametrize(("inliers", "accepted"), [(6, False), (17, False), (18, True)])
def test_a_match_needs_enough_inliers(inliers: int, accepted: bool) -> None:
    assert (find(ScriptedSearch(far(1), [inliers])) is not None) == accepted


@pytest.mark.parametrize(("inliers", "matched"), [(39, 8), (40, 2), (149, 2), (150, 1)])
def test_the_search_ends_at_many_inliers_once_other_ground_was_compared(inliers: int, matched: int) -> None:
    """With very many it ends at once."""
    search = ScriptedSearch(far(9), [inliers], LocateOptions(weak_inliers=1000, promising_inliers=1000))
    assert inliers_of(find(search)) == inliers and len(search.asked) == matched


def test_only_the_best_layouts_are_matched() -> None:
    search = ScriptedSearch(far(9), [])
    assert find(search) is None
    assert len(search.asked) == 8
    assert search.find(PHOTO, search.layouts, doubtful=True) is None
    assert len(search.asked) == 8 + 2, "of a photo that is probably of other ground, two"


def test_the_best_match_wins_wherever_it_was_found() -> None:
    options = LocateOptions(weak_inliers=1000)
    for number in range(4):
        results: list[int | None] = [25, None, 24]
        results.insert(number, 27)
        assert inliers_of(find(ScriptedSearch(far(4), results, options))) == 27
    assert match_quality(refinement(30, evenness=0.4)) > match_quality(refinement(30, evenness=0.3))
    assert match_quality(refinement(31, evenness=0.0)) > match_quality(refinement(30, evenness=0.9))


@pytest.mark.parametrize(
    ("first", "again", "kept", "asked"),
    [
        (13, [50], None, 1),  # too weak
        (14, [50, 49], 50, 3),
        (30, [29], 30, 2),
        (30, [None], 30, 2),
        (40, [43, 60], 43, 2),  # hardly better
        (40, [45, 50, 56, 70], 56, 4),  # three times at most
        (149, [150, 170], 150, 2),
        (150, [170], 150, 1),  # good enough
    ],
)
def test_a_match_is_warped_and_matched_again_as_long_as_that_helps(
    first: int, again: list[int | None], kept: int | None, asked: int
) -> None:
    search = ScriptedSearch(far(1), [first, *again])
    found = find(search)
    assert inliers_of(found) == kept and len(search.asked) == asked
    assert found is None or found.layout == 4.0, "the evidence of its layout stays"


def test_several_matches_are_tried_again_if_none_is_convincing() -> None:
    """The second best of the first matches is the right place."""
    search = ScriptedSearch(far(4), [17, 14, 15, 9, None, 90, 80])
    found = find(search)
    assert inliers_of(found) == 90 and len(search.asked) == 7
    convincing = ScriptedSearch(far(4), [29, 60, None])
    assert inliers_of(find(convincing)) == 60 and len(convincing.asked) == 3


def test_a_promising_match_is_tried_again_before_other_layouts() -> None:
    enough = ScriptedSearch(far(4), [30, 150])
    found = find(enough)
    assert inliers_of(found) == 150 and len(enough.asked) == 2, "no other ground need be compared"
    less = ScriptedSearch(far(4), [30, 149, None, 20])
    found = find(less)
    assert found is not None and found.match.inliers == 149 and found.uniqueness == pytest.approx(1 - 20 / 149)
    assert len(less.asked) == 4, "and it is not tried once more at the end"


@pytest.mark.parametrize(("inliers", "followed"), [(None, False), (79, False), (80, True)])
def test_a_photo_of_a_flight_is_matched_around_the_last_one(inliers: int | None, followed: bool) -> None:
    last = replace(refinement(300), uniqueness=0.8, layout=5.0)
    search = ScriptedSearch([], [inliers])
    found = search.follow(PHOTO, last)
    assert [view.ground for view in search.asked] == [around(last).ground]
    assert (found is not None) == followed
    assert found is None or (found.match.inliers, found.uniqueness, found.layout) == (80, 0.8, 5.0)


def test_the_ground_around_a_match_is_shown_in_the_photos_perspective() -> None:
    """As much ground as the photo shows, and a margin of a twentieth; its top where the photo's top is."""
    view = around(refinement(30, heading=90.0))
    assert view.ground == Footprint(latitude=48.1, longitude=11.5, metres=view.ground.metres, rotation=90.0)
    assert view.ground.metres == pytest.approx(126.0)
    points = np.array([[0.5, 0.5], [0.5, 0.0], [1.0, 0.5]])
    # The match maps the photo onto a 120 m square whose top is north: up in the photo is left in the new view.
    near = 0.5 - 0.5 / 1.05
    np.testing.assert_allclose(transform(view.homography, points), [[0.5, 0.5], [near, 0.5], [0.5, near]], atol=1e-6)


def test_the_ground_of_an_oblique_photo_is_limited_towards_the_horizon() -> None:
    for tilt, widths in ((60.0, 2.1 * 1.0), (35.0, 3.0), (15.0, 3.0)):
        onto = oblique_homography(tilt, 55.0, 1.0, 1.2)
        found = refinement(30)
        view = around(replace(found, match=replace(found.match, homography=onto)))
        assert 126.0 < view.ground.metres <= 100.0 * widths


@pytest.mark.parametrize(("elsewhere", "unique"), [(None, 1.0), (10, 0.9), (50, 0.5), (99, 0.01)])
def test_a_match_is_compared_with_other_ground(elsewhere: int | None, unique: float) -> None:
    found = find(ScriptedSearch(far(4), [100, None, elsewhere]))
    assert found is not None and found.uniqueness == pytest.approx(unique)


def test_a_layout_of_the_same_ground_is_no_rival() -> None:
    near = [refinement(0), refinement(0, 60.0)]
    found = find(ScriptedSearch(near, [100, None, 99]))
    assert found is not None and found.uniqueness == 1.0


def test_the_second_layout_is_the_rival_of_the_best() -> None:
    best, alike, rival, other = refinement(0), refinement(0, 30.0), refinement(0, 400.0), refinement(0, 800.0)
    assert rival_second([best, alike, rival, other]) == [best, rival, alike, other]
    assert rival_second([best, alike]) == [best, alike]
    assert rival_second([]) == []


def test_at_most_three_views_of_a_place_are_candidates() -> None:
    crowd = [(5.0 * number, 0.0, 0.9 - 0.01 * number) for number in range(6)]
    found = hits([*crowd, (900.0, 0.0, 0.5), (1800.0, 0.0, 0.4)])
    assert [hit.score for hit in spread_views(found, 8, 3)] == pytest.approx([0.9, 0.89, 0.88, 0.5, 0.4])
    assert spread_views(found, 2, 3) == found[:2]
    assert spread_views([], 8, 3) == []


def test_what_is_known_of_the_camera_narrows_the_layouts() -> None:
    view = Footprint(latitude=48.1, longitude=11.5, metres=100.0, rotation=90.0)
    every = layouts_to_try(Hints(), view)
    assert (every.turns, every.scales, every.tilts, every.fov) == (TURNS, SCALES, TILTS, 55.0)
    heading = layouts_to_try(Hints(heading_deg=95.0), view)
    assert heading.turns == (355.0, 5.0, 15.0)
    wide = layouts_to_try(Hints(altitude_m=100.0, fov_deg=90.0, tilt_deg=90.0), view)
    assert wide.scales == SCALES and wide.tilts == (90.0,) and wide.fov == 90.0
    for tilt, tilts in ((70.0, (90.0,)), (69.0, (69.0, 90.0)), (5.0, (20.0, 90.0))):
        assert layouts_to_try(Hints(tilt_deg=tilt), view).tilts == tilts
