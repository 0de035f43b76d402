"""Downloads that resume after an interruption, and end with the expected content or an error."""

import hashlib
import http.client
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from skypart.datasets.fetch.web import RetryPolicy, TransientError, open_url, raise_if_stopped, retry
from skypart.errors import SkyPartError
from skypart.progress import progress_bar

CHUNK = 1 << 16
CONNECTIONS = 8
"""Parallel connections: the sources are thousands of small files."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server. size: bytes. git_blob: the SHA-1 that git gives its content. None: unknown."""

    url: str
    size: int | None = None
    git_blob: str | None = None


def has_content(file: Path, remote: RemoteFile) -> bool:
    """Whether `file` has the size and hash of `remote`, as far as they are known."""
    if not file.is_file() or (remote.size is not None and file.stat().st_size != remote.size):
        return False
    return remote.git_blob is None or git_blob(file) == remote.git_blob


def git_blob(file: Path) -> str:
    """The SHA-1 that git gives the content of `file`: of a short header and the bytes."""
    digest = hashlib.sha1(b"blob %d\0" % file.stat().st_size, usedforsecurity=False)
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(
    remote: RemoteFile,
    target: Path,
    retries: RetryPolicy = RetryPolicy(),
    progress: Callable[[int], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> None:
    """Download `remote` to `target`. Until it is complete it is in `target`.part, from which a later call resumes.

    progress: called repeatedly with the number of bytes received so far. stop: set it to cancel.
    """
    if has_content(target, remote):
        progress(target.stat().st_size)
        return
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        resumed = part.is_file()
        _receive(remote, part, retries, progress, stop)
        if resumed and not has_content(part, remote):  # the old partial file may belong to another version
            part.unlink()
            _receive(remote, part, retries, progress, stop)
        if not has_content(part, remote):
            part.unlink()
            raise SkyPartError(
                f"{remote.url}: arrived with an unexpected size or checksum; run the same command again, "
                "and if the error persists, do not trust the source or the network"
            )
        part.replace(target)
    except OSError as error:
        raise SkyPartError(
            f"cannot write {target}: {error.strerror or error}; free disk space or choose another folder"
        ) from error


def _receive(
    remote: RemoteFile, part: Path, retries: RetryPolicy, progress: Callable[[int], None], stop: threading.Event | None
) -> None:
    """Append to `part` until the file is complete, reconnecting as often as `retries` allows."""

    def received() -> int:
        return part.stat().st_size if part.is_file() else 0

    progress(received())
    if not part.is_file() or received() != remote.size:
        retry(lambda: _append(remote, part, retries, progress, stop), remote.url, retries, received, stop)


def _append(
    remote: RemoteFile, part: Path, retries: RetryPolicy, progress: Callable[[int], None], stop: threading.Event | None
) -> None:
    """Request the rest of the file, or all of it if the server does not support ranges."""
    start = part.stat().st_size if part.is_file() else 0
    if remote.size is not None and start > remote.size:
        start = 0
    try:
        answer = open_url(remote.url, start, retries.timeout_s)
    except TransientError as broken:
        if broken.code == 416:  # the requested range does not exist
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
                progress(start)
                raise_if_stopped(stop)
    if end is not None and start < end:
        raise TransientError(f"the connection broke after {start:,} of {end:,} bytes")


def _blocks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body of a response, block by block; a broken connection is a TransientError, not a disk error."""
    while True:
        try:
            block = answer.read(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(str(error) or type(error).__name__) from error
        if not block:
            return
        yield block


def download_all(wanted: Mapping[Path, RemoteFile], title: str, retries: RetryPolicy = RetryPolicy()) -> None:
    """Download many files in parallel with one progress bar in megabytes; the first failure stops the others."""
    missing = {file: remote for file, remote in wanted.items() if not has_content(file, remote)}
    if not missing:
        return
    _check_space(missing)
    stop, lock = threading.Event(), threading.Lock()
    known = sum(remote.size or 0 for remote in missing.values()) / 1e6
    with progress_bar() as bar, ThreadPoolExecutor(CONNECTIONS) as pool:
        task = bar.add_task(f"{title}, MB", total=known or None)
        received: dict[Path, int] = {}

        def download_one(file: Path) -> None:
            def progress(count: int) -> None:
                with lock:
                    bar.advance(task, (count - received.get(file, 0)) / 1e6)
                    received[file] = count

            if not stop.is_set():
                download(missing[file], file, retries, progress, stop)

        futures = [pool.submit(download_one, file) for file in missing]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _check_space(missing: Mapping[Path, RemoteFile]) -> None:
    """Raise if the disk is too small for the download."""
    needed = sum(remote.size or 0 for remote in missing.values())
    folder = next(iter(missing)).parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SkyPartError(
            f"{folder}: the download needs {needed / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free; "
            "free disk space or choose another folder"
        )
