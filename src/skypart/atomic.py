"""Write files atomically: to a temporary file beside the target, then rename."""

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
    """Yield a temporary path beside `path`, with the same suffix; rename it to `path` if the block succeeds.

    The file is flushed to disk before the rename, so a power cut leaves either the old or the new version. On any
    error the temporary file is removed and `path` is left unchanged.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.stem}.tmp-{uuid.uuid4().hex[:8]}{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_UMASK)  # some writers create files that only their owner can read
        temporary.replace(target)
    except OSError as error:
        raise SkyPartError(
            f"cannot write {target}: {error.strerror or error}; free disk space or choose another path"
        ) from error
    finally:
        with suppress(OSError):  # the folder itself may be what failed
            temporary.unlink(missing_ok=True)


def remove_stale_temporaries(folder: Path) -> None:
    """Remove temporary files that killed processes left below `folder`. Call it only where nobody else is writing."""
    for stale in folder.rglob(".*.tmp-????????*"):
        stale.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise if `path` cannot be written. Call this before long work."""
    target = Path(path)
    if target.is_dir():
        raise SkyPartError(f"cannot write {target}: it is a folder; name a file in it")
    with suppress(_DryRunError), atomic_path(target) as temporary:
        temporary.touch()
        raise _DryRunError


class _DryRunError(Exception):
    """Leaves `atomic_path` before it renames anything."""


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
