"""The filter follows flights through noise, look-alikes, gaps and jumps; raw fixes are what it must better."""

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Fix, Peak
from skypart.position.track_filter import smoothed
from skypart.position.track_filter import TrackFilter
from skypart.position.track import TrackOptions
from skypart.position.track import TrackPoint
from tests.position.flights import (
    FRAME,
    Floats,
    circle,
    errors,
    fix_at,
    lanes,
    no_fix,
    noisy_fixes,
    straight,
)


def follow(
    seconds: Floats, fixes: list[Fix], options: TrackOptions | None = None, frame: LocalFrame = FRAME
) -> tuple[list[TrackPoint], list[TrackPoint]]:
    """The filtered and the smoothed track."""
    options = options or TrackOptions()
    follower = TrackFilter(options, frame)
    points = [follower.step(float(time), fix) for time, fix in zip(seconds, fixes, strict=True)]
    return points, smoothed(points, follower.steps, options, frame)


@pytest.mark.parametrize("seed", range(4))
def test_a_clean_straight_flight_gets_better_and_its_radius_holds(seed: int) -> None:
    dice = np.random.default_rng(seed)
    seconds = np.arange(150.0)
    truth = straight(seconds)
    fixes = noisy_fixes(dice, truth)
    points, smooth = follow(seconds, fixes)
    raw, filtered, later = (errors(each, truth)[10:] for each in (fixes, points, smooth))
    assert np.sqrt(np.mean(filtered**2)) < 0.75 * np.sqrt(np.mean(raw**2))
    assert np.sqrt(np.mean(later**2)) < 0.45 * np.sqrt(np.mean(raw**2))
    for track in (points[10:], smooth[10:]):
        radius = np.array([point.radius_m or 0.0 for point in track])
        assert (errors(track, truth[10:]) <= radius).mean() > 0.88
    assert {point.state for point in points[10:]} == {"tracking"}


@pytest.mark.parametrize("path", [straight, circle, lanes])
@pytest.mark.parametrize("seed", range(2))
def test_three_in_ten_fixes_at_look_alike_places(path: object, seed: int) -> None:
    assert callable(path)
    dice = np.random.default_rng(seed)
    seconds = np.cumsum(dice.uniform(0.5, 1.5, 160))
    truth = path(seconds)
    fixes = noisy_fixes(dice, truth, wrong=0.3, missing=0.15)
    points, smooth = follow(seconds, fixes)
    raw = errors(fixes, truth)
    assert np.nanmean(raw <= 50) < 0.9 and np.nanmax(raw) > 500  # the flight is as hard as it is said to be
    filtered, later = errors(points, truth), errors(smooth, truth)
    assert np.mean(filtered[10:] <= 50) > 0.93
    assert np.nanmean(later <= 50) > 0.99
    assert np.nanmax(later) < 100


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_measurements_that_teleport_are_rejected(length: int) -> None:
    dice = np.random.default_rng(5)
    seconds = np.arange(90.0)
    truth = straight(seconds)
    shown = truth.copy()
    shown[50 : 50 + length] += [0.0, 800.0]
    points, smooth = follow(seconds, noisy_fixes(dice, shown))
    assert errors(points, truth)[2:].max() < 60
    assert {point.state for point in points[50 : 50 + length]} == {"coasting"}
    assert errors(smooth, truth).max() < 60


def test_many_photos_of_two_seconds_are_not_many_witnesses() -> None:
    dice = np.random.default_rng(16)
    seconds = np.arange(0.0, 30.0, 0.2)
    truth = straight(seconds)
    shown = truth.copy()
    shown[100:110] += [0.0, 800.0]
    points, _ = follow(seconds, noisy_fixes(dice, shown))
    assert errors(points, truth)[20:].max() < 60


def test_a_place_too_far_for_the_time_is_no_support() -> None:
    slow = TrackOptions(max_speed=5.0, max_acceleration=1.0, lost_radius_m=1_000.0, area_km2=1_000.0)
    for away, state in ((400.0, "coasting"), (250.0, "tracking")):
        follower = TrackFilter(slow, FRAME)
        for second in range(10):
            follower.step(float(second), fix_at(np.zeros(2), sigma=5.0))
        assert follower.step(69.0, fix_at(np.array([away, 0.0]), sigma=5.0)).state == state


