"""HTTP requests: which failures are transient, which are final, and how often to retry."""

import http.client
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from skypart.errors import SkyPartError
from skypart.version import __version__

T = TypeVar("T")
TRANSIENT_CODES = frozenset({408, 416, 425, 429, 500, 502, 503, 504})
"""Status codes after which another request may succeed (416: after a restart from the beginning)."""
MAX_PAUSE_S = 60.0


@dataclass(frozen=True)
class RetryPolicy:
    """attempts: tries without any progress before giving up. pause_s: before the second try, doubled each time."""

    attempts: int = 4
    pause_s: float = 1.0
    timeout_s: float = 30.0


class TransientError(Exception):
    """A request failed, but another may succeed. wait_s: seconds the server asks to wait."""

    def __init__(self, reason: str, code: int = 0, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.code = code
        self.wait_s = wait_s


def open_url(url: str, start: int = 0, timeout_s: float = 30.0) -> http.client.HTTPResponse:
    """Request the bytes of `url` from `start` on; raises TransientError if a retry may succeed."""
    if not url.startswith(("https://", "http://")):  # urllib would also open files
        raise SkyPartError(f"{url}: not a web address")
    headers = {"User-Agent": f"skypart/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(  # nosec B310
            request, timeout=timeout_s
        )
        return answer
    except urllib.error.HTTPError as error:
        with error:
            raise _classify_error(url, error) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise SkyPartError(f"{url}: the server's certificate is not valid ({error.reason}); not opened") from error
        raise TransientError(str(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(str(error) or type(error).__name__) from error


def _classify_error(url: str, error: urllib.error.HTTPError) -> Exception:
    """The exception for an HTTP error."""
    status = f"{error.code} {error.reason}".strip()
    if error.code in (403, 429) and error.headers.get("X-RateLimit-Remaining") == "0":
        return SkyPartError(
            f"{url}: refused ({status}), too many requests from this address; wait an hour and run the same command "
            "again: finished downloads are kept"
        )
    if error.code in TRANSIENT_CODES:
        wait = error.headers.get("Retry-After", "")
        return TransientError(status, error.code, float(wait) if wait.isdigit() else 0.0)
    return SkyPartError(f"{url}: the server responded {status}; the source has moved or is no longer public")


def raise_if_stopped(stop: threading.Event | None) -> None:
    """Raise if `stop` is set."""
    if stop is not None and stop.is_set():
        raise SkyPartError("stopped; run the same command again to resume")


def retry(
    action: Callable[[], T],
    url: str,
    retries: RetryPolicy = RetryPolicy(),
    progress: Callable[[], int] = lambda: 0,
    stop: threading.Event | None = None,
) -> T:
    """Repeat `action` while it fails transiently; raise after `retries.attempts` failures without progress.

    progress: returns a number that grows when `action` gets further. stop: set it to cancel.
    """
    stop = stop or threading.Event()
    failures = 0
    while True:
        raise_if_stopped(stop)
        before = progress()
        try:
            return action()
        except TransientError as broken:
            failures = 1 if progress() > before else failures + 1
            if failures >= retries.attempts:
                raise SkyPartError(
                    f"{url} cannot be reached ({broken}); check the network and run the same command again: "
                    "finished downloads are kept"
                ) from broken
            pause = max(retries.pause_s * 2 ** (failures - 1), broken.wait_s)
            stop.wait(min(pause, MAX_PAUSE_S))


def read_json(url: str, retries: RetryPolicy = RetryPolicy()) -> Any:
    """The JSON document at `url`."""

    def read() -> bytes:
        try:
            with open_url(url, timeout_s=retries.timeout_s) as answer:
                return answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(str(error) or type(error).__name__) from error

    try:
        return json.loads(retry(read, url, retries))
    except ValueError as error:
        raise SkyPartError(f"{url}: the response is not JSON ({error}); check for a proxy") from error
