"""A local cache of bounded size for blocks of remote files."""

import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError

CACHE_FOLDER, CACHE_BYTES = "SKYPART_CACHE", "SKYPART_CACHE_BYTES"
"""Environment variables: folder of the cache, and its maximum size in bytes."""
DEFAULT_BYTES = 2 << 30


class BlockCache:
    """Blocks of remote files on the local disk; the least recently used ones are deleted above `limit` bytes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._lock = threading.Lock()
        self._used: int | None = None

    def get(self, name: str) -> bytes | None:
        """A cached block, or None."""
        path = self.folder / name
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, body = content[:32], content[32:]
        return body if hashlib.sha256(body).digest() == digest else None

    def put(self, name: str, body: bytes) -> None:
        """Keep a block, unless it is larger than the cache. A full disk is no error: the block is just not kept."""
        if len(body) + 32 > self.limit:
            return
        with suppress(SkyPartError, OSError), atomic_path(self.folder / name) as temporary:
            temporary.write_bytes(hashlib.sha256(body).digest() + body)
        with self._lock:
            self._used = self._trim() if self._used is None else self._used + len(body) + 32
            if self._used > self.limit:
                self._used = self._trim()

    def _trim(self) -> int:
        """Delete the oldest blocks until nine tenths of the limit are used, if more than all of it is."""
        found = []
        for path in self.folder.glob("??/*.block"):
            with suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime_ns, facts.st_size, path))
        used = sum(size for _, size, _ in found)
        if used <= self.limit:
            return used
        for _, size, path in sorted(found, key=lambda each: each[0]):
            if used <= 0.9 * self.limit:
                break
            with suppress(OSError):
                path.unlink()
                used -= size
        return used


def default_cache() -> BlockCache:
    """The cache that the environment asks for."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skypart" / "blocks"
    text = os.environ.get(CACHE_BYTES, str(DEFAULT_BYTES))
    if not text.isdecimal():
        raise SkyPartError(f"{CACHE_BYTES}={text}: must be a whole number of bytes")
    return BlockCache(Path(os.environ.get(CACHE_FOLDER) or home), int(text))
