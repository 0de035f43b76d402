"""How far the clock of measured velocities is off that of the photos, by fixes in turns; and what that may do.

A velocity that comes late or early is right on a straight leg and wrong in a turn. Which of the plausible offsets fits
shows in pairs of fixes with a turn between. Until they tell, a velocity is less certain than it states, and does not
move the track.
"""

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from skypart.position.hypotheses import Floats, MeasuredVelocity, Observation
from skypart.position.odometer import HOLD_S

MAX_OFFSET_S = 6.0
"""Largest offset that is looked for; larger ones are left to `VelocityCheck`."""
OFFSETS = np.arange(-MAX_OFFSET_S, MAX_OFFSET_S + 1e-9, 0.25)
NARROW_S, WIDE_SHARE = 0.3, 0.3
"""Offsets before anything is known: normal around 0, and with a share of all plausible ones alike."""
PAIR_S = (2.0, 10.0)
"""Seconds between two fixes that are compared with the distance measured between them."""
FLOOR = math.exp(-4.5)
"""Likelihood of a pair that a wrong fix explains."""
PAIR_WEIGHT = 0.7
"""What a fix counts for: those close in time repeat one another's errors."""
SHARED_S = 15.0
"""Seconds after which fixes share no error."""
MANOEUVRES = 1.5
"""m^2/s^3: how fast the variance of a change of velocity grows, along an axis, in ordinary flight."""
LASTING_S = 4.0
"""Seconds for which the error of a wrong clock lasts: the time of a turn."""
NONE_LIKELIHOOD = math.exp(-2.0)
"""Likelihood of a pair if the velocity is wrong at every offset; right ones reach exp(-1) on average."""
NONE_SHARE = 0.1
NONE_S = 12.0
"""Offset that a velocity is taken to have if none fits."""
FORGET = 4.5, 12.0
"""Log odds to which the possibility that no offset fits, and each offset, falls behind the best at most."""
JOINED_WITHIN_S, JOINED_LEVEL = 0.75, 0.97
"""An offset is known if this share of the probability is this close to it."""
CONFIRMED_WITHIN_S, CONFIRMED_LEVEL = 1.0, 0.9
"""A clock is confirmed if this share of the probability is this close to an offset of 0."""
JOIN_S = 0.5, 5.25
"""Smaller offsets are not worth a correction; larger ones may be larger still than those that are looked for."""


@dataclass(frozen=True)
class _Compared:
    """A fix, and how far the drone had moved until then by each offset, (offsets, 2) metres."""

    time_s: float
    fix: Observation
    walked: Floats


def _prior() -> Floats:
    """(offsets + 1,) log probability before anything is known; the last one is that no offset fits."""
    narrow = np.exp(-0.5 * np.square(OFFSETS / NARROW_S))
    mixed = (1.0 - WIDE_SHARE) * narrow / narrow.sum() + WIDE_SHARE / len(OFFSETS)
    return np.asarray(np.log([*(1.0 - NONE_SHARE) * mixed, NONE_SHARE]), dtype=np.float64)


