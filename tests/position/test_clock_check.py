"""Fixes show how far the velocities' clock is off; until then velocities are less certain than they state."""

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.flight_simulation import calibrated_sensors, run_filter, simulate_flight

from skypart.position.clock_check import OFFSETS, ClockCheck
from skypart.position.hypotheses import MeasuredVelocity, Observation
from skypart.position.live import FLYING, LATE_PROBLEM, FlyOptions, LiveTracker
from skypart.position.track_filter import TrackFilter
from skypart.telemetry.record import Sample, Telemetry
from tests.position.flights import FRAME, Floats, fix_at
from tests.position.test_live import START

STEP_S = 0.2


def lanes_velocity(seconds: float) -> Floats:
    """m/s: back and forth in lanes of 12 s with turns of 4 s, by a smooth function."""
    along = 12.0 * math.tanh(2.0 * math.sin(2.0 * math.pi * seconds / 33.0))
    return np.array([along, 4.0 * math.cos(2.0 * math.pi * seconds / 21.0)])


def fly_check(late_s: float, seconds: float = 150.0, seed: int = 1) -> ClockCheck:
    """A flight with a fix each second, 6 m off along an axis, and velocities that are late."""
    rng, check, place = np.random.default_rng(seed), ClockCheck(), np.zeros(2)
    for step in range(round(seconds / STEP_S)):
        now = STEP_S * step
        place = place + STEP_S * lanes_velocity(now)
        noisy = lanes_velocity(now - late_s) + 0.3 * rng.normal(size=2)
        check.move(now, MeasuredVelocity(noisy, 0.3, 0.3, own_clock=True))
        if step % 5 == 0:
            away = np.array([400.0, 100.0]) if step % 60 == 0 else np.zeros(2)
            check.add(now, Observation(place + away + 6.0 * rng.normal(size=2), 36.0, 0.9))
    return check


@pytest.mark.parametrize("late_s", [-5.0, -2.0, 1.0, 3.0, 5.0])
def test_fixes_show_how_late_velocities_are(late_s: float) -> None:
    assert fly_check(late_s).offset_s == pytest.approx(late_s, abs=0.5)


def test_a_right_clock_is_confirmed_and_nothing_is_known_without_turns() -> None:
    check = fly_check(0.0)
    assert check.offset_s is None and float(check.probability @ np.abs(OFFSETS)) < 0.4
    assert check.confirmed
    straight = ClockCheck()
    for step in range(600):
        straight.move(STEP_S * step, MeasuredVelocity(np.array([10.0, 0.0]), 0.3, 0.3, own_clock=True))
        if step % 5 == 0:
            straight.add(STEP_S * step, Observation(np.array([10.0 * STEP_S * step, 0.0]), 36.0, 0.9))
    assert straight.offset_s is None and not straight.confirmed
    before, after = ClockCheck().probability, straight.probability
    assert after / after.sum() == pytest.approx(before / before.sum(), abs=1e-3)
    assert after.sum() > before.sum(), "some offset fits"


@pytest.mark.parametrize("late_s", [20.0, -15.0])
def test_a_velocity_that_fits_at_no_offset_is_worth_nothing(late_s: float) -> None:
    check = fly_check(late_s)
    assert check.offset_s is None and float(check.probability.sum()) < 0.7 and not check.confirmed
    measured = MeasuredVelocity(np.array([10.0, 0.0]), 0.3, 0.3, own_clock=True)
    check.move(1000.0, measured)
    found = check.widened(measured)
    assert found is not None and found.deviation > 5.0


def test_a_velocity_is_less_certain_until_its_clock_is_confirmed_and_in_turns() -> None:
    def deviation(check: ClockCheck, before: float, now: float) -> float:
        """After 8 s at one velocity and half a second at another."""
        for step in range(40):
            check.move(1000.0 + STEP_S * step, MeasuredVelocity(np.array([before, 0.0]), 0.3, 0.3, own_clock=True))
        measured = MeasuredVelocity(np.array([now, 0.0]), 0.3, 0.3, own_clock=True)
        check.move(1008.0, measured)
        found = check.widened(measured)
        assert found is not None
        return found.deviation

    unknown, turning = deviation(ClockCheck(), 10.0, 10.0), deviation(ClockCheck(), 10.0, 0.0)
    confirmed = deviation(fly_check(0.0), 10.0, 10.0)
    assert 0.3 < confirmed < 0.7 * unknown < unknown < 0.7 * turning
    flow = MeasuredVelocity(np.array([5.0, 0.0]), 0.4, 0.2)
    assert ClockCheck().widened(flow) is flow, "the images' own velocity has the photos' clock"


def test_a_correction_moves_what_is_known() -> None:
    check = fly_check(-3.0)
    found = check.offset_s
    assert found is not None
    check.shift(found)
    assert check.offset_s is None and float(check.probability @ np.abs(OFFSETS)) < 0.6
    assert check.confirmed


