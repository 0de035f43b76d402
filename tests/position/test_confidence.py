"""Confidence and radius: monotonic, well calibrated, within the allowed share of errors, and stable in JSON."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.model.embedder import load
from skypart.position.confidence import (
    CORRECT_WITHIN_M,
    FEATURES,
    Calibration,
    ErrorSources,
    GroupErrors,
    _isotonic,
    _threshold,
    conformal_quantile,
    default_calibration,
    features,
    fit_calibration,
)
from skypart.position.fix import Evidence


def evidence(similarity: float, inliers: float = 30.0, scale: float = 10.0, agreement: float = 0.5) -> Evidence:
    return Evidence(
        similarity=similarity,
        agreement=agreement,
        inliers=inliers,
        inlier_share=min(inliers / 100, 1.0),
        evenness=0.4,
        scale_m=scale,
    )


def random_outcomes(rng: np.random.Generator, count: int, outside: float = 0.2) -> tuple[list[Evidence], list[float]]:
    """Evidence and errors of photos. They are more often correct with more similarity and inliers."""
    found, errors = [], []
    for _ in range(count):
        similarity, inliers = float(rng.uniform(0.2, 0.95)), float(rng.integers(0, 80) if rng.random() < 0.7 else 0)
        scale = float(rng.uniform(5, 20))
        found.append(evidence(similarity, inliers, scale, float(rng.uniform(0.1, 1))))
        chance = 1 / (1 + math.exp(-(12 * (similarity - 0.55) + 0.05 * (inliers - 30))))
        if rng.random() < chance:
            errors.append(float(abs(rng.normal(0, 0.7)) * scale))
        else:
            errors.append(math.inf if rng.random() < outside else float(rng.uniform(60, 3000)))
    return found, errors


def shifted_outcomes(
    rng: np.random.Generator, count: int, shift: tuple[float, float], outside: int = 15
) -> tuple[list[Evidence], list[float], list[tuple[float, float]]]:
    """Evidence, errors and offsets of matched photos with a common error `shift` and individual errors of 1 m."""
    places = rng.normal(shift, 1.0, (count, 2)).tolist()
    found = [evidence(float(rng.uniform(0.7, 0.95)), scale=1.0) for _ in places]
    found += [evidence(float(rng.uniform(0.2, 0.4)), 3.0) for _ in range(outside)]
    missing = [(math.nan, math.nan)] * outside
    return found, [math.hypot(*place) for place in places] + [math.inf] * outside, [*map(tuple, places), *missing]


def test_features_follow_the_order_of_their_names() -> None:
    assert len(FEATURES) == 3
    row = features([replace(evidence(0.8, 20.0, agreement=0.3), uniqueness=0.5)])
    np.testing.assert_allclose(row, [[0.8, 0.3, math.log(20.0 * 0.5 * 0.4 + 1.0)]])
    assert features([]).shape == (0, 3)


def test_the_support_counts_inliers_that_are_spread_and_unique() -> None:
    """A match without a rival that covers the photo has all its inliers; a stadium in a corner has few of them."""
    found = replace(evidence(0.8, 60.0), evenness=1.0, uniqueness=1.0)
    assert found.support == 60.0
    assert replace(found, evenness=0.3).support == pytest.approx(18.0)
    assert replace(found, uniqueness=0.25).support == 15.0
    assert replace(found, inliers=0.0).support == 0.0


def test_a_match_with_too_little_support_is_no_fix() -> None:
    """The limit is that of matches; a vote has no support and is judged by its confidence alone."""
    calibration = fit_calibration(*random_outcomes(np.random.default_rng(1), 600), "random", 0.1, min_support=20.0)
    assert calibration == Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    sure = evidence(0.95, 80.0)
    assert sure.support == 32.0 and calibration.accepts(sure)
    assert not calibration.accepts(replace(sure, uniqueness=0.5))
    assert replace(calibration, min_support=0.0).accepts(replace(sure, uniqueness=0.5))
    vote = evidence(0.95, 0.0)
    assert calibration.accepts(vote) == (calibration.confidence(vote) >= calibration.threshold)


@pytest.mark.parametrize("seed", range(5))
def test_probabilities_rise_with_the_score(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=200), 1)  # with ties
    right = rng.random(200) < 1 / (1 + np.exp(-scores))
    steps = _isotonic(scores, right)
    levels, chances = np.array(steps).T
    assert np.all(np.diff(levels) > 0), "interpolation needs increasing scores"
    assert np.all(np.diff(chances) >= 0)
    assert chances.min() > 0 and chances.max() < 1, "no probability is 0 or 1"


def test_pools_are_the_means_of_their_outcomes() -> None:
    """By hand: wrong, correct, wrong, correct, correct at rising scores; the second and third are pooled."""
    steps = _isotonic(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True, True]))
    base = 0.6
    expected = [(0.0, (0 + 2 * base) / 3), (1.5, (1 + 2 * base) / 4), (3.5, (2 + 2 * base) / 4)]
    # the last two have equal outcomes and form one pool
    assert [pytest.approx(step) for step in expected] == steps


def test_equal_scores_form_one_pool_in_any_order() -> None:
    scores, right = np.full(6, 0.3), np.array([False, True, True, False, True, True])
    assert _isotonic(scores, right) == _isotonic(scores, right[::-1])
    assert len(_isotonic(scores, right)) == 1


def test_the_threshold_is_the_lowest_with_few_enough_errors() -> None:
    chances = np.repeat([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95], 10)
    right = np.repeat([False, True, False, True, True, False, True, True, True, True], 10)
    ratios = np.ones(100)
    for max_wrong, expected in ((0.0, 0.7), (0.15, 0.4), (0.26, 0.2), (1.0, 0.1)):
        assert _threshold(chances, right, ratios, max_wrong) == expected
    assert _threshold(chances, np.zeros(100, bool), ratios, 0.1) > chances.max()


def test_the_threshold_rises_until_the_radius_is_finite() -> None:
    """One photo from outside among 31 makes the 95 % radius infinite; without it, 19 are enough and 18 are not."""
    chances = np.array([0.5] * 12 + [0.9] * 19)
    right = np.array([False] + [True] * 30)
    ratios = np.where(right, 1.0, math.inf)
    assert conformal_quantile(ratios) == math.inf
    assert _threshold(chances, right, ratios, 0.05) == 0.9
    assert _threshold(chances[:-1], right[:-1], ratios[:-1], 0.05) > 0.9


@pytest.mark.parametrize("max_wrong", [0.02, 0.1])
def test_the_share_of_wrong_accepted_photos_is_limited(max_wrong: float) -> None:
    found, errors = random_outcomes(np.random.default_rng(1), 600)
    calibration = fit_calibration(found, errors, "random", max_wrong)
    taken = [
        error for e, error in zip(found, errors, strict=True) if calibration.confidence(e) >= calibration.threshold
    ]
    wrong = np.mean([error > CORRECT_WITHIN_M for error in taken])
    assert len(taken) > 100 and wrong <= max_wrong
    strict = fit_calibration(found, errors, "random", max_wrong / 2)
    assert strict.threshold >= calibration.threshold


def test_the_conformal_radius_covers_new_photos() -> None:
    """Over many samples of 100, the quantile covers at least 95 % of new ones, and not many more."""
    rng = np.random.default_rng(7)
    covered = []
    for _ in range(400):
        ratios = rng.lognormal(0, 1, 101)
        covered.append(ratios[100] <= conformal_quantile(ratios[:100]))
    assert 0.925 <= np.mean(covered) <= 0.985
    exact = conformal_quantile(np.arange(1.0, 101.0))
    assert exact == 96.0, "the ceil(0.95 * 101)-th smallest"


def test_the_quantile_of_too_few_ratios_is_infinite() -> None:
    assert conformal_quantile(np.ones(18)) == math.inf and conformal_quantile(np.zeros(0)) == math.inf
    assert conformal_quantile(np.arange(19.0)) == 18.0
    assert conformal_quantile(np.array([1.0] * 38 + [math.inf])) == 1.0
    assert conformal_quantile(np.array([1.0] * 37 + [math.inf])) == math.inf


def test_a_fit_generalises_to_new_photos() -> None:
    rng = np.random.default_rng(11)
    calibration = fit_calibration(*random_outcomes(rng, 800), "random")
    found, errors = random_outcomes(rng, 4000)
    chance = np.array([calibration.confidence(e) for e in found])
    right = np.array(errors) <= CORRECT_WITHIN_M
    for low in np.arange(0.0, 1.0, 0.2):
        chosen = (chance >= low) & (chance < low + 0.2)
        if chosen.sum() > 100:
            assert abs(chance[chosen].mean() - right[chosen].mean()) < 0.08, (
                f"confidence around {low:.1f} is miscalibrated"
            )
    taken = chance >= calibration.threshold
    inside = [error <= calibration.radius(e) for e, error, t in zip(found, errors, taken, strict=True) if t]
    assert taken.mean() > 0.15 and np.mean(inside) > 0.91
    assert np.mean(~right[taken]) < 0.06


def test_more_evidence_never_lowers_the_confidence() -> None:
    calibration = fit_calibration(*random_outcomes(np.random.default_rng(2), 300), "random")
    assert all(weight >= 0 for weight in calibration.weights)
    for name, values in (("similarity", (0.3, 0.5, 0.9)), ("inliers", (0, 20, 70)), ("agreement", (0.1, 0.5, 1.0))):
        chances = [calibration.confidence(replace(evidence(0.6), **{name: float(value)})) for value in values]
        assert chances == sorted(chances) and all(0 < chance < 1 for chance in chances)


def test_matched_and_voted_photos_have_separate_radii() -> None:
    """The errors of voted photos are three times as large for their scale."""
    rng = np.random.default_rng(4)
    found, errors = [], []
    for number in range(400):
        refined = number % 2 == 0
        good = rng.random() < 0.8
        found.append(evidence(0.9 if good else 0.3, 40.0 if refined else 0.0, 10.0))
        errors.append(float(abs(rng.normal(0, 3 if refined else 9))) if good else 500.0)
    calibration = fit_calibration(found, errors, "random")
    assert 2.0 < calibration.voted.matching / calibration.refined.matching < 4.5
    assert calibration.radius(evidence(0.9, 40.0, 20.0)) == pytest.approx(calibration.refined.matching * 20.0)
    assert calibration.radius(evidence(0.9, 0.0, 20.0)) == pytest.approx(calibration.voted.matching * 20.0)


def test_photos_from_outside_have_infinite_errors_but_leave_a_finite_radius() -> None:
    good = [evidence(0.9)] * 60
    outside = [evidence(0.3)] * 40
    calibration = fit_calibration([*good, *outside], [5.0] * 60 + [math.inf] * 40, "both")
    assert calibration.confidence(good[0]) >= calibration.threshold > calibration.confidence(outside[0])
    assert calibration.refined.matching == pytest.approx(0.5)
    assert math.isinf(calibration.voted.scale), "there was no voted photo"


def test_the_radius_of_a_small_group_is_at_least_its_largest_error() -> None:
    found = [evidence(0.9)] * 60 + [evidence(0.9, 0.0)] * 8 + [evidence(0.3)] * 20
    calibration = fit_calibration(found, [5.0] * 60 + [30.0] * 8 + [math.inf] * 20, "both")
    assert calibration.refined.matching == pytest.approx(0.5) and calibration.voted.matching == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ([5.0] * 10 + [900.0] * 9, "10 of 19 are correct"),
        ([5.0] * 30, "30 of 30 are correct"),
        ([math.inf] * 30, "0 of 30 are correct"),
    ],
)
def test_too_few_or_one_sided_photos_raise(errors: list[float], words: str) -> None:
    with pytest.raises(SkyPartError, match=words):
        fit_calibration([evidence(0.5 + 0.01 * i) for i in range(len(errors))], errors, "few")


def test_uninformative_evidence_accepts_no_photo() -> None:
    """All photos have the same evidence and half are wrong."""
    calibration = fit_calibration([evidence(0.5)] * 40, [5.0] * 20 + [900.0] * 20, "same")
    assert calibration.confidence(evidence(0.5)) < calibration.threshold and calibration.refined.scale == math.inf


@pytest.mark.parametrize("infinite", [False, True])
def test_a_calibration_is_the_same_after_json(infinite: bool) -> None:
    calibration = fit_calibration(*random_outcomes(np.random.default_rng(3), 200), "a town")
    if infinite:
        calibration = Calibration(**(vars(calibration) | {"voted": GroupErrors(0.0, math.inf)}))
    text = json.dumps(calibration.to_dict(), allow_nan=False)
    again = Calibration.from_dict(json.loads(text))
    assert again == calibration
    for e in random_outcomes(np.random.default_rng(5), 20)[0]:
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
def test_a_damaged_calibration_raises(change: dict[str, Any]) -> None:
    content = fit_calibration(*random_outcomes(np.random.default_rng(3), 200), "a town").to_dict()
    with pytest.raises(SkyPartError, match="the calibration is damaged"):
        Calibration.from_dict(content | change)
    with pytest.raises(SkyPartError, match="the calibration is damaged"):
        Calibration.from_dict({name: value for name, value in content.items() if name not in change})


def test_the_default_calibration_can_be_read_and_used() -> None:
    calibration = default_calibration()
    assert 0 < calibration.threshold < 1 and calibration.refined.matching > 0
    chances = [calibration.confidence(evidence(s, i)) for s, i in ((0.1, 0.0), (0.5, 10.0), (0.95, 90.0))]
    assert chances == sorted(chances) and chances[0] < calibration.threshold


def test_the_default_calibration_belongs_to_the_default_model() -> None:
    assert default_calibration().model == load("default").digest


def test_the_floor_is_part_of_every_radius_and_is_stored() -> None:
    plain = fit_calibration(*random_outcomes(np.random.default_rng(2), 300), "random")
    floored = replace(plain, sources=ErrorSources(map_m=12.0))
    shown = evidence(0.8, 40.0, scale=5.0)
    assert floored.radius(shown) == pytest.approx(math.hypot(plain.radius(shown), 12.0))
    assert Calibration.from_dict(floored.to_dict()) == floored
    assert default_calibration().sources.map_m > 0.0


@pytest.mark.parametrize("seed", range(4))
def test_a_common_error_becomes_the_floor_and_radii_still_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found, errors, offsets = shifted_outcomes(rng, 60, (6.0, -8.0))
    calibration = fit_calibration(found, errors, "shifted", offsets=offsets)
    assert 9.8 < calibration.sources.map_m < 13.0
    assert 1.5 < calibration.refined.matching < 4.5, "individual errors of 1 m, 95 % of them within 2.4 m"
    found, errors, _ = shifted_outcomes(rng, 500, (6.0, -8.0), outside=0)
    inside = np.mean([error <= calibration.radius(e) for e, error in zip(found, errors, strict=True)])
    assert 0.9 < inside < 1.0 and calibration.radius(found[0]) < 14.0


def test_without_directions_or_a_common_error_the_floor_is_almost_zero() -> None:
    found, errors, offsets = shifted_outcomes(np.random.default_rng(1), 60, (6.0, -8.0))
    plain = fit_calibration(found, errors, "shifted")
    assert plain.sources.map_m == 0.0 and plain.refined.matching > 11.0
    assert fit_calibration(found, errors, "shifted", offsets=[(math.nan, math.nan)] * len(errors)) == plain
    found, errors, offsets = shifted_outcomes(np.random.default_rng(1), 60, (0.0, 0.0))
    assert fit_calibration(found, errors, "centred", offsets=offsets).sources.map_m < 0.6


def test_the_common_error_is_estimated_per_map() -> None:
    """Two maps that are shifted by 10 m in opposite directions have a common error of 10 m each."""
    rng = np.random.default_rng(3)
    one, other = shifted_outcomes(rng, 40, (10.0, 0.0)), shifted_outcomes(rng, 40, (-10.0, 0.0))
    found, errors, offsets = one[0] + other[0], one[1] + other[1], one[2] + other[2]
    names = ["a"] * 55 + ["b"] * 55
    assert 9.8 < fit_calibration(found, errors, "two", offsets=offsets, maps=names).sources.map_m < 13.0
    assert fit_calibration(found, errors, "two", offsets=offsets).sources.map_m < 1.0


def test_a_wrong_photo_does_not_count_for_the_common_error() -> None:
    found, errors, offsets = shifted_outcomes(np.random.default_rng(4), 99, (0.0, 5.0))
    found, errors, offsets = [evidence(0.93, scale=1.0), *found], [2_000.0, *errors], [(2_000.0, 0.0), *offsets]
    assert 4.8 < fit_calibration(found, errors, "one wrong", offsets=offsets).sources.map_m < 8.0


@pytest.mark.parametrize(("photos", "known"), [(9, False), (10, True)])
def test_the_common_error_of_a_map_needs_ten_accepted_photos(photos: int, known: bool) -> None:
    rng = np.random.default_rng(9)
    mine, others = shifted_outcomes(rng, photos, (0.0, 9.0), outside=0), shifted_outcomes(rng, 40, (0.0, 0.0))
    found, errors, offsets = mine[0] + others[0], mine[1] + others[1], mine[2] + others[2]
    names = ["small"] * photos + ["large"] * len(others[0])
    assert (fit_calibration(found, errors, "two", offsets=offsets, maps=names).sources.map_m > 8.0) == known


@pytest.mark.parametrize(("count", "limit"), [(4, math.inf), (5, 3.0), (19, 3.0), (20, 3.0)])
def test_the_radius_of_voted_photos_by_their_number(count: int, limit: float) -> None:
    """Below 5 it is infinite; below 20 it is the largest ratio of the group; from 20 on the group's own quantile."""
    found = [evidence(0.9)] * 60 + [evidence(0.9, 0.0)] * count + [evidence(0.3)] * 20
    calibration = fit_calibration(found, [5.0] * 60 + [30.0] * count + [math.inf] * 20, "both")
    assert math.isinf(calibration.voted.scale) == math.isinf(limit)
    if math.isfinite(limit):
        assert calibration.voted.matching * calibration.voted.scale == pytest.approx(limit)
    assert calibration.refined.matching == pytest.approx(0.5)


