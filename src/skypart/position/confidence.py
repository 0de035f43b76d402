"""How far to trust a fix: evidence -> probability -> 95 % radius, or no fix."""

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

RIGHT_M = 50.0
"""A fix is called right if it lies within this distance of the truth."""
MOST_WRONG = 0.03
"""Share of accepted photos that may be wrong when a threshold is chosen."""
_ENOUGH_OF_A_MAP = 10
"""Accepted photos of a map from which on their common error is known."""
FEATURES = ("similarity", "agreement", "inliers", "inlier_share", "alignment")
Floats = NDArray[np.float64]


MATCHING = 3
"""Raised when photos are matched in another way: a calibration of evidence gathered before does not fit any more."""


@dataclass(frozen=True)
class Calibration:
    """From evidence to confidence and radius.

    weights, offset: of a logistic score over FEATURES. steps: (score, probability) corners of a rising line.
    threshold: confidence below which there is no fix. refined, voted: 95 % error in units of the fix's own scale;
    infinite where too few photos were such to say, and such a photo gets no fix. photos: how many it was fitted on.
    source: what they were. floor_m: the map's own error, which all photos of it share; joins every radius as the other
    leg of a right triangle. matching: see MATCHING. model: digest of the model it was fitted with, where it may be used
    with others.
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
    matching: int = MATCHING
    model: str = ""

    def confidence(self, evidence: Mapping[str, float]) -> float:
        """Probability that the fix lies within RIGHT_M of the truth."""
        score = float(features([evidence])[0] @ np.array(self.weights)) + self.offset
        scores, chances = np.array(self.steps).T
        return float(np.interp(score, scores, chances))

    def radius(self, evidence: Mapping[str, float]) -> float:
        """Metres within which the truth lies in 95 of 100 accepted fixes."""
        own = (self.refined if evidence["inliers"] > 0 else self.voted) * evidence["scale_m"]
        return math.hypot(own, self.floor_m)

    def to_dict(self) -> dict[str, Any]:
        """For index.json, in which null stands for infinite."""
        values = asdict(self)
        return values | {name: values[name] if math.isfinite(values[name]) else None for name in ("refined", "voted")}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "Calibration":
        """From index.json."""
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
    """The one that comes with the default model; see benchmarks/calibration.py."""
    text = (files("skypart.position") / "default_calibration.json").read_text(encoding="utf-8")
    return Calibration.from_dict(json.loads(text))


def features(evidence: Sequence[Mapping[str, float]]) -> Floats:
    """(n, len(FEATURES)) numbers that the score is linear in."""
    return np.array(
        [[math.log1p(each["inliers"]) if name == "inliers" else each[name] for name in FEATURES] for each in evidence],
        dtype=np.float64,
    ).reshape(-1, len(FEATURES))


def fit(
    evidence: Sequence[Mapping[str, float]],
    errors_m: Sequence[float],
    source: str,
    most_wrong: float = MOST_WRONG,
    offsets: ArrayLike | None = None,
    maps: Sequence[str] | None = None,
) -> Calibration:
    """A calibration from located photos: their evidence, and their errors in metres (infinite outside the map).

    most_wrong: the threshold is the lowest at which at most this share of the accepted photos is wrong, and enough are
    right to say a radius. offsets: (n, 2) errors to the east and the north, NaN where not known; with them, what the
    photos of a map have in common becomes the floor. maps: each photo's map, if not all are of one.
    """
    x, errors = features(evidence), np.asarray(errors_m, dtype=np.float64)
    right = errors <= RIGHT_M
    if len(errors) < 20 or not 0 < right.sum() < len(right):
        raise SkyPartError(
            f"calibration needs at least 20 photos, some located rightly and some not; there are {len(errors)}, "
            f"{int(right.sum())} right: add photos, also from outside the map (--outside)"
        )
    weights, offset = _logistic(x, right)
    scores = x @ weights + offset
    steps = _isotonic(scores, right)
    chances = np.interp(scores, *np.array(steps).T)
    matched = np.array([e["inliers"] > 0 for e in evidence])
    scales = np.array([e["scale_m"] for e in evidence])
    threshold = _threshold(chances, right, errors / scales, most_wrong)
    accepted = chances >= threshold
    floor = 0.0
    if offsets is not None:
        names = np.array(maps if maps is not None else [""] * len(errors))
        own, shared = _shared(np.asarray(offsets, dtype=np.float64), errors, accepted, right, names)
        least = _least_floor(errors[accepted], own[accepted], scales[accepted])
        floor = min(max(least, shared), 2.0 * shared)  # 1.0 to 1.7 times the shared error where the rest is normal
    every = _legs(errors, floor) / scales
    pooled = conformal(every[accepted])
    groups = [every[accepted & chosen] for chosen in (matched, ~matched)]
    refined, voted = (_limit(group, pooled) for group in groups)
    return Calibration(
        tuple(weights.tolist()), float(offset), tuple(steps), threshold, refined, voted, len(errors), source, floor
    )


def _shared(
    offsets: Floats, errors: Floats, accepted: NDArray[np.bool_], right: NDArray[np.bool_], maps: NDArray[np.str_]
) -> tuple[Floats, float]:
    """(n,) errors in metres without what a map's photos have in common, and the longest such common error.

    A map's is the mean of its accepted photos that are right; one with few of them has none.
    """
    own, longest = errors.copy(), 0.0
    known = np.isfinite(offsets).all(axis=1)
    for name in np.unique(maps):
        mine = known & (maps == name)
        shown = mine & accepted & right
        if shown.sum() >= _ENOUGH_OF_A_MAP:
            mean = offsets[shown].mean(axis=0)
            own[mine] = np.linalg.norm(offsets[mine] - mean, axis=1)
            longest = max(longest, float(np.linalg.norm(mean)))
    return own, longest


def _least_floor(errors: Floats, own: Floats, scales: Floats) -> float:
    """The least floor that, joined to the 95 % limit of the `own` errors, covers 95 % of the whole ones.

    A common error adds to another in full where both point the same way, so it is more than the common error's length.
    """
    limit = conformal(own / scales)
    return conformal(_legs(errors, limit * scales)) if math.isfinite(limit) else 0.0


def _legs(longest: Floats, other: Floats | float) -> Floats:
    """Legs of right triangles, by their longest side and the other leg; 0 where that is the longer."""
    square = np.square(longest) - np.square(other)
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


def _limit(group: Floats, pooled: float) -> float:
    """95 % limit of a group's ratios; of a small one at least its own worst, of a tiny one nothing can be said."""
    if len(group) >= 20:
        return conformal(group)
    return max(pooled, float(group.max())) if len(group) >= 5 else math.inf


