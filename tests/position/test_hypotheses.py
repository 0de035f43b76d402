"""The motion model, observations from fixes, and Kalman's steps on many hypotheses at once."""

import math
from dataclasses import replace

import numpy as np
import pytest

from skypart.position.fix import Fix, Peak
from skypart.position.hypotheses import (
    NONE,
    RADIUS_95,
    Floats,
    Hypotheses,
    Ints,
    Motion,
    Observation,
    concatenate,
    log_density,
    merge,
    moments,
    new_hypothesis,
    observations_from_fix,
    predict,
    radius_95,
    squared_distance,
    update,
)
from tests.position.flights import FRAME, fix_at

MOTION = Motion(25.0, 4.0)
OBSERVATION = Observation(np.array([40.0, -30.0]), 100.0, 0.8)


@pytest.mark.parametrize(("first", "second"), [(0.0, 2.0), (3.0, 4.0), (0.4, 30.0), (1e-4, 1e-4)])
def test_two_short_steps_equal_one_long_step(first: float, second: float) -> None:
    (a, p), (b, q), (whole, noise) = (
        MOTION.transition(first),
        MOTION.transition(second),
        MOTION.transition(first + second),
    )
    np.testing.assert_allclose(b @ a, whole, atol=1e-12)
    np.testing.assert_allclose(b @ p @ b.T + q, noise, rtol=2e-3, atol=1e-12)


def test_noise_is_a_covariance_at_every_scale() -> None:
    for seconds in (0.0, 1e-6, 1e-3, 0.03, 1.0, 60.0, 3_600.0, 1e6):
        _, noise = MOTION.transition(seconds)
        assert np.linalg.eigvalsh(noise).min() >= -1e-9 * max(1.0, noise.max())


def test_the_variance_of_an_unknown_velocity_is_stationary() -> None:
    transition, noise = MOTION.transition(1_000.0)
    start = np.diag([0.0, 0.0, MOTION.speed_deviation**2, MOTION.speed_deviation**2])
    later = transition @ start @ transition.T + noise
    assert np.sqrt(later[2, 2]) == pytest.approx(MOTION.speed_deviation)


def test_simulated_motion_has_the_stated_covariance() -> None:
    rng = np.random.default_rng(0)
    push, pull = 2.0, 4.0 / (2 * 12.5**2)
    step, count = 0.01, 40_000
    place, speed = np.zeros(count), np.full(count, 7.0)
    for _ in range(300):
        place += speed * step
        speed += -pull * speed * step + push * np.sqrt(step) * rng.normal(size=count)
    transition, noise = MOTION.transition(3.0)
    assert place.mean() == pytest.approx(transition[0, 2] * 7.0, abs=0.1)
    assert np.cov(place, speed) == pytest.approx(noise[np.ix_([0, 2], [0, 2])], rel=0.05)


def test_velocities_above_the_limit_are_shortened() -> None:
    states = np.array([[1.0, 2.0, 30.0, 40.0], [1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_allclose(MOTION.limit_speed(states), [[1, 2, 15, 20], [1, 2, 3, 4]])


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.7, 1.0])
def test_the_radius_holds_95_percent(share: float) -> None:
    rng = np.random.default_rng(1)
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    covariance = turn @ np.diag([9.0, 9.0 * share]) @ turn.T
    far = np.linalg.norm(rng.normal(size=(200_000, 2)) @ (turn @ np.diag([3.0, 3.0 * np.sqrt(share)])).T, axis=1)
    assert (far <= radius_95(covariance)).mean() == pytest.approx(0.95, abs=0.003)
    assert radius_95(np.eye(2)) == pytest.approx(RADIUS_95) == pytest.approx(2.4477, abs=1e-4)


def random_hypotheses(count: int, seed: int = 0, spread: float = 100.0) -> Hypotheses:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(count, 4, 4)) * [10.0, 10.0, 3.0, 3.0]
    return Hypotheses(
        np.log(rng.random(count)),
        rng.normal(size=(count, 4)) * [spread, spread, 5.0, 5.0],
        roots.transpose(0, 2, 1) @ roots + np.eye(4),
        np.full(count, NONE),
        np.full(count, NONE),
        np.full(count, 2.0),
    )


