"""A whole flight through `track`: the locator is asked once a photo, and sure photos far apart are told as they are."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.position.confidence import fit
from skypart.position.fix import Fix
from skypart.position.frames import Frame
from skypart.position.hypotheses import RADIUS_95
from skypart.position.track import track
from skypart.position.track import TrackOptions
from tests.position.flights import FRAME, Floats, errors, fix_at, noisy_fixes, straight
from tests.position.test_confidence import shifted


class Blank:
    """Frames without content, at these times."""

    def __init__(self, seconds: list[float], skipped: int = 0) -> None:
        self.seconds, self.skipped = seconds, skipped
        self.times: dict[str, float] = {}
        self.fps: float | None = None
        self.start: datetime | None = None
        self.note = ""

    def __len__(self) -> int:
        return len(self.seconds)

    def __iter__(self) -> Iterator[Frame]:
        for number, time in enumerate(self.seconds):
            yield Frame(time, np.zeros((4, 4, 3), dtype=np.uint8), str(number))


class Recorded:
    """A locator that answers from a list."""

    def __init__(self, fixes: list[Fix]) -> None:
        self.fixes = fixes

    def __call__(self, photo: Frame) -> Fix:
        return self.fixes[int(photo.name)]


def test_a_flight_from_end_to_end() -> None:
    seconds = np.arange(60.0)
    truth = straight(seconds)
    locate = Recorded(noisy_fixes(np.random.default_rng(1), truth, wrong=0.2, missing=0.1))
    points = track(Blank(seconds.tolist()), locate)
    assert len(points) == 60 and [point.time_s for point in points] == seconds.tolist()
    assert [point.raw for point in points] == locate.fixes
    assert np.nanmax(errors(points, truth)) < 60
    unsmoothed = track(Blank(seconds.tolist()), locate, TrackOptions(smooth=False), FRAME)
    assert np.nanmedian(errors(points, truth)) < np.nanmedian(errors(unsmoothed, truth))


def test_the_maps_own_error_is_not_averaged_out() -> None:
    seconds = np.arange(60.0)
    truth = straight(seconds)
    fixes = noisy_fixes(np.random.default_rng(1), truth, sigma=4.0)
    shifted = [replace(fix, radius_m=math.hypot(fix.radius_m or 0.0, 12.0), map_error_m=12.0) for fix in fixes]
    alone, with_error = (track(Blank(seconds.tolist()), Recorded(each), None, FRAME) for each in (fixes, shifted))
    for before, after in zip(alone, with_error, strict=True):
        assert before.radius_m is not None and after.radius_m is not None
        assert after.radius_m == pytest.approx(math.hypot(before.radius_m, 12.0))
        assert (after.latitude, after.longitude) == pytest.approx((before.latitude, before.longitude), abs=1e-9)


def test_the_radius_of_a_track_holds_where_a_calibrated_map_is_off() -> None:
    """Photos that err by 10 m all alike, and by 1 m on their own."""
    dice, seconds = np.random.default_rng(5), np.arange(40.0)
    found, errors_m, offsets = shifted(dice, 60, (6.0, -8.0))
    calibration = fit(found, errors_m, "shifted", offsets=offsets)
    truth = straight(seconds)
    radius = calibration.radius(found[0])
    fixes = [
        replace(fix_at(place, confidence=0.95), radius_m=radius, map_error_m=calibration.floor_m)
        for place in truth + dice.normal((6.0, -8.0), 1.0, (40, 2))
    ]
    points = track(Blank(seconds.tolist()), Recorded(fixes), None, FRAME)
    told = [point.radius_m or 0.0 for point in points]
    assert np.mean(errors(points, truth) <= told) >= 0.95 and max(told) < 15.0


def test_photos_before_the_first_fix_are_lost() -> None:
    seconds = np.arange(20.0)
    fixes = noisy_fixes(np.random.default_rng(2), straight(seconds))
    fixes[:5] = [Fix(photo="a", reason="dark")] * 5
    for smooth in (True, False):
        points = track(Blank(seconds.tolist()), Recorded(fixes), TrackOptions(smooth=smooth))
        assert {point.state for point in points[:5]} == {"lost"} and points[-1].state == "tracking"
        assert [point.raw for point in points] == fixes


def test_a_flight_without_any_fix_is_lost_throughout() -> None:
    points = track(Blank([0.0, 1.0]), Recorded([Fix(photo="a", reason="dark")] * 2))
    assert [point.state for point in points] == ["lost", "lost"]


def test_no_frame_at_all_is_an_error() -> None:
    with pytest.raises(SkyPartError, match="none of the 3 frames"):
        track(Blank([], skipped=3), Recorded([]))


def test_an_error_of_the_locator_is_told() -> None:
    def locate(photo: Frame) -> Fix:
        raise SkyPartError("the index is gone")

    with pytest.raises(SkyPartError, match="the index is gone"):
        track(Blank([0.0]), locate)


def test_a_photo_that_fails_costs_its_own_fix_only() -> None:
    seconds = np.arange(30.0)
    truth = straight(seconds)
    recorded = Recorded(noisy_fixes(np.random.default_rng(1), truth))

    def locate(photo: Frame) -> Fix:
        if photo.name == "7":
            raise SkyPartError("town.tif: cannot be read")
        return recorded(photo)

    points = track(Blank(seconds.tolist()), locate)
    raw = points[7].raw
    assert len(points) == 30 and raw is not None and not raw.found and raw.reason == "town.tif: cannot be read"
    assert np.nanmax(errors(points, truth)) < 60

    def fail(photo: Frame) -> Fix:
        raise SkyPartError("town.tif: cannot be read")

    with pytest.raises(SkyPartError, match="cannot be read"):
        track(Blank(seconds.tolist()), fail)


def sure_fixes(truth: Floats) -> list[Fix]:
    return [fix_at(place, sigma=14.0 / RADIUS_95, confidence=0.99) for place in truth]


@pytest.mark.parametrize("area", [0.25, 4.0, 25.0])
@pytest.mark.parametrize("apart", [20.0, 30.0, 60.0])
def test_photos_far_apart_keep_their_own_fixes(apart: float, area: float) -> None:
    seconds = np.arange(0.0, 8 * apart, apart)
    truth = straight(seconds, (5.0, 0.0))
    fixes = [replace(fix, map_error_m=9.0) for fix in sure_fixes(truth)]
    points = track(Blank(seconds.tolist()), Recorded(fixes), TrackOptions(area_km2=area), FRAME)
    assert [point.state for point in points] == ["tracking"] * 8
    assert errors(points, truth).max() < 14.0
    if (apart, area) == (60.0, 0.25):
        assert {(point.radius_m, point.confidence) for point in points} == {(fixes[0].radius_m, 0.99)}


def test_one_photo_alone_keeps_its_fix() -> None:
    (fix,) = sure_fixes(np.zeros((1, 2)))
    (point,) = track(Blank([0.0]), Recorded([fix]))
    assert (point.latitude, point.longitude, point.radius_m) == (fix.latitude, fix.longitude, fix.radius_m)
    (bare,) = track(Blank([0.0]), Recorded([replace(fix, radius_m=None)]))
    (filtered,) = track(Blank([0.0]), Recorded([fix]), TrackOptions(smooth=False))
    assert bare.state == filtered.state == "lost"


def test_a_fix_that_cannot_be_flown_to_stays_out() -> None:
    """One of eight photos a minute apart lies 4 km off; so do two before a flight of a photo a second."""
    seconds = np.arange(0.0, 480.0, 60.0)
    truth = straight(seconds, (5.0, 0.0))
    shown = truth.copy()
    shown[3] += [0.0, 4_000.0]
    points = track(Blank(seconds.tolist()), Recorded(sure_fixes(shown)), None, FRAME)
    assert [point.state == "lost" for point in points] == [i == 3 for i in range(8)]
    seconds = np.arange(60.0)
    fixes = noisy_fixes(np.random.default_rng(15), straight(seconds))
    fixes[0] = fixes[1] = fix_at(np.array([-2_000.0, 500.0]))
    points = track(Blank(seconds.tolist()), Recorded(fixes), None, FRAME)
    assert [point.state for point in points[:3]] == ["lost", "lost", "tracking"]


def test_fixes_that_contradict_one_another_are_not_told() -> None:
    seconds = np.arange(60.0)
    dice = np.random.default_rng(7)
    shown = straight(seconds)
    shown[30:] = dice.uniform([-3_000, 1_000], [3_000, 7_000], size=(30, 2))
    points = track(Blank(seconds.tolist()), Recorded(noisy_fixes(dice, shown)), None, FRAME)
    assert {point.state for point in points[45:]} == {"lost"}
    pair = sure_fixes(np.array([[0.0, 0.0], [0.0, 4_000.0]]))
    assert [point.state for point in track(Blank([0.0, 60.0]), Recorded(pair))] == ["lost", "lost"]
