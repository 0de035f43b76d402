"""Kalman's steps over many beliefs at once are those of the textbook, one by one."""

import numpy as np
import pytest

from skypart.position.hypotheses import NONE, Beliefs, Ints, born, density, joined, merged, mixture, predicted, updated
from skypart.position.hypotheses import Floats, Motion
from skypart.position.hypotheses import Sighting

MOTION = Motion(25.0, 4.0)
SIGHTING = Sighting(np.array([40.0, -30.0]), 100.0, 0.8)


def some(count: int, seed: int = 0, spread: float = 100.0) -> Beliefs:
    dice = np.random.default_rng(seed)
    roots = dice.normal(size=(count, 4, 4)) * [10.0, 10.0, 3.0, 3.0]
    return Beliefs(
        np.log(dice.random(count)),
        dice.normal(size=(count, 4)) * [spread, spread, 5.0, 5.0],
        roots.transpose(0, 2, 1) @ roots + np.eye(4),
        np.full(count, NONE),
        np.full(count, NONE),
        np.full(count, 2.0),
    )


def test_prediction_and_update_one_by_one() -> None:
    beliefs = some(5)
    transition, noise = MOTION.over(1.5)
    later = predicted(beliefs, MOTION, 1.5)
    after = updated(later, SIGHTING, 3, MOTION)
    see = np.eye(4)[:2]
    for i in range(5):
        mean = transition @ beliefs.mean[i]
        covariance = transition @ beliefs.covariance[i] @ transition.T + noise
        np.testing.assert_allclose(later.mean[i], mean)
        spread = see @ covariance @ see.T + 100.0 * np.eye(2)
        gain = covariance @ see.T @ np.linalg.inv(spread)
        off = SIGHTING.place - see @ mean
        exact = mean + gain @ off
        speed = np.hypot(*exact[2:])
        exact[2:] *= min(1.0, 25.0 / speed)
        np.testing.assert_allclose(after.mean[i], exact)
        np.testing.assert_allclose(after.covariance[i], covariance - gain @ see @ covariance, atol=1e-9)
        plain = np.exp(-off @ np.linalg.inv(spread) @ off / 2) / (2 * np.pi * np.sqrt(np.linalg.det(spread)))
        assert np.exp(density(later, SIGHTING)[i]) == pytest.approx(plain)
    assert after.sighting.tolist() == [3] * 5 and after.misses.tolist() == [0] * 5
    assert after.parent.tolist() == [0, 1, 2, 3, 4]


def test_no_update_makes_a_drone_faster_than_it_can_be() -> None:
    wild = born(Sighting(np.zeros(2), 1.0, 1.0), 0, 0.0, MOTION)
    after = updated(predicted(wild, MOTION, 1.0), Sighting(np.array([300.0, 0.0]), 1.0, 1.0), 0, MOTION)
    assert np.hypot(*after.mean[0, 2:]) == pytest.approx(25.0)


def test_merging_keeps_weight_mean_and_covariance() -> None:
    beliefs = some(12, spread=5.0)
    (whole,) = [merged(beliefs, 10, 100.0, near=np.inf)]
    assert len(whole) == 1
    weight, mean, covariance = mixture(beliefs)
    assert whole.weight[0] == pytest.approx(weight) == pytest.approx(np.log(np.exp(beliefs.weight).sum()))
    np.testing.assert_allclose(whole.mean[0], mean)
    shares = np.exp(beliefs.weight) / np.exp(beliefs.weight).sum()
    second = sum(
        share * (each + np.outer(place, place))
        for share, each, place in zip(shares, beliefs.covariance, beliefs.mean, strict=True)
    )
    np.testing.assert_allclose(whole.covariance[0], second - np.outer(mean, mean), atol=1e-9)
    np.testing.assert_allclose(covariance, whole.covariance[0])


def test_beliefs_far_apart_stay_apart_best_first() -> None:
    beliefs = some(6, spread=10_000.0)
    kept = merged(beliefs, 10, 100.0)
    assert kept.weight.tolist() == sorted(beliefs.weight.tolist(), reverse=True)
    assert len(merged(beliefs, 3, 100.0)) == 3
    faint = merged(joined([beliefs, Beliefs(beliefs.weight - 50.0, *_rest(beliefs, 1e7))]), 20, 25.0)
    assert len(faint) == 6


def _rest(beliefs: Beliefs, away: float) -> tuple[Floats, Floats, Ints, Ints, Floats]:
    return beliefs.mean + away, beliefs.covariance, beliefs.parent, beliefs.sighting, beliefs.misses