@pytest.mark.parametrize("late_s", [-20.0, 3.0, 20.0])
def test_a_velocity_moves_the_track_once_its_clock_is_confirmed(late_s: float) -> None:
    """Before, and with a clock that is off, the motion model carries the track on, or what the images measured."""

    def sources(late_s: float, flow: bool = False) -> list[str]:
        track_filter = TrackFilter(FLYING, FRAME)
        rng, place, found = np.random.default_rng(1), np.zeros(2), []
        for step in range(700):
            now = STEP_S * step
            place = place + STEP_S * lanes_velocity(now)
            seen = MeasuredVelocity(lanes_velocity(now), 0.5, 0.3) if flow else None
            velocity = MeasuredVelocity(lanes_velocity(now - late_s), 0.3, 0.3, own_clock=True, instead=seen)
            if step % 5 == 0:
                track_filter.step(now, fix_at(place + 6.0 * rng.normal(size=2), 6.0, 0.95), velocity)
            else:
                found.append(track_filter.drive(now, velocity).source)
        return [source for source in found if source]

    right = sources(0.0)
    assert right[0] == "carried on" and right[-1] == "dead reckoning"
    assert set(sources(late_s)) == {"carried on"} and set(sources(late_s, flow=True)) == {"dead reckoning"}


def live_flight(late_s: float, telemetry: Telemetry, seconds: float = 150.0) -> tuple[LiveTracker, list[str], Floats]:
    """The tracker, its problems, and (n,) errors in radii, of a flight with a fix each second."""
    rng, place = np.random.default_rng(5), np.zeros(2)
    live = LiveTracker(FlyOptions(flow=False), FLYING, FRAME, None, telemetry)
    samples = []
    for step in range(round((seconds + 10.0) / STEP_S)):
        east, north = lanes_velocity(STEP_S * step - late_s).tolist()
        sample = Sample(time_s=STEP_S * step, velocity_east=east, velocity_north=north, tilt_deg=90.0)
        samples.append(sample)
    if not telemetry.live:
        for sample in samples:
            telemetry.add(sample)
    problems, ratios = [], []
    for step in range(round(seconds / STEP_S)):
        now = STEP_S * step
        place = place + STEP_S * lanes_velocity(now)
        if telemetry.live:
            telemetry.add(samples[step])
        live.look(now, None)
        if step % 5 == 0:
            live.locate_done(now, fix_at(place + 6.0 * rng.normal(size=2), 6.0, 0.95))
        report = live.report(now, START)
        problems.append(report.problem)
        point = report.point
        if point.latitude is not None and point.longitude is not None and point.radius_m is not None:
            metres = FRAME.to_metres(latitude=point.latitude, longitude=point.longitude)
            ratios.append(math.dist((float(metres.x), float(metres.y)), place) / point.radius_m)
    return live, problems, np.array(ratios)


class LiveLink(Telemetry):
    """Samples come while the flight goes on."""

    live = True


@pytest.mark.parametrize("late_s", [-3.0, 3.0])
def test_recorded_flight_data_are_joined_in_flight(late_s: float) -> None:
    live, problems, ratios = live_flight(late_s, Telemetry())
    assert live.telemetry is not None and live.clock_joined
    assert live.telemetry.offset_s == pytest.approx(late_s, abs=0.5)
    assert problems[-1] == "" and len(ratios) > 500
    assert (ratios <= 1.0).mean() > 0.9 and ratios.max() < 3.0


def test_live_flight_data_that_come_late_are_said_to_and_trusted_little() -> None:
    live, problems, ratios = live_flight(3.0, LiveLink())
    assert live.telemetry is not None and live.telemetry.offset_s == 0.0 and not live.clock_joined
    assert LATE_PROBLEM.split("{")[0] in problems[-1]
    assert (ratios <= 1.0).mean() > 0.9 and ratios.max() < 3.0
    early, problems, ratios = live_flight(-2.0, LiveLink())
    assert early.telemetry is not None and early.telemetry.offset_s == pytest.approx(-2.0, abs=0.5)
    assert (ratios <= 1.0).mean() > 0.9 and ratios.max() < 3.0


@pytest.mark.slow
@pytest.mark.parametrize("late_s", [-20.0, -5.0, -2.0, 2.0, 5.0, 20.0])
def test_the_radius_holds_on_simulated_flights_whatever_the_clock(late_s: float) -> None:
    sensors = replace(calibrated_sensors(velocity="odometry", shift_quantile=0.6), late_s=late_s)
    outcomes = [run_filter(simulate_flight(seed), sensors, FLYING, seed) for seed in range(3)]
    error, radius = (np.concatenate([getattr(each, name) for each in outcomes]) for name in ("error", "radius"))
    said = np.isfinite(error)
    assert (error <= radius)[said].mean() >= 0.93 and (error <= 3 * radius)[said].all()
