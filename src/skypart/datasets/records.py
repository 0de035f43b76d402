"""The record type that every data set is read into, and the test splits made of records."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

View: TypeAlias = Literal["drone", "satellite"]
Direction: TypeAlias = Literal["D2S", "S2D"]

ARROWS = {"D2S": "D→S", "S2D": "S→D"}
"""Direction -> its name in tables and figures."""


def split_name(direction: str, altitude: float | None) -> str:
    """`D2S`, or `D2S 150m` for one altitude in metres."""
    return direction if altitude is None else f"{direction} {altitude:g}m"


def arrow_name(name: str) -> str:
    """A split's name with an arrow: `D2S 150m` -> `D→S 150m`."""
    return ARROWS[name[:3]] + name[3:]


class Position(NamedTuple):
    """A position on the earth in WGS 84 degrees, longitude first."""

    longitude: float
    latitude: float


@dataclass(frozen=True, slots=True)
class Record:
    """One image of one view of one location.

    location: the label; images with the same label show the same place.
    altitude: metres, None if the data set gives none. DenseUAV's satellite tiles have the flight height they were
        cropped for, because its protocol is also evaluated per height.
    position: of the location, None if unknown.
    """

    path: Path
    view: View
    location: str
    altitude: float | None = None
    position: Position | None = None


@dataclass(frozen=True)
class TestSplit:
    """Queries and gallery of one retrieval test.

    altitude: metres if only queries (and, in SUES-200, gallery images) of this altitude are included, else None.
    """

    __test__ = False  # keeps pytest from collecting this class

    direction: Direction
    altitude: float | None
    query: Sequence[Record]
    gallery: Sequence[Record]

    @property
    def name(self) -> str:
        """`D2S`, or `D2S 150m` for one altitude."""
        return split_name(self.direction, self.altitude)


@dataclass(frozen=True)
class Dataset:
    """A data set of any kind: training records and test splits.

    kind: the kind of the benchmark that read it (see `skypart.datasets.registry`).
    notes: what a reader of results should know about this copy of the data set.
    """

    kind: str
    name: str
    root: Path
    train: Sequence[Record]
    tests: Sequence[TestSplit]
    notes: Sequence[str] = field(default=())

    @property
    def altitudes(self) -> list[float]:
        """Altitudes in metres that are tested separately, ascending."""
        return sorted({split.altitude for split in self.tests if split.altitude is not None})
