"""Simulated flights for benchmarks/flight.py: true paths, and the fixes and velocities that sensors give along them.

Errors of fixes: 94 % lie within the stated radius, with a heavy tail. Half of their variance is shared by photos close
in time, and every map has its own shift. Some fixes are wrong, and some repeat the same wrong place. How often photos
are accepted, on the map and elsewhere, how wide their radii are, and how often the best guess without a fix is right is
read from docs/results/calibration.md. The rest is assumed.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Evidence, Fix, Peak, Place
from skypart.position.fly import is_inside
from skypart.position.hypotheses import RADIUS_95, MeasuredVelocity
from skypart.position.track import TrackOptions, TrackPoint
from skypart.position.track_filter import TrackFilter

Floats = NDArray[np.float64]
RATE_HZ = 5.0
FRAME = LocalFrame(latitude=48.2, longitude=16.4)


CALIBRATION = Path(__file__).resolve().parent.parent / "docs" / "results" / "calibration.md"
CALIBRATED = {
    "fixes": r"^\| photos of the maps with a fix \| ([\d.]+) %",
    "guesses": r"^\| best guess within 50 m, before any threshold \| ([\d.]+) %",
    "false_accepts": r"^\| false accepts of photos from outside \| ([\d.]+) %",
    "radius_m": r"^\| median 95 % radius \| ([\d.]+) m",
    "map_m": r"the map \(([\d.]+) m\)",
}
"""What is read from the calibration's page, and where it stands."""


def read_calibration(page: Path = CALIBRATION) -> dict[str, float]:
    """Numbers of the calibration's page: percent and metres."""
    text, found = page.read_text(encoding="utf-8"), {}
    for name, pattern in CALIBRATED.items():
        match = re.search(pattern, text, re.MULTILINE)
        if match is None:
            raise ValueError(f"{page}: does not state {name}; correct CALIBRATED")
        found[name] = float(match[1])
    return found


@dataclass(frozen=True)
class Sensors:
    """How good the locator and the velocity are.

    fix_every_s: time the locator takes. missing, missing_in_weather: share of photos without a fix. guessed: share of
    them whose best guess is right. wrong: share of fixes at a wrong place; most come in runs of up to `run` at the same
    place. false_accepts: share of photos from outside the map that get a fix. radius_m: median 95 % radius without the
    map's own error. map_error_m: 95 % radius of the map's own shift, as stated and in truth; shift_quantile: how large
    the shift is among all maps, drawn at random if None. velocity: none, flow or odometry. late_s: how late odometry
    is by its clock; negative if it is early.
    """

    fix_every_s: float = 1.0
    missing: float = 0.25
    missing_in_weather: float = 0.58
    guessed: float = 0.5
    wrong: float = 0.02
    run: int = 3
    false_accepts: float = 0.004
    radius_m: float = 18.0
    map_error_m: float = 15.0
    slow_s: float = 12.0
    shift_quantile: float | None = None
    velocity: str = "none"
    late_s: float = 0.0


def calibrated_sensors(**changes: object) -> Sensors:
    """Sensors as good as the calibration's page says; half of a flight is in bad weather."""
    known = read_calibration()
    missing = 1.0 - known["fixes"] / 100.0
    guessed = (known["guesses"] - known["fixes"]) / max(100.0 - known["fixes"], 1.0)
    base: dict[str, object] = {
        "missing": 0.6 * missing,
        "missing_in_weather": min(1.4 * missing, 0.95),
        "guessed": min(max(guessed, 0.0), 0.9),
        "false_accepts": known["false_accepts"] / 100.0,
        "radius_m": math.sqrt(max(known["radius_m"] ** 2 - known["map_m"] ** 2, 25.0)),
        "map_error_m": known["map_m"],
    }
    return Sensors(**{**base, **changes})  # type: ignore[arg-type]