class ClockCheck:
    """The probability of each offset of the velocities' clock, from fixes. Times are those of the photos.

    An offset of +2 s: a velocity given for a time is that of 2 s earlier, so it comes late.
    """

    def __init__(self) -> None:
        self._log_weight = _prior()
        self._times: list[float] = []
        self._walked: list[Floats] = []
        self._velocities: list[MeasuredVelocity] = []
        self._waiting: deque[tuple[float, Observation]] = deque()
        self._compared: deque[_Compared] = deque()

    def copy(self) -> "ClockCheck":
        """One that goes on by itself; it compares no fixes."""
        other = ClockCheck()
        other._log_weight = self._log_weight
        other._times, other._walked, other._velocities = list(self._times), list(self._walked), list(self._velocities)
        return other

    @property
    def probability(self) -> Floats:
        """(offsets,) of each of OFFSETS; what is left to 1 is that none fits."""
        weight = np.exp(self._log_weight - self._log_weight.max())
        return np.asarray(weight[:-1] / weight.sum())

    @property
    def confirmed(self) -> bool:
        """Whether fixes have shown that the clock is right to a second."""
        near = np.abs(OFFSETS) <= CONFIRMED_WITHIN_S + 1e-9
        return float(self.probability[near].sum()) >= CONFIRMED_LEVEL

    @property
    def offset_s(self) -> float | None:
        """The offset that fixes have shown; None while they do not tell, or if it is hardly different from 0."""
        share = self.probability
        middle = float(share @ OFFSETS) / max(float(share.sum()), 1e-9)
        known = float(share[np.abs(OFFSETS - middle) <= JOINED_WITHIN_S].sum()) >= JOINED_LEVEL
        return middle if known and JOIN_S[0] <= abs(middle) <= JOIN_S[1] else None

    def shift(self, offset_s: float) -> None:
        """Go on after velocities were corrected by an offset: what is known moves with it."""
        moved = np.interp(OFFSETS + offset_s, OFFSETS, self.probability, left=0.0, right=0.0)
        self._log_weight = np.log(np.append(moved, 0.0) / max(float(moved.sum()), 1e-9) + 0.05 * np.exp(_prior()))
        self._forget()

    def _forget(self) -> None:
        self._times, self._walked, self._velocities = [], [], []
        self._waiting.clear()
        self._compared.clear()

    def move(self, time_s: float, velocity: MeasuredVelocity | None) -> None:
        """Go on to `time_s` with a velocity as it was measured; those of the photos' own clock do not count."""
        if velocity is None or not velocity.own_clock or (self._times and time_s <= self._times[-1]):
            return
        if self._times and time_s - self._times[-1] > HOLD_S:
            self._forget()
        walked = np.zeros(2)
        if self._times:
            seconds = time_s - self._times[-1]
            walked = self._walked[-1] + 0.5 * (self._velocities[-1].velocity + velocity.velocity) * seconds
        self._times.append(time_s)
        self._walked.append(walked)
        self._velocities.append(velocity)
        while self._waiting and time_s - self._waiting[0][0] >= MAX_OFFSET_S:
            self._compare(*self._waiting.popleft())
        old = int(np.searchsorted(self._times, time_s - 2.0 * MAX_OFFSET_S - 2.0))
        if old > 32:
            del self._times[:old], self._walked[:old], self._velocities[:old]

    def add(self, time_s: float, fix: Observation) -> None:
        """Take a fix. It is compared once velocities of MAX_OFFSET_S later are known."""
        self._waiting.append((time_s, fix))

    def _compare(self, time_s: float, fix: Observation) -> None:
        times = np.array(self._times)
        if time_s - MAX_OFFSET_S < times[0]:
            return
        track = np.array(self._walked)
        walked = np.stack([np.interp(time_s + OFFSETS, times, track[:, axis]) for axis in (0, 1)], axis=1)
        while self._compared and self._compared[0].time_s < time_s - PAIR_S[1]:
            self._compared.popleft()
        told = []
        for other in self._compared:
            seconds = time_s - other.time_s
            if seconds < PAIR_S[0]:
                continue
            apart = 1.0 - math.exp(-seconds / SHARED_S)
            variance = fix.variance + other.fix.variance + apart * (fix.slow**2 + other.fix.slow**2)
            now = self._velocities[-1]
            variance += now.deviation**2 * seconds + (now.drift * seconds) ** 2
            difference = fix.position - other.fix.position - (walked - other.walked)
            fits = np.exp(-0.5 * np.square(difference).sum(axis=1) / variance) + FLOOR
            told.append(np.log(np.append(fits, NONE_LIKELIHOOD)))
        if told:
            weight = self._log_weight + PAIR_WEIGHT * np.mean(told, axis=0)
            weight = np.maximum(weight - weight.max(), -FORGET[1])
            weight[-1] = max(weight[-1], -FORGET[0])
            self._log_weight = weight
        self._compared.append(_Compared(time_s, fix, walked))

    def widened(self, velocity: MeasuredVelocity | None) -> MeasuredVelocity | None:
        """The velocity last given to `move`, as uncertain as its clock makes it.

        A wrong clock gives the velocity of another moment. How different that may be follows from the velocities of
        the last seconds and from ordinary manoeuvres; the error lasts for a turn, not for one measurement.
        """
        if velocity is None or not velocity.own_clock or not self._times:
            return velocity
        known = self.probability
        share, away = np.append(known, 1.0 - known.sum()), np.append(np.abs(OFFSETS), NONE_S)
        # The change since a moment before; a change to come is taken to be as large as manoeuvres make it.
        recent = np.array([each.velocity for each in self._velocities])
        then = np.stack([np.interp(self._times[-1] - away, self._times, recent[:, axis]) for axis in (0, 1)], axis=1)
        change = 0.5 * float(share @ np.square(then - velocity.velocity).sum(axis=1))
        variance = change + MANOEUVRES * float(share @ away)
        seconds = self._times[-1] - self._times[-2] if len(self._times) > 1 else 1.0
        lasting = max(LASTING_S / min(max(seconds, 0.02), LASTING_S), 1.0)
        return replace(velocity, deviation=math.hypot(velocity.deviation, math.sqrt(lasting * variance)))