@pytest.mark.parametrize("confidence", [0.95, 0.5])
def test_a_kidnapped_drone_is_found_again(confidence: float) -> None:
    dice = np.random.default_rng(6)
    seconds = np.arange(120.0)
    truth = straight(seconds)
    truth[60:] += [200.0, 1500.0]
    points, smooth = follow(seconds, noisy_fixes(dice, truth, confidence=confidence))
    far = errors(points, truth)
    assert far[5:60].max() < 60
    assert far[72:].max() < 60
    assert far[60] > 1_000  # one look is not enough to believe it
    assert np.nanmax(errors(smooth, truth)[5:]) < 60  # in hindsight it is


def test_fixes_that_agree_with_nothing_end_a_track() -> None:
    dice = np.random.default_rng(7)
    seconds = np.arange(60.0)
    truth = straight(seconds)
    shown = truth.copy()
    shown[30:] = dice.uniform([-3_000, 6_000], [3_000, 12_000], size=(30, 2))
    points, _ = follow(seconds, noisy_fixes(dice, shown))
    assert {point.state for point in points[42:]} == {"lost"}
    assert all(point.latitude is None and point.radius_m is None for point in points[42:])


def test_a_gap_is_coasted_with_a_growing_radius_then_lost_then_found() -> None:
    dice = np.random.default_rng(8)
    seconds = np.arange(140.0)
    truth = straight(seconds)
    fixes = noisy_fixes(dice, truth)
    fixes[40:100] = [no_fix()] * 60
    points, smooth = follow(seconds, fixes)
    gap = points[40:55]
    assert {point.state for point in gap} == {"coasting"}
    radii = [point.radius_m or 0.0 for point in gap]
    assert radii == sorted(radii) and radii[-1] > 3 * radii[0]
    assert (errors(gap, truth[40:55]) <= np.array(radii)).all()
    assert {point.state for point in points[75:101]} == {"lost"}  # one fix after the gap is not enough
    assert errors(points, truth)[103:].max() < 60
    assert errors(smooth, truth)[100:].max() < 60
    assert points[60].raw is fixes[60]


def test_a_track_too_wide_to_tell_is_no_witness_for_the_next_fix() -> None:
    dice = np.random.default_rng(17)
    seconds = np.arange(80.0)
    fixes = noisy_fixes(dice, straight(seconds))
    fixes[40:66] = [no_fix()] * 26
    points, _ = follow(seconds, fixes)
    assert [point.state for point in points[64:68]] == ["lost", "lost", "lost", "tracking"]


def test_a_short_gap_is_bridged_by_smoothing() -> None:
    dice = np.random.default_rng(9)
    seconds = np.arange(80.0)
    truth = straight(seconds)
    fixes = noisy_fixes(dice, truth)
    fixes[40:48] = [no_fix()] * 8
    points, smooth = follow(seconds, fixes)
    wide, narrow = (np.array([point.radius_m or 0.0 for point in each[42:48]]) for each in (points, smooth))
    assert (narrow < wide).all()
    assert (errors(smooth, truth)[40:48] < 40).all()


def test_a_gap_that_could_be_flown_is_bridged_in_hindsight() -> None:
    dice = np.random.default_rng(14)
    seconds = np.arange(120.0)
    truth = circle(seconds)
    fixes = noisy_fixes(dice, truth)
    fixes[40:75] = [no_fix()] * 35
    points, smooth = follow(seconds, fixes)
    assert {point.state for point in points[70:75]} == {"lost"}
    near = [i for i in range(65, 75) if smooth[i].latitude is not None]
    assert len(near) >= 5  # close to the fixes after the gap, the way back is known
    radius = np.array([smooth[i].radius_m or 0.0 for i in near])
    assert (errors([smooth[i] for i in near], truth[near]) <= radius).all()


def test_a_false_start_is_dropped_in_hindsight() -> None:
    dice = np.random.default_rng(15)
    seconds = np.arange(60.0)
    truth = straight(seconds)
    fixes = noisy_fixes(dice, truth)
    fixes[0] = fixes[1] = fix_at(np.array([-2_000.0, 500.0]))
    points, smooth = follow(seconds, fixes)
    assert points[1].state == "tracking" and errors(points[:2], truth[:2])[1] > 1_000
    assert [point.state for point in smooth[:2]] == ["lost", "lost"]
    assert np.nanmax(errors(smooth, truth)) < 60


