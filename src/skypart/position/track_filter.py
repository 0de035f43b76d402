"""Filter the fixes of a flight into a track: a Gaussian mixture filter, and a smoother that lets later photos correct
earlier positions.

The state is a set of hypotheses, each a possible track, and the possibility that the drone is anywhere on the map. A
photo's observations are either right or wrong; every hypothesis is continued both ways until others outweigh it. The
filter is deterministic: equal fixes give equal tracks.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.position.clock_check import ClockCheck
from skypart.position.fix import Fix, Hints
from skypart.position.hypotheses import (
    NONE,
    RADIUS_95,
    Floats,
    Hypotheses,
    Ints,
    MeasuredVelocity,
    Motion,
    Observation,
    chi_square,
    concatenate,
    log_density,
    merge,
    moments,
    new_hypothesis,
    no_hypotheses,
    observations_from_fix,
    predict,
    protection_radius,
    radius_95,
    squared_distance,
    update,
    update_velocity,
)
from skypart.position.odometer import VelocityCheck
from skypart.position.track import Source, TrackOptions, TrackPoint
from skypart.position.window import Window, candidates_of

MAX_LOG_ODDS = math.log(20.0)
"""The most that one fully trusted photo adds to the log weight of a hypothesis."""
MAX_HYPOTHESES = 48
MAX_LOG_RATIO = 25.0
"""Hypotheses lighter than the best one by more than this log ratio are dropped."""
MIN_NOVELTY = 0.05
"""Novelty of a photo taken immediately after another."""
GATE = 15.2
"""Squared Mahalanobis distance above which an observation contradicts a hypothesis: 0.05 % of the right ones
(chi-square with two degrees of freedom)."""
DOUBT = 1.0
"""Variance, m^2/s^2, by which a hypothesis grows unsure of its velocity when a measured one contradicts it."""
CLUSTER_DISTANCE = 9.0
"""Squared Mahalanobis distance from the best hypothesis within which others count for the same place."""
REACH_SIGMAS = 3.0
"""Standard deviations that are added to the distance a drone can fly."""
WINDOW_AFTER_S = 2.0
"""Seconds without a fix after which photos are aligned together."""
OUTSIDE_ODDS = 2.0
"""How much likelier a photo gets no fix outside the map than on it; half of those in bad weather get none."""
OUTSIDE_PHOTO_S = 1.0
"""Seconds between photos from which each counts in full as evidence of being outside."""
CONFIRMED_FIXES = 3
"""Fixes that confirm a track. Shorter tracks are dropped as false starts if there is a confirmed one."""


@dataclass(frozen=True)
class Step:
    """A step of the filter as the smoother needs it.

    parent, observation: of each hypothesis, see Hypotheses. best: index of the best hypothesis, or NONE. velocity: that
    was measured. photo: False for a step between photos.
    """

    time_s: float
    observations: tuple[Observation, ...]
    parent: Ints
    observation: Ints
    best: int
    confidence: float
    velocity: MeasuredVelocity | None = None
    photo: bool = True


Inside: TypeAlias = Callable[[float, float], bool]
"""Whether a latitude and longitude lie on the map."""


def _spread_points() -> Floats:
    """(24, 2) points that spread evenly over a normal law in two dimensions, in standard deviations."""
    radii = np.sqrt(-2.0 * np.log1p(-np.array([1.0, 3.0, 5.0]) / 6.0))
    angles = np.arange(8) * math.pi / 4.0
    return np.concatenate([radius * np.stack([np.cos(angles), np.sin(angles)], axis=1) for radius in radii])


SPREAD = _spread_points()


def motion_of(options: TrackOptions) -> Motion:
    """The motion model of a filter with these options."""
    return Motion(options.max_speed, options.max_acceleration, options.slow_s, options.drift_s)


class TrackFilter:
    """Takes the fixes of a flight one by one, in order of time.

    frame: metric frame of the map. inside: whether a place is on the map; everywhere by default. record: keep every
    step for `smooth_track`; a live flight does not need it.
    """

    def __init__(
        self, options: TrackOptions, frame: LocalFrame, inside: Inside | None = None, *, record: bool = True
    ) -> None:
        self.options, self.frame = options, frame
        self.motion = motion_of(options)
        self.steps: list[Step] = []
        self.map_error_m = 0.0
        self._inside, self._record, self._checks = inside, record, True
        self._anchor: float | None = None  # time of the last fix that was used
        self._compared: float | None = None  # time of the last photo that was compared with the map
        self._without_fix = 0.0  # photos since the last fix that was used; those close in time count in part
        self._driven = False  # whether a velocity was measured at the last step
        self._hypotheses = no_hypotheses(self.motion.size)
        self._log_unknown = 0.0  # log weight of "anywhere on the map"
        self._time: float | None = None
        self._last_observed: float | None = None
        self._observations: tuple[Observation, ...] = ()  # of the last step
        self._check, self._clock, self._joined = VelocityCheck(), ClockCheck(), False
        self._window = Window(options.area_km2 * 1e6, options.window_s) if options.window_s > 0 else None

    def step(
        self, time_s: float, fix: Fix | None, velocity: MeasuredVelocity | None = None, hints: Hints | None = None
    ) -> TrackPoint:
        """The position at `time_s`, given the photo's fix and a measured velocity, where there are any.

        hints: of the photo's camera; a window of photos needs them if the drone is followed.
        """
        checked = self._checked(time_s, velocity)
        velocity = self._steering(velocity, checked)
        before, after = self._hypotheses, self._predict(time_s, velocity)
        novelty = self._novelty(time_s)
        self._count_photo(time_s, fix)
        drone = self.options.follow == "drone"
        observations = observations_from_fix(fix, self.frame, novelty, self.options.slow_share, drone)
        if observations:
            self._check.add(time_s, observations[0])
            self._clock.add(time_s, observations[0])
        observations += self._align(time_s, fix, velocity or checked, hints)
        if fix is not None:
            self.map_error_m = max(self.map_error_m, fix.map_error_m)
        if observations:
            after = replace(after, misses=after.misses + novelty)
            seconds = time_s - self._time if self._time is not None else 0.0
            leak = math.log(novelty) - MAX_LOG_ODDS * max(self.options.recover_after - 1, 0.5)
            total = float(np.logaddexp.reduce([self._log_unknown, *after.log_weight]))
            self._log_unknown = float(np.logaddexp(self._log_unknown, total + leak))
            after = self._branch(before, after, observations, seconds)
            self._last_observed = time_s
        self._time, self._observations = time_s, observations
        self._hypotheses = self._prune(merge(after, MAX_HYPOTHESES, MAX_LOG_RATIO))
        point, best = self._report(time_s, fix)
        self._append(time_s, observations, best, point.confidence, velocity, photo=True)
        return point

    def _count_photo(self, time_s: float, fix: Fix | None) -> None:
        """Count a photo that was compared with the map; one whose fix is used begins anew, see `_report`."""
        if fix is not None and fix.evidence is not None:
            seconds = math.inf if self._compared is None else time_s - self._compared
            self._without_fix += min(1.0, seconds / OUTSIDE_PHOTO_S)
            self._compared = time_s

    def _align(
        self, time_s: float, fix: Fix | None, velocity: MeasuredVelocity | None, hints: Hints | None
    ) -> tuple[Observation, ...]:
        """Where this photo and those before it were taken, if they tell together; they are used once only."""
        if self._window is None:
            return ()
        self._window.move(time_s, velocity)
        candidates = candidates_of(fix, self.frame, hints, drone=self.options.follow == "drone")
        if candidates is None:
            return ()
        self._window.add(time_s, candidates)
        if self._anchor is not None and time_s - self._anchor < WINDOW_AFTER_S:
            return ()
        found = self._window.align()
        if found is None:
            return ()
        self._window.clear()
        return (found,)

    def drive(self, time_s: float, velocity: MeasuredVelocity | None) -> TrackPoint:
        """The position at `time_s`, between photos, given a measured velocity, if there is one."""
        checked = self._checked(time_s, velocity)
        velocity = self._steering(velocity, checked)
        self._hypotheses = self._predict(time_s, velocity)
        self._time, self._observations = time_s, ()
        if self._window is not None:
            self._window.move(time_s, velocity or checked)
        if len(self._hypotheses):
            self._hypotheses = self._prune(self._hypotheses)
        point, best = self._report(time_s, None)
        self._append(time_s, (), best, point.confidence, velocity, photo=False)
        return point

    def _checked(self, time_s: float, velocity: MeasuredVelocity | None) -> MeasuredVelocity | None:
        """A measured velocity as certain as its clock allows; None if fixes contradict it."""
        if self._checks:
            self._check.move(time_s, velocity)
        self._clock.move(time_s, velocity)
        return self._check.trusted(self._clock.widened(velocity))

    def _steering(self, given: MeasuredVelocity | None, checked: MeasuredVelocity | None) -> MeasuredVelocity | None:
        """The velocity that moves the track: that of another clock only once the clock is confirmed.

        Its error would last for as long as the clock is off, which no noise of single measurements describes. The
        motion model alone is wider and stays right.
        """
        if checked is not None and (not checked.own_clock or self._clock.confirmed):
            return checked
        return None if given is None else given.instead

    @property
    def clock_offset_s(self) -> float | None:
        """How late measured velocities are, by the fixes; None while these do not tell, or it is next to nothing."""
        return self._clock.offset_s

    def join_clock(self, offset_s: float) -> None:
        """Go on with velocities whose times were corrected by an offset."""
        self._clock.shift(offset_s)
        if not self._joined:  # a second correction is no reason to trust velocities that fixes contradicted
            self._check, self._joined = VelocityCheck(), True

    def branch(self) -> "TrackFilter":
        """A copy that can be driven ahead while this filter stays; it records nothing and aligns no photos."""
        ahead = copy.copy(self)
        ahead._record, ahead._checks, ahead._window = False, False, None
        ahead._clock = self._clock.copy()
        return ahead

    def peek(self, time_s: float, velocities: Sequence[tuple[float, MeasuredVelocity]] = ()) -> TrackPoint:
        """The position at a later time, after velocities measured until then; the filter itself does not move on."""
        ahead = self.branch()
        for moment, velocity in velocities:
            if self._time is None or moment > self._time:
                ahead.drive(moment, velocity)
        now = time_s if ahead._time is None else max(time_s, ahead._time)
        return ahead._peek_at(now)

    def _peek_at(self, time_s: float) -> TrackPoint:
        if time_s == self._time:
            return self._report(time_s, None)[0]
        driven = self._driven
        self._hypotheses = self._predict(time_s, None)
        self._time, self._driven, self._observations = time_s, driven, ()
        if len(self._hypotheses):
            self._hypotheses = self._prune(self._hypotheses)
        return self._report(time_s, None)[0]

    @property
    def velocity_passes(self) -> bool:
        """Whether measured velocities agree with the fixes; if not, they are left out."""
        return self._check.passes

    @property
    def time_s(self) -> float | None:
        """Time of the last step."""
        return self._time

    def _append(
        self,
        time_s: float,
        observations: tuple[Observation, ...],
        best: int,
        confidence: float,
        velocity: MeasuredVelocity | None,
        photo: bool,
    ) -> None:
        if self._record:
            found = self._hypotheses
            self.steps.append(
                Step(time_s, observations, found.parent, found.observation, best, confidence, velocity, photo)
            )

    def _predict(self, time_s: float, velocity: MeasuredVelocity | None) -> Hypotheses:
        if not math.isfinite(time_s) or (self._time is not None and time_s < self._time):
            raise SkyPartError(f"photos must be in order of time, but {time_s} s follows {self._time} s; sort them")
        self._driven = velocity is not None
        seconds = time_s - self._time if self._time is not None else 0.0
        ahead = predict(self._hypotheses, self.motion, seconds)
        return ahead if velocity is None else update_velocity(ahead, velocity, self.motion, GATE, DOUBT)

    def _novelty(self, time_s: float) -> float:
        """How much a photo adds to the last one with observations, MIN_NOVELTY..1, by the time between them."""
        if self._last_observed is None or self.options.error_memory_s == 0:
            return 1.0
        return min(1.0, max(MIN_NOVELTY, (time_s - self._last_observed) / self.options.error_memory_s))

    def _branch(
        self, before: Hypotheses, after: Hypotheses, observations: tuple[Observation, ...], seconds: float
    ) -> Hypotheses:
        """Every hypothesis without and with each observation, and new ones that start at an observation."""
        groups = [after]
        for number, observation in enumerate(observations):
            log_odds = math.log(self.options.area_km2 * 1e6) + log_density(after, observation)
            fits = (log_odds > 0.0) & (chi_square(after, observation) <= GATE)
            possible = fits & self._can_reach(before, observation, seconds)
            updated = update(after.take(possible), observation, number, self.motion)
            gain = observation.trust * np.minimum(log_odds[possible], observation.votes * MAX_LOG_ODDS)
            groups.append(replace(updated, log_weight=updated.log_weight + gain))
            # One fix alone is as likely as being anywhere; photos aligned together count for as much as they told.
            told = observation.votes if observation.photos > 1 else 0.0
            log_weight = self._log_unknown + (observation.trust - 1.0 + told) * MAX_LOG_ODDS
            groups.append(new_hypothesis(observation, number, log_weight, self.motion))
        return concatenate(groups)

    def _can_reach(self, before: Hypotheses, observation: Observation, seconds: float) -> NDArray[np.bool_]:
        """(n,) whether a drone could have flown from each hypothesis to the observation in this time."""
        distance = np.linalg.norm(before.mean[:, :2] - observation.position, axis=1)
        variance = np.trace(before.covariance[:, :2, :2], axis1=1, axis2=2) / 2.0
        deviation = np.sqrt(variance) + math.sqrt(observation.total_variance)
        return np.asarray(distance <= self.options.max_speed * seconds + REACH_SIGMAS * deviation)

    def _prune(self, hypotheses: Hypotheses) -> Hypotheses:
        """Drop hypotheses that are contradicted or too uncertain; their weight goes to "anywhere"."""
        radii = np.array([radius_95(each[:2, :2]) for each in hypotheses.covariance])
        coasting = hypotheses.observation == NONE
        dropped = (coasting & (radii > self.options.lost_radius_m)) | (hypotheses.misses >= self.options.lost_after)
        log_unknown = float(np.logaddexp.reduce([self._log_unknown, *hypotheses.log_weight[dropped]]))
        left = hypotheses.take(~dropped)
        total = float(np.logaddexp.reduce([log_unknown, *left.log_weight]))
        self._log_unknown = log_unknown - total
        return replace(left, log_weight=left.log_weight - total)

    def _report(self, time_s: float, fix: Fix | None) -> tuple[TrackPoint, int]:
        """The current position, and the index of the best hypothesis."""
        if len(self._hypotheses) == 0:
            return TrackPoint(time_s=time_s, raw=fix), NONE
        best = int(np.argmax(self._hypotheses.log_weight))
        log_weight, mean, covariance = _cluster_moments(self._hypotheses, best)
        confidence, radius = min(1.0, math.exp(log_weight)), radius_95(covariance[:2, :2])
        matched = bool(self._hypotheses.observation[best] != NONE)
        if matched:
            self._anchor, self._without_fix = time_s, 0.0
        if confidence < self.options.min_confidence or radius > self.options.lost_radius_m:
            return TrackPoint(time_s=time_s, raw=fix), NONE
        place = self.frame.to_degrees(mean[0], mean[1])
        latitude, longitude = float(place.latitude), float(place.longitude)
        age = 0.0 if self._anchor is None else time_s - self._anchor
        extra = (self.map_error_m / RADIUS_95) ** 2
        if age > self.options.outside_s and self._has_left(mean[:2], covariance[:2, :2] + extra * np.eye(2)):
            return TrackPoint(time_s=time_s, raw=fix), NONE
        risk = self.options.integrity_risk
        protection = protection_radius(self._hypotheses, mean[:2], self._log_unknown, risk, extra)
        source: Source = "dead reckoning" if self._driven else "carried on"
        if matched:
            source = _source_of(self._observations, int(self._hypotheses.observation[best]))
        point = TrackPoint(
            time_s=time_s,
            latitude=latitude,
            longitude=longitude,
            radius_m=radius,
            confidence=confidence,
            state="tracking" if matched else "coasting",
            raw=fix,
            source=source,
            anchor_age_s=age,
            covariance=(float(covariance[0, 0]) + extra, float(covariance[0, 1]), float(covariance[1, 1]) + extra),
            protection_m=protection if math.isfinite(protection) else None,
            velocity_east=float(mean[2]),
            velocity_north=float(mean[3]),
            of=self.options.follow,
        )
        return point, best

    def _has_left(self, mean: Floats, covariance: Floats) -> bool:
        """Whether the position, (2,) with covariance (2, 2), is more likely outside the map than on it.

        Photos that were compared with the map and got no fix speak for it.
        """
        if self._inside is None:
            return False
        places = self.frame.to_degrees(*(mean + SPREAD @ np.linalg.cholesky(covariance).T).T)
        on_map = [
            self._inside(*place) for place in zip(places.latitude.tolist(), places.longitude.tolist(), strict=True)
        ]
        outside = 1.0 - sum(on_map) / len(on_map)
        odds = math.exp(min(self._without_fix, 60.0) * math.log(OUTSIDE_ODDS))
        return outside * odds >= 1.0 - outside


def _source_of(observations: Sequence[Observation], number: int) -> Source:
    """The source of a position that an observation anchors."""
    return "window" if 0 <= number < len(observations) and observations[number].photos > 1 else "matched"


def _cluster_moments(hypotheses: Hypotheses, best: int) -> tuple[float, Floats, Floats]:
    """Log weight, mean and covariance of all hypotheses at the same place as the best."""
    difference = hypotheses.mean[:, :2] - hypotheses.mean[best, :2]
    spread = hypotheses.covariance[:, :2, :2] + hypotheses.covariance[best, :2, :2]
    return moments(hypotheses.take(squared_distance(difference, spread) < CLUSTER_DISTANCE))


def smooth_track(
    points: Sequence[TrackPoint], steps: Sequence[Step], options: TrackOptions, frame: LocalFrame
) -> list[TrackPoint]:
    """The points of a whole flight, each corrected by the photos after it.

    points: results of a TrackFilter, one per photo. steps: its records, also of steps between photos.
    """
    motion = motion_of(options)
    result = [TrackPoint(time_s=point.time_s, raw=point.raw) for point in points]
    photo_number = dict(zip((i for i, step in enumerate(steps) if step.photo), range(len(points)), strict=True))
    for chain in _bridge_gaps(_confirmed_chains(steps), steps, options):
        means, covariances = _smooth_chain(chain, motion)
        places = frame.to_degrees(means[:, 0], means[:, 1])
        for i, link in enumerate(chain):
            radius = radius_95(covariances[i, :2, :2])
            number = photo_number.get(link.index)
            if number is not None and radius <= options.lost_radius_m:
                matched = link.observation is not None
                result[number] = replace(
                    result[number],
                    latitude=float(places.latitude[i]),
                    longitude=float(places.longitude[i]),
                    radius_m=radius,
                    confidence=link.confidence,
                    state="tracking" if matched else "coasting",
                    source=link.source,
                    anchor_age_s=points[number].anchor_age_s,
                    covariance=(
                        float(covariances[i, 0, 0]),
                        float(covariances[i, 0, 1]),
                        float(covariances[i, 1, 1]),
                    ),
                    protection_m=points[number].protection_m,
                    velocity_east=float(means[i, 2]),
                    velocity_north=float(means[i, 3]),
                    of=options.follow,
                )
    return result


@dataclass(frozen=True)
class _Link:
    """One step of a chain: its index and time, the observation and velocity used, and the track's final confidence."""

    index: int
    time_s: float
    observation: Observation | None
    confidence: float
    velocity: MeasuredVelocity | None

    @property
    def source(self) -> Source:
        """Where its position comes from."""
        if self.observation is not None:
            return _source_of([self.observation], 0)
        return "carried on" if self.velocity is None else "dead reckoning"


