"""Segments: views of one map in two immutable .npy files, with the vectors memory-mapped."""

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError
from skypart.maps.array_file import HEADER_BYTES, check_hash, check_size, read_header, write_array
from skypart.maps.files import open_ordinary
from skypart.maps.store.interface import COLUMNS
from skypart.maps.store.manifest import BLOCK_BYTES, FOOTPRINTS, VECTORS, FileRecord, SegmentRecord, block_hash

SMALL_BYTES = 2 << 20
"""Vectors up to this size are read instead of mapped, so that many small maps do not each hold a mapping."""
Vectors: TypeAlias = NDArray[np.float16]
FootprintTable: TypeAlias = NDArray[np.float64]


@dataclass(eq=False)
class Segment:
    """An open segment. vectors (n, d) float16, footprints (n, 4) float64 with contiguous columns."""

    path: Path
    record: SegmentRecord
    vectors: Vectors
    footprints: FootprintTable
    mapped: mmap.mmap | None

    def check_size(self) -> None:
        """Raise if the mapped file was truncated since opening: reading past its end would kill the process."""
        if self.mapped is not None and self.mapped.size() != self.record.vectors.bytes:
            raise damage_error(self.path, self.record, f"now {self.mapped.size():,} bytes")

    def rows(self, local: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row numbers of views, given their positions in the segment."""
        firsts, counts = np.array(self.record.rows, dtype=np.int64).T
        ends = np.cumsum(counts)
        span = np.searchsorted(ends, local, side="right")
        rows: NDArray[np.int64] = firsts[span] + local - (ends - counts)[span]
        return rows


def write_segment(
    folder: Path,
    map_name: str,
    rows: tuple[tuple[int, int], ...],
    dimension: int,
    vectors: Iterable[Vectors],
    footprints: FootprintTable,
) -> SegmentRecord:
    """Write and flush both files. vectors: blocks (m, dimension) with n rows in all. footprints: (n, 4)."""
    stem = f"{rows[0][0]:012d}-{len(footprints)}"
    shape = (len(footprints), dimension)
    with atomic_path(folder / (stem + VECTORS)) as temporary, temporary.open("wb") as file:
        size, digest = write_array(file, "<f2", shape, vectors)
        file.flush()
        hashes = tuple(_block_hashes(temporary))
    vector_record = FileRecord(name=stem + VECTORS, bytes=size, sha256=digest, blocks=hashes)
    with atomic_path(folder / (stem + FOOTPRINTS)) as temporary, temporary.open("wb") as file:
        columns = (np.ascontiguousarray(column) for column in footprints.T)
        size, digest = write_array(file, "<f8", footprints.shape, columns, column_major=True)
    footprint_record = FileRecord(name=stem + FOOTPRINTS, bytes=size, sha256=digest)
    return SegmentRecord(map_name=map_name, rows=rows, vectors=vector_record, footprints=footprint_record)


def _block_hashes(path: Path) -> Iterator[str]:
    """The hash of each block of a file that was just written."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block_hash(block)


def open_segment(folder: Path, record: SegmentRecord, dimension: int, full_check: bool) -> Segment:
    """Open a segment after checking file sizes and the hash of the footprints; of the vectors too if `full_check`."""
    path = folder / record.vectors.name
    with open_file(folder, record, record.footprints) as file:
        content = file.read()
    if hashlib.sha256(content).hexdigest() != record.footprints.sha256:
        raise damage_error(folder / record.footprints.name, record, "its SHA-256 has changed")
    footprints = _as_array(content, folder / record.footprints.name, record, "<f8", (record.views, len(COLUMNS)))
    with open_file(folder, record, record.vectors) as file:
        if full_check:
            check_content(file, path, record, record.vectors)
        if record.vectors.bytes > SMALL_BYTES:
            mapped = mmap.mmap(file.fileno(), record.vectors.bytes, access=mmap.ACCESS_READ)
            vectors = _as_array(mapped, path, record, "<f2", (record.views, dimension))
            return Segment(path, record, vectors, footprints, mapped)
        file.seek(0)
        vectors = _as_array(file.read(), path, record, "<f2", (record.views, dimension))
        return Segment(path, record, vectors, footprints, None)


def check_content(file: BufferedReader, path: Path, record: SegmentRecord, file_record: FileRecord) -> None:
    """Raise if the SHA-256 of an open file differs from the recorded one."""
    try:
        check_hash(file, file_record.sha256)
    except (OSError, ValueError) as error:
        raise damage_error(path, record, getattr(error, "strerror", None) or str(error)) from error


def damage_error(path: Path, record: SegmentRecord, how: str) -> SkyPartError:
    """The error that reports a damaged file."""
    return SkyPartError(
        f"{path}: damaged ({how}); restore it from a backup, or remove the map {record.map_name} or the whole "
        "index, and index it again"
    )


def open_file(folder: Path, record: SegmentRecord, file_record: FileRecord) -> BufferedReader:
    """Open a file after checking its size. FileNotFoundError passes through: the file may belong to an older state."""
    path = folder / file_record.name
    try:
        file = open_ordinary(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SkyPartError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error
    try:
        check_size(file, file_record.bytes)
    except ValueError as error:
        file.close()
        raise damage_error(path, record, str(error)) from error
    return file


def _as_array(
    content: bytes | mmap.mmap, path: Path, record: SegmentRecord, kind: str, shape: tuple[int, int]
) -> NDArray[Any]:
    """The array in an .npy file, without copying it."""
    try:
        start, column_major = read_header(BytesIO(content[:HEADER_BYTES]), len(content), kind, shape)
    except ValueError as error:
        raise damage_error(path, record, str(error)) from error
    flat = np.frombuffer(content, dtype=kind, offset=start)
    return flat.reshape(shape[::-1]).T if column_major else flat.reshape(shape)