def test_a_large_group_uses_its_own_quantile_and_not_its_maximum() -> None:
    ratios = [0.1 * i for i in range(1, 41)]  # the ceil(0.95 * 41) = 39th smallest of 40 is 3.9
    found = [evidence(0.9, scale=10.0)] * 40 + [evidence(0.3)] * 20
    calibration = fit_calibration(found, [10.0 * ratio for ratio in ratios] + [math.inf] * 20, "one")
    assert calibration.refined.matching == pytest.approx(3.9)


def test_fixes_are_correct_within_50_m() -> None:
    """Photos at 50 m count as correct, photos at 51 m as wrong: only the former are accepted."""
    found = [evidence(0.9)] * 30 + [evidence(0.3)] * 30
    calibration = fit_calibration(found, [50.0] * 30 + [51.0] * 30, "edge")
    assert calibration.confidence(evidence(0.9)) >= calibration.threshold > calibration.confidence(evidence(0.3))


def test_the_floor_is_at_least_the_common_error() -> None:
    """By hand: the mean offset is (1, 0). The individual limit of 20 m covers all errors, so no floor is needed."""
    aside = 4 * 20 / 36
    offsets = [(1.0 + aside, 10.0 * (-1) ** i) for i in range(36)] + [(-19.0, 0.0)] * 4
    found = [evidence(0.9, scale=1.0)] * 40 + [evidence(0.3)] * 20
    errors = [math.hypot(*offset) for offset in offsets] + [math.inf] * 20
    missing = [(math.nan, math.nan)] * 20
    assert fit_calibration(found, errors, "by hand", offsets=[*offsets, *missing]).sources.map_m == pytest.approx(1.0)