def _confirmed_chains(steps: Sequence[Step]) -> list[list[_Link]]:
    """Tracks from start to end, in order of time, traced back from the best hypothesis at each end.

    If one of them was confirmed, shorter ones are dropped as false starts.
    """
    chains: list[list[_Link]] = []
    chain: list[_Link] = []
    current, confidence = NONE, 0.0
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if current == NONE:
            current, confidence = step.best, step.confidence
            if current == NONE:
                continue
        number = int(step.observation[current])
        used = None if number == NONE else step.observations[number]
        chain.append(_Link(index, step.time_s, used, confidence, step.velocity))
        current = int(step.parent[current])
        if current == NONE:
            chains.append(chain[::-1])
            chain = []
    longest = max((_count_fixes(chain) for chain in chains), default=0)
    return [chain for chain in chains[::-1] if _count_fixes(chain) >= min(CONFIRMED_FIXES, longest)]


def _count_fixes(chain: Sequence[_Link]) -> int:
    return sum(link.observation is not None for link in chain)


def _bridge_gaps(chains: Sequence[list[_Link]], steps: Sequence[Step], options: TrackOptions) -> list[list[_Link]]:
    """Chains joined across gaps that a drone could have flown, so that both ends determine the path between."""
    joined: list[list[_Link]] = []
    for chain in chains:
        if joined and _can_fly_between(joined[-1], chain, options.max_speed):
            gap = range(joined[-1][-1].index + 1, chain[0].index)
            joined[-1] += [_Link(i, steps[i].time_s, None, chain[0].confidence, steps[i].velocity) for i in gap]
            joined[-1] += chain
        else:
            joined.append(list(chain))
    return joined