@dataclass
class SimulatedFlight:
    """A flight at RATE_HZ. places, velocities: (n, 2) metres and m/s. inside: whether the photo shows the map.

    outage: whether the locator gets no photos. turning: whether the drone accelerates sideways. half: half the edge of
    the map, which is centred at 0, 0.
    """

    seconds: Floats
    places: Floats
    velocities: Floats
    turning: NDArray[np.bool_]
    outage: NDArray[np.bool_]
    weather: NDArray[np.bool_]
    half: float

    @property
    def inside(self) -> NDArray[np.bool_]:
        """(n,) whether the photo shows the map."""
        return np.asarray((np.abs(self.places) <= self.half).all(axis=1))


def simulate_flight(seed: int, minutes: float = 6.0, half: float = 600.0) -> SimulatedFlight:
    """Legs between waypoints at 6 to 16 m/s with turns at up to 3.5 m/s^2, hovering, one leg out of the map, and an
    outage of 60 s; half of the flight is in bad weather, in pieces of 30 s."""
    rng = np.random.default_rng([99, seed])
    step, count = 1.0 / RATE_HZ, int(minutes * 60 * RATE_HZ)
    place, velocity = rng.uniform(-0.6, 0.6, 2) * half, np.zeros(2)
    target, cruise, hover = rng.uniform(-0.8, 0.8, 2) * half, 10.0, 0.0
    brake = rng.uniform(2.0, 3.5)
    out_at = rng.uniform(0.55, 0.6) * minutes * 60
    out_done = False
    places, velocities, turning = np.zeros((count, 2)), np.zeros((count, 2)), np.zeros(count, dtype=bool)
    for number in range(count):
        now = number * step
        if not out_done and now >= out_at:
            side = int(np.argmax(np.abs(place)))
            target = place * [0.8, 0.8]
            target[side] = math.copysign(half + 350.0, place[side] or 1.0)
            cruise, hover, out_done = 14.0, 0.0, True
        to_go = target - place
        distance = float(np.linalg.norm(to_go))
        if distance < 8.0:
            hover = 20.0 if rng.random() < 0.25 else 0.0
            target, cruise = rng.uniform(-0.8, 0.8, 2) * half, rng.uniform(6.0, 16.0)
        wanted = np.zeros(2)
        if hover > 0:
            hover -= step
        else:
            wanted = to_go / max(distance, 1e-6) * min(cruise, math.sqrt(2 * brake * distance) + 1.0)
        change = wanted - velocity
        limit = brake * step / max(float(np.linalg.norm(change)), 1e-9)
        before = velocity
        velocity = velocity + change * min(1.0, limit)
        turning[number] = float(np.linalg.norm(velocity - before)) / step > 1.0
        place = place + 0.5 * (velocity + before) * step
        places[number], velocities[number] = place, velocity
    seconds = np.arange(count, dtype=np.float64) * step
    begin = rng.uniform(0.25, 0.35) * minutes * 60
    outage = (seconds >= begin) & (seconds < begin + 60.0)
    weather = np.repeat(rng.random(int(minutes * 2) + 1) < 0.5, int(30 * RATE_HZ))[:count]
    return SimulatedFlight(np.asarray(seconds, dtype=np.float64), places, velocities, turning, outage, weather, half)