def test_the_parts_of_the_radius_follow_tilt_and_ground_width() -> None:
    """By hand: 10 m of height at 45 degrees is 10 m of ground; 4 degrees at 100 m of ground and 30 degrees is 14 m."""
    sources = ErrorSources(map_m=15.0, height_m=10.0, camera_deg=4.0)
    oblique = replace(evidence(0.9), tilt_deg=45.0, ground_m=0.0, scale_m=3.0)
    assert sources.parts(oblique, 2.0) == pytest.approx((15.0, 10.0, 0.0, 6.0))
    low = replace(evidence(0.9), tilt_deg=30.0, ground_m=100.0)
    assert sources.parts(low, 0.0)[2] == pytest.approx(math.radians(4.0) * 200.0)
    nadir = replace(evidence(0.9), tilt_deg=90.0, ground_m=100.0)
    assert sources.parts(nadir, 0.0)[1] == 0.0
    horizon = [sources.parts(replace(evidence(0.9), tilt_deg=tilt), 0.0)[1] for tilt in (0.0, 5.0, 10.0)]
    assert len(set(horizon)) == 1 and math.isfinite(horizon[0])


def test_the_radius_is_the_hypotenuse_of_its_parts() -> None:
    found, errors = random_outcomes(np.random.default_rng(2), 300)
    calibration = fit_calibration(found, errors, "random", sources=ErrorSources(12.0, 8.0, 3.0))
    parts = calibration.error_parts(replace(found[0], tilt_deg=40.0, ground_m=90.0))
    assert min(parts.map_m, parts.terrain_m, parts.camera_m) > 0.0
    total = math.hypot(parts.map_m, parts.terrain_m, parts.camera_m, parts.matching_m)
    assert parts.total_m == pytest.approx(total)


