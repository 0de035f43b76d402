"""How far a drone moved since any moment, by measured velocities, and how wrong that may be; and a check of it."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from skypart.position.hypotheses import Floats, MeasuredVelocity, Observation

HOLD_S = 1.0
"""Seconds for which the last velocity holds. A longer gap makes the distance unknown."""
PAIR_S = (1.0, 12.0)
"""Seconds between two fixes that are compared with the distance measured between them."""
MAX_SPEED_ERROR = 40.0
"""m/s; if two fixes differ from the distance by more, one of them is wrong, not the velocity."""
MEMORY_S = 60.0
"""Seconds for which a comparison counts."""
MIN_PAIRS = 8
QUANTILE = 0.8
EXPECTED = math.sqrt(-2.0 * math.log(1.0 - QUANTILE))
"""QUANTILE of the normalised length of an error in two dimensions."""
DISTRUST = 1.5
"""Errors, in units of those stated, from which velocities are left out; right ones stay below it 99 % of the time."""


@dataclass(frozen=True)
class Reading:
    """An odometer at one moment. walked: (2,) metres. noise: variance. drift: metres of the shared error."""

    walked: Floats
    noise: float
    drift: float


class Odometer:
    """Adds up measured velocities."""

    def __init__(self) -> None:
        self.reading = Reading(np.zeros(2), 0.0, 0.0)
        self._time: float | None = None
        self._velocity: MeasuredVelocity | None = None
        self._measured: float | None = None  # time of the last velocity

    def move(self, time_s: float, velocity: MeasuredVelocity | None) -> bool:
        """Go on to `time_s` with a velocity; False if the distance since the last call is unknown."""
        known = True
        if self._time is not None and time_s > self._time:
            now, seconds, last = velocity or self._velocity, time_s - self._time, self._measured
            if now is None or (velocity is None and (last is None or time_s - last > HOLD_S)):
                known = False
            else:
                before = self._velocity or now
                self.reading = Reading(
                    self.reading.walked + 0.5 * (before.velocity + now.velocity) * seconds,
                    self.reading.noise + (now.deviation * seconds) ** 2,
                    self.reading.drift + now.drift * seconds,
                )
        self._time = time_s
        if velocity is not None:
            self._velocity, self._measured = velocity, time_s
        return known

    def since(self, earlier: Reading) -> tuple[Floats, float]:
        """Metres (2,) since an earlier reading, and their variance along an axis."""
        now = self.reading
        return now.walked - earlier.walked, now.noise - earlier.noise + (now.drift - earlier.drift) ** 2


class VelocityCheck:
    """Compares fixes with the distance measured between them.

    A clock that is off, a wrong scale or a wrong heading shows in pairs of fixes. Then velocities are left out, until
    pairs agree again. excess: errors of the velocities in units of those they state.
    """

    def __init__(self) -> None:
        self._odometer = Odometer()
        self._fixes: deque[tuple[float, Observation, Reading]] = deque()
        self._pairs: deque[tuple[float, float]] = deque()
        self.excess = 1.0

    @property
    def passes(self) -> bool:
        """Whether velocities agree with the fixes, as far as these tell."""
        return self.excess < DISTRUST

    def move(self, time_s: float, velocity: MeasuredVelocity | None) -> None:
        """Go on to `time_s` with a velocity as it was measured."""
        if not self._odometer.move(time_s, velocity):
            self._fixes.clear()
        while self._fixes and self._fixes[0][0] < time_s - PAIR_S[1]:
            self._fixes.popleft()

    def add(self, time_s: float, fix: Observation) -> None:
        """Compare a fix with those before it, after `move` to its time."""
        lengths = [length for each in self._fixes if (length := self._compare(time_s, fix, each)) is not None]
        if lengths:
            self._pairs.append((time_s, float(np.median(lengths))))
        self._fixes.append((time_s, fix, self._odometer.reading))
        while self._pairs and self._pairs[0][0] < time_s - MEMORY_S:
            self._pairs.popleft()
        if len(self._pairs) >= MIN_PAIRS:
            self.excess = float(np.quantile([length for _, length in self._pairs], QUANTILE)) / EXPECTED

    def _compare(self, time_s: float, fix: Observation, earlier: tuple[float, Observation, Reading]) -> float | None:
        """The normalised length of the difference between two fixes and the distance; None if it does not tell."""
        then, other, reading = earlier
        if not PAIR_S[0] <= time_s - then <= PAIR_S[1]:
            return None
        walked, variance = self._odometer.since(reading)
        away = float(np.linalg.norm(fix.position - other.position - walked))
        own = fix.total_variance + other.total_variance
        if away > MAX_SPEED_ERROR * (time_s - then) + 3.0 * math.sqrt(own):
            return None
        return away / math.sqrt(own + variance)

    def trusted(self, velocity: MeasuredVelocity | None) -> MeasuredVelocity | None:
        """A velocity that agrees with the fixes; None otherwise."""
        return velocity if self.passes else None
