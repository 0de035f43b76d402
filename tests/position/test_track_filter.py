"""The filter follows flights through noise, wrong fixes, gaps and jumps, and is better than the raw fixes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Evidence, Fix, Peak
from skypart.position.hypotheses import MeasuredVelocity, Motion, Observation, concatenate, new_hypothesis
from skypart.position.track import TrackOptions, TrackPoint
from skypart.position.track_filter import TrackFilter, _cluster_moments, smooth_track
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

OTHER_GROUND = Evidence(
    similarity=0.5, agreement=0.3, inliers=0.0, inlier_share=0.0, evenness=0.0, scale_m=20.0, uniqueness=0.0
)


def run_filter(
    seconds: Floats, fixes: list[Fix], options: TrackOptions | None = None, frame: LocalFrame = FRAME
) -> tuple[list[TrackPoint], list[TrackPoint]]:
    """The filtered and the smoothed track."""
    options = options or TrackOptions()
    track_filter = TrackFilter(options, frame)
    points = [track_filter.step(float(time), fix) for time, fix in zip(seconds, fixes, strict=True)]
    return points, smooth_track(points, track_filter.steps, options, frame)


@pytest.mark.parametrize("seed", range(4))
def test_a_straight_flight_is_more_accurate_than_its_fixes_and_its_radius_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = np.arange(150.0)
    truth = straight(seconds)
    fixes = noisy_fixes(rng, truth)
    points, smooth = run_filter(seconds, fixes, TrackOptions(slow_share=0.0))  # their errors are independent
    raw, filtered, later = (errors(each, truth)[10:] for each in (fixes, points, smooth))
    assert np.sqrt(np.mean(filtered**2)) < 0.75 * np.sqrt(np.mean(raw**2))
    assert np.sqrt(np.mean(later**2)) < 0.45 * np.sqrt(np.mean(raw**2))
    for each in (points[10:], smooth[10:]):
        radius = np.array([point.radius_m or 0.0 for point in each])
        assert (errors(each, truth[10:]) <= radius).mean() > 0.88
    assert {point.state for point in points[10:]} == {"tracking"}


@pytest.mark.parametrize("path", [straight, circle, lanes])
@pytest.mark.parametrize("seed", range(2))
def test_a_flight_with_30_percent_wrong_fixes_is_tracked(path: object, seed: int) -> None:
    assert callable(path)
    rng = np.random.default_rng(seed)
    seconds = np.cumsum(rng.uniform(0.5, 1.5, 160))
    truth = path(seconds)
    fixes = noisy_fixes(rng, truth, wrong=0.3, missing=0.15)
    points, smooth = run_filter(seconds, fixes)
    raw = errors(fixes, truth)
    assert np.nanmean(raw <= 50) < 0.9 and np.nanmax(raw) > 500  # the raw fixes are as bad as intended
    filtered, later = errors(points, truth), errors(smooth, truth)
    assert np.mean(filtered[10:] <= 50) > 0.93
    assert np.nanmean(later <= 50) > 0.99
    assert np.nanmax(later) < 100


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_few_fixes_far_away_are_rejected(length: int) -> None:
    rng = np.random.default_rng(5)
    seconds = np.arange(90.0)
    truth = straight(seconds)
    shown = truth.copy()
    shown[50 : 50 + length] += [0.0, 800.0]
    points, smooth = run_filter(seconds, noisy_fixes(rng, shown))
    assert errors(points, truth)[2:].max() < 60
    assert {point.state for point in points[50 : 50 + length]} == {"coasting"}
    assert errors(smooth, truth).max() < 60


def test_many_wrong_photos_within_two_seconds_do_not_move_the_track() -> None:
    rng = np.random.default_rng(16)
    seconds = np.arange(0.0, 30.0, 0.2)
    truth = straight(seconds)
    shown = truth.copy()
    shown[100:110] += [0.0, 800.0]
    points, _ = run_filter(seconds, noisy_fixes(rng, shown))
    assert errors(points, truth)[20:].max() < 60


def test_a_fix_too_far_for_the_time_is_not_used() -> None:
    slow = TrackOptions(max_speed=5.0, max_acceleration=1.0, lost_radius_m=1_000.0, area_km2=1_000.0)
    for away, state in ((400.0, "coasting"), (250.0, "tracking")):
        track_filter = TrackFilter(slow, FRAME)
        for second in range(10):
            track_filter.step(float(second), fix_at(np.zeros(2), sigma=5.0))
        assert track_filter.step(69.0, fix_at(np.array([away, 0.0]), sigma=5.0)).state == state


@pytest.mark.parametrize("confidence", [0.95, 0.5])
def test_the_track_recovers_after_a_jump(confidence: float) -> None:
    rng = np.random.default_rng(6)
    seconds = np.arange(120.0)
    truth = straight(seconds)
    truth[60:] += [200.0, 1500.0]
    points, smooth = run_filter(seconds, noisy_fixes(rng, truth, confidence=confidence))
    far = errors(points, truth)
    assert far[5:60].max() < 60
    assert far[72:].max() < 60
    assert far[60] > 1_000  # one fix is not enough
    assert np.nanmax(errors(smooth, truth)[5:]) < 60  # the smoother knows the later ones


def test_a_track_ends_after_contradicting_fixes() -> None:
    rng = np.random.default_rng(7)
    seconds = np.arange(60.0)
    truth = straight(seconds)
    shown = truth.copy()
    shown[30:] = rng.uniform([-3_000, 6_000], [3_000, 12_000], size=(30, 2))
    points, _ = run_filter(seconds, noisy_fixes(rng, shown))
    assert {point.state for point in points[42:]} == {"lost"}
    assert all(point.latitude is None and point.radius_m is None for point in points[42:])


def test_a_gap_is_coasted_with_a_growing_radius_then_lost_then_recovered() -> None:
    rng = np.random.default_rng(8)
    seconds = np.arange(140.0)
    truth = straight(seconds)
    fixes = noisy_fixes(rng, truth)
    fixes[40:100] = [no_fix()] * 60
    points, smooth = run_filter(seconds, fixes)
    gap = points[40:55]
    assert {point.state for point in gap} == {"coasting"}
    radii = [point.radius_m or 0.0 for point in gap]
    assert radii == sorted(radii) and radii[-1] > 3 * radii[0]
    assert (errors(gap, truth[40:55]) <= np.array(radii)).all()
    assert {point.state for point in points[75:101]} == {"lost"}  # one fix after the gap is not enough
    assert errors(points, truth)[103:].max() < 60
    assert errors(smooth, truth)[100:].max() < 60
    assert points[60].raw is fixes[60]


def test_a_track_that_is_too_uncertain_does_not_confirm_the_next_fix() -> None:
    rng = np.random.default_rng(17)
    seconds = np.arange(80.0)
    fixes = noisy_fixes(rng, straight(seconds))
    fixes[40:66] = [no_fix()] * 26
    points, _ = run_filter(seconds, fixes)
    assert [point.state for point in points[64:68]] == ["lost", "lost", "lost", "tracking"]


def test_a_short_gap_is_bridged_by_smoothing() -> None:
    rng = np.random.default_rng(9)
    seconds = np.arange(80.0)
    truth = straight(seconds)
    fixes = noisy_fixes(rng, truth)
    fixes[40:48] = [no_fix()] * 8
    points, smooth = run_filter(seconds, fixes)
    wide, narrow = (np.array([point.radius_m or 0.0 for point in each[42:48]]) for each in (points, smooth))
    assert (narrow < wide).all()
    assert (errors(smooth, truth)[40:48] < 40).all()


def test_the_smoother_bridges_a_gap_that_could_be_flown() -> None:
    rng = np.random.default_rng(14)
    seconds = np.arange(120.0)
    truth = circle(seconds)
    fixes = noisy_fixes(rng, truth)
    fixes[40:75] = [no_fix()] * 35
    points, smooth = run_filter(seconds, fixes)
    assert {point.state for point in points[70:75]} == {"lost"}
    near = [i for i in range(65, 75) if smooth[i].latitude is not None]
    assert len(near) >= 5  # close to the fixes after the gap the position is known
    radius = np.array([smooth[i].radius_m or 0.0 for i in near])
    assert (errors([smooth[i] for i in near], truth[near]) <= radius).all()


def test_the_smoother_drops_a_false_start() -> None:
    rng = np.random.default_rng(15)
    seconds = np.arange(60.0)
    truth = straight(seconds)
    fixes = noisy_fixes(rng, truth)
    fixes[0] = fixes[1] = fix_at(np.array([-2_000.0, 500.0]))
    points, smooth = run_filter(seconds, fixes)
    assert points[1].state == "tracking" and errors(points[:2], truth[:2])[1] > 1_000
    assert [point.state for point in smooth[:2]] == ["lost", "lost"]
    assert np.nanmax(errors(smooth, truth)) < 60


def test_no_position_is_reported_before_two_photos_agree() -> None:
    track_filter = TrackFilter(TrackOptions(), FRAME)
    assert track_filter.step(0.0, no_fix()).state == "lost"
    assert track_filter.step(1.0, fix_at(np.array([0.0, 0.0]))).state == "lost"
    assert track_filter.step(2.0, fix_at(np.array([900.0, 900.0]))).state == "lost"
    assert track_filter.step(3.0, fix_at(np.array([10.0, 5.0]))).state == "tracking"
    assert errors([track_filter.step(4.0, None)], np.array([[10.0, 5.0]]))[0] < 60


@pytest.mark.parametrize("longitude", [179.999, -179.999, 180.0])
def test_a_flight_across_the_antimeridian(longitude: float) -> None:
    frame = LocalFrame(latitude=-17.0, longitude=longitude)
    rng = np.random.default_rng(10)
    seconds = np.arange(60.0)
    truth = straight(seconds, (15.0, 3.0)) - [450.0, 90.0]
    fixes = noisy_fixes(rng, truth, frame=frame)
    points, smooth = run_filter(seconds, fixes, frame=frame)
    sides = {np.sign(point.longitude) for point in smooth if point.longitude is not None}
    assert sides == {-1.0, 1.0}
    assert all(abs(point.longitude or 0.0) <= 180 for point in points)
    assert errors(points, truth, frame)[2:].max() < 60


def test_similar_errors_of_photos_close_in_time_do_not_shrink_the_radius_too_much() -> None:
    rng = np.random.default_rng(11)
    seconds = np.arange(0.0, 40.0, 0.2)
    truth = straight(seconds)
    shared_error = np.repeat(rng.normal(size=(40, 2)) * 15.0, 5, axis=0)  # the same for all photos of a second
    fixes = [fix_at(place) for place in truth + shared_error]
    points, _ = run_filter(seconds, fixes)
    radius = np.array([point.radius_m or 0.0 for point in points[20:]])
    assert (errors(points[20:], truth[20:]) <= radius).mean() > 0.85


def test_the_same_fixes_give_the_same_track() -> None:
    seconds = np.arange(40.0)
    fixes = noisy_fixes(np.random.default_rng(12), straight(seconds), wrong=0.3)
    assert run_filter(seconds, fixes) == run_filter(seconds, fixes)


def test_peaks_of_photos_without_a_fix_are_ignored() -> None:
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
    points, _ = run_filter(seconds, fixes)
    assert {point.state for point in points[20:30]} == {"coasting"} and points[-1].state == "lost"


def test_invalid_times_and_options_raise() -> None:
    track_filter = TrackFilter(TrackOptions(), FRAME)
    track_filter.step(5.0, None)
    with pytest.raises(SkyPartError, match="in order of time"):
        track_filter.step(4.0, None)
    with pytest.raises(SkyPartError, match="in order of time"):
        track_filter.step(float("nan"), None)
    with pytest.raises(SkyPartError, match="max_speed must be a positive"):
        TrackOptions(max_speed=0.0)
    with pytest.raises(SkyPartError, match="error_memory_s"):
        TrackOptions(error_memory_s=-1.0)


def test_photos_of_the_same_time_and_fixes_without_a_finite_radius() -> None:
    track_filter = TrackFilter(TrackOptions(), FRAME)
    for _ in range(6):
        point = track_filter.step(1.0, fix_at(np.array([3.0, 4.0]), sigma=1e-9))
    assert point.radius_m is not None and point.radius_m > 0.5
    assert track_filter.step(2.0, Fix(photo="a", latitude=48.2, longitude=16.4, radius_m=None)).state == "coasting"
    wide = track_filter.step(3.0, Fix(photo="a", latitude=48.2, longitude=16.4, radius_m=float("inf"), confidence=1.0))
    assert wide.state == "coasting"


def steady(seconds: int, options: TrackOptions | None = None, confidence: float = 0.9) -> TrackFilter:
    """A filter that has seen a hovering drone once per second."""
    track_filter = TrackFilter(options or TrackOptions(), FRAME)
    for second in range(seconds):
        track_filter.step(float(second), fix_at(np.zeros(2), sigma=5.0, confidence=confidence))
    return track_filter


@pytest.mark.parametrize("lost_after", [3, 6])
def test_a_track_is_dropped_after_a_number_of_contradicting_fixes(lost_after: int) -> None:
    """Each fix is at another place, so that no other track is confirmed."""
    track_filter = steady(10, TrackOptions(lost_after=lost_after, recover_after=50))
    places = [np.array([0.0, 2_000.0 * (i + 1)]) for i in range(lost_after)]
    states = [track_filter.step(10.0 + i, fix_at(place, sigma=5.0)).state for i, place in enumerate(places)]
    assert states == ["coasting"] * (lost_after - 1) + ["lost"]


@pytest.mark.parametrize("recover_after", [3, 6])
def test_a_track_jumps_after_about_as_many_agreeing_fixes_as_asked_for(recover_after: int) -> None:
    track_filter = steady(20, TrackOptions(recover_after=recover_after, lost_after=50))
    away = np.array([3_000.0, 0.0])
    points = [track_filter.step(20.0 + i, fix_at(away, sigma=5.0, confidence=0.95)) for i in range(12)]
    near = (errors(points, np.tile(away, (12, 1))) < 50).tolist()
    assert abs(near.index(True) + 1 - recover_after) <= 1


def test_a_coasting_track_is_lost_at_its_radius() -> None:
    """The radius of the last position that is reported is below the limit, and the next one would be above."""
    for limit in (60.0, 200.0):
        track_filter, loose = (steady(10, TrackOptions(lost_radius_m=each)) for each in (limit, 10_000.0))
        for second in range(10, 60):
            point, free = (each.step(float(second), None) for each in (track_filter, loose))
            assert free.radius_m is not None
            assert (point.state == "lost") == (free.radius_m > limit)


def test_photos_at_the_same_time_add_little() -> None:
    """Ten photos within 0.1 s shrink the radius less than ten photos within 10 s."""
    radii = []
    for step in (0.01, 1.0):
        track_filter = TrackFilter(TrackOptions(slow_share=0.0), FRAME)
        for number in range(10):
            point = track_filter.step(step * number, fix_at(np.zeros(2)))
        radii.append(point.radius_m or 0.0)
    assert radii[0] > 1.3 * radii[1] > 0


def test_the_smoother_keeps_every_confirmed_track() -> None:
    """Five fixes, a minute without any, then twenty fixes too far away to have been flown to."""
    away = np.array([20_000.0, 0.0])
    seconds = np.arange(85.0)
    fixes = [fix_at(np.zeros(2))] * 5 + [no_fix()] * 60 + [fix_at(away)] * 20
    _, smooth = run_filter(seconds, fixes)
    assert errors(smooth[:5], np.zeros((5, 2))).max() < 20 and smooth[40].state == "lost"
    assert errors(smooth[65:], np.tile(away, (20, 1))).max() < 20


def test_competing_hypotheses_are_kept_up_to_a_limit() -> None:
    track_filter = TrackFilter(TrackOptions(lost_after=1_000, lost_radius_m=1e6), FRAME)
    counts = []
    for number in range(80):
        place = np.array([2_000.0 * number, 0.0])
        track_filter.step(float(number), fix_at(place, confidence=0.3))
        counts.append(len(track_filter._hypotheses))
    assert counts[9] >= 10 and max(counts) == 48


def test_hypotheses_within_three_deviations_count_for_the_same_place() -> None:
    """Two of variance 1/2 each: their difference has variance 1."""
    motion = Motion(1.0, 1.0)
    for apart, share in ((2.9, 1.0), (3.1, 0.6)):
        places = (0.0, math.log(0.6)), (apart, math.log(0.4))
        both = [
            new_hypothesis(Observation(np.array([east, 0.0]), 0.5, 1.0), 0, weight, motion) for east, weight in places
        ]
        log_weight, _, _ = _cluster_moments(concatenate(both), 0)
        assert math.exp(log_weight) == pytest.approx(share)


def test_a_measured_velocity_carries_the_track_through_an_outage() -> None:
    """The radius grows with the drift of the velocity, holds the truth, and stays far below that of no velocity."""
    rng = np.random.default_rng(20)
    seconds = np.arange(0.0, 100.0, 0.5)
    truth = circle(seconds)
    moving = np.gradient(truth, seconds, axis=0)
    drifting, blind = (TrackFilter(TrackOptions(lost_radius_m=5_000.0), FRAME) for _ in range(2))
    for i, now in enumerate(seconds.tolist()):
        fix = fix_at(truth[i] + rng.normal(size=2) * 5.0, sigma=5.0) if now < 40 else None
        velocity = MeasuredVelocity(moving[i] + [0.2, -0.2], 0.3, 0.3)
        point, other = drifting.step(now, fix, velocity), blind.step(now, fix)
        if now > 12:
            assert errors([point], truth[i : i + 1])[0] <= 1.5 * (point.radius_m or 0.0)
    assert point.source == "dead reckoning" and other.source == "carried on"
    assert point.anchor_age_s == pytest.approx(60.0) and point.state == "coasting"
    assert 5 * (point.radius_m or 0.0) < (other.radius_m or 0.0)
    assert point.velocity_east == pytest.approx(moving[-1, 0], abs=1.0)


def test_a_velocity_that_contradicts_is_doubted_before_it_is_followed() -> None:
    track_filter = TrackFilter(TrackOptions(), FRAME)
    still = MeasuredVelocity(np.zeros(2), 0.2, 0.1)
    for second in range(20):
        track_filter.step(float(second), fix_at(np.zeros(2), sigma=5.0), still)
    jumped = MeasuredVelocity(np.array([20.0, 0.0]), 0.2, 0.1)
    first = track_filter.drive(19.2, jumped)
    assert abs(first.velocity_east or 0.0) < 1.0
    for number in range(200):
        last = track_filter.drive(19.4 + 0.2 * number, jumped)
    assert last.state == "lost" or (last.velocity_east or 0.0) > 15.0


def test_peeking_ahead_leaves_the_filter_as_it_is() -> None:
    track_filter = steady(10)
    before = (track_filter._hypotheses, track_filter.time_s, len(track_filter.steps))
    moving = MeasuredVelocity(np.array([3.0, 0.0]), 0.2, 0.1)
    ahead = track_filter.peek(12.0, [(9.5, moving), (10.0, moving), (11.0, moving), (12.0, moving)])
    assert ahead.time_s == 12.0 and ahead.source == "dead reckoning" and ahead.state == "coasting"
    assert track_filter.peek(11.0).source == "carried on"
    after = (track_filter._hypotheses, track_filter.time_s, len(track_filter.steps))
    assert before[0] is after[0] and before[1:] == after[1:]


def test_a_track_outside_the_map_is_lost_after_a_few_seconds() -> None:
    track_filter = TrackFilter(TrackOptions(outside_s=4.0), FRAME, lambda latitude, longitude: longitude < 16.4)
    for second in range(10):
        track_filter.step(float(second), fix_at(np.array([10.0, 0.0]), sigma=3.0))
    states = [track_filter.step(float(second), no_fix()).state for second in range(10, 18)]
    assert states == ["coasting"] * 4 + ["lost"] * 4


def test_photos_without_a_fix_near_the_edge_say_that_the_map_was_left() -> None:
    """The drone leaves the map while the filter takes it to hover inside: photos that show other ground tell."""
    ends = {}
    for name, photo in {"other ground": replace(no_fix(), evidence=OTHER_GROUND), "black": no_fix()}.items():
        for away in (25.0, 400.0):
            track_filter = TrackFilter(TrackOptions(), FRAME, lambda latitude, longitude: longitude < 16.4)
            for second in range(10):
                track_filter.step(float(second), fix_at(np.array([-away, 0.0]), sigma=3.0))
            states = [track_filter.step(float(second), photo).state for second in range(10, 18)]
            ends[name, away] = states.index("lost") if "lost" in states else None
    assert ends == {
        ("other ground", 25.0): 4,
        ("other ground", 400.0): None,
        ("black", 25.0): None,
        ("black", 400.0): None,
    }


def test_the_protection_level_is_wider_than_the_radius_and_open_while_places_compete() -> None:
    sure = steady(12).step(12.0, fix_at(np.zeros(2), sigma=5.0))
    assert sure.protection_m is not None and sure.radius_m is not None
    assert 1.2 * sure.radius_m < sure.protection_m < 6 * sure.radius_m
    assert sure.covariance is not None and sure.covariance[0] > 0
    early = steady(2).step(2.0, fix_at(np.zeros(2), sigma=5.0))
    assert early.state == "tracking" and early.protection_m is None


def test_the_drones_own_track_uses_fixes_that_know_the_drone() -> None:
    track_filter = TrackFilter(TrackOptions(follow="drone"), FRAME)
    place = FRAME.to_degrees(0.0, 100.0)
    for second in range(5):
        ground = fix_at(np.zeros(2), sigma=5.0)
        drone = replace(ground, drone_latitude=float(place.latitude), drone_longitude=float(place.longitude))
        point = track_filter.step(float(second), ground if second == 0 else drone)
    assert point.of == "drone" and errors([point], np.array([[0.0, 100.0]]))[0] < 1.0
