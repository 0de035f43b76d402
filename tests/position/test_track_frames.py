"""`track_frames`: every photo is located once, and the fixes become a track."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.position.confidence import fit_calibration
from skypart.position.fix import Fix
from skypart.position.flight import track_frames
from skypart.position.frames import Frame
from skypart.position.hypotheses import RADIUS_95
from skypart.position.track import TrackOptions
from tests.position.flights import FRAME, Floats, errors, fix_at, noisy_fixes, straight
from tests.position.test_confidence import shifted_outcomes


class BlankFrames:
    """Black frames at the given times."""

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


class RecordedFixes:
    """A locator that returns fixes from a list."""

    def __init__(self, fixes: list[Fix]) -> None:
        self.fixes = fixes

    def __call__(self, photo: Frame) -> Fix:
        return self.fixes[int(photo.name)]


def test_a_flight_becomes_a_track_with_one_point_per_photo() -> None:
    seconds = np.arange(60.0)
    truth = straight(seconds)
    locate = RecordedFixes(noisy_fixes(np.random.default_rng(1), truth, wrong=0.2, missing=0.1))
    points = track_frames(BlankFrames(seconds.tolist()), locate)
    assert len(points) == 60 and [point.time_s for point in points] == seconds.tolist()
    assert [point.raw for point in points] == locate.fixes
    assert np.nanmax(errors(points, truth)) < 60
    unsmoothed = track_frames(BlankFrames(seconds.tolist()), locate, TrackOptions(smooth=False), FRAME)
    assert np.nanmedian(errors(points, truth)) < np.nanmedian(errors(unsmoothed, truth))


def test_the_maps_own_error_is_not_averaged_out() -> None:
    seconds = np.arange(60.0)
    truth = straight(seconds)
    fixes = noisy_fixes(np.random.default_rng(1), truth, sigma=4.0)
    shifted = [replace(fix, radius_m=math.hypot(fix.radius_m or 0.0, 12.0), map_error_m=12.0) for fix in fixes]
    alone, with_error = (
        track_frames(BlankFrames(seconds.tolist()), RecordedFixes(each), None, FRAME) for each in (fixes, shifted)
    )
    for before, after in zip(alone, with_error, strict=True):
        assert before.radius_m is not None and after.radius_m is not None
        assert after.radius_m == pytest.approx(math.hypot(before.radius_m, 12.0))
        assert (after.latitude, after.longitude) == pytest.approx((before.latitude, before.longitude), abs=1e-9)


def test_the_radius_of_a_track_includes_the_map_error_of_the_calibration() -> None:
    """Photos with a common error of 10 m, and individual errors of 1 m."""
    rng, seconds = np.random.default_rng(5), np.arange(40.0)
    found, errors_m, offsets = shifted_outcomes(rng, 60, (6.0, -8.0))
    calibration = fit_calibration(found, errors_m, "shifted", offsets=offsets)
    truth = straight(seconds)
    radius = calibration.radius(found[0])
    fixes = [
        replace(fix_at(place, confidence=0.95), radius_m=radius, map_error_m=calibration.sources.map_m)
        for place in truth + rng.normal((6.0, -8.0), 1.0, (40, 2))
    ]
    points = track_frames(BlankFrames(seconds.tolist()), RecordedFixes(fixes), None, FRAME)
    radii = [point.radius_m or 0.0 for point in points]
    assert np.mean(errors(points, truth) <= radii) >= 0.95 and max(radii) < 15.0


def test_photos_before_the_first_fix_are_lost() -> None:
    seconds = np.arange(20.0)
    fixes = noisy_fixes(np.random.default_rng(2), straight(seconds))
    fixes[:5] = [Fix(photo="a", reason="dark")] * 5
    for smooth in (True, False):
        points = track_frames(BlankFrames(seconds.tolist()), RecordedFixes(fixes), TrackOptions(smooth=smooth))
        assert {point.state for point in points[:5]} == {"lost"} and points[-1].state == "tracking"
        assert [point.raw for point in points] == fixes


def test_a_flight_without_any_fix_is_lost_throughout() -> None:
    points = track_frames(BlankFrames([0.0, 1.0]), RecordedFixes([Fix(photo="a", reason="dark")] * 2))
    assert [point.state for point in points] == ["lost", "lost"]


def test_a_flight_without_readable_frames_raises() -> None:
    with pytest.raises(SkyPartError, match="none of the 3 frames"):
        track_frames(BlankFrames([], skipped=3), RecordedFixes([]))


def test_an_error_for_every_photo_is_raised() -> None:
    def locate(photo: Frame) -> Fix:
        raise SkyPartError("the index is gone")

    with pytest.raises(SkyPartError, match="the index is gone"):
        track_frames(BlankFrames([0.0]), locate)


def test_an_error_for_one_photo_affects_only_its_fix() -> None:
    seconds = np.arange(30.0)
    truth = straight(seconds)
    recorded = RecordedFixes(noisy_fixes(np.random.default_rng(1), truth))

    def locate(photo: Frame) -> Fix:
        if photo.name == "7":
            raise SkyPartError("town.tif: cannot be read")
        return recorded(photo)

    points = track_frames(BlankFrames(seconds.tolist()), locate)
    raw = points[7].raw
    assert len(points) == 30 and raw is not None and not raw.found and raw.reason == "town.tif: cannot be read"
    assert np.nanmax(errors(points, truth)) < 60

    def fail(photo: Frame) -> Fix:
        raise SkyPartError("town.tif: cannot be read")

    with pytest.raises(SkyPartError, match="cannot be read"):
        track_frames(BlankFrames(seconds.tolist()), fail)


def confident_fixes(truth: Floats) -> list[Fix]:
    return [fix_at(place, sigma=14.0 / RADIUS_95, confidence=0.99) for place in truth]


@pytest.mark.parametrize("area", [0.25, 4.0, 25.0])
@pytest.mark.parametrize("apart", [20.0, 30.0, 60.0])
def test_photos_far_apart_keep_their_own_fixes(apart: float, area: float) -> None:
    seconds = np.arange(0.0, 8 * apart, apart)
    truth = straight(seconds, (5.0, 0.0))
    fixes = [replace(fix, map_error_m=9.0) for fix in confident_fixes(truth)]
    points = track_frames(BlankFrames(seconds.tolist()), RecordedFixes(fixes), TrackOptions(area_km2=area), FRAME)
    assert [point.state for point in points] == ["tracking"] * 8
    assert errors(points, truth).max() < 14.0
    if (apart, area) == (60.0, 0.25):
        assert {(point.radius_m, point.confidence) for point in points} == {(fixes[0].radius_m, 0.99)}


def test_one_photo_alone_keeps_its_fix() -> None:
    (fix,) = confident_fixes(np.zeros((1, 2)))
    (point,) = track_frames(BlankFrames([0.0]), RecordedFixes([fix]))
    assert (point.latitude, point.longitude, point.radius_m) == (fix.latitude, fix.longitude, fix.radius_m)
    (bare,) = track_frames(BlankFrames([0.0]), RecordedFixes([replace(fix, radius_m=None)]))
    (filtered,) = track_frames(BlankFrames([0.0]), RecordedFixes([fix]), TrackOptions(smooth=False))
    assert bare.state == filtered.state == "lost"


def test_a_fix_that_cannot_be_reached_is_left_out() -> None:
    """One of eight photos a minute apart is off by 4 km; later, two photos before a flight of one per second."""
    seconds = np.arange(0.0, 480.0, 60.0)
    truth = straight(seconds, (5.0, 0.0))
    shown = truth.copy()
    shown[3] += [0.0, 4_000.0]
    points = track_frames(BlankFrames(seconds.tolist()), RecordedFixes(confident_fixes(shown)), None, FRAME)
    assert [point.state == "lost" for point in points] == [i == 3 for i in range(8)]
    seconds = np.arange(60.0)
    fixes = noisy_fixes(np.random.default_rng(15), straight(seconds))
    fixes[0] = fixes[1] = fix_at(np.array([-2_000.0, 500.0]))
    points = track_frames(BlankFrames(seconds.tolist()), RecordedFixes(fixes), None, FRAME)
    assert [point.state for point in points[:3]] == ["lost", "lost", "tracking"]


def test_fixes_that_contradict_each_other_are_not_reported() -> None:
    seconds = np.arange(60.0)
    rng = np.random.default_rng(7)
    shown = straight(seconds)
    shown[30:] = rng.uniform([-3_000, 1_000], [3_000, 7_000], size=(30, 2))
    points = track_frames(BlankFrames(seconds.tolist()), RecordedFixes(noisy_fixes(rng, shown)), None, FRAME)
    assert {point.state for point in points[45:]} == {"lost"}
    pair = confident_fixes(np.array([[0.0, 0.0], [0.0, 4_000.0]]))
    assert [point.state for point in track_frames(BlankFrames([0.0, 60.0]), RecordedFixes(pair))] == ["lost", "lost"]
