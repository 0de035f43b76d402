"""A short text that changes when a map's file does."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

WHOLE = 64 << 20
"""Bytes up to which a file is read whole; of larger ones, PIECES pieces spread evenly."""
PIECES, PIECE = 64, 1 << 18


def file_digest(path: Path) -> str:
    """Size of a file and the SHA-256 of it, or of pieces of it if it is large."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= WHOLE:
            digest.update(file.read())
        else:
            for number in range(PIECES):
                file.seek((size - PIECE) * number // (PIECES - 1))
                digest.update(file.read(PIECE))
    return f"{size}-{digest.hexdigest()[:32]}"


def combined(parts: Iterable[str]) -> str:
    """One fingerprint of several texts in their order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:40]
