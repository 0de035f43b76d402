"""A segment: views of one map in two .npy files that never change, the vectors mapped into memory."""

import hashlib
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError
from skypart.maps.store.interface import COLUMNS
from skypart.maps.store.manifest import FOOTPRINTS, VECTORS, FileRecord, SegmentRecord

SMALL_BYTES = 2 << 20
"""Vectors of segments up to this size are read, not mapped: many maps need no open file each."""
_HEADER_BYTES = 1_024
"""More than the header of an .npy file takes (128)."""
Half = NDArray[np.float16]
Table = NDArray[np.float64]


@dataclass(eq=False)
class Segment:
    """An open segment. vectors (n, d) float16, footprints (n, 4) float64 with contiguous columns."""

    path: Path
    record: SegmentRecord
    vectors: Half
    footprints: Table
    mapped: mmap.mmap | None

    def check_size(self) -> None:
        """Refuse a file that was cut short since it was opened: touching its lost end would kill the process."""
        if self.mapped is not None and self.mapped.size() != self.record.vectors.bytes:
            raise damaged(self.path, self.record, f"now {self.mapped.size():,} bytes")

    def rows(self, local: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row numbers of views by their place in the segment."""
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
    vectors: Iterable[Half],
    footprints: Table,
) -> SegmentRecord:
    """Write and flush both files of a segment. vectors: blocks (m, dimension), together n rows; footprints (n, 4)."""
    stem = f"{rows[0][0]:012d}-{len(footprints)}"
    shape = (len(footprints), dimension)
    with atomic_path(folder / (stem + VECTORS)) as temporary, temporary.open("wb") as file:
        vector_record = _write(file, stem + VECTORS, "<f2", shape, vectors)
    with atomic_path(folder / (stem + FOOTPRINTS)) as temporary, temporary.open("wb") as file:
        columns = (np.ascontiguousarray(column) for column in footprints.T)
        place_record = _write(file, stem + FOOTPRINTS, "<f8", footprints.shape, columns, by_column=True)
    return SegmentRecord(map_name=map_name, rows=rows, vectors=vector_record, footprints=place_record)


def _write(
    file: BinaryIO,
    name: str,
    kind: str,
    shape: tuple[int, ...],
    blocks: Iterable[NDArray[Any]],
    by_column: bool = False,
) -> FileRecord:
    """Write an array in numpy's own file format, hashing on the way."""
    header = BytesIO()
    npy.write_array_header_1_0(header, {"descr": kind, "fortran_order": by_column, "shape": shape})
    file.write(header.getvalue())
    digest = hashlib.sha256(header.getvalue())
    for block in blocks:
        data = np.ascontiguousarray(block, dtype=kind).data.cast("B")
        digest.update(data)
        file.write(data)
    return FileRecord(name=name, bytes=file.tell(), sha256=digest.hexdigest())


def open_segment(folder: Path, record: SegmentRecord, dimension: int, full_check: bool) -> Segment:
    """Open a segment's files after checking sizes and the footprints' SHA-256, and the vectors' if `full_check`."""
    path = folder / record.vectors.name
    with open_file(folder, record, record.footprints) as file:
        content = file.read()
    if hashlib.sha256(content).hexdigest() != record.footprints.sha256:
        raise damaged(folder / record.footprints.name, record, "its SHA-256 has changed")
    footprints = _as_array(content, folder / record.footprints.name, record, "<f8", (record.views, len(COLUMNS)))
    with open_file(folder, record, record.vectors) as file:
        if full_check:
            check_hash(file, path, record, record.vectors)
        if record.vectors.bytes > SMALL_BYTES:
            mapped = mmap.mmap(file.fileno(), record.vectors.bytes, access=mmap.ACCESS_READ)
            vectors = _as_array(mapped, path, record, "<f2", (record.views, dimension))
            return Segment(path, record, vectors, footprints, mapped)
        file.seek(0)
        vectors = _as_array(file.read(), path, record, "<f2", (record.views, dimension))
        return Segment(path, record, vectors, footprints, None)


def check_hash(file: BufferedReader, path: Path, record: SegmentRecord, file_record: FileRecord) -> None:
    """Refuse an open file whose bytes are not those that were written."""
    try:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise damaged(path, record, str(error.strerror or error)) from error
    if digest != file_record.sha256:
        raise damaged(path, record, "its SHA-256 has changed")


def damaged(path: Path, record: SegmentRecord, how: str) -> SkyPartError:
    """The sentence for a broken file."""
    return SkyPartError(
        f"{path}: damaged ({how}); restore it from a copy, or remove the map {record.map_name}, or the whole index, "
        "and index it again"
    )


def open_file(folder: Path, record: SegmentRecord, file_record: FileRecord) -> BufferedReader:
    """Open a file whose size is as it should be. FileNotFoundError passes through: it may be an older state's."""
    path = folder / file_record.name
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SkyPartError(f"cannot read {path}: {error.strerror or error}; check its rights") from error
    size = os.fstat(file.fileno()).st_size
    if size != file_record.bytes:
        file.close()
        raise damaged(path, record, f"{size:,} bytes instead of {file_record.bytes:,}")
    return file


def _as_array(
    content: bytes | mmap.mmap, path: Path, record: SegmentRecord, kind: str, shape: tuple[int, int]
) -> NDArray[Any]:
    """A view on the array of an .npy file; nothing is copied."""
    start = BytesIO(content[:_HEADER_BYTES])
    try:
        npy.read_magic(start)
        found, by_column, dtype = npy.read_array_header_1_0(start)
    except ValueError as error:
        raise damaged(path, record, str(error)) from error
    if found != shape or dtype != np.dtype(kind) or len(content) != start.tell() + shape[0] * shape[1] * dtype.itemsize:
        raise damaged(path, record, f"not {shape[0]:,} x {shape[1]:,} numbers of type {kind}")
    flat = np.frombuffer(content, dtype=kind, offset=start.tell())
    return flat.reshape(shape[::-1]).T if by_column else flat.reshape(shape)
