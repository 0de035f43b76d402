"""An odometer adds up velocities, and fixes show whether these can be right."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.position.hypotheses import MeasuredVelocity, Observation
from skypart.position.live import FLYING, VELOCITY_PROBLEM, FlyOptions, LiveTracker
from skypart.position.odometer import Odometer, VelocityCheck
from skypart.telemetry.record import Sample, Telemetry
from tests.position.flights import FRAME, fix_at
from tests.position.test_live import START

Floats = NDArray[np.float64]


def measured(east: float, north: float = 0.0) -> MeasuredVelocity:
    return MeasuredVelocity(np.array([east, north]), 0.5, 0.2)


def zigzag(seconds: float) -> Floats:
    """m/s: 12 m/s east for 6 s, then 12 m/s north, and so on."""
    return np.array([12.0, 0.0]) if int(seconds // 6) % 2 == 0 else np.array([0.0, 12.0])


def check(velocity: Callable[[float], Floats], seed: int = 1) -> VelocityCheck:
    """Two minutes of zigzag with a fix each 2 s, 5 m off along an axis."""
    rng, found, place = np.random.default_rng(seed), VelocityCheck(), np.zeros(2)
    for step in range(600):
        now = 0.2 * step
        place = place + 0.2 * zigzag(now)
        noisy = velocity(now) + rng.normal(size=2) * 0.5
        found.move(now, MeasuredVelocity(noisy, 0.5, 0.2))
        if step % 10 == 0:
            found.add(now, Observation(place + rng.normal(size=2) * 5.0, 25.0, 0.9))
    return found


def test_distances_and_their_errors_add_up() -> None:
    odometer = Odometer()
    begin = odometer.reading
    for second in range(11):
        assert odometer.move(float(second), measured(3.0, -1.0))
    walked, variance = odometer.since(begin)
    assert walked == pytest.approx([30.0, -10.0])
    assert variance == pytest.approx(10 * 0.5**2 + (10 * 0.2) ** 2)  # noise adds as squares, drift in full
    assert odometer.move(10.8, None) and not odometer.move(13.0, None)
    assert odometer.move(14.0, measured(1.0))


@pytest.mark.parametrize("seed", range(4))
def test_right_velocities_pass_and_those_of_another_time_or_scale_do_not(seed: int) -> None:
    assert check(zigzag, seed).passes
    assert not check(lambda now: zigzag(max(now - 5.0, 0.0)), seed).passes, "the clock is 5 s off"
    assert not check(lambda now: 1.6 * zigzag(now), seed).passes
    assert not check(lambda now: zigzag(now)[::-1], seed).passes


def test_a_few_wrong_fixes_are_not_the_velocity() -> None:
    rng, found, place = np.random.default_rng(2), VelocityCheck(), np.zeros(2)
    for step in range(600):
        place = place + 0.2 * zigzag(0.2 * step)
        found.move(0.2 * step, MeasuredVelocity(zigzag(0.2 * step), 0.5, 0.2))
        if step % 10 == 0:
            away = np.array([900.0, -300.0]) if step % 120 == 0 else np.zeros(2)
            found.add(0.2 * step, Observation(place + away + rng.normal(size=2) * 5.0, 25.0, 0.9))
    assert found.passes and found.trusted(measured(1.0)) is not None


def test_a_flight_with_a_wrong_velocity_says_so_and_stays_within_three_radii() -> None:
    """East and north are exchanged; that of another clock is in test_clock_check.py."""
    rng, place = np.random.default_rng(3), np.zeros(2)
    swapped = [zigzag(0.2 * step)[::-1] for step in range(601)]
    samples = [
        Sample(time_s=0.2 * step, velocity_east=float(now[0]), velocity_north=float(now[1]), tilt_deg=90.0)
        for step, now in enumerate(swapped)
    ]
    live = LiveTracker(FlyOptions(flow=False), FLYING, FRAME, None, Telemetry(samples))
    problems, ratios = [], []
    for step in range(600):
        now = 0.2 * step
        place = place + 0.2 * zigzag(now)
        live.look(now, None)
        if step % 10 == 0:
            live.locate_done(now, fix_at(place + rng.normal(size=2) * 5.0, 5.0, 0.95))
        report = live.report(now, START)
        problems.append(report.problem)
        point = report.point
        if now > 60.0 and point.latitude is not None and point.longitude is not None and point.radius_m is not None:
            metres = FRAME.to_metres(latitude=point.latitude, longitude=point.longitude)
            ratios.append(math.dist((float(metres.x), float(metres.y)), place) / point.radius_m)
    assert problems[-1] == VELOCITY_PROBLEM and problems[20] == ""
    assert len(ratios) > 150 and np.mean(np.array(ratios) <= 1.0) > 0.8 and max(ratios) < 3.0