def _logistic(x: Floats, right: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Weights and offset of a logistic regression with a mild pull to zero, on standardised columns."""
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-6
    z, sign = (x - mean) / deviation, np.where(right, 1.0, -1.0)

    def loss(theta: Floats) -> float:
        return float(np.logaddexp(0, -sign * (z @ theta[:-1] + theta[-1])).sum() + 0.5 * (theta[:-1] ** 2).sum())

    # More of any evidence never counts against a fix.
    bounds = [(0.0, None)] * x.shape[1] + [(None, None)]
    theta = minimize(loss, np.zeros(x.shape[1] + 1), method="L-BFGS-B", bounds=bounds).x
    weights = theta[:-1] / deviation
    return weights, float(theta[-1] - mean @ weights)


def _isotonic(scores: Floats, right: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Corners (score, probability) of the rising function nearest to the outcomes, by pooling adjacent violators.

    Each pool is pulled towards the mean by two photos, so that none claims certainty.
    """
    levels, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    goods = np.bincount(place, weights=right)
    base = float(right.mean())
    pools: list[list[float]] = []  # sum of outcomes, count, sum of scores
    for score, good, count in zip(levels.tolist(), goods.tolist(), counts.tolist(), strict=True):
        pools.append([good, count, score * count])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    corners = [(total / size, (hits + 2 * base) / (size + 2)) for hits, size, total in pools]
    chances = np.maximum.accumulate([chance for _, chance in corners])
    return [(score, float(chance)) for (score, _), chance in zip(corners, chances, strict=True)]


def _threshold(chances: Floats, right: NDArray[np.bool_], ratios: Floats, most_wrong: float) -> float:
    """The lowest confidence from which on at most `most_wrong` are wrong and `ratios` have a limit; else above all."""
    for chance in np.unique(chances):
        taken = chances >= chance
        if 1 - right[taken].mean() <= most_wrong and math.isfinite(conformal(ratios[taken])):
            return float(chance)
    return float(min(chances.max() + 1e-6, 1.0))


def conformal(ratios: Floats, level: float = 0.95) -> float:
    """The smallest of `ratios` that covers `level` of new ones, by split conformal prediction; infinite if too few."""
    rank = math.ceil((len(ratios) + 1) * level)
    return float(np.sort(ratios)[rank - 1]) if rank <= len(ratios) else math.inf