class FixSimulator:
    """Fixes along a simulated flight."""

    def __init__(self, flight: SimulatedFlight, sensors: Sensors, seed: int) -> None:
        self.flight, self.sensors = flight, sensors
        self.rng = np.random.default_rng([7, seed])
        self.shift = self.rng.normal(size=2) * sensors.map_error_m / RADIUS_95
        if sensors.shift_quantile is not None:
            length = sensors.map_error_m / RADIUS_95 * math.sqrt(-2.0 * math.log(1.0 - sensors.shift_quantile))
            self.shift *= length / float(np.linalg.norm(self.shift))
        self.slow, self.last = self.rng.normal(size=2), 0.0
        self.scale = 0.0
        self.run = 0
        self.away = np.zeros(2)
        self.stuck = np.zeros(2)

    def fix(self, number: int) -> Fix | None:
        """The locator's answer for the photo at this step; None if there is no photo."""
        flight, sensors, rng = self.flight, self.sensors, self.rng
        now = float(flight.seconds[number])
        kept = math.exp(-(now - self.last) / sensors.slow_s)
        self.slow = kept * self.slow + math.sqrt(1 - kept**2) * rng.normal(size=2)
        self.scale = kept * self.scale + math.sqrt(1 - kept**2) * rng.normal() * 0.5
        self.last = now
        if flight.outage[number]:
            return None
        missing = sensors.missing_in_weather if flight.weather[number] else sensors.missing
        if flight.inside[number]:
            if rng.random() < missing:
                return self._no_fix(flight.places[number] if rng.random() < sensors.guessed else None)
            if self.run == 0 and rng.random() < sensors.wrong / max(1, sensors.run - 1):
                self.run = int(rng.integers(1, sensors.run + 1))
                self.away = rng.uniform(-1, 1, 2) * flight.half
            if self.run > 0:
                self.run -= 1
                place = flight.places[number] * 0.0 + self.away + rng.normal(size=2) * 5.0
                return self._fix(place, 10.0, rng.uniform(0.62, 0.97))
            radius = sensors.radius_m * math.exp(self.scale)
            # A tail heavier than normal: 93.8 % lie within the radius.
            tail = 1.0 if rng.random() < 0.92 else 2.0
            error = (
                radius / RADIUS_95 * 0.93 * tail * (math.sqrt(0.5) * self.slow + math.sqrt(0.5) * rng.normal(size=2))
            )
            return self._fix(flight.places[number] + error + self.shift, radius, rng.uniform(0.8, 0.99))
        if rng.random() < sensors.false_accepts:
            place = rng.uniform(-1, 1, 2) * flight.half
            return self._fix(place, 12.0, rng.uniform(0.62, 0.9))
        return self._no_fix(None)

    def _no_fix(self, place: Floats | None) -> Fix:
        """A photo without a fix, whose best guess is `place`, or wrong; of the wrong ones 40 % repeat the last one."""
        rng, half = self.rng, self.flight.half
        if place is None:
            if rng.random() > 0.4:
                self.stuck = rng.uniform(-1, 1, 2) * half
            guess, confidence = self.stuck + rng.normal(size=2) * 10.0, float(rng.uniform(0.02, 0.6))
        else:
            guess = place + self.shift + rng.normal(size=2) * 18.0
            confidence = float(rng.uniform(0.1, 0.9))
        weights = rng.dirichlet(np.ones(4))
        spots = [guess, *rng.uniform(-1, 1, (3, 2)) * half]
        degrees = [FRAME.to_degrees(spot[0], spot[1]) for spot in spots]
        places = [Place(float(each.latitude), float(each.longitude)) for each in degrees]
        return Fix(
            photo="simulated",
            reason="not clear enough",
            confidence=confidence,
            best_guess=places[0],
            peaks=tuple(
                Peak(latitude=each.latitude, longitude=each.longitude, weight=float(weight), spread_m=25.0)
                for each, weight in zip(places, weights, strict=True)
            ),
            evidence=Evidence(
                similarity=0.6,
                agreement=float(weights[0]),
                inliers=0.0,
                inlier_share=0.0,
                evenness=0.0,
                scale_m=20.0,
                ground_m=120.0,
            ),
        )

    def _fix(self, place: Floats, radius: float, confidence: float) -> Fix:
        degrees = FRAME.to_degrees(place[0], place[1])
        return Fix(
            photo="simulated",
            latitude=float(degrees.latitude),
            longitude=float(degrees.longitude),
            radius_m=math.hypot(radius, self.sensors.map_error_m),
            map_error_m=self.sensors.map_error_m,
            confidence=confidence,
        )


