"""The interface of a benchmark. Everything particular to one data set is in the file that implements it.

`skypart.datasets.registry` lists the benchmarks; docs/extending.md shows how to add one.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from skypart.datasets.records import ARROWS, Dataset, arrow_name
from skypart.datasets.rendering import Rendering, is_rendered

Fault: TypeAlias = Literal["broken", "missing", "misplaced", "extra"]


@dataclass(frozen=True)
class ImageFolder:
    """A folder of location folders.

    path: relative to the root, such as `test/query_drone`.
    inner: name of the folder between location and image (the altitude in raw SUES-200), or None.
    published: (locations, images) in the published release, or None where no number is fixed.
    used: False for folders that neither direction reads.
    any_depth: images may be directly in the folder or at any depth below it, and location names are free.
    """

    path: str
    inner: str | None = None
    published: tuple[int, int] | None = None
    used: bool = True
    any_depth: bool = False

    @property
    def name(self) -> str:
        """Name of the folder in reports."""
        return self.path if self.inner is None else f"{self.path}/*/{self.inner}"


def folders_with_counts(counts: Mapping[str, tuple[int, int]]) -> list[ImageFolder]:
    """Image folders from a mapping of path -> (locations, images) in the published release."""
    return [ImageFolder(path, published=count) for path, count in counts.items()]


@dataclass(frozen=True)
class Column:
    """A table column: `group` and `name` make its heading, `key` finds its value in a row.

    block: in a terminal, columns of one block are side by side and the next block is below them.
    """

    group: str
    name: str
    key: str
    block: str = ""

    @property
    def heading(self) -> str:
        """Group and name on one line."""
        return f"{self.group} {self.name}".strip()


class Split(Protocol):
    """What names a test split: its direction and altitude."""

    @property
    def direction(self) -> str:
        """`D2S` or `S2D`."""

    @property
    def altitude(self) -> float | None:
        """Metres, or None for the whole test."""

    @property
    def name(self) -> str:
        """`D2S`, or `D2S 150m`."""


class Benchmark(ABC):
    """One benchmark: how its layout is recognised, read, checked, reported and rendered.

    kind: its key in result files and in published.json. title: its name in tables.
    layout: what its folders look like, for error messages.
    generic: a layout for the user's own folders. More specific layouts may also be read as this one, and the same
    locations may be both trained and tested.
    headline_metrics: metrics per direction in the main table.
    averages_altitudes: its headline is the mean over altitudes, and the main table has columns for each altitude.
    published_tests: (queries, gallery images) of each split of the published release; empty if there is none.
    rendering: how `skypart world make` writes this layout, or None.
    """

    kind: str
    title: str
    layout: str
    generic: bool = False
    headline_metrics: tuple[str, ...] = ("R@1", "AP")
    averages_altitudes: bool = False
    published_tests: Mapping[str, tuple[int, int]] = {}
    rendering: Rendering | None = None

    @abstractmethod
    def matches(self, root: Path) -> bool:
        """Whether `root` has this layout."""

    @abstractmethod
    def read(self, root: Path) -> Dataset:
        """Read the data set in `root`."""

    @abstractmethod
    def image_folders(self, root: Path) -> list[ImageFolder]:
        """The folders that a data set in `root` consists of."""

    def inconsistencies(self, dataset: Dataset) -> Iterator[tuple[Fault, str]]:
        """Faults that only this benchmark can have, as (fault, message)."""
        return iter(())

    def is_published(self, dataset: Dataset) -> bool:
        """Whether `dataset` has the published splits, so that published numbers compare with its results."""
        sizes = {split.name: (len(split.query), len(split.gallery)) for split in dataset.tests}
        same = all(sizes.get(name) == size for name, size in self.published_tests.items())
        return bool(self.published_tests) and same and not is_rendered(dataset.root)

    def main_columns(self, splits: Sequence[Split], known: Container[str]) -> list[Column]:
        """Columns of the main table. known: keys that the results have a value for."""
        columns: list[Column] = []
        for direction in dict.fromkeys(split.direction for split in splits):
            if self.averages_altitudes:
                columns += [
                    Column(arrow_name(split.name), metric, f"{split.name}/{metric}", direction)
                    for split in splits
                    if split.direction == direction
                    for metric in self.headline_metrics
                ]
                columns.append(Column(f"{ARROWS[direction]} mean", "R@1", f"{direction} mean/R@1", direction))
            else:
                columns += [
                    Column(ARROWS[direction], metric, f"{direction}/{metric}", direction)
                    for metric in self.headline_metrics
                    if f"{direction}/{metric}" in known
                ]
        return columns
