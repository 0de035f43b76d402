"""One writer at a time."""

import fcntl
import os
from pathlib import Path

from skypart.errors import SkyPartError

LOCK = "writer.lock"


class WriterLock:
    """Held from its making to `close`, or to the end of the process however that comes about."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / LOCK).open("a+", encoding="utf-8")
        except OSError as error:
            raise SkyPartError(
                f"cannot write to {folder}: {error.strerror or error}; check its rights or choose another place"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            if not isinstance(error, BlockingIOError):
                raise SkyPartError(
                    f"cannot lock {folder}: {error.strerror or error}; keep the store on a local disk"
                ) from error
            raise SkyPartError(
                f"{folder} is being written by {f'process {holder}' if holder else 'another process'}; "
                "wait until it has finished, or stop it"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def close(self) -> None:
        """Let others write. The file stays: deleting it could let two writers in."""
        fcntl.flock(self._file, fcntl.LOCK_UN)  # closing alone would leave it to forked processes
        self._file.close()
