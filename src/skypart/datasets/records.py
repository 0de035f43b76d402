"""The one record type that every data set is read into, and the protocol splits made of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

View: TypeAlias = Literal["drone", "satellite"]
Direction: TypeAlias = Literal["D2S", "S2D"]


class Position(NamedTuple):
    """A place on the earth in WGS 84 degrees, longitude first."""

    longitude: float
    latitude: float


@dataclass(frozen=True, slots=True)
class Record:
    """One image of one view of one location.

    location: the label; images with the same label show the same place.
    altitude: metres, None where the data set gives none. DenseUAV's satellite tiles carry the flight height
        they were cut for, because its protocol is also evaluated per height.
    position: of the location, None where unknown.
    """

    path: Path
    view: View
    location: str
    altitude: float | None = None
    position: Position | None = None


@dataclass(frozen=True)
class TestSplit:
    """Queries and gallery of one retrieval test.

    altitude: metres when only queries (and, on SUES-200, gallery) of this altitude take part, else None.
    """

    __test__ = False  # not a test case, whatever pytest thinks of the name

    direction: Direction
    altitude: float | None
    query: Sequence[Record]
    gallery: Sequence[Record]

    @property
    def name(self) -> str:
        """`D2S`, or `D2S 150m` for one altitude."""
        return self.direction if self.altitude is None else f"{self.direction} {self.altitude:g}m"


@dataclass(frozen=True)
class Dataset:
    """A data set of any kind: what to train on and what to test.

    kind: `university1652`, `sues200`, `denseuav` or `folders`.
    notes: plain sentences about the layout that a reader of results should know.
    """

    kind: str
    name: str
    root: Path
    train: Sequence[Record]
    tests: Sequence[TestSplit]
    notes: Sequence[str] = field(default=())

    @property
    def altitudes(self) -> list[float]:
        """Altitudes in metres that the protocol tests on their own, ascending."""
        return sorted({split.altitude for split in self.tests if split.altitude is not None})
