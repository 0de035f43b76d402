"""Pictures of the map, encoded once and kept while there is room."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

CACHE_BYTES = 64 * 1024 * 1024
MAX_ZOOM = 24


@dataclass(frozen=True)
class Picture:
    """An encoded picture, empty where the map has nothing, and a tag that changes with it."""

    data: bytes
    tag: str


def tagged(data: bytes) -> Picture:
    """A picture with the tag of its bytes."""
    return Picture(data, f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"')


class TileCache:
    """The pictures asked for last, at most `room` bytes of them; used from the event loop alone."""

    def __init__(self, room: int = CACHE_BYTES) -> None:
        self._room = room
        self._kept: OrderedDict[tuple[int, int, int], Picture] = OrderedDict()
        self.bytes = 0

    def get(self, key: tuple[int, int, int]) -> Picture | None:
        """The tile, if it is kept."""
        picture = self._kept.get(key)
        if picture is not None:
            self._kept.move_to_end(key)
        return picture

    def put(self, key: tuple[int, int, int], picture: Picture) -> None:
        """Keep a tile, and give up those not asked for the longest."""
        if key in self._kept:
            return
        self._kept[key] = picture
        self.bytes += _cost(picture)
        while self.bytes > self._room:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= _cost(oldest)


def is_tile(z: int, x: int, y: int) -> bool:
    """Whether there is such a tile on Earth."""
    return 0 <= z <= MAX_ZOOM and 0 <= x < 2**z and 0 <= y < 2**z


def _cost(picture: Picture) -> int:
    return len(picture.data) + 256  # an empty tile takes room as well
