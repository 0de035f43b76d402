"""Changing an embedded store: one writer at a time, few large segments, no files left behind."""

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from skypart.errors import SkyPartError
from skypart.maps.store.interface import ViewBatch, check_dimension
from skypart.maps.store.manifest import SegmentRecord, StoreManifest
from skypart.maps.store.segment import FootprintTable, Segment, Vectors, damage_error, open_segment, write_segment

LOCK = "writer.lock"
SEGMENT_BYTES = 256 << 20
"""Maximum size of the vectors of one segment, bytes."""
_COPY_ROWS = 16_384
_OWN_FILES = re.compile(
    r"\d{12,}-\d+\.(vectors|footprints)\.npy"
    r"|\.(manifest|model|approximate|\d{12,}-\d+\.(vectors|footprints))\.tmp-[0-9a-f]{8}\.(json|faiss|npy)"
)
"""Names of segment files, and of temporary files of everything the store writes. Nothing else is ever deleted."""


class WriterLock:
    """The right to change a store: held from construction until `close`, or until the process ends for any reason."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / LOCK).open("a+", encoding="utf-8")
        except OSError as error:
            raise SkyPartError(
                f"cannot write to {folder}: {error.strerror or error}; check its permissions or choose another folder"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            if not isinstance(error, BlockingIOError):
                raise SkyPartError(
                    f"cannot lock {folder}: {error.strerror or error}; keep the store on a local disk"
                ) from error
            raise SkyPartError(
                f"{folder} is being written by {f'process {holder}' if holder else 'another process'}; "
                "wait until it has finished, or stop it"
            ) from None
        try:
            self._file.truncate(0)
            self._file.write(str(os.getpid()))
            self._file.flush()
        except OSError as error:
            with suppress(OSError):  # closing tries to write again
                self._file.close()
            raise SkyPartError(
                f"cannot write {folder / LOCK}: {error.strerror or error}; free disk space or check its permissions"
            ) from error

    def close(self) -> None:
        """Release the lock. The file stays: deleting it could let two writers in."""
        fcntl.flock(self._file, fcntl.LOCK_UN)  # closing alone would leave the lock to forked processes
        self._file.close()


def write_batch(folder: Path, manifest: StoreManifest, batch: ViewBatch) -> StoreManifest:
    """Write the segments that hold `batch`, and return the manifest that names them.

    Like the carry of a binary counter, a batch is merged with the last segments of its map as long as they are not
    larger than what has been merged so far: n equal batches leave log2(n) segments and copy a view at most log2(n)
    times.
    """
    dimension = batch.vectors.shape[1]
    check_dimension(batch, manifest.dimension, str(folder))
    max_views = max(1, SEGMENT_BYTES // (2 * dimension))
    for first in range(0, len(batch.vectors), max_views):
        rows = slice(first, first + max_views)
        manifest = _write_merged(
            folder, manifest, batch.map_name, batch.vectors[rows], batch.footprints[rows], max_views
        )
    return manifest


def _write_merged(
    folder: Path,
    manifest: StoreManifest,
    map_name: str,
    vectors: Vectors,
    footprints: FootprintTable,
    max_views: int,
) -> StoreManifest:
    """Write one segment of `vectors` (n, d), together with the smaller segments before them."""
    count, dimension = vectors.shape
    own = [record for record in manifest.segments if record.map_name == map_name]
    merged = _segments_to_merge(own, count, max_views)
    segments = [_open_for_merge(folder, record, dimension) for record in merged]
    rows = _join_ranges([*(span for record in merged for span in record.rows), (manifest.next_row, count)])
    table = np.concatenate([*(segment.footprints for segment in segments), footprints])
    new = write_segment(folder, map_name, rows, dimension, _vector_blocks(segments, vectors), table)
    kept = [record for record in manifest.segments if record not in merged]
    return StoreManifest(
        dimension=dimension,
        next_row=manifest.next_row + count,
        segments=tuple(sorted([*kept, new], key=lambda record: record.rows[0][0])),
    )


def _segments_to_merge(records: list[SegmentRecord], count: int, max_views: int) -> list[SegmentRecord]:
    """The last segments of a map that `count` new views are written together with."""
    keep = len(records)
    while keep and records[keep - 1].views <= count and records[keep - 1].views + count <= max_views:
        count += records[keep - 1].views
        keep -= 1
    return records[keep:]


def _vector_blocks(segments: Iterable[Segment], vectors: Vectors) -> Iterator[Vectors]:
    for segment in segments:
        for first in range(0, len(segment.vectors), _COPY_ROWS):
            yield segment.vectors[first : first + _COPY_ROWS]
    yield vectors


def _join_ranges(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges (first, count), with adjacent ones joined."""
    joined: list[tuple[int, int]] = []
    for first, count in spans:
        if joined and sum(joined[-1]) == first:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((first, count))
    return tuple(joined)


def _open_for_merge(folder: Path, record: SegmentRecord, dimension: int) -> Segment:
    """Open a segment with all checks; the writer reads the newest state, so a missing file is damage."""
    try:
        return open_segment(folder, record, dimension, full_check=True)
    except FileNotFoundError as error:
        raise damage_error(Path(error.filename), record, "missing") from error


def delete_unused_files(folder: Path, manifest: StoreManifest) -> None:
    """Delete files that killed or finished writers left behind. Only the holder of the lock may call this."""
    named = manifest.file_names
    for path in folder.iterdir():
        if path.name not in named and _OWN_FILES.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()
