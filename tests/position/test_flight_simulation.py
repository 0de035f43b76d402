"""On simulated flights the radius holds through turns, hovering, weather, outages and legs outside the map."""

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.flight_simulation import Sensors, lost_after, read_calibration, run_filter, simulate_flight

from skypart.position.live import FLYING

GOOD_LOCATOR = Sensors(
    missing=0.06, missing_in_weather=0.55, false_accepts=0.052, radius_m=9.0, map_error_m=6.0, shift_quantile=0.8
)
"""A locator with narrow radii, on maps whose shift is larger than that of four maps in five. benchmarks/flight.py has
the figures for the shipped calibration, and for shifts drawn at random."""


def test_the_page_of_the_calibration_has_what_the_simulation_reads() -> None:
    """It fails if the page is worded anew: then correct CALIBRATED."""
    found = read_calibration()
    assert 50 < found["fixes"] <= found["guesses"] <= 100 and 0 <= found["false_accepts"] < 10
    assert 0 < found["map_m"] < found["radius_m"] < 100


@pytest.mark.slow
@pytest.mark.parametrize("velocity", ["none", "flow", "odometry"])
def test_the_radius_holds_on_simulated_flights(velocity: str) -> None:
    outcomes = [
        run_filter(simulate_flight(seed), replace(GOOD_LOCATOR, velocity=velocity), FLYING, seed) for seed in range(3)
    ]
    error, radius = (np.concatenate([getattr(each, name) for each in outcomes]) for name in ("error", "radius"))
    said = np.isfinite(error)
    assert 0.93 <= (error <= radius)[said].mean() <= 0.99
    assert (error <= 3 * radius)[said].all()
    seconds = [each for outcome in outcomes for each in lost_after(outcome)]
    assert len(seconds) >= 3 and max(seconds) <= 5.0
    inside = np.concatenate([each.flight.inside & ~each.flight.outage for each in outcomes])
    far = np.where(said, error, math.inf)[inside]
    assert (far <= 50).mean() >= 0.8 and (far <= 20).mean() >= 0.6, "the integrator's specification"


def test_a_drone_that_leaves_the_map_beside_a_wrong_fix_is_lost_within_5_seconds() -> None:
    """A fix 68 m off reverses the velocity 2 s before the map's edge, and none comes for 17 s."""
    outcome = run_filter(simulate_flight(1), Sensors(), FLYING, 1)
    assert max(lost_after(outcome)) <= 5.0
