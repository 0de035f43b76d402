"""Files appear whole or not at all: written beside their place, then renamed."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skypart.errors import SkyPartError

_UMASK = os.umask(0)
os.umask(_UMASK)


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`, of the same suffix; rename it to `path` if the block succeeds.

    The file is flushed to disk before the rename, so that a power cut leaves the old or the new one. On any
    error the temporary file is removed and what stood at `path` stays as it was.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.stem}.tmp-{uuid.uuid4().hex[:8]}{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_UMASK)  # some writers make files for their owner alone
        temporary.replace(target)
    except OSError as error:
        raise SkyPartError(
            f"cannot write {target}: {error.strerror or error}; free the disk or choose another place"
        ) from error
    finally:
        with suppress(OSError):  # the folder itself may be what failed
            temporary.unlink(missing_ok=True)


def clear_leftovers(folder: Path) -> None:
    """Remove what killed writers left below `folder`; for places where nobody else writes."""
    for left in folder.rglob(".*.tmp-????????*"):
        left.unlink(missing_ok=True)


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse, before long work, a place where its result could not be written."""
    target = Path(path)
    if target.is_dir():
        raise SkyPartError(f"cannot write {target}: is a folder; name a file in it")
    with suppress(_TriedError), atomic_path(target) as temporary:
        temporary.touch()
        raise _TriedError


class _TriedError(Exception):
    """Ends a trial before anything is renamed."""


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
