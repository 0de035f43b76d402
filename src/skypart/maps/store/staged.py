"""Stores with one writer at a time: changes make a new state, which the end of the transaction commits as a whole."""

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from skypart.maps.store.interface import StoreBase
from skypart.maps.store.writer import WriterLock

S = TypeVar("S")


class StagedStore(StoreBase, Generic[S]):
    """A store whose committed states are immutable values of type S.

    folder: holds the writer's lock. Inside a transaction `_staged` is the state to be, otherwise None.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mutex = threading.RLock()
        self._staged: S | None = None
        self._lock: WriterLock | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Changes inside the block are committed together at its end; an exception discards all of them."""
        with self._mutex:
            if self._staged is not None:
                yield
                return
            self._become_writer()
            before = self._staged = self._committed()
            try:
                yield
                if self._staged != before:
                    self._commit(self._staged)
            finally:
                self._staged = None
                self._end_transaction()

    def close(self) -> None:
        """Release the lock and all resources; the store cannot be used afterwards."""
        with self._mutex:
            if self._lock is not None:
                self._lock.close()
                self._lock = None
            if not self._closed:
                self._closed = True
                self._release()

    def _become_writer(self) -> None:
        """Take the lock, unless it is held already."""
        self._check_open()
        if self._lock is not None:
            return
        lock = WriterLock(self.folder)
        try:
            self._prepare_to_write()
        except BaseException:
            lock.close()
            raise
        self._lock = lock

    @abstractmethod
    def _committed(self) -> S:
        """The state to change."""

    @abstractmethod
    def _commit(self, state: S) -> None:
        """Make `state` the newest one."""

    @abstractmethod
    def _prepare_to_write(self) -> None:
        """Go to the newest state, and delete what killed writers left behind. The lock is held."""

    def _end_transaction(self) -> None:
        """Called after every transaction, whether or not it was committed."""

    @abstractmethod
    def _release(self) -> None:
        """Give up connections and open files. Called once."""