def test_nothing_is_told_before_two_photos_agree() -> None:
    follower = TrackFilter(TrackOptions(), FRAME)
    assert follower.step(0.0, no_fix()).state == "lost"
    assert follower.step(1.0, fix_at(np.array([0.0, 0.0]))).state == "lost"
    assert follower.step(2.0, fix_at(np.array([900.0, 900.0]))).state == "lost"
    assert follower.step(3.0, fix_at(np.array([10.0, 5.0]))).state == "tracking"
    assert errors([follower.step(4.0, None)], np.array([[10.0, 5.0]]))[0] < 60


@pytest.mark.parametrize("longitude", [179.999, -179.999, 180.0])
def test_across_the_antimeridian(longitude: float) -> None:
    frame = LocalFrame(latitude=-17.0, longitude=longitude)
    dice = np.random.default_rng(10)
    seconds = np.arange(60.0)
    truth = straight(seconds, (15.0, 3.0)) - [450.0, 90.0]
    fixes = noisy_fixes(dice, truth, frame=frame)
    points, smooth = follow(seconds, fixes, frame=frame)
    sides = {np.sign(point.longitude) for point in smooth if point.longitude is not None}
    assert sides == {-1.0, 1.0}
    assert all(abs(point.longitude or 0.0) <= 180 for point in points)
    assert errors(points, truth, frame)[2:].max() < 60


def test_photos_close_in_time_that_err_alike_do_not_make_it_sure() -> None:
    dice = np.random.default_rng(11)
    seconds = np.arange(0.0, 40.0, 0.2)
    truth = straight(seconds)
    shared_error = np.repeat(dice.normal(size=(40, 2)) * 15.0, 5, axis=0)  # the same for all photos of a second
    fixes = [fix_at(place) for place in truth + shared_error]
    points, _ = follow(seconds, fixes)
    radius = np.array([point.radius_m or 0.0 for point in points[20:]])
    assert (errors(points[20:], truth[20:]) <= radius).mean() > 0.85


def test_the_same_fixes_give_the_same_track() -> None:
    seconds = np.arange(40.0)
    fixes = noisy_fixes(np.random.default_rng(12), straight(seconds), wrong=0.3)
    assert follow(seconds, fixes) == follow(seconds, fixes)


def test_peaks_of_photos_without_a_fix_do_not_count() -> None:
    seconds = np.arange(60.0)
    truth = straight(seconds)
    fixes = noisy_fixes(np.random.default_rng(13), truth)
    for i in range(20, 60):
        spots = [FRAME.to_degrees(*place) for place in (truth[i] + [0.0, 700.0], truth[i])]
        peaks = tuple(
            Peak(latitude=float(spot.latitude), longitude=float(spot.longitude), weight=0.45, spread_m=30.0)
            for spot in spots
        )
        fixes[i] = Fix(photo="photo", reason="two places look alike", confidence=0.5, peaks=peaks)
    points, _ = follow(seconds, fixes)
    assert {point.state for point in points[20:30]} == {"coasting"} and points[-1].state == "lost"


def test_bad_times_and_options_are_refused() -> None:
    follower = TrackFilter(TrackOptions(), FRAME)
    follower.step(5.0, None)
    with pytest.raises(SkyPartError, match="order of their times"):
        follower.step(4.0, None)
    with pytest.raises(SkyPartError, match="order of their times"):
        follower.step(float("nan"), None)
    with pytest.raises(SkyPartError, match="max_speed must be a positive"):
        TrackOptions(max_speed=0.0)
    with pytest.raises(SkyPartError, match="error_memory_s"):
        TrackOptions(error_memory_s=-1.0)


def test_photos_of_one_moment_and_fixes_with_odd_numbers() -> None:
    follower = TrackFilter(TrackOptions(), FRAME)
    for _ in range(6):
        point = follower.step(1.0, fix_at(np.array([3.0, 4.0]), sigma=1e-9))
    assert point.radius_m is not None and point.radius_m > 0.5
    assert follower.step(2.0, Fix(photo="a", latitude=48.2, longitude=16.4, radius_m=None)).state == "coasting"
    wide = follower.step(3.0, Fix(photo="a", latitude=48.2, longitude=16.4, radius_m=float("inf"), confidence=1.0))
    assert wide.state == "coasting"