def test_prediction_and_update_equal_the_textbook_formulas() -> None:
    hypotheses = random_hypotheses(5)
    transition, noise = MOTION.transition(1.5)
    later = predict(hypotheses, MOTION, 1.5)
    after = update(later, OBSERVATION, 3, MOTION)
    see = np.eye(4)[:2]
    for i in range(5):
        mean = transition @ hypotheses.mean[i]
        covariance = transition @ hypotheses.covariance[i] @ transition.T + noise
        np.testing.assert_allclose(later.mean[i], mean)
        spread = see @ covariance @ see.T + 100.0 * np.eye(2)
        gain = covariance @ see.T @ np.linalg.inv(spread)
        off = OBSERVATION.position - see @ mean
        exact = mean + gain @ off
        speed = np.hypot(*exact[2:])
        exact[2:] *= min(1.0, 25.0 / speed)
        np.testing.assert_allclose(after.mean[i], exact)
        np.testing.assert_allclose(after.covariance[i], covariance - gain @ see @ covariance, atol=1e-9)
        plain = np.exp(-off @ np.linalg.inv(spread) @ off / 2) / (2 * np.pi * np.sqrt(np.linalg.det(spread)))
        assert np.exp(log_density(later, OBSERVATION)[i]) == pytest.approx(plain)
    assert after.observation.tolist() == [3] * 5 and after.misses.tolist() == [0] * 5
    assert after.parent.tolist() == [0, 1, 2, 3, 4]


def test_an_update_does_not_exceed_the_maximum_speed() -> None:
    wild = new_hypothesis(Observation(np.zeros(2), 1.0, 1.0), 0, 0.0, MOTION)
    after = update(predict(wild, MOTION, 1.0), Observation(np.array([300.0, 0.0]), 1.0, 1.0), 0, MOTION)
    assert np.hypot(*after.mean[0, 2:]) == pytest.approx(25.0)


def test_merging_keeps_weight_mean_and_covariance() -> None:
    hypotheses = random_hypotheses(12, spread=5.0)
    (whole,) = [merge(hypotheses, 10, 100.0, distance=np.inf)]
    assert len(whole) == 1
    weight, mean, covariance = moments(hypotheses)
    assert whole.log_weight[0] == pytest.approx(weight) == pytest.approx(np.log(np.exp(hypotheses.log_weight).sum()))
    np.testing.assert_allclose(whole.mean[0], mean)
    shares = np.exp(hypotheses.log_weight) / np.exp(hypotheses.log_weight).sum()
    second = sum(
        share * (each + np.outer(place, place))
        for share, each, place in zip(shares, hypotheses.covariance, hypotheses.mean, strict=True)
    )
    np.testing.assert_allclose(whole.covariance[0], second - np.outer(mean, mean), atol=1e-9)
    np.testing.assert_allclose(covariance, whole.covariance[0])


def test_hypotheses_far_apart_are_not_merged_and_are_sorted() -> None:
    hypotheses = random_hypotheses(6, spread=10_000.0)
    kept = merge(hypotheses, 10, 100.0)
    assert kept.log_weight.tolist() == sorted(hypotheses.log_weight.tolist(), reverse=True)
    assert len(merge(hypotheses, 3, 100.0)) == 3
    faint = merge(
        concatenate([hypotheses, Hypotheses(hypotheses.log_weight - 50.0, *_rest(hypotheses, 1e7))]), 20, 25.0
    )
    assert len(faint) == 6


def _rest(hypotheses: Hypotheses, away: float) -> tuple[Floats, Floats, Ints, Ints, Floats]:
    return hypotheses.mean + away, hypotheses.covariance, hypotheses.parent, hypotheses.observation, hypotheses.misses


