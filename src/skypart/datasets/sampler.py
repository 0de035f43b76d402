"""Identity-balanced batches over both views: P locations, M drone images each, and their satellites."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skypart.datasets.records import Record
from skypart.errors import SkyPartError

_ROUNDING = 1e-9
"""Ten shares of 0.1 make a whole location, though their sum falls short of it."""


@dataclass(frozen=True)
class Draw:
    """One image of a batch: which record, the seed that fixes its augmentation and weather, and the seed of what all
    images of its location share in this batch."""

    record: int
    seed: int
    shared: int = 0


@dataclass(frozen=True)
class LocationIndex:
    """The training records by location: names in label order, and each one's drone and satellite record indices."""

    names: tuple[str, ...]
    drone: tuple[tuple[int, ...], ...]
    satellite: tuple[tuple[int, ...], ...]


def index_locations(records: Sequence[Record]) -> LocationIndex:
    """Group records by location; a location that lacks a view is an error that names it."""
    groups: dict[str, tuple[list[int], list[int]]] = {}
    for index, record in enumerate(records):
        drone, satellite = groups.setdefault(record.location, ([], []))
        (drone if record.view == "drone" else satellite).append(index)
    if not groups:
        raise SkyPartError("the data set has no training images; check it with `skypart data check`")
    lacking = sorted(name for name, (drone, satellite) in groups.items() if not drone or not satellite)
    if lacking:
        raise SkyPartError(
            f"{len(lacking)} training locations lack drone or satellite images (first: {lacking[0]}); "
            "check the data set with `skypart data check`"
        )
    names = tuple(sorted(groups))
    return LocationIndex(names, tuple(tuple(groups[n][0]) for n in names), tuple(tuple(groups[n][1]) for n in names))


def _alike_runs(
    alike: NDArray[np.float32], near: int, taken: NDArray[np.bool_], rng: np.random.Generator
) -> list[list[int]]:
    """Runs of those taken, each once: one drawn at random, then the near - 1 most similar that are left, and so on."""
    left = taken.copy()
    runs: list[list[int]] = []
    for place in rng.permutation(len(alike)).tolist():
        if left[place]:
            left[place] = False
            others = np.argsort(np.where(left, -alike[place], np.inf), kind="stable")[: min(near - 1, int(left.sum()))]
            left[others] = False
            runs.append([place, *others.tolist()])
    return runs


class BalancedSampler:
    """The batches of each epoch, a function of (seed, epoch) alone: any step can be drawn again after a resume.

    Locations come in a shuffled round, so that all are seen equally often; a location's drone images are drawn
    one an altitude as long as there are altitudes, so that a batch mixes them. The order within a batch is
    location by location, drone images first: rank r of n takes the r-th of n equal slices.

    near: so many locations whose names follow each other come together. Where neighbours in name are neighbours on
    the ground, as in rendered worlds, they are the hardest to tell apart.
    alike: (n, n) similarities of the locations in label order; the most similar come together instead.
    shares: (n,) how often each location comes into a round, above 0 and at most 1, in label order; else all always.
    """

    def __init__(
        self,
        records: Sequence[Record],
        locations: int,
        drone: int,
        satellite: int,
        steps: int,
        seed: int,
        near: int = 1,
        alike: NDArray[np.float32] | None = None,
        shares: NDArray[np.float64] | None = None,
    ) -> None:
        self.index = index_locations(records)
        there = len(self.index.names) if shares is None else int(shares.sum() + _ROUNDING)
        if locations > there:
            raise SkyPartError(
                f"a batch of {locations} locations needs as many training locations, there are "
                f"{there}{' a round' if shares is not None else ''}; lower batch.locations"
            )
        self.locations, self.drone, self.satellite = locations, drone, satellite
        self.steps, self.seed, self.near, self.alike, self.shares = steps, seed, near, alike, shares
        self.altitudes = [record.altitude for record in records]

    @property
    def images_per_location(self) -> int:
        """Images a location contributes to a batch."""
        return self.drone + self.satellite

    def epoch(self, epoch: int) -> list[list[Draw]]:
        """All batches of an epoch, each a list of locations * (drone + satellite) draws."""
        rng = np.random.default_rng([self.seed, epoch, 0x5A])
        order: list[int] = []
        while len(order) < self.steps * self.locations:
            order += self._round(order, rng)
        return [
            [draw for place in order[start : start + self.locations] for draw in self._images(place, rng)]
            for start in range(0, self.steps * self.locations, self.locations)
        ]

    def _round(self, order: list[int], rng: np.random.Generator) -> list[int]:
        """The locations of a round, shuffled; the step that rounds before have begun is filled up without repeats."""
        fresh = self._shuffled(rng)
        missing = -len(order) % self.locations
        begun = order[len(order) - (self.locations - missing) :] if missing else []
        first = [place for place in fresh if place not in begun][:missing]
        return first + [place for place in fresh if place not in first]

    def _taken(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(n,) which locations come into this round: as many as the shares' sum, each with its share as chance."""
        taken = np.ones(len(self.index.names), dtype=bool)
        if self.shares is not None:
            shuffled = rng.permutation(len(taken))
            ends = np.floor(np.cumsum(self.shares[shuffled]) + rng.uniform() + _ROUNDING)
            taken[shuffled] = np.diff(ends, prepend=0.0) > 0
        return taken

    def _shuffled(self, rng: np.random.Generator) -> list[int]:
        """The locations of a round in random order, in runs of `near` neighbours, by name or by looks."""
        taken = self._taken(rng)
        places = np.flatnonzero(taken)
        if self.near == 1:
            return [int(place) for place in rng.permutation(places)]
        if self.alike is not None:
            runs = _alike_runs(self.alike, self.near, taken, rng)
        else:
            ring = np.roll(places, int(rng.integers(len(places))))
            runs = [ring[start : start + self.near].tolist() for start in range(0, len(places), self.near)]
        return [place for run in rng.permutation(len(runs)) for place in runs[run]]

    def _images(self, place: int, rng: np.random.Generator) -> list[Draw]:
        """The draws of one location: drone images spread over altitudes, then satellites."""
        by_altitude: dict[float | None, list[int]] = {}
        for record in self.index.drone[place]:
            by_altitude.setdefault(self.altitudes[record], []).append(record)
        stacks = [rng.permutation(stack).tolist() for stack in by_altitude.values()]
        rng.shuffle(stacks)
        drawn: list[int] = []
        while len(drawn) < self.drone:
            for stack in stacks:
                drawn.append(stack[(len(drawn) // len(stacks)) % len(stack)])
        tiles = self.index.satellite[place]
        picked = [tiles[i % len(tiles)] for i in rng.permutation(max(len(tiles), self.satellite))[: self.satellite]]
        seeds = rng.integers(0, 2**62, self.images_per_location).tolist()
        images = zip([*drawn[: self.drone], *picked], seeds, strict=True)
        return [Draw(int(record), int(seed), int(seeds[0])) for record, seed in images]