def test_assumed_errors_do_not_change_how_many_photos_are_covered() -> None:
    """Photos without such errors get the same coverage: the fit scales the whole radius."""
    rng = np.random.default_rng(8)
    for sources in (ErrorSources(), ErrorSources(15.0, 10.0, 4.0), ErrorSources(0.1, 0.1, 0.1)):
        calibration = fit_calibration(*random_outcomes(rng, 800), "random", sources=sources)
        found, errors = random_outcomes(rng, 3000)
        taken = [e for e in zip(found, errors, strict=True) if calibration.confidence(e[0]) >= calibration.threshold]
        inside = np.mean([error <= calibration.radius(e) for e, error in taken])
        assert 0.9 < inside < 0.99


def test_evidence_unlike_that_of_the_calibration_photos_widens_the_radius() -> None:
    found, errors = random_outcomes(np.random.default_rng(2), 300)
    tilted = [replace(e, tilt_deg=50.0 + i % 40, ground_m=80.0 + i % 50) for i, e in enumerate(found)]
    calibration = fit_calibration(tilted, errors, "random", sources=ErrorSources(12.0, 8.0, 3.0))
    usual = replace(tilted[0], tilt_deg=70.0, ground_m=100.0, similarity=0.8)
    assert calibration.widening(usual) == 1.0
    low, lower = (calibration.widening(replace(usual, tilt_deg=tilt)) for tilt in (40.0, 30.0))
    assert 1.0 < low < lower
    huge = replace(usual, ground_m=5_000.0)
    assert calibration.widening(huge) == 4.0 and calibration.radius(huge) > 4.0 * calibration.radius(usual)


