"""Segments: views of one map in two immutable .npy files, with the vectors memory-mapped."""

import hashlib
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError
from skypart.maps.store.interface import COLUMNS
from skypart.maps.store.manifest import BLOCK_BYTES, FOOTPRINTS, VECTORS, FileRecord, SegmentRecord, block_hash

SMALL_BYTES = 2 << 20
"""Vectors up to this size are read instead of mapped, so that many small maps do not each hold a mapping."""
_HEADER_BYTES = 1_024
"""Larger than the header of any .npy file written here (128)."""
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
        vector_record = _write(file, stem + VECTORS, "<f2", shape, vectors)
        file.flush()
        vector_record = vector_record.model_copy(update={"blocks": tuple(_block_hashes(temporary))})
    with atomic_path(folder / (stem + FOOTPRINTS)) as temporary, temporary.open("wb") as file:
        columns = (np.ascontiguousarray(column) for column in footprints.T)
        footprint_record = _write(file, stem + FOOTPRINTS, "<f8", footprints.shape, columns, column_major=True)
    return SegmentRecord(map_name=map_name, rows=rows, vectors=vector_record, footprints=footprint_record)


def _write(
    file: BinaryIO,
    name: str,
    kind: str,
    shape: tuple[int, ...],
    blocks: Iterable[NDArray[Any]],
    column_major: bool = False,
) -> FileRecord:
    """Write an array in .npy format and hash it on the way. kind: dtype, such as `<f2`."""
    header = BytesIO()
    npy.write_array_header_1_0(header, {"descr": kind, "fortran_order": column_major, "shape": shape})
    file.write(header.getvalue())
    digest = hashlib.sha256(header.getvalue())
    for block in blocks:
        data = np.ascontiguousarray(block, dtype=kind).data.cast("B")
        digest.update(data)
        file.write(data)
    return FileRecord(name=name, bytes=file.tell(), sha256=digest.hexdigest())


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
            check_hash(file, path, record, record.vectors)
        if record.vectors.bytes > SMALL_BYTES:
            mapped = mmap.mmap(file.fileno(), record.vectors.bytes, access=mmap.ACCESS_READ)
            vectors = _as_array(mapped, path, record, "<f2", (record.views, dimension))
            return Segment(path, record, vectors, footprints, mapped)
        file.seek(0)
        vectors = _as_array(file.read(), path, record, "<f2", (record.views, dimension))
        return Segment(path, record, vectors, footprints, None)


def check_hash(file: BufferedReader, path: Path, record: SegmentRecord, file_record: FileRecord) -> None:
    """Raise if the SHA-256 of an open file differs from the recorded one."""
    try:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise damage_error(path, record, str(error.strerror or error)) from error
    if digest != file_record.sha256:
        raise damage_error(path, record, "its SHA-256 has changed")


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
        file = path.open("rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SkyPartError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error
    size = os.fstat(file.fileno()).st_size
    if size != file_record.bytes:
        file.close()
        raise damage_error(path, record, f"{size:,} bytes instead of {file_record.bytes:,}")
    return file


def _as_array(
    content: bytes | mmap.mmap, path: Path, record: SegmentRecord, kind: str, shape: tuple[int, int]
) -> NDArray[Any]:
    """The array in an .npy file, without copying it."""
    header = BytesIO(content[:_HEADER_BYTES])
    try:
        npy.read_magic(header)
        found, column_major, dtype = npy.read_array_header_1_0(header)
    except ValueError as error:
        raise damage_error(path, record, str(error)) from error
    if (
        found != shape
        or dtype != np.dtype(kind)
        or len(content) != header.tell() + shape[0] * shape[1] * dtype.itemsize
    ):
        raise damage_error(path, record, f"not a {shape[0]:,} x {shape[1]:,} array of type {kind}")
    flat = np.frombuffer(content, dtype=kind, offset=header.tell())
    return flat.reshape(shape[::-1]).T if column_major else flat.reshape(shape)
