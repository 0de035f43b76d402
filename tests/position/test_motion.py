"""The motion model composes, stays within its limits, and its radius holds what it says."""

import numpy as np
import pytest

from skypart.position.hypotheses import RADIUS_95, Motion, radius_95

MOTION = Motion(25.0, 4.0)


@pytest.mark.parametrize(("first", "second"), [(0.0, 2.0), (3.0, 4.0), (0.4, 30.0), (1e-4, 1e-4)])
def test_two_steps_are_one(first: float, second: float) -> None:
    (a, p), (b, q), (whole, noise) = MOTION.over(first), MOTION.over(second), MOTION.over(first + second)
    np.testing.assert_allclose(b @ a, whole, atol=1e-12)
    np.testing.assert_allclose(b @ p @ b.T + q, noise, rtol=2e-3, atol=1e-12)


def test_noise_is_a_covariance_at_every_scale() -> None:
    for seconds in (0.0, 1e-6, 1e-3, 0.03, 1.0, 60.0, 3_600.0, 1e6):
        _, noise = MOTION.over(seconds)
        assert np.linalg.eigvalsh(noise).min() >= -1e-9 * max(1.0, noise.max())


def test_an_unknown_velocity_stays_as_unknown_as_it_was() -> None:
    transition, noise = MOTION.over(1_000.0)
    start = np.diag([0.0, 0.0, MOTION.speed_deviation**2, MOTION.speed_deviation**2])
    later = transition @ start @ transition.T + noise
    assert np.sqrt(later[2, 2]) == pytest.approx(MOTION.speed_deviation)


def test_simulated_motion_has_the_stated_covariance() -> None:
    dice = np.random.default_rng(0)
    push, pull = 2.0, 4.0 / (2 * 12.5**2)
    step, count = 0.01, 40_000
    place, speed = np.zeros(count), np.full(count, 7.0)
    for _ in range(300):
        place += speed * step
        speed += -pull * speed * step + push * np.sqrt(step) * dice.normal(size=count)
    transition, noise = MOTION.over(3.0)
    assert place.mean() == pytest.approx(transition[0, 2] * 7.0, abs=0.1)
    assert np.cov(place, speed) == pytest.approx(noise[np.ix_([0, 2], [0, 2])], rel=0.05)


def test_velocities_above_the_limit_are_shortened() -> None:
    states = np.array([[1.0, 2.0, 30.0, 40.0], [1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_allclose(MOTION.limited(states), [[1, 2, 15, 20], [1, 2, 3, 4]])


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.7, 1.0])
def test_radius_holds_95_in_100(share: float) -> None:
    dice = np.random.default_rng(1)
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    covariance = turn @ np.diag([9.0, 9.0 * share]) @ turn.T
    far = np.linalg.norm(dice.normal(size=(200_000, 2)) @ (turn @ np.diag([3.0, 3.0 * np.sqrt(share)])).T, axis=1)
    assert (far <= radius_95(covariance)).mean() == pytest.approx(0.95, abs=0.003)
    assert radius_95(np.eye(2)) == pytest.approx(RADIUS_95) == pytest.approx(2.4477, abs=1e-4)
