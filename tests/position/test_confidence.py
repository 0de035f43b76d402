"""Confidence and radius: rising, covering, honouring the wrong share it may have, and the same after a round trip."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.model.embedder import load
from skypart.position.confidence import (
    FEATURES,
    RIGHT_M,
    Calibration,
    _isotonic,
    _threshold,
    conformal,
    default_calibration,
    features,
    fit,
)


def evidence(similarity: float, inliers: float = 30.0, scale: float = 10.0, agreement: float = 0.5) -> dict[str, float]:
    return {
        "similarity": similarity,
        "agreement": agreement,
        "inliers": inliers,
        "inlier_share": min(inliers / 100, 1.0),
        "alignment": 0.4,
        "scale_m": scale,
    }


def drawn(dice: np.random.Generator, count: int, outside: float = 0.2) -> tuple[list[dict[str, float]], list[float]]:
    """Photos whose chance to be right grows with similarity and inliers; errors of right ones scale with `scale_m`."""
    found, errors = [], []
    for _ in range(count):
        similarity, inliers = float(dice.uniform(0.2, 0.95)), float(dice.integers(0, 80) if dice.random() < 0.7 else 0)
        scale = float(dice.uniform(5, 20))
        found.append(evidence(similarity, inliers, scale, float(dice.uniform(0.1, 1))))
        chance = 1 / (1 + math.exp(-(12 * (similarity - 0.55) + 0.05 * (inliers - 30))))
        if dice.random() < chance:
            errors.append(float(abs(dice.normal(0, 0.7)) * scale))
        else:
            errors.append(math.inf if dice.random() < outside else float(dice.uniform(60, 3000)))
    return found, errors


def shifted(
    dice: np.random.Generator, count: int, shift: tuple[float, float], outside: int = 15
) -> tuple[list[dict[str, float]], list[float], list[tuple[float, float]]]:
    """Evidence, errors and offsets of matched photos that err by `shift` all alike and by 1 m on their own."""
    places = dice.normal(shift, 1.0, (count, 2)).tolist()
    found = [evidence(float(dice.uniform(0.7, 0.95)), scale=1.0) for _ in places]
    found += [evidence(float(dice.uniform(0.2, 0.4)), 3.0) for _ in range(outside)]
    missing = [(math.nan, math.nan)] * outside
    return found, [math.hypot(*place) for place in places] + [math.inf] * outside, [*map(tuple, places), *missing]


def test_features_are_those_that_are_named() -> None:
    assert len(FEATURES) == 5
    row = features([evidence(0.8, 20.0, agreement=0.3)])
    np.testing.assert_allclose(row, [[0.8, 0.3, math.log(21.0), 0.2, 0.4]])
    assert features([]).shape == (0, 5)


@pytest.mark.parametrize("seed", range(5))
def test_probabilities_rise_with_the_score(seed: int) -> None:
    dice = np.random.default_rng(seed)
    scores = np.round(dice.normal(size=200), 1)  # with ties
    right = dice.random(200) < 1 / (1 + np.exp(-scores))
    steps = _isotonic(scores, right)
    levels, chances = np.array(steps).T
    assert np.all(np.diff(levels) > 0), "interpolation needs rising corners"
    assert np.all(np.diff(chances) >= 0)
    assert chances.min() > 0 and chances.max() < 1, "nothing is certain"


def test_pools_are_the_means_of_their_outcomes() -> None:
    """By hand: wrong, right, wrong, right, right at rising scores; the two in the middle are pooled."""
    steps = _isotonic(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True, True]))
    base = 0.6
    expected = [(0.0, (0 + 2 * base) / 3), (1.5, (1 + 2 * base) / 4), (3.5, (2 + 2 * base) / 4)]
    # the last two are equal in outcome, so they are one pool
    assert [pytest.approx(step) for step in expected] == steps


def test_equal_scores_are_one_pool_whatever_their_order() -> None:
    scores, right = np.full(6, 0.3), np.array([False, True, True, False, True, True])
    assert _isotonic(scores, right) == _isotonic(scores, right[::-1])
    assert len(_isotonic(scores, right)) == 1


def test_the_threshold_is_the_lowest_that_keeps_the_promise() -> None:
    chances = np.repeat([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95], 10)
    right = np.repeat([False, True, False, True, True, False, True, True, True, True], 10)
    ratios = np.ones(100)
    for most_wrong, expected in ((0.0, 0.7), (0.15, 0.4), (0.26, 0.2), (1.0, 0.1)):
        assert _threshold(chances, right, ratios, most_wrong) == expected
    assert _threshold(chances, np.zeros(100, bool), ratios, 0.1) > chances.max()


def test_the_threshold_rises_until_a_radius_can_be_said() -> None:
    """One photo from outside among 31 leaves no finite 95 % radius; without it, 19 are enough and 18 are not."""
    chances = np.array([0.5] * 12 + [0.9] * 19)
    right = np.array([False] + [True] * 30)
    ratios = np.where(right, 1.0, math.inf)
    assert conformal(ratios) == math.inf
    assert _threshold(chances, right, ratios, 0.05) == 0.9
    assert _threshold(chances[:-1], right[:-1], ratios[:-1], 0.05) > 0.9


@pytest.mark.parametrize("most_wrong", [0.02, 0.1])
def test_of_the_accepted_no_more_are_wrong_than_allowed(most_wrong: float) -> None:
    found, errors = drawn(np.random.default_rng(1), 600)
    calibration = fit(found, errors, "drawn", most_wrong)
    taken = [
        error for e, error in zip(found, errors, strict=True) if calibration.confidence(e) >= calibration.threshold
    ]
    wrong = np.mean([error > RIGHT_M for error in taken])
    assert len(taken) > 100 and wrong <= most_wrong
    strict = fit(found, errors, "drawn", most_wrong / 2)
    assert strict.threshold >= calibration.threshold


def test_the_conformal_radius_covers_new_photos() -> None:
    """Over many draws of 100, the 95 % quantile covers 95 % of new ones: at least, and not much more."""
    dice = np.random.default_rng(7)
    covered = []
    for _ in range(400):
        ratios = dice.lognormal(0, 1, 101)
        covered.append(ratios[100] <= conformal(ratios[:100]))
    assert 0.925 <= np.mean(covered) <= 0.985
    exact = conformal(np.arange(1.0, 101.0))
    assert exact == 96.0, "the ceil(0.95 * 101)-th smallest"


def test_too_few_for_a_radius_make_it_infinite() -> None:
    assert conformal(np.ones(18)) == math.inf and conformal(np.zeros(0)) == math.inf
    assert conformal(np.arange(19.0)) == 18.0
    assert conformal(np.array([1.0] * 38 + [math.inf])) == 1.0
    assert conformal(np.array([1.0] * 37 + [math.inf])) == math.inf


def test_a_fit_holds_on_photos_it_has_not_seen() -> None:
    dice = np.random.default_rng(11)
    calibration = fit(*drawn(dice, 800), "drawn")
    found, errors = drawn(dice, 4000)
    chance = np.array([calibration.confidence(e) for e in found])
    right = np.array(errors) <= RIGHT_M
    for low in np.arange(0.0, 1.0, 0.2):
        chosen = (chance >= low) & (chance < low + 0.2)
        if chosen.sum() > 100:
            assert abs(chance[chosen].mean() - right[chosen].mean()) < 0.08, f"confidence around {low:.1f} misleads"
    taken = chance >= calibration.threshold
    inside = [error <= calibration.radius(e) for e, error, t in zip(found, errors, taken, strict=True) if t]
    assert taken.mean() > 0.15 and np.mean(inside) > 0.91
    assert np.mean(~right[taken]) < 0.06


def test_more_evidence_never_lowers_the_confidence() -> None:
    calibration = fit(*drawn(np.random.default_rng(2), 300), "drawn")
    assert all(weight >= 0 for weight in calibration.weights)
    for name, values in (("similarity", (0.3, 0.5, 0.9)), ("inliers", (0, 20, 70)), ("agreement", (0.1, 0.5, 1.0))):
        chances = [calibration.confidence(evidence(0.6) | {name: float(value)}) for value in values]
        assert chances == sorted(chances) and all(0 < chance < 1 for chance in chances)


def test_refined_and_voted_photos_have_radii_of_their_own() -> None:
    """Voted ones err three times as far for their scale."""
    dice = np.random.default_rng(4)
    found, errors = [], []
    for number in range(400):
        refined = number % 2 == 0
        good = dice.random() < 0.8
        found.append(evidence(0.9 if good else 0.3, 40.0 if refined else 0.0, 10.0))
        errors.append(float(abs(dice.normal(0, 3 if refined else 9))) if good else 500.0)
    calibration = fit(found, errors, "drawn")
    assert 2.0 < calibration.voted / calibration.refined < 4.5
    assert calibration.radius(evidence(0.9, 40.0, 20.0)) == calibration.refined * 20.0
    assert calibration.radius(evidence(0.9, 0.0, 20.0)) == calibration.voted * 20.0


def test_photos_from_outside_have_infinite_errors_and_do_no_harm() -> None:
    good = [evidence(0.9)] * 60
    outside = [evidence(0.3)] * 40
    calibration = fit([*good, *outside], [5.0] * 60 + [math.inf] * 40, "both")
    assert calibration.confidence(good[0]) >= calibration.threshold > calibration.confidence(outside[0])
    assert calibration.refined == pytest.approx(0.5)
    assert math.isinf(calibration.voted), "no photo was voted: nothing is known of their errors"


def test_a_small_group_gets_a_radius_no_smaller_than_its_own_errors() -> None:
    found = [evidence(0.9)] * 60 + [evidence(0.9, 0.0)] * 8 + [evidence(0.3)] * 20
    calibration = fit(found, [5.0] * 60 + [30.0] * 8 + [math.inf] * 20, "both")
    assert calibration.refined == pytest.approx(0.5) and calibration.voted == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("errors", "words"),
    [([5.0] * 10 + [900.0] * 9, "there are 19, 10 right"), ([5.0] * 30, "30 right"), ([math.inf] * 30, "30, 0 right")],
)
def test_too_few_or_one_sided_photos_are_refused(errors: list[float], words: str) -> None:
    with pytest.raises(SkyPartError, match=words):
        fit([evidence(0.5 + 0.01 * i) for i in range(len(errors))], errors, "few")


def test_evidence_that_says_nothing_accepts_nobody_unless_that_is_good_enough() -> None:
    """All photos look the same and half are wrong: no threshold can keep the promise."""
    calibration = fit([evidence(0.5)] * 40, [5.0] * 20 + [900.0] * 20, "same")
    assert calibration.confidence(evidence(0.5)) < calibration.threshold and calibration.refined == math.inf


@pytest.mark.parametrize("infinite", [False, True])
def test_a_calibration_is_the_same_after_json(infinite: bool) -> None:
    calibration = fit(*drawn(np.random.default_rng(3), 200), "a town")
    if infinite:
        calibration = Calibration(**(vars(calibration) | {"voted": math.inf}))
    text = json.dumps(calibration.to_dict(), allow_nan=False)
    again = Calibration.from_dict(json.loads(text))
    assert again == calibration
    for e in drawn(np.random.default_rng(5), 20)[0]:
        assert (again.confidence(e), again.radius(e)) == (calibration.confidence(e), calibration.radius(e))


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [1.0]},
        {"weights": "abc"},
        {"steps": []},
        {"steps": [[1.0]]},
        {"threshold": None},
        {"refined": "far"},
        {"photos": "many"},
    ],
)
def test_a_damaged_calibration_is_told(change: dict[str, Any]) -> None:
    content = fit(*drawn(np.random.default_rng(3), 200), "a town").to_dict()
    with pytest.raises(SkyPartError, match="the calibration is damaged"):
        Calibration.from_dict(content | change)
    with pytest.raises(SkyPartError, match="the calibration is damaged"):
        Calibration.from_dict({name: value for name, value in content.items() if name not in change})


def test_the_default_calibration_can_be_read_and_used() -> None:
    calibration = default_calibration()
    assert 0 < calibration.threshold < 1 and calibration.refined > 0 and calibration.voted > 0
    chances = [calibration.confidence(evidence(s, i)) for s, i in ((0.1, 0.0), (0.5, 10.0), (0.95, 90.0))]
    assert chances == sorted(chances) and chances[0] < calibration.threshold


def test_the_default_calibration_is_of_the_default_model() -> None:
    assert default_calibration().model == load("default").digest


def test_a_floor_joins_every_radius_and_is_kept() -> None:
    plain = fit(*drawn(np.random.default_rng(2), 300), "drawn")
    floored = replace(plain, floor_m=12.0)
    shown = evidence(0.8, 40.0, scale=5.0)
    assert floored.radius(shown) == pytest.approx(math.hypot(plain.radius(shown), 12.0))
    assert Calibration.from_dict(floored.to_dict()) == floored
    assert default_calibration().floor_m > 0.0


@pytest.mark.parametrize("seed", range(4))
def test_what_all_photos_err_alike_becomes_the_floor_and_radii_still_hold(seed: int) -> None:
    dice = np.random.default_rng(seed)
    found, errors, offsets = shifted(dice, 60, (6.0, -8.0))
    calibration = fit(found, errors, "shifted", offsets=offsets)
    assert 9.8 < calibration.floor_m < 13.0
    assert 1.5 < calibration.refined < 4.5, "photos err by 1 m on their own, 95 % of them within 2.4 m"
    found, errors, _ = shifted(dice, 500, (6.0, -8.0), outside=0)
    inside = np.mean([error <= calibration.radius(e) for e, error in zip(found, errors, strict=True)])
    assert 0.9 < inside < 1.0 and calibration.radius(found[0]) < 14.0


def test_without_directions_or_without_a_common_error_there_is_no_floor_to_speak_of() -> None:
    found, errors, offsets = shifted(np.random.default_rng(1), 60, (6.0, -8.0))
    plain = fit(found, errors, "shifted")
    assert plain.floor_m == 0.0 and plain.refined > 11.0
    assert fit(found, errors, "shifted", offsets=[(math.nan, math.nan)] * len(errors)) == plain
    found, errors, offsets = shifted(np.random.default_rng(1), 60, (0.0, 0.0))
    assert fit(found, errors, "centred", offsets=offsets).floor_m < 0.6


def test_a_common_error_is_a_maps_own_not_that_of_all_maps() -> None:
    """Two maps that lie 10 m off in opposite directions have no error in common, and 10 m each."""
    dice = np.random.default_rng(3)
    one, other = shifted(dice, 40, (10.0, 0.0)), shifted(dice, 40, (-10.0, 0.0))
    found, errors, offsets = one[0] + other[0], one[1] + other[1], one[2] + other[2]
    names = ["a"] * 55 + ["b"] * 55
    assert 9.8 < fit(found, errors, "two", offsets=offsets, maps=names).floor_m < 13.0
    assert fit(found, errors, "two", offsets=offsets).floor_m < 1.0


def test_a_photo_at_a_wrong_place_says_nothing_of_the_map() -> None:
    found, errors, offsets = shifted(np.random.default_rng(4), 99, (0.0, 5.0))
    found, errors, offsets = [evidence(0.93, scale=1.0), *found], [2_000.0, *errors], [(2_000.0, 0.0), *offsets]
    assert 4.8 < fit(found, errors, "one wrong", offsets=offsets).floor_m < 8.0
