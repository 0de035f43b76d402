"""How reliable a fix is: from evidence to a probability and a 95 % radius, or to no fix."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from skypart.errors import SkyPartError
from skypart.position.fix import ErrorParts, Evidence

CORRECT_WITHIN_M = 50.0
"""A fix is correct if it lies within this distance of the truth."""
MAX_WRONG_SHARE = 0.03
"""Share of accepted photos that may be wrong when the threshold is chosen."""
MIN_PHOTOS = 20
"""Photos needed for a fit, and for a radius of their own group."""
MIN_GROUP = 5
"""Accepted photos below which nothing is known about the errors of a group."""
MIN_WRONG_MATCHES = 3
"""Wrong matches from which the confidence is fitted to photos with a match only."""
MIN_PHOTOS_PER_MAP = 10
"""Accepted photos of a map from which its common error is estimated."""
FEATURES = ("similarity", "agreement", "support")
"""Fields of Evidence that the confidence is computed from."""
RANGED = ("tilt_deg", "ground_m", "similarity")
"""Fields of Evidence of which a calibration stores the range it was fitted to."""
MAX_WIDENING = 4.0
"""Factor at most on the radius of a fix whose evidence is unlike that of the calibration photos."""
UNLIKE_BELOW = 0.1
"""Share of the range of similarities by which a photo must fall below it to count as unlike the calibration photos."""
MIN_TILT_DEG = 10.0
"""Tilts below this one count as this one when errors along the line of sight are estimated."""
MATCHING_VERSION = 7
"""Incremented when the matching changes: a calibration fitted to older evidence no longer applies."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """Maps evidence to confidence and radius.

    weights, offset: of a logistic score over FEATURES. steps: corners (score, probability) of a rising piecewise linear
    function. threshold: confidence below which there is no fix. min_support: support below which a match is no fix,
    whatever its confidence. sources: the assumed 95 % errors that no photo shows.
    refined, voted: errors of photos with and without a match. photos: how many it was fitted to. source: which
    photos. seen: lowest and highest value of each field of RANGED among the accepted photos; empty: unknown.
    matching: see MATCHING_VERSION. model: digest of the model it was fitted for; empty in an index, which has only one.
    """

    weights: tuple[float, ...]
    offset: float
    steps: tuple[tuple[float, float], ...]
    threshold: float
    sources: "ErrorSources"
    refined: "GroupErrors"
    voted: "GroupErrors"
    photos: int
    source: str
    seen: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    min_support: float = 0.0
    matching: int = MATCHING_VERSION
    model: str = ""

    def confidence(self, evidence: Evidence) -> float:
        """Probability that the fix lies within CORRECT_WITHIN_M of the truth."""
        score = float(features([evidence])[0] @ np.array(self.weights)) + self.offset
        scores, chances = np.array(self.steps).T
        return float(np.interp(score, scores, chances))

    def accepts(self, evidence: Evidence) -> bool:
        """Whether the evidence is enough for a fix, if its radius is known."""
        if evidence.matched and evidence.support < self.min_support:
            return False
        return self.confidence(evidence) >= self.threshold

    def error_parts(self, evidence: Evidence) -> ErrorParts:
        """The parts of the 95 % radius in metres. They are wider for evidence unlike that of the calibration photos."""
        group = self.refined if evidence.matched else self.voted
        map_m, *others = self.sources.parts(evidence, group.matching)
        if math.isinf(group.scale):
            return ErrorParts(map_m, others[0], others[1], math.inf)
        factor = group.scale * self.widening(evidence)
        return ErrorParts(map_m, *(factor * part for part in others))

    def radius(self, evidence: Evidence) -> float:
        """Metres within which the truth lies for 95 % of the accepted fixes; infinite if unknown."""
        return self.error_parts(evidence).total_m

    def widening(self, evidence: Evidence) -> float:
        """Factor on the radius: 1 within the ranges of the calibration photos, rising outside, at most MAX_WIDENING."""
        factor = 1.0
        for name, (low, high) in self.seen.items():
            value = float(getattr(evidence, name))
            width = max(high - low, 0.05 * max(abs(low), abs(high)), 1e-6)
            factor += max(low - value, value - high, 0.0) / width
        return min(factor, MAX_WIDENING)

    def widen(self, sources: "ErrorSources") -> "Calibration":
        """This calibration for photos with larger errors than those it was fitted to.

        Its parts for terrain and camera follow `sources`, and the fitted factors only widen them.
        """
        groups = {name: getattr(self, name) for name in ("refined", "voted")}
        at_least = {name: replace(group, scale=max(group.scale, 1.0)) for name, group in groups.items()}
        return replace(self, sources=sources, **at_least)

    def is_unlike(self, similarity: float) -> bool:
        """Whether a similarity to the best view is clearly below those of the accepted calibration photos."""
        if "similarity" not in self.seen:
            return False
        low, high = self.seen["similarity"]
        return similarity < low - UNLIKE_BELOW * (high - low)

    def to_dict(self) -> dict[str, Any]:
        """Content for index.json, where null means infinite."""
        groups = {name: asdict(getattr(self, name)) for name in ("refined", "voted")}
        for values in groups.values():
            values["scale"] = values["scale"] if math.isfinite(values["scale"]) else None
        return asdict(self) | groups

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
                sources=ErrorSources(**{name: float(value) for name, value in content["sources"].items()}),
                refined=_group_from(content["refined"]),
                voted=_group_from(content["voted"]),
                photos=int(content["photos"]),
                source=str(content["source"]),
                seen={name: (float(low), float(high)) for name, (low, high) in content["seen"].items()},
                min_support=float(content.get("min_support", 0.0)),
                matching=matching_of(content),
                model=str(content.get("model", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SkyPartError(f"the calibration is damaged ({error!r}); run `skypart calibrate` again") from error


@dataclass(frozen=True)
class ErrorSources:
    """Errors that a photo does not show, as 95 % limits.

    map_m: position error of the map. height_m: heights that the map does not know, such as roofs and relief; they move
    what an oblique photo shows along the line of sight. camera_deg: error of the camera's direction from tilt, roll and
    lens; it moves the ground at the photo's centre.
    """

    map_m: float = 0.0
    height_m: float = 0.0
    camera_deg: float = 0.0

    def parts(self, evidence: Evidence, matching: float) -> tuple[float, float, float, float]:
        """(map, terrain, camera, matching) in metres, before scaling. matching: 95 % error in units of `scale_m`."""
        tilt = math.radians(min(max(evidence.tilt_deg, MIN_TILT_DEG), 90.0))
        return (
            self.map_m,
            self.height_m / math.tan(tilt) if evidence.tilt_deg < 90.0 else 0.0,
            math.radians(self.camera_deg) * evidence.ground_m / math.sin(tilt),
            matching * evidence.scale_m,
        )


ASSUMED_ERRORS = ErrorSources(map_m=15.0, height_m=20.0, camera_deg=6.0)
"""What to expect of a map and a camera that nothing is known about: web maps err by 5 to 15 m, roofs and relief by up
to 20 m, and tilt, roll and lens of a consumer drone together by 6 degrees. An earlier
radius, fitted to rendered photos alone, held the truth for 63 % of the fixes in a trial on 194 real oblique photos."""


@dataclass(frozen=True)
class GroupErrors:
    """Errors of photos with or without a match.

    matching: 95 % error of the match or vote in units of the evidence's `scale_m`. scale: factor on all parts of the
    radius but the map's that makes it cover 95 % of the calibration photos; infinite if there were too few, so that
    they get no fix.
    """

    matching: float
    scale: float


def matching_of(content: Mapping[str, Any]) -> int:
    """The version of the matching that a stored calibration was fitted to; 0 if it is damaged."""
    found = content.get("matching", 1)
    return found if isinstance(found, int) else 0


def _group_from(content: Mapping[str, Any]) -> GroupErrors:
    """Read the content of index.json, where null means infinite."""
    scale = content["scale"]
    return GroupErrors(float(content["matching"]), math.inf if scale is None else float(scale))


@cache
def default_calibration() -> Calibration:
    """The calibration shipped with the default model; benchmarks/calibration.py makes it."""
    text = (files("skypart.position") / "default_calibration.json").read_text(encoding="utf-8")
    return Calibration.from_dict(json.loads(text))


def features(evidence: Sequence[Evidence]) -> Floats:
    """(n, len(FEATURES)) inputs of the logistic score."""
    return np.array(
        [
            [math.log1p(each.support) if name == "support" else getattr(each, name) for name in FEATURES]
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
    sources: ErrorSources | None = None,
    min_support: float = 0.0,
) -> Calibration:
    """Fit a calibration to located photos: their evidence, and their errors in metres (infinite outside the map).

    max_wrong: the threshold is the lowest at which at most this share of the accepted photos is wrong and enough of
    them are left for a radius. offsets: (n, 2) errors to the east and to the north, NaN where unknown; with them, the
    common error of the photos of a map becomes the map's part of the radius. maps: the map of each photo, if there are
    several. sources: errors that the photos or the user's own do not show; the fit scales them to the errors found.
    min_support: see `Calibration`.
    """
    x, errors = features(evidence), np.asarray(errors_m, dtype=np.float64)
    sources = sources or ErrorSources()
    correct = errors <= CORRECT_WITHIN_M
    if len(errors) < MIN_PHOTOS or not 0 < correct.sum() < len(correct):
        raise SkyPartError(
            f"calibration needs at least {MIN_PHOTOS} photos, some located correctly and some not, but "
            f"{int(correct.sum())} of {len(errors)} are correct; add photos, also from outside the map (--outside)"
        )
    matched = np.array([each.matched for each in evidence])
    # Photos without a match are easy to tell apart; they would drown the few wrong matches that matter.
    telling = matched if (matched & ~correct).sum() >= MIN_WRONG_MATCHES else np.ones_like(matched)
    weights, offset = _logistic(x[telling], correct[telling])
    scores = x @ weights + offset
    steps = _isotonic(scores, correct)
    chances = np.interp(scores, *np.array(steps).T)
    scales = np.array([each.scale_m for each in evidence])
    allowed = ~matched | (np.array([each.support for each in evidence]) >= min_support)
    threshold = _threshold(chances[allowed], correct[allowed], (errors / scales)[allowed], max_wrong)
    accepted = allowed & (chances >= threshold)
    if offsets is not None:
        names = np.array(maps if maps is not None else [""] * len(errors))
        own, common = _split_common_error(np.asarray(offsets, dtype=np.float64), errors, accepted & correct, names)
        covering = _covering_floor(errors[accepted], own[accepted], scales[accepted])
        floor = min(max(covering, common), 2.0 * common)  # 1.0 to 1.7 times the common error if the rest is normal
        sources = replace(sources, map_m=floor)
    parts = np.array([sources.parts(each, 0.0) for each in evidence])
    sight = np.hypot(parts[:, 1], parts[:, 2])
    beyond = _other_leg(errors, sources.map_m)
    limits = _other_leg(beyond, sight) / scales
    pooled = conformal_quantile(limits[accepted])
    refined, voted = (
        _fit_group(beyond, sight, scales, limits, accepted & group, pooled) for group in (matched, ~matched)
    )
    return Calibration(
        weights=tuple(weights.tolist()),
        offset=float(offset),
        steps=tuple(steps),
        threshold=threshold,
        sources=sources,
        refined=refined,
        voted=voted,
        photos=len(errors),
        source=source,
        min_support=min_support,
        seen=_ranges([each for each, taken in zip(evidence, accepted & correct, strict=True) if taken]),
    )


def _fit_group(
    errors: Floats, sight: Floats, scales: Floats, limits: Floats, members: NDArray[np.bool_], pooled: float
) -> GroupErrors:
    """The errors of a group of photos: the part of the match, then the factor that makes the radius cover 95 %.

    errors: (n,) metres that the map's error leaves. sight: (n,) metres along the line of sight, of terrain and camera.
    limits: (n,) what these leave of each error, in units of `scales`.
    """
    count = int(members.sum())
    if count < MIN_GROUP:
        return GroupErrors(0.0, math.inf)
    matching = _group_limit(limits[members], pooled)
    if not math.isfinite(matching):
        return GroupErrors(0.0, math.inf)
    radius = np.hypot(sight[members], matching * scales[members])
    return GroupErrors(matching, _group_limit(errors[members] / np.maximum(radius, 1e-9), 1.0))


def _ranges(evidence: Sequence[Evidence]) -> dict[str, tuple[float, float]]:
    """The range of each field of RANGED, without the outermost 1 % on either side."""
    found = {}
    for name in RANGED if len(evidence) >= MIN_PHOTOS else ():
        low, high = np.quantile([getattr(each, name) for each in evidence], [0.01, 0.99])
        found[name] = (float(low), float(high))
    return found


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