@pytest.mark.parametrize(("apart", "count"), [(0.99, 1), (1.01, 2)])
def test_hypotheses_within_one_mahalanobis_distance_are_merged(apart: float, count: int) -> None:
    """Two of variance 1/2 each: their difference has variance 1."""
    motion = Motion(1.0, 1.0)
    first = new_hypothesis(Observation(np.zeros(2), 0.5, 1.0), 0, 0.0, motion)
    second = new_hypothesis(Observation(np.array([apart, 0.0]), 0.5, 1.0), 1, -1.0, motion)
    found = merge(concatenate([second, first]), 10, 25.0)
    assert len(found) == count and found.observation[0] == 0, "the heavier one passes on its observation"


def test_light_hypotheses_are_dropped() -> None:
    first = new_hypothesis(OBSERVATION, 0, 0.0, MOTION)
    far = Observation(np.array([1e6, 0.0]), 100.0, 0.8)
    for log_weight, count in ((-24.9, 2), (-25.1, 1)):
        assert len(merge(concatenate([first, new_hypothesis(far, 1, log_weight, MOTION)]), 10, 25.0)) == count


def test_squared_distances_are_in_units_of_the_covariance() -> None:
    difference = np.array([[3.0, 0.0], [0.0, 4.0]])
    covariance = np.array([np.diag([9.0, 1.0]), np.diag([1.0, 4.0])])
    assert squared_distance(difference, covariance).tolist() == [1.0, 4.0]


def observe(fix: Fix | None, novelty: float = 1.0) -> list[tuple[float, float, float]]:
    """East, standard deviation and trust of the observations of a fix."""
    found = observations_from_fix(fix, FRAME, novelty)
    return [(float(each.position[0]), math.sqrt(each.variance), each.trust) for each in found]


def test_a_fix_is_observed_with_its_deviation_and_limited_trust() -> None:
    place = np.array([200.0, 0.0])
    for confidence, trust in ((0.0, 0.3), (0.29, 0.3), (0.31, 0.31), (0.94, 0.94), (1.0, 0.95)):
        (found,) = observe(fix_at(place, sigma=15.0, confidence=confidence))
        assert found == pytest.approx((200.0, 15.0, trust), abs=1e-3)
    (sharp,) = observe(fix_at(place, sigma=1e-6))
    assert sharp[1] == pytest.approx(1.0), "no observation is more precise than 1 m"
    assert observe(None) == observe(Fix(photo="a", reason="dark")) == []


def test_the_maps_own_error_is_taken_out_of_the_deviation() -> None:
    fix = fix_at(np.zeros(2), sigma=3.0)
    shifted = replace(fix, radius_m=math.hypot(fix.radius_m or 0.0, 20.0), map_error_m=20.0)
    assert observe(shifted)[0][1] == pytest.approx(3.0)


def test_photos_close_in_time_count_less() -> None:
    (found,) = observe(fix_at(np.zeros(2), sigma=15.0, confidence=0.8), novelty=0.25)
    assert found[1:] == pytest.approx((30.0, 0.2)), "a quarter of the information, a quarter of the trust"


@pytest.mark.parametrize(
    ("away", "weight", "observed"),
    [(89.0, 0.5, False), (91.0, 0.5, True), (500.0, 0.09, False), (500.0, 0.11, True), (500.0, 1.0, True)],
)
def test_other_peaks_are_observed_with_the_remaining_trust(away: float, weight: float, observed: bool) -> None:
    """Peaks within two deviations of the fix are the one it was refined from; those of little weight are ignored."""
    place = FRAME.to_degrees(away, 0.0)
    peak = Peak(latitude=float(place.latitude), longitude=float(place.longitude), weight=weight, spread_m=45.0)
    found = observe(replace(fix_at(np.zeros(2), confidence=0.8), peaks=(peak,)))
    assert len(found) == 1 + observed
    if observed:
        assert found[1] == pytest.approx((away, 45.0, 0.2 * weight), abs=0.01)