class VelocitySimulator:
    """Velocities along a simulated flight: noise, and an error that changes slowly.

    late_s: how late they are by the photos' clock, as far as that was not corrected.
    """

    def __init__(self, flight: SimulatedFlight, kind: str, seed: int, late_s: float = 0.0) -> None:
        self.flight, self.kind, self.late_s = flight, kind, late_s
        self.rng = np.random.default_rng([8, seed])
        self.drift = self.rng.normal(size=2)

    def velocity(self, number: int) -> MeasuredVelocity | None:
        """The velocity measured at this step."""
        if self.kind == "none":
            return None
        kept = math.exp(-1.0 / RATE_HZ / 60.0)
        self.drift = kept * self.drift + math.sqrt(1 - kept**2) * self.rng.normal(size=2)
        shown = min(max(number - round(self.late_s * RATE_HZ), 0), len(self.flight.velocities) - 1)
        true = self.flight.velocities[shown]
        if self.kind == "flow":  # scaled by a height that is a few per cent off, and turned by the compass's error
            if self.flight.outage[number]:
                return None
            speed = float(np.linalg.norm(true))
            drift, noise = 0.05 * speed + 0.2, 0.5
        else:
            drift, noise = 0.25, 0.2
        measured = true + drift * self.drift + noise * self.rng.normal(size=2)
        own = self.kind != "flow"
        return MeasuredVelocity(measured, noise, drift, own_clock=own)


@dataclass
class Outcome:
    """What a filter said at each step, (n,) each; NaN while lost."""

    error: Floats
    radius: Floats
    protection: Floats
    state: list[str]
    flight: SimulatedFlight = field(repr=False)
    source: list[str] = field(default_factory=list, repr=False)


def map_box(half: float) -> Bounds:
    """The map of a flight, `half` its edge in metres."""
    corner, other = FRAME.to_degrees(-half, -half), FRAME.to_degrees(half, half)
    return Bounds(
        south=float(corner.latitude),
        west=float(corner.longitude),
        north=float(other.latitude),
        east=float(other.longitude),
    )


def run_filter(flight: SimulatedFlight, sensors: Sensors, options: TrackOptions, seed: int) -> Outcome:
    """Fly with a filter as `skypart fly` does: a step at each located photo, velocities between."""
    fixes, velocities = (
        FixSimulator(flight, sensors, seed),
        VelocitySimulator(flight, sensors.velocity, seed, sensors.late_s),
    )

    inside = is_inside([map_box(flight.half)])
    track_filter = TrackFilter(options, FRAME, inside, record=False)
    every = max(1, round(sensors.fix_every_s * RATE_HZ))
    points: list[TrackPoint] = []
    for number, now in enumerate(flight.seconds.tolist()):
        off = track_filter.clock_offset_s
        if off is not None and off < 0.0:  # of late velocities nothing newer is there
            velocities.late_s -= off
            track_filter.join_clock(off)
        velocity = velocities.velocity(number)
        if number % every == 0:
            points.append(track_filter.step(now, fixes.fix(number), velocity))
        else:
            points.append(track_filter.drive(now, velocity))
    count = len(points)
    error, radius, protection = np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.nan)
    for i, point in enumerate(points):
        if point.latitude is not None and point.longitude is not None and point.radius_m is not None:
            metres = FRAME.to_metres(latitude=point.latitude, longitude=point.longitude)
            error[i] = math.dist((float(metres.x), float(metres.y)), flight.places[i])
            radius[i] = math.hypot(point.radius_m, track_filter.map_error_m)
            protection[i] = math.inf if point.protection_m is None else point.protection_m
    return Outcome(
        error, radius, protection, [point.state for point in points], flight, [point.source for point in points]
    )


def lost_after(outcome: Outcome) -> list[float]:
    """Seconds from leaving the map until `lost` is said, for each leg outside of more than 5 s; infinite if never."""
    inside, found = outcome.flight.inside, []
    edges = np.flatnonzero(np.diff(inside.astype(int)) == -1) + 1
    for start in edges.tolist():
        back = np.flatnonzero(inside[start:])
        end = start + int(back[0]) if len(back) else len(inside)
        if (end - start) / RATE_HZ <= 5.0:
            continue
        lost = [i for i in range(start, end) if outcome.state[i] == "lost"]
        found.append((lost[0] - start) / RATE_HZ if lost else math.inf)
    return found
