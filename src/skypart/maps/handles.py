"""Open files that threads take turns with: a handle serves one borrower at a time."""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar, cast


class Closable(Protocol):
    """An open file."""

    def close(self) -> object:
        """Release it."""


T = TypeVar("T", bound=Closable)


class Handles:
    """Keeps at most `limit` unused handles open, the last used; as many more as there are borrowers at once."""

    def __init__(self, limit: int = 32) -> None:
        self._limit = limit
        self._idle: list[tuple[str, Closable]] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, path: str, opener: Callable[[], T]) -> Generator[T, None, None]:
        """A handle of the file `path`, opened by `opener` if none is free; closed if its use fails."""
        key = f"{os.getpid()}:{_version(path)}:{path}"  # a forked process must not share offsets with its parent
        idle = cast(T | None, self._take(key))
        handle = opener() if idle is None else idle
        try:
            yield handle
        except BaseException:
            handle.close()
            raise
        self._give(key, handle)

    def _take(self, key: str) -> Closable | None:
        with self._lock:
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index][0] == key:
                    return self._idle.pop(index)[1]
        return None

    def _give(self, key: str, handle: Closable) -> None:
        with self._lock:
            self._idle.append((key, handle))
            surplus = self._idle.pop(0)[1] if len(self._idle) > self._limit else None
        if surplus is not None:
            surplus.close()


def _version(path: str) -> str:
    """A text that changes when another file is put in the place of `path`; empty for what is no file."""
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"


HANDLES = Handles()
