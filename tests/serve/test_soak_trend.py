"""The soak of the server must tell a leak from an allocator that takes a step."""

import numpy as np
import pytest
from benchmarks.soak import MAX_GROWTH_MB, MAX_MB_PER_MINUTE, Log, trend, verdicts

MINUTES = 30.0
Samples = list[tuple[float, float, int, float]]


def samples(leak: float = 0.0, step: float = 0.0, peaks: float = 200.0) -> Samples:
    """30 minutes of a server of 600 MB. leak: MB per minute. step: MB, once, after 22 minutes. peaks: MB in work."""
    rng = np.random.default_rng(0)
    seconds = np.arange(0.0, 60 * MINUTES, 2.0)
    warming = 80.0 * np.minimum(seconds / 300.0, 1.0)
    memory = 600.0 + warming + leak * seconds / 60 + step * (seconds > 1320) + peaks * rng.random(len(seconds))
    return [(float(at), float(mb), 30, 60.0) for at, mb in zip(seconds, memory, strict=True)]


@pytest.mark.parametrize(
    ("given", "flat"),
    [({}, True), ({"step": 6.0}, True), ({"leak": 0.47}, False), ({"leak": 2.0}, False), ({"step": 40.0}, False)],
)
def test_a_leak_fails_and_one_step_does_not(given: dict[str, float], flat: bool) -> None:
    log = Log(samples=samples(**given, peaks=1.0))
    seen = trend(log.samples)
    assert (seen.slope <= MAX_MB_PER_MINUTE and seen.growth <= MAX_GROWTH_MB) == flat
    assert (verdicts(log, MINUTES) == []) == flat
    assert verdicts(log, 5.0) == []  # too short to be judged


def test_photos_in_work_are_no_growth() -> None:
    assert abs(trend(samples()).slope) < MAX_MB_PER_MINUTE


def test_a_slope_that_cannot_be_computed_does_not_pass() -> None:
    log = Log(samples=samples()[:3])
    assert any("memory grows" in problem for problem in verdicts(log, MINUTES))
