"""One state of a store, open for searching. Views are counted by position: segment after segment of the manifest."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skypart.geo.footprint import Footprint
from skypart.maps.store.area import check_area, inside
from skypart.maps.store.interface import COLUMNS, Hit, Within
from skypart.maps.store.manifest import Manifest
from skypart.maps.store.segment import Half, Segment

GATHERED = 16_384
"""Views copied together at a time when only some are searched."""
LONG_RUN = 32
"""Views in a row, on average, from which scanning them in place is faster than copying them together."""
Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """Views whose vectors lie together in memory. first: position of the first."""

    first: int
    vectors: Half


class Snapshot:
    """Open segments; they stay mapped as long as this object lives, whatever happens to the store's folder."""

    def __init__(self, manifest: Manifest, segments: Sequence[Segment]) -> None:
        self.manifest = manifest
        self.dimension = manifest.dimension
        self.segments = tuple(segments)
        self._starts = np.cumsum([0, *(len(s.vectors) for s in self.segments)], dtype=np.int64)
        self.parts = tuple(_parts(self.segments))

    def __len__(self) -> int:
        """Number of views."""
        return int(self._starts[-1])

    def check_sizes(self) -> None:
        """Refuse to search files that were cut short."""
        for segment in self.segments:
            segment.check_size()

    def allowed(self, within: Within) -> Positions:
        """Positions of the views whose centres lie in an area, ascending."""
        check_area(within)
        found = [
            start + np.flatnonzero(inside(within, latitude=s.footprints[:, 0], longitude=s.footprints[:, 1]))
            for start, s in zip(self._starts, self.segments, strict=False)
        ]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def chunks(self, positions: Positions | None, in_place: bool) -> Iterator[tuple[int, Half]]:
        """Vectors of all views, or of those at ascending `positions`, in order, with the number that came before.

        in_place: views in long runs are not copied, in chunks of any length; else a chunk of some has 16,384 at most.
        """
        if positions is None:
            yield from ((part.first, part.vectors) for part in self.parts)
            return
        for part in self.parts:
            begin, end = np.searchsorted(positions, [part.first, part.first + len(part.vectors)])
            local = positions[begin:end] - part.first
            breaks = np.flatnonzero(np.diff(local) != 1) + 1
            if in_place and len(local) >= LONG_RUN * (len(breaks) + 1):
                for first, last in zip([0, *breaks], [*breaks, len(local)], strict=True):
                    yield int(begin + first), part.vectors[local[first] : local[last - 1] + 1]
                continue
            for first in range(0, len(local), GATHERED):
                yield int(begin) + first, part.vectors[local[first : first + GATHERED]]

    def vectors(self, positions: Positions) -> Half:
        """(m, d) vectors at positions in any order."""
        gathered = np.empty((len(positions), self.dimension), dtype=np.float16)
        for part in self.parts:
            here = np.flatnonzero((positions >= part.first) & (positions < part.first + len(part.vectors)))
            gathered[here] = part.vectors[positions[here] - part.first]
        return gathered

    def rows(self, positions: Positions) -> NDArray[np.int64]:
        """(m,) row numbers of the views at positions."""
        rows = np.empty(len(positions), dtype=np.int64)
        for segment, here, local in self._owners(positions):
            rows[here] = segment.rows(local)
        return rows

    def hits(self, positions: Positions, scores: NDArray[np.float64]) -> list[Hit]:
        """What was found at positions, in their order."""
        names = np.empty(len(positions), dtype=object)
        places = np.empty((len(positions), len(COLUMNS)))
        for segment, here, local in self._owners(positions):
            names[here], places[here] = segment.record.map_name, segment.footprints[local]
        return [
            Hit(
                map_name=name,
                footprint=Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation),
                score=score,
                row=row,
            )
            for name, (latitude, longitude, metres, rotation), score, row in zip(
                names, places.tolist(), scores.tolist(), self.rows(positions).tolist(), strict=True
            )
        ]

    def _owners(self, positions: Positions) -> Iterator[tuple[Segment, NDArray[np.bool_], Positions]]:
        """Segments that hold any of the positions, which of them, and the places in the segment."""
        owner = np.searchsorted(self._starts, positions, side="right") - 1
        for number in np.unique(owner):
            here = owner == number
            yield self.segments[number], here, positions[here] - self._starts[number]


def _parts(segments: Sequence[Segment]) -> Iterator[Part]:
    """Mapped segments as they are; small ones between them put together."""
    position, small = 0, list[Half]()
    for segment in segments:
        if segment.mapped is None:
            small.append(segment.vectors)
            continue
        if small:
            stacked = np.concatenate(small)
            yield Part(position, stacked)
            position += len(stacked)
            small = []
        yield Part(position, segment.vectors)
        position += len(segment.vectors)
    if small:
        yield Part(position, np.concatenate(small))
