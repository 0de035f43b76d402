"""Identity-balanced batches of both views: P locations, M drone images each, and their satellite images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skypart.datasets.records import Record
from skypart.errors import SkyPartError

_ROUNDING = 1e-9
"""Ten shares of 0.1 must make one location, although their floating-point sum is slightly smaller."""


@dataclass(frozen=True)
class Draw:
    """One image of a batch.

    record: index of the record. seed: of its augmentation and weather. shared: seed of everything that the images of
    its location have in common in this batch.
    """

    record: int
    seed: int
    shared: int = 0


@dataclass(frozen=True)
class LocationIndex:
    """The training records by location: names in label order, and their drone and satellite record indices."""

    names: tuple[str, ...]
    drone: tuple[tuple[int, ...], ...]
    satellite: tuple[tuple[int, ...], ...]


def index_locations(records: Sequence[Record]) -> LocationIndex:
    """Group records by location; raises if a location has no drone or no satellite images."""
    groups: dict[str, tuple[list[int], list[int]]] = {}
    for index, record in enumerate(records):
        drone, satellite = groups.setdefault(record.location, ([], []))
        (drone if record.view == "drone" else satellite).append(index)
    if not groups:
        raise SkyPartError("the data set has no training images; check it with `skypart data check`")
    incomplete = sorted(name for name, (drone, satellite) in groups.items() if not drone or not satellite)
    if incomplete:
        raise SkyPartError(
            f"{len(incomplete)} training locations have no drone or no satellite images (first: {incomplete[0]}); "
            "check the data set with `skypart data check`"
        )
    names = tuple(sorted(groups))
    return LocationIndex(names, tuple(tuple(groups[n][0]) for n in names), tuple(tuple(groups[n][1]) for n in names))


def _similar_groups(
    similarity: NDArray[np.float32], size: int, included: NDArray[np.bool_], rng: np.random.Generator
) -> list[list[int]]:
    """Groups of `size` included locations: one drawn at random and the most similar remaining ones."""
    left = included.copy()
    groups: list[list[int]] = []
    for location in rng.permutation(len(similarity)).tolist():
        if left[location]:
            left[location] = False
            order = np.argsort(np.where(left, -similarity[location], np.inf), kind="stable")
            others = order[: min(size - 1, int(left.sum()))]
            left[others] = False
            groups.append([location, *others.tolist()])
    return groups


class BalancedSampler:
    """The batches of each epoch. They depend only on (seed, epoch), so any step can be repeated after a resume.

    Locations are drawn in shuffled rounds, so that all are drawn equally often. The drone images of a location are
    drawn from different altitudes first, so that a batch mixes them. The order within a batch is location by location,
    drone images first: rank r of n takes the r-th of n equal slices.

    group_size: so many locations with consecutive names are put in the same batch. If such locations are neighbours on
    the ground, as in rendered worlds, they are hard negatives.
    similarity: (n, n) similarities of the locations in label order; groups are then the most similar locations instead.
    shares: (n,) probability in (0, 1] that a location is in a round, in label order; None: all are in every round.
    """

    def __init__(
        self,
        records: Sequence[Record],
        locations: int,
        drone: int,
        satellite: int,
        steps: int,
        seed: int,
        group_size: int = 1,
        similarity: NDArray[np.float32] | None = None,
        shares: NDArray[np.float64] | None = None,
    ) -> None:
        self.index = index_locations(records)
        available = len(self.index.names) if shares is None else int(shares.sum() + _ROUNDING)
        if locations > available:
            raise SkyPartError(
                f"a batch of {locations} locations needs as many training locations, there are "
                f"{available}{' per round' if shares is not None else ''}; lower batch.locations"
            )
        self.locations, self.drone, self.satellite = locations, drone, satellite
        self.steps, self.seed, self.shares = steps, seed, shares
        self.group_size, self.similarity = group_size, similarity
        self.altitudes = [record.altitude for record in records]

    @property
    def images_per_location(self) -> int:
        """Images per location in a batch."""
        return self.drone + self.satellite

    def epoch(self, epoch: int) -> list[list[Draw]]:
        """All batches of an epoch, each a list of locations * (drone + satellite) draws."""
        rng = np.random.default_rng([self.seed, epoch, 0x5A])
        order: list[int] = []
        while len(order) < self.steps * self.locations:
            order += self._round(order, rng)
        return [
            [draw for location in order[start : start + self.locations] for draw in self._draw_images(location, rng)]
            for start in range(0, self.steps * self.locations, self.locations)
        ]

    def _round(self, order: list[int], rng: np.random.Generator) -> list[int]:
        """The locations of a round, shuffled; a batch that the previous round began is completed without repeats."""
        fresh = self._draw_order(rng)
        missing = -len(order) % self.locations
        begun = order[len(order) - (self.locations - missing) :] if missing else []
        first = [location for location in fresh if location not in begun][:missing]
        return first + [location for location in fresh if location not in first]

    def _draw_included(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(n,) which locations are in this round, each with its share as probability; as many as the sum of shares."""
        included = np.ones(len(self.index.names), dtype=bool)
        if self.shares is not None:
            shuffled = rng.permutation(len(included))
            ends = np.floor(np.cumsum(self.shares[shuffled]) + rng.uniform() + _ROUNDING)
            included[shuffled] = np.diff(ends, prepend=0.0) > 0
        return included

    def _draw_order(self, rng: np.random.Generator) -> list[int]:
        """The locations of a round in random order, in groups of `group_size` neighbours, by name or by similarity."""
        included = self._draw_included(rng)
        locations = np.flatnonzero(included)
        if self.group_size == 1:
            return [int(location) for location in rng.permutation(locations)]
        if self.similarity is not None:
            groups = _similar_groups(self.similarity, self.group_size, included, rng)
        else:
            ring = np.roll(locations, int(rng.integers(len(locations))))
            groups = [
                ring[start : start + self.group_size].tolist() for start in range(0, len(locations), self.group_size)
            ]
        return [location for group in rng.permutation(len(groups)) for location in groups[group]]

    def _draw_images(self, location: int, rng: np.random.Generator) -> list[Draw]:
        """The draws of one location: drone images spread over altitudes, then satellites."""
        by_altitude: dict[float | None, list[int]] = {}
        for record in self.index.drone[location]:
            by_altitude.setdefault(self.altitudes[record], []).append(record)
        stacks = [rng.permutation(stack).tolist() for stack in by_altitude.values()]
        rng.shuffle(stacks)
        drawn: list[int] = []
        while len(drawn) < self.drone:
            for stack in stacks:
                drawn.append(stack[(len(drawn) // len(stacks)) % len(stack)])
        tiles = self.index.satellite[location]
        picked = [tiles[i % len(tiles)] for i in rng.permutation(max(len(tiles), self.satellite))[: self.satellite]]
        seeds = rng.integers(0, 2**62, self.images_per_location).tolist()
        images = zip([*drawn[: self.drone], *picked], seeds, strict=True)
        return [Draw(int(record), int(seed), int(seeds[0])) for record, seed in images]
