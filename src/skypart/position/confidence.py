"""How reliable a fix is: from evidence to a probability and a 95 % radius, or to no fix."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from skypart.errors import SkyPartError
from skypart.position.fix import Evidence

CORRECT_WITHIN_M = 50.0
"""A fix is correct if it lies within this distance of the truth."""
MAX_WRONG_SHARE = 0.03
"""Share of accepted photos that may be wrong when the threshold is chosen."""
MIN_PHOTOS = 20
"""Photos needed for a fit, and for a radius of their own group."""
MIN_GROUP = 5
"""Accepted photos below which nothing is known about the errors of a group."""
MIN_PHOTOS_PER_MAP = 10
"""Accepted photos of a map from which its common error is estimated."""
FEATURES = ("similarity", "agreement", "inliers", "inlier_share", "alignment")
"""Fields of Evidence that the confidence is computed from."""
MATCHING_VERSION = 3
"""Incremented when the matching changes: a calibration fitted to older evidence no longer applies."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """Maps evidence to confidence and radius.

    weights, offset: of a logistic score over FEATURES. steps: corners (score, probability) of a rising piecewise linear
    function. threshold: confidence below which there is no fix. refined, voted: 95 % error of photos with and without a
    patch match, in units of the evidence's `scale_m`; infinite if there were too few, so that they get no fix.
    photos: how many it was fitted to. source: which photos. floor_m: the map's own error, common to all its photos; it
    is added to every radius like the other leg of a right triangle. matching: see MATCHING_VERSION. model: digest of
    the model it was fitted for; empty in an index, which has only one.
    """

    weights: tuple[float, ...]
    offset: float
    steps: tuple[tuple[float, float], ...]
    threshold: float
    refined: float
    voted: float
    photos: int
    source: str
    floor_m: float = 0.0
    matching: int = MATCHING_VERSION
    model: str = ""

    def confidence(self, evidence: Evidence) -> float:
        """Probability that the fix lies within CORRECT_WITHIN_M of the truth."""
        score = float(features([evidence])[0] @ np.array(self.weights)) + self.offset
        scores, chances = np.array(self.steps).T
        return float(np.interp(score, scores, chances))

    def radius(self, evidence: Evidence) -> float:
        """Metres within which the truth lies for 95 % of the accepted fixes."""
        own = (self.refined if evidence.matched else self.voted) * evidence.scale_m
        return math.hypot(own, self.floor_m)

    def to_dict(self) -> dict[str, Any]:
        """Content for index.json, where null means infinite."""
        values = asdict(self)
        return values | {name: values[name] if math.isfinite(values[name]) else None for name in ("refined", "voted")}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "Calibration":
        """Read the content of index.json."""
        try:
            weights = tuple(float(weight) for weight in content["weights"])
            steps = tuple((float(score), float(chance)) for score, chance in content["steps"])
            if len(weights) != len(FEATURES) or not steps:
                raise ValueError(f"{len(weights)} weights, {len(steps)} steps")
            return Calibration(
                weights=weights,
                offset=float(content["offset"]),
                steps=steps,
                threshold=float(content["threshold"]),
                refined=math.inf if content["refined"] is None else float(content["refined"]),
                voted=math.inf if content["voted"] is None else float(content["voted"]),
                photos=int(content["photos"]),
                source=str(content["source"]),
                floor_m=float(content.get("floor_m", 0.0)),
                matching=int(content.get("matching", 1)),
                model=str(content.get("model", "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SkyPartError(f"the calibration is damaged ({error!r}); run `skypart calibrate` again") from error


@cache
def default_calibration() -> Calibration:
    """The calibration shipped with the default model; benchmarks/calibration.py makes it."""
    text = (files("skypart.position") / "default_calibration.json").read_text(encoding="utf-8")
    return Calibration.from_dict(json.loads(text))


def features(evidence: Sequence[Evidence]) -> Floats:
    """(n, len(FEATURES)) inputs of the logistic score."""
    return np.array(
        [
            [math.log1p(each.inliers) if name == "inliers" else getattr(each, name) for name in FEATURES]
            for each in evidence
        ],
        dtype=np.float64,
    ).reshape(-1, len(FEATURES))


def fit_calibration(
    evidence: Sequence[Evidence],
    errors_m: Sequence[float],
    source: str,
    max_wrong: float = MAX_WRONG_SHARE,
    offsets: ArrayLike | None = None,
    maps: Sequence[str] | None = None,
) -> Calibration:
    """Fit a calibration to located photos: their evidence, and their errors in metres (infinite outside the map).

    max_wrong: the threshold is the lowest at which at most this share of the accepted photos is wrong and enough of
    them are left for a radius. offsets: (n, 2) errors to the east and to the north, NaN where unknown; with them, the
    common error of the photos of a map becomes the floor. maps: the map of each photo, if there are several.
    """
    x, errors = features(evidence), np.asarray(errors_m, dtype=np.float64)
    correct = errors <= CORRECT_WITHIN_M
    if len(errors) < MIN_PHOTOS or not 0 < correct.sum() < len(correct):
        raise SkyPartError(
            f"calibration needs at least {MIN_PHOTOS} photos, some located correctly and some not, but "
            f"{int(correct.sum())} of {len(errors)} are correct; add photos, also from outside the map (--outside)"
        )
    weights, offset = _logistic(x, correct)
    scores = x @ weights + offset
    steps = _isotonic(scores, correct)
    chances = np.interp(scores, *np.array(steps).T)
    matched = np.array([each.matched for each in evidence])
    scales = np.array([each.scale_m for each in evidence])
    threshold = _threshold(chances, correct, errors / scales, max_wrong)
    accepted = chances >= threshold
    floor = 0.0
    if offsets is not None:
        names = np.array(maps if maps is not None else [""] * len(errors))
        own, common = _split_common_error(np.asarray(offsets, dtype=np.float64), errors, accepted & correct, names)
        covering = _covering_floor(errors[accepted], own[accepted], scales[accepted])
        floor = min(max(covering, common), 2.0 * common)  # 1.0 to 1.7 times the common error if the rest is normal
    ratios = _other_leg(errors, floor) / scales
    pooled = conformal_quantile(ratios[accepted])
    refined, voted = (_group_limit(ratios[accepted & group], pooled) for group in (matched, ~matched))
    return Calibration(
        tuple(weights.tolist()), float(offset), tuple(steps), threshold, refined, voted, len(errors), source, floor
    )


def _split_common_error(
    offsets: Floats, errors: Floats, reliable: NDArray[np.bool_], maps: NDArray[np.str_]
) -> tuple[Floats, float]:
    """(n,) errors in metres without the common error of their map, and the longest common error of a map.

    The common error of a map is the mean offset of its `reliable` photos; a map with too few of them has none.
    """
    own, longest = errors.copy(), 0.0
    known = np.isfinite(offsets).all(axis=1)
    for name in np.unique(maps):
        members = known & (maps == name)
        used = members & reliable
        if used.sum() >= MIN_PHOTOS_PER_MAP:
            mean = offsets[used].mean(axis=0)
            own[members] = np.linalg.norm(offsets[members] - mean, axis=1)
            longest = max(longest, float(np.linalg.norm(mean)))
    return own, longest


def _covering_floor(errors: Floats, own: Floats, scales: Floats) -> float:
    """The smallest floor that, combined with the 95 % limit of the `own` errors, covers 95 % of the whole errors.

    It is longer than the common error, because the two add in full where they point the same way.
    """
    limit = conformal_quantile(own / scales)
    return conformal_quantile(_other_leg(errors, limit * scales)) if math.isfinite(limit) else 0.0


def _other_leg(hypotenuse: Floats, leg: Floats | float) -> Floats:
    """The other leg of right triangles; 0 where `leg` is longer than the hypotenuse."""
    square = np.square(hypotenuse) - np.square(leg)
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


def _group_limit(ratios: Floats, pooled: float) -> float:
    """95 % limit of a group's ratios. A small group gets at least its own worst, a tiny one an infinite limit."""
    if len(ratios) >= MIN_PHOTOS:
        return conformal_quantile(ratios)
    return max(pooled, float(ratios.max())) if len(ratios) >= MIN_GROUP else math.inf


