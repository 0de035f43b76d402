"""Arrays in .npy files that never change: written block by block and hashed on the way, compared when they are read.

The checks raise ValueError with what is wrong; the caller knows the file's name and the remedy.
"""

import hashlib
import math
import os
from collections.abc import Iterable
from io import BufferedReader, BytesIO
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

HEADER_BYTES = 1_024
"""Larger than the header of any file written here (128)."""


def write_array(
    file: BinaryIO, kind: str, shape: tuple[int, ...], blocks: Iterable[NDArray[Any]], *, column_major: bool = False
) -> tuple[int, str]:
    """Write an array whose elements `blocks` give in order. Returns the file's size in bytes and its SHA-256.

    kind: dtype, such as `<f2`. column_major: whether the blocks are columns.
    """
    header = BytesIO()
    npy.write_array_header_1_0(header, {"descr": kind, "fortran_order": column_major, "shape": shape})
    file.write(header.getvalue())
    digest = hashlib.sha256(header.getvalue())
    for block in blocks:
        data = np.ascontiguousarray(block, dtype=kind).data.cast("B")
        digest.update(data)
        file.write(data)
    return file.tell(), digest.hexdigest()


def read_header(file: BinaryIO, size: int, kind: str, shape: tuple[int, ...]) -> tuple[int, bool]:
    """Read the header of a file of `size` bytes. Returns where its data begin, and whether they are column-major.

    ValueError: its array is not of this type and shape.
    """
    npy.read_magic(file)
    found, column_major, dtype = npy.read_array_header_1_0(file)
    start = file.tell()
    if found != shape or dtype != np.dtype(kind) or size != start + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"not a {' x '.join(f'{edge:,}' for edge in shape)} array of type {kind}")
    return start, column_major


def check_size(file: BufferedReader, size: int) -> None:
    """ValueError: an open file does not have `size` bytes."""
    found = os.fstat(file.fileno()).st_size
    if found != size:
        raise ValueError(f"{found:,} bytes instead of {size:,}")


def check_hash(file: BufferedReader, sha256: str) -> None:
    """ValueError: what an open file has from here on has another SHA-256."""
    if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
        raise ValueError("its SHA-256 has changed")
