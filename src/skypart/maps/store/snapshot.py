"""One state of an embedded store, open for searching.

Views are addressed by position: their index when all segments of the manifest are put one after the other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.maps.store.area import check_area, is_inside
from skypart.maps.store.interface import COLUMNS, Hit, Within
from skypart.maps.store.manifest import StoreManifest, read_manifest
from skypart.maps.store.segment import Segment, Vectors, check_content, damage_error, open_file, open_segment

GATHER_ROWS = 16_384
"""Maximum number of views copied together at a time when only some views are searched."""
LONG_RUN = 32
"""Average length of runs of consecutive views from which scanning in place is faster than copying them together."""
Positions: TypeAlias = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class VectorBlock:
    """Vectors that are contiguous in memory. first: position of the first view."""

    first: int
    vectors: Vectors


class StoreSnapshot:
    """Open segments. They stay mapped while this object lives, whatever happens to the store's folder."""

    def __init__(self, manifest: StoreManifest, segments: Sequence[Segment]) -> None:
        self.manifest = manifest
        self.dimension = manifest.dimension
        self.segments = tuple(segments)
        self._starts = np.cumsum([0, *(len(s.vectors) for s in self.segments)], dtype=np.int64)
        self._blocks = tuple(_contiguous_blocks(self.segments))

    def __len__(self) -> int:
        """Number of views."""
        return int(self._starts[-1])

    def check_sizes(self) -> None:
        """Raise if a mapped file was truncated since opening."""
        for segment in self.segments:
            segment.check_size()

    def positions_within(self, within: Within) -> Positions:
        """Positions of the views whose centres lie in an area, ascending."""
        check_area(within)
        found = [
            start + np.flatnonzero(is_inside(within, latitude=s.footprints[:, 0], longitude=s.footprints[:, 1]))
            for start, s in zip(self._starts, self.segments, strict=False)
        ]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def chunks(self, positions: Positions | None, in_place: bool) -> Iterator[tuple[int, Vectors]]:
        """Vectors of all views, or of those at ascending `positions`, in order, each with the number yielded before.

        in_place: do not copy long runs of views, which makes chunks of any length; otherwise chunks of selected views
        have at most GATHER_ROWS rows.
        """
        if positions is None:
            yield from ((block.first, block.vectors) for block in self._blocks)
            return
        for block in self._blocks:
            begin, end = np.searchsorted(positions, [block.first, block.first + len(block.vectors)])
            local = positions[begin:end] - block.first
            breaks = np.flatnonzero(np.diff(local) != 1) + 1
            if in_place and len(local) >= LONG_RUN * (len(breaks) + 1):
                for first, last in zip([0, *breaks], [*breaks, len(local)], strict=True):
                    yield int(begin + first), block.vectors[local[first] : local[last - 1] + 1]
                continue
            for first in range(0, len(local), GATHER_ROWS):
                yield int(begin) + first, block.vectors[local[first : first + GATHER_ROWS]]

    def vectors(self, positions: Positions) -> Vectors:
        """(m, d) vectors at positions, which may be in any order."""
        gathered = np.empty((len(positions), self.dimension), dtype=np.float16)
        for block in self._blocks:
            here = np.flatnonzero((positions >= block.first) & (positions < block.first + len(block.vectors)))
            gathered[here] = block.vectors[positions[here] - block.first]
        return gathered

    def rows(self, positions: Positions) -> NDArray[np.int64]:
        """(m,) row numbers of the views at positions."""
        rows = np.empty(len(positions), dtype=np.int64)
        for segment, here, local in self._by_segment(positions):
            rows[here] = segment.rows(local)
        return rows

    def hits(self, positions: Positions, scores: NDArray[np.float64]) -> list[Hit]:
        """The views at positions as hits, in the same order."""
        names = np.empty(len(positions), dtype=object)
        table = np.empty((len(positions), len(COLUMNS)))
        for segment, here, local in self._by_segment(positions):
            names[here], table[here] = segment.record.map_name, segment.footprints[local]
        return [
            Hit(
                map_name=name,
                footprint=Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation),
                score=score,
                row=row,
            )
            for name, (latitude, longitude, metres, rotation), score, row in zip(
                names, table.tolist(), scores.tolist(), self.rows(positions).tolist(), strict=True
            )
        ]

    def _by_segment(self, positions: Positions) -> Iterator[tuple[Segment, NDArray[np.bool_], Positions]]:
        """Each segment that holds any of the positions, a mask of which, and their positions in the segment."""
        owner = np.searchsorted(self._starts, positions, side="right") - 1
        for number in np.unique(owner):
            here = owner == number
            yield self.segments[number], here, positions[here] - self._starts[number]


def _contiguous_blocks(segments: Sequence[Segment]) -> Iterator[VectorBlock]:
    """Mapped segments as they are; consecutive small ones concatenated."""
    position, small = 0, list[Vectors]()
    for segment in segments:
        if segment.mapped is None:
            small.append(segment.vectors)
            continue
        if small:
            stacked = np.concatenate(small)
            yield VectorBlock(position, stacked)
            position += len(stacked)
            small = []
        yield VectorBlock(position, segment.vectors)
        position += len(segment.vectors)
    if small:
        yield VectorBlock(position, np.concatenate(small))


def read_state(folder: Path, visit: Callable[[StoreManifest], T]) -> tuple[StoreManifest, T]:
    """The newest manifest and the result of `visit` for it, while another process may be writing the next state.

    A file that is missing while visiting belongs to a state that a writer has just replaced; the newer state is read
    then. If there is no newer state, the file is lost, which is an error.
    """
    manifest = read_manifest(folder)
    while True:
        try:
            return manifest, visit(manifest)
        except FileNotFoundError as error:
            path = Path(error.filename)
            newest = read_manifest(folder)
            if newest == manifest:
                record = next(s for s in manifest.segments if path.name in (file.name for file in s.files))
                raise damage_error(path, record, "missing") from error
            manifest = newest


def check_file_sizes(folder: Path, manifest: StoreManifest) -> None:
    """Raise if a file of the store is missing or has another size."""
    for record in manifest.segments:
        for file_record in record.files:
            open_file(folder, record, file_record).close()


def open_snapshot(
    folder: Path, manifest: StoreManifest, previous: StoreSnapshot | None, hash_limit: int
) -> StoreSnapshot:
    """Open all segments, reusing those of `previous`. hash_limit: total bytes up to which vectors are hashed."""
    known = {} if previous is None else {segment.record: segment for segment in previous.segments}
    full_check = sum(record.vectors.bytes for record in manifest.segments) <= hash_limit
    segments = [
        known[record] if record in known else open_segment(folder, record, manifest.dimension, full_check)
        for record in manifest.segments
    ]
    return StoreSnapshot(manifest, segments)


def find_damage(folder: Path, manifest: StoreManifest) -> list[str]:
    """Read all files and return an error message for each one that has changed since it was written."""
    problems = []
    for record in manifest.segments:
        for file_record in record.files:
            try:
                with open_file(folder, record, file_record) as file:
                    check_content(file, folder / file_record.name, record, file_record)
            except SkyPartError as error:
                problems.append(str(error))
    return problems
