"""Segments are few and large: a batch takes up the smaller segments of its map, and what is replaced is deleted."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from skypart.errors import SkyPartError
from skypart.maps.store.interface import ViewBatch
from skypart.maps.store.manifest import Manifest, SegmentRecord
from skypart.maps.store.segment import Half, Segment, Table, damaged, open_segment, write_segment

SEGMENT_BYTES = 256 << 20
"""Most bytes of vectors in a segment."""
_COPIED = 16_384
_OURS = re.compile(
    r"\d{12,}-\d+\.(vectors|footprints)\.npy"
    r"|\.(manifest|approximate|\d{12,}-\d+\.(vectors|footprints))\.tmp-[0-9a-f]{8}\.(json|faiss|npy)"
)
"""Names of segment files, and of temporary files of all we write; nothing else is ever deleted."""


def with_batch(folder: Path, manifest: Manifest, batch: ViewBatch) -> Manifest:
    """Write the segments that hold `batch`; the manifest that will name them.

    Like the carry of a binary counter, a batch takes up the last segments of its map as long as they are no larger
    than what has come together: n equal batches leave log2(n) segments, and copy a view log2(n) times at most.
    """
    dimension = batch.vectors.shape[1]
    if manifest.dimension not in (0, dimension):
        raise SkyPartError(
            f"views of {batch.map_name} have {dimension} numbers and those in {folder} {manifest.dimension}; "
            "use one model for all maps of a store"
        )
    most = max(1, SEGMENT_BYTES // (2 * dimension))
    for first in range(0, len(batch.vectors), most):
        piece = slice(first, first + most)
        manifest = _with_piece(folder, manifest, batch.map_name, batch.vectors[piece], batch.footprints[piece], most)
    return manifest


def _with_piece(
    folder: Path, manifest: Manifest, map_name: str, vectors: Half, footprints: Table, most: int
) -> Manifest:
    """Write one segment of `vectors` (n, d) and of the smaller segments before them."""
    count, dimension = vectors.shape
    taken = _smaller([record for record in manifest.segments if record.map_name == map_name], count, most)
    segments = [open_checked(folder, record, dimension) for record in taken]
    rows = _joined([*(span for record in taken for span in record.rows), (manifest.next_row, count)])
    table = np.concatenate([*(segment.footprints for segment in segments), footprints])
    new = write_segment(folder, map_name, rows, dimension, _stream(segments, vectors), table)
    kept = [record for record in manifest.segments if record not in taken]
    return Manifest(
        dimension=dimension,
        next_row=manifest.next_row + count,
        segments=tuple(sorted([*kept, new], key=lambda record: record.rows[0][0])),
    )


def _smaller(records: list[SegmentRecord], count: int, most: int) -> list[SegmentRecord]:
    """The last of a map's segments that `count` new views are written together with."""
    keep = len(records)
    while keep and records[keep - 1].views <= count and records[keep - 1].views + count <= most:
        count += records[keep - 1].views
        keep -= 1
    return records[keep:]


def _stream(segments: Iterable[Segment], vectors: Half) -> Iterator[Half]:
    for segment in segments:
        for first in range(0, len(segment.vectors), _COPIED):
            yield segment.vectors[first : first + _COPIED]
    yield vectors


def _joined(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges (first, count) with those that touch made one."""
    joined: list[tuple[int, int]] = []
    for first, count in spans:
        if joined and sum(joined[-1]) == first:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((first, count))
    return tuple(joined)


def open_checked(folder: Path, record: SegmentRecord, dimension: int, full_check: bool = True) -> Segment:
    """As `open_segment`; a missing file is damage."""
    try:
        return open_segment(folder, record, dimension, full_check)
    except FileNotFoundError as error:
        raise damaged(Path(error.filename), record, "missing") from error


def clear_strays(folder: Path, manifest: Manifest) -> None:
    """Delete what killed or finished writers left behind. Only for the holder of the lock."""
    named = manifest.file_names
    for path in folder.iterdir():
        if path.name not in named and _OURS.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()