def test_a_widened_calibration_has_no_smaller_radius() -> None:
    """Its parts follow the larger errors; a factor below 1, fitted to photos with smaller ones, no longer counts."""
    found, errors = random_outcomes(np.random.default_rng(2), 300)
    fitted = fit_calibration(found, errors, "random", sources=ErrorSources(12.0, 8.0, 3.0))
    generous = replace(fitted, refined=replace(fitted.refined, scale=0.5))
    wide = generous.widen(ErrorSources(15.0, 20.0, 6.0))
    oblique = replace(found[0], tilt_deg=45.0, ground_m=100.0, inliers=80.0)
    parts = wide.error_parts(oblique)
    assert (parts.map_m, parts.terrain_m) == pytest.approx((15.0, 20.0 * wide.widening(oblique)))
    assert wide.refined.scale == 1.0 and wide.radius(oblique) > generous.radius(oblique)
    assert wide.voted.scale >= fitted.voted.scale and wide.threshold == fitted.threshold


def test_a_photo_unlike_those_of_the_calibration_is_known_by_its_similarity() -> None:
    found, errors = random_outcomes(np.random.default_rng(2), 300)
    calibration = fit_calibration(found, errors, "random", sources=ErrorSources(12.0, 8.0, 3.0))
    low, high = calibration.seen["similarity"]
    assert not calibration.is_unlike(low) and not calibration.is_unlike(low - 0.09 * (high - low))
    assert calibration.is_unlike(low - 0.11 * (high - low))
    assert not replace(calibration, seen={}).is_unlike(-1.0), "nothing is known of its photos"
