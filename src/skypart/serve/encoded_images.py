"""Encoded images with ETags, and a cache of encoded tiles."""

import hashlib
import io
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.images.decode import RgbImage

PREVIEW_EDGE = 1280
CACHE_BYTES = 64 * 1024 * 1024
MAX_ZOOM = 24


def encode_jpeg(image: RgbImage, max_edge: int = PREVIEW_EDGE, quality: int = 88) -> bytes:
    """A JPEG of (h, w, 3) `image`, scaled down to at most `max_edge` pixels."""
    scaled = Image.fromarray(image)
    scaled.thumbnail((max_edge, max_edge), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    scaled.save(out, "JPEG", quality=quality)
    return out.getvalue()


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """A PNG of (h, w, 3) or (h, w, 4) pixels."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG", compress_level=4)
    return out.getvalue()


@dataclass(frozen=True)
class EncodedImage:
    """An encoded image and its ETag. data: empty where the map has nothing."""

    data: bytes
    etag: str


def with_etag(data: bytes) -> EncodedImage:
    """An encoded image with the hash of its bytes as ETag."""
    return EncodedImage(data, f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"')


class TileCache:
    """The most recently used tiles, at most `max_bytes` of them. Use it from the event loop only."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._tiles: OrderedDict[tuple[int, int, int], EncodedImage] = OrderedDict()
        self.bytes = 0

    def get(self, key: tuple[int, int, int]) -> EncodedImage | None:
        """The tile (z, x, y), if it is cached."""
        tile = self._tiles.get(key)
        if tile is not None:
            self._tiles.move_to_end(key)
        return tile

    def put(self, key: tuple[int, int, int], tile: EncodedImage) -> None:
        """Cache a tile and evict the least recently used ones."""
        if key in self._tiles:
            return
        self._tiles[key] = tile
        self.bytes += _cost(tile)
        while self.bytes > self._max_bytes:
            _, oldest = self._tiles.popitem(last=False)
            self.bytes -= _cost(oldest)


def is_tile(z: int, x: int, y: int) -> bool:
    """Whether the Web Mercator tile z/x/y exists."""
    return 0 <= z <= MAX_ZOOM and 0 <= x < 2**z and 0 <= y < 2**z


def _cost(tile: EncodedImage) -> int:
    return len(tile.data) + 256  # empty tiles take memory as well
