"""Write files atomically: to a temporary file beside the target, then rename."""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skypart.errors import SkyPartError

_TEMPORARY = re.compile(r"\.(?P<stem>.+)\.tmp-[0-9a-f]{8}(?P<suffix>(?:\.[^.]*)?)")
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
        make_folder(target.parent)
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


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, durably: a power cut cannot remove a folder that files were flushed to."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Flush the folder's directory entries, so that a power cut cannot undo a rename in it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def temporary_target(path: Path) -> str | None:
    """The name of the file that a temporary file of `atomic_path` was to become; None for any other file."""
    found = _TEMPORARY.fullmatch(path.name)
    return None if found is None else found["stem"] + found["suffix"]


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


def write_text(path: str | os.PathLike[str], text: str, *, durable: bool = False) -> None:
    """Write `text` to `path` as UTF-8, atomically. durable: also flush the folder, so that a power cut keeps it."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if durable:
        try:
            sync_folder(Path(path).parent)
        except OSError as error:
            raise SkyPartError(
                f"cannot write {path}: {error.strerror or error}; free disk space or choose another path"
            ) from error
