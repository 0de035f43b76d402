"""A cache in memory that stops growing at a number of bytes."""

from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """An array or tensor."""

    @property
    def nbytes(self) -> int:
        """Its size in memory."""


T = TypeVar("T", bound=Sized)


class BoundedCache(Generic[T]):
    """Arrays or tensors by key. limit: bytes to keep; once it is reached, further values are not kept."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit, self.size = limit, 0
        self._kept: dict[bytes, T] = {}

    def __len__(self) -> int:
        """Values stored."""
        return len(self._kept)

    def get(self, key: bytes) -> T | None:
        """The value stored under `key`."""
        return self._kept.get(key)

    def put(self, key: bytes, value: T) -> None:
        """Store a value unless the limit is reached."""
        if self.size + value.nbytes <= self.limit:
            self._kept[key] = value
            self.size += value.nbytes
