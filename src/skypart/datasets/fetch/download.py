"""Downloads that go on where they broke off, and end in the promised content or not at all."""

import hashlib
import http.client
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from skypart.datasets.fetch.web import PassingError, Patience, open_url, persist, refuse_stopped
from skypart.errors import SkyPartError
from skypart.progress import progress_bar

CHUNK = 1 << 16
AT_ONCE = 8
"""Connections at once: the sources are thousands of small files."""


@dataclass(frozen=True)
class Remote:
    """A file elsewhere. size: bytes. git_blob: the SHA-1 by which git names its content. None: not known."""

    url: str
    size: int | None = None
    git_blob: str | None = None


def content_is(file: Path, remote: Remote) -> bool:
    """Whether `file` holds what is known of `remote`."""
    if not file.is_file() or (remote.size is not None and file.stat().st_size != remote.size):
        return False
    return remote.git_blob is None or git_blob(file) == remote.git_blob


def git_blob(file: Path) -> str:
    """The name git gives to the content of `file`: the SHA-1 of a short header and the bytes."""
    digest = hashlib.sha1(b"blob %d\0" % file.stat().st_size)
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(
    remote: Remote,
    target: Path,
    patience: Patience = Patience(),
    there: Callable[[int], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> None:
    """Get `remote` to `target`; what arrives waits in `target`.part, from which a later call goes on.

    there: told how many bytes of the file are there, again and again. stop: set it to break off.
    """
    if content_is(target, remote):
        there(target.stat().st_size)
        return
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        inherited = part.is_file()
        _receive(remote, part, patience, there, stop)
        if inherited and not content_is(part, remote):  # what lay there may have been of another file
            part.unlink()
            _receive(remote, part, patience, there, stop)
        if not content_is(part, remote):
            part.unlink()
            raise SkyPartError(
                f"{remote.url}: arrived with another size or checksum than expected; start the same command again, "
                "and if it stays so, do not trust the source or the way to it"
            )
        part.replace(target)
    except OSError as error:
        raise SkyPartError(
            f"cannot write {target}: {error.strerror or error}; free the disk or choose another place"
        ) from error


def _receive(
    remote: Remote, part: Path, patience: Patience, there: Callable[[int], None], stop: threading.Event | None
) -> None:
    """Let `part` grow until the server has no more, however often the connection breaks."""

    def lying() -> int:
        return part.stat().st_size if part.is_file() else 0

    there(lying())
    if not part.is_file() or lying() != remote.size:
        persist(lambda: _append(remote, part, patience, there, stop), remote.url, patience, lying, stop)


def _append(
    remote: Remote, part: Path, patience: Patience, there: Callable[[int], None], stop: threading.Event | None
) -> None:
    """One request for the rest of the file, from the beginning where the server cannot give the rest alone."""
    start = part.stat().st_size if part.is_file() else 0
    if remote.size is not None and start > remote.size:
        start = 0
    try:
        answer = open_url(remote.url, start, patience.timeout_s)
    except PassingError as broken:
        if broken.code == 416:  # there is no such rest
            part.unlink(missing_ok=True)
        raise
    with answer:
        if answer.status != 206 or not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            start = 0
        promised = answer.headers.get("Content-Length")
        end = start + int(promised) if promised else remote.size
        with part.open("ab" if start else "wb") as file:
            for block in _blocks(answer):
                file.write(block)
                file.flush()
                start += len(block)
                there(start)
                refuse_stopped(stop)
    if end is not None and start < end:
        raise PassingError(f"the connection broke after {start:,} of {end:,} bytes")


def _blocks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body of an answer, block by block; a break is a PassingError, not an error of the disk."""
    while True:
        try:
            block = answer.read(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise PassingError(str(error) or type(error).__name__) from error
        if not block:
            return
        yield block


def download_all(wanted: Mapping[Path, Remote], title: str, patience: Patience = Patience()) -> None:
    """Get many files at once under one progress bar in megabytes; the first failure stops the others."""
    missing = {file: remote for file, remote in wanted.items() if not content_is(file, remote)}
    if not missing:
        return
    _check_space(missing)
    stop, lock = threading.Event(), threading.Lock()
    known = sum(remote.size or 0 for remote in missing.values()) / 1e6
    with progress_bar() as bar, ThreadPoolExecutor(AT_ONCE) as pool:
        task = bar.add_task(f"{title}, MB", total=known or None)
        here: dict[Path, int] = {}

        def get(file: Path) -> None:
            def there(count: int) -> None:
                with lock:
                    bar.advance(task, (count - here.get(file, 0)) / 1e6)
                    here[file] = count

            if not stop.is_set():
                download(missing[file], file, patience, there, stop)

        futures = [pool.submit(get, file) for file in missing]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _check_space(missing: Mapping[Path, Remote]) -> None:
    """Refuse to begin what the disk cannot hold."""
    needed = sum(remote.size or 0 for remote in missing.values())
    folder = next(iter(missing)).parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SkyPartError(
            f"{folder}: {needed / 1e9:.1f} GB are to be downloaded and {free / 1e9:.1f} GB are free; "
            "free the disk or choose another place"
        )
