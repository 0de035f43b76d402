"""Files of maps: local paths and remote addresses, fingerprints, and file handles shared between threads."""

import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Protocol, TypeVar, cast

from skypart.errors import SkyPartError

WHOLE_BYTES = 64 << 20
"""Files up to this size are hashed completely; of larger ones, PIECES pieces spread evenly."""
PIECES, PIECE_BYTES = 64, 1 << 18
_REMOTE = re.compile(r"^(/vsi|[A-Za-z][A-Za-z0-9+.-]*://)")
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"((?:/vsi|[A-Za-z][A-Za-z0-9+.-]*://)[^?#\s]*)[?#][^\s'\")]*")


def is_remote(path: str) -> bool:
    """Whether a path is a remote address (https://, s3://, /vsicurl/...) rather than a local file."""
    return _REMOTE.match(path) is not None


def redact_address(path: str) -> str:
    """A path as messages show it: an address without user and query, which may contain a key."""
    return _USER.sub("", re.split(r"[?#]", path)[0]) if is_remote(path) else path


def redact_message(text: str, path: str) -> str:
    """An error message of another library about `path`, with all addresses in it redacted."""
    return _USER.sub("", _QUERY.sub(r"\1", text.replace(path, redact_address(path))))


def absolute_path(path: str | Path) -> str:
    """A path that is valid from any folder. A symbolic link keeps its name, because files beside it belong to it."""
    given = Path(path)
    return str(given.resolve() if given.name in ("", "..") else given.parent.resolve() / given.name)


def path_exists(path: str | Path) -> bool:
    """Whether a file or folder exists and is accessible."""
    try:
        return Path(path).exists()
    except OSError:  # in a folder without permission, or on a mount that is gone
        return False


def open_ordinary(path: Path) -> BufferedReader:
    """Open an ordinary file for reading. Never waits for a pipe or a device; SkyPartError for those."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise SkyPartError(f"{path}: is not an ordinary file; remove it")


def read_file(path: Path, most: int) -> bytes:
    """The content of an ordinary file of at most `most` bytes. Never waits for a pipe or a device."""
    with open_ordinary(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise SkyPartError(f"{path}: has {size:,} bytes, more than the {most:,} it may have; remove it")
        return file.read(most)


def file_digest(path: Path) -> str:
    """Size of a file and its SHA-256; for a large file, the SHA-256 of pieces of it."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise SkyPartError(f"{path}: is not an ordinary file; remove it")
    size = status.st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            digest.update(file.read())
        else:
            for number in range(PIECES):
                file.seek((size - PIECE_BYTES) * number // (PIECES - 1))
                digest.update(file.read(PIECE_BYTES))
    return f"{size}-{digest.hexdigest()[:32]}"


def combine_digests(digests: Iterable[str]) -> str:
    """One fingerprint of several strings; their order matters."""
    combined = hashlib.sha256()
    for digest in digests:
        combined.update(digest.encode() + b"\0")
    return combined.hexdigest()[:40]


class Closable(Protocol):
    """An open file."""

    def close(self) -> object:
        """Release it."""


T = TypeVar("T", bound=Closable)


class HandlePool:
    """Open files that threads share by turns: one borrower per handle at a time.

    Keeps up to `limit` idle handles open, the most recently used ones.
    """

    def __init__(self, limit: int = 32) -> None:
        self._limit = limit
        self._idle: list[tuple[str, Closable]] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, path: str, opener: Callable[[], T]) -> Generator[T, None, None]:
        """A handle of the file `path`, opened with `opener` if none is idle. It is closed if the block raises."""
        key = f"{os.getpid()}:{_file_version(path)}:{path}"  # a forked process must not share offsets with its parent
        idle = cast(T | None, self._take(key))
        handle = opener() if idle is None else idle
        try:
            yield handle
        except BaseException:
            handle.close()
            raise
        self._give_back(key, handle)

    def _take(self, key: str) -> Closable | None:
        with self._lock:
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index][0] == key:
                    return self._idle.pop(index)[1]
        return None

    def _give_back(self, key: str, handle: Closable) -> None:
        with self._lock:
            self._idle.append((key, handle))
            surplus = self._idle.pop(0)[1] if len(self._idle) > self._limit else None
        if surplus is not None:
            surplus.close()


def _file_version(path: str) -> str:
    """A string that changes when the file at `path` is replaced; empty if there is no local file."""
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"


HANDLES = HandlePool()
