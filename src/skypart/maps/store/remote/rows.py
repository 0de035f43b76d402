"""Vectors of a published store, read by ranges in blocks that the cache keeps."""

from collections.abc import Iterator, Sequence
from io import BytesIO

import numpy as np

from skypart.maps.array_file import HEADER_BYTES, read_header
from skypart.maps.store.manifest import BLOCK_BYTES, SegmentRecord, StoreManifest, block_hash
from skypart.maps.store.remote.bucket import Bucket
from skypart.maps.store.remote.cache import BlockCache
from skypart.maps.store.segment import Segment, Vectors
from skypart.maps.store.snapshot import GATHER_ROWS, Positions, StoreSnapshot


class RemoteRows:
    """The vectors of one segment: (n, d) float16, read by ranges. Every block is checked by its hash."""

    def __init__(self, bucket: Bucket, cache: BlockCache, record: SegmentRecord, dimension: int) -> None:
        self._bucket, self._cache, self._file = bucket, cache, record.vectors
        self._views, self._dimension = record.views, dimension
        header = self._bytes(0, min(HEADER_BYTES, self._file.bytes))
        try:
            self._start, column_major = read_header(BytesIO(header), self._file.bytes, "<f2", (self._views, dimension))
            if column_major:
                raise ValueError("its rows are not contiguous")
        except ValueError as error:
            raise bucket.damage(self._file.name, str(error)) from error

    def __len__(self) -> int:
        """Number of views."""
        return self._views

    def span(self, first: int, last: int) -> Vectors:
        """Rows first..last - 1."""
        width = 2 * self._dimension
        body = self._bytes(self._start + first * width, self._start + last * width)
        return np.frombuffer(body, dtype="<f2").reshape(-1, self._dimension)

    def _bytes(self, start: int, end: int) -> bytes:
        blocks = [self._block(number) for number in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))]
        before = start // BLOCK_BYTES * BLOCK_BYTES
        return b"".join(blocks)[start - before : end - before]

    def _block(self, number: int) -> bytes:
        name = f"{self._file.sha256[:2]}/{self._file.sha256}-{number}.block"
        body = self._cache.get(name)
        if body is None:
            start = number * BLOCK_BYTES
            body = self._bucket.read_part(self._file, start, min(start + BLOCK_BYTES, self._file.bytes))
            hashes = self._file.blocks  # none in a store of a version before 0.3
            if hashes and block_hash(body) != hashes[number]:
                raise self._bucket.damage(self._file.name, f"the SHA-256 of its block {number} has changed")
            self._cache.put(name, body)
        return body


class RemoteSnapshot(StoreSnapshot):
    """A state whose vectors are read by ranges; footprints are in memory."""

    def __init__(self, manifest: StoreManifest, segments: Sequence[Segment], rows: Sequence[RemoteRows]) -> None:
        super().__init__(manifest, segments)
        self._remote = tuple(rows)

    def chunks(self, positions: Positions | None, in_place: bool) -> Iterator[tuple[int, Vectors]]:
        """As in `StoreSnapshot`, but chunks always have at most GATHER_ROWS rows."""
        if positions is None:
            for start, rows in zip(self._starts, self._remote, strict=False):
                for first in range(0, len(rows), GATHER_ROWS):
                    yield int(start) + first, rows.span(first, min(first + GATHER_ROWS, len(rows)))
            return
        for first in range(0, len(positions), GATHER_ROWS):
            yield first, self.vectors(positions[first : first + GATHER_ROWS])

    def vectors(self, positions: Positions) -> Vectors:
        """(m, d) vectors at positions, which may be in any order; neighbours are read together."""
        gathered = np.empty((len(positions), self.dimension), dtype=np.float16)
        order = np.argsort(positions, kind="stable")
        ordered = positions[order]
        owner = np.searchsorted(self._starts, ordered, side="right") - 1
        per_block = max(1, BLOCK_BYTES // (2 * self.dimension))
        breaks = np.flatnonzero((np.diff(ordered) > per_block) | (np.diff(owner) != 0)) + 1
        for run in np.split(np.arange(len(ordered)), breaks) if len(ordered) else ():
            for piece in np.split(run, range(GATHER_ROWS, len(run), GATHER_ROWS)):
                local = ordered[piece] - self._starts[owner[piece[0]]]
                rows = self._remote[owner[piece[0]]].span(int(local[0]), int(local[-1]) + 1)
                gathered[order[piece]] = rows[local - local[0]]
        return gathered