def _can_fly_between(first: Sequence[_Link], second: Sequence[_Link], max_speed: float) -> bool:
    """Whether a drone could have flown from the last fix of one chain to the first fix of the next."""
    last, start = [link for link in first if link.observation is not None][-1], second[0]
    assert last.observation is not None and start.observation is not None  # a chain starts at an observation
    distance = math.dist(last.observation.position, start.observation.position)
    deviation = math.sqrt(last.observation.total_variance) + math.sqrt(start.observation.total_variance)
    return distance <= max_speed * (start.time_s - last.time_s) + REACH_SIGMAS * deviation


def _smooth_chain(chain: Sequence[_Link], motion: Motion) -> tuple[Floats, Floats]:
    """(n, size) means and (n, size, size) covariances of a chain, by the Rauch-Tung-Striebel smoother."""
    predicted: list[Hypotheses] = []
    filtered: list[Hypotheses] = []
    for i, link in enumerate(chain):
        if i == 0:
            assert link.observation is not None  # a chain starts at an observation
            now = new_hypothesis(link.observation, 0, 0.0, motion)
            predicted.append(now)
        else:
            predicted.append(predict(filtered[-1], motion, link.time_s - chain[i - 1].time_s))
            now = predicted[-1]
            if link.velocity is not None:
                now = update_velocity(now, link.velocity, motion, GATE, DOUBT)
            now = now if link.observation is None else update(now, link.observation, 0, motion)
        filtered.append(now)
    means, covariances = [filtered[-1].mean[0]], [filtered[-1].covariance[0]]
    for i in range(len(chain) - 2, -1, -1):
        transition, _ = motion.transition(chain[i + 1].time_s - chain[i].time_s)
        before, after = filtered[i], predicted[i + 1]
        gain = np.linalg.solve(after.covariance[0], transition @ before.covariance[0]).T
        means.append(before.mean[0] + gain @ (means[-1] - after.mean[0]))
        covariances.append(before.covariance[0] + gain @ (covariances[-1] - after.covariance[0]) @ gain.T)
    return np.array(means[::-1]), np.array(covariances[::-1])