def _logistic(x: Floats, correct: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Weights and offset of a logistic regression with weak L2 regularisation, on standardised columns."""
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-6
    z, sign = (x - mean) / deviation, np.where(correct, 1.0, -1.0)

    def loss(theta: Floats) -> float:
        return float(np.logaddexp(0, -sign * (z @ theta[:-1] + theta[-1])).sum() + 0.5 * (theta[:-1] ** 2).sum())

    # More evidence never lowers the confidence.
    bounds = [(0.0, None)] * x.shape[1] + [(None, None)]
    theta = minimize(loss, np.zeros(x.shape[1] + 1), method="L-BFGS-B", bounds=bounds).x
    weights = theta[:-1] / deviation
    return weights, float(theta[-1] - mean @ weights)


def _isotonic(scores: Floats, correct: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Corners (score, probability) of the isotonic regression of the outcomes, by pooling adjacent violators.

    Each pool is shrunk towards the overall mean by two photos, so that no probability is 0 or 1.
    """
    levels, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    goods = np.bincount(place, weights=correct)
    base = float(correct.mean())
    pools: list[list[float]] = []  # sum of outcomes, count, sum of scores
    for score, good, count in zip(levels.tolist(), goods.tolist(), counts.tolist(), strict=True):
        pools.append([good, count, score * count])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    corners = [(total / size, (hits + 2 * base) / (size + 2)) for hits, size, total in pools]
    chances = np.maximum.accumulate([chance for _, chance in corners])
    return [(score, float(chance)) for (score, _), chance in zip(corners, chances, strict=True)]


def _threshold(chances: Floats, correct: NDArray[np.bool_], ratios: Floats, max_wrong: float) -> float:
    """The lowest confidence with at most `max_wrong` wrong and a finite limit of `ratios`; above all if none."""
    for chance in np.unique(chances):
        taken = chances >= chance
        if 1 - correct[taken].mean() <= max_wrong and math.isfinite(conformal_quantile(ratios[taken])):
            return float(chance)
    return float(min(chances.max() + 1e-6, 1.0))


def conformal_quantile(ratios: Floats, level: float = 0.95) -> float:
    """The smallest of `ratios` that covers `level` of new ones (split conformal prediction); infinite if too few."""
    rank = math.ceil((len(ratios) + 1) * level)
    return float(np.sort(ratios)[rank - 1]) if rank <= len(ratios) else math.inf
