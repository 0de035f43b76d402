"""Requests over HTTP: which failures pass, which are final, and how long to go on trying."""

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
PASSING = frozenset({408, 416, 425, 429, 500, 502, 503, 504})
"""Answers after which another request may succeed (416: after a start from the beginning)."""
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True)
class Patience:
    """attempts: tries without any progress before giving up. pause_s: before the second try, doubled each time."""

    attempts: int = 4
    pause_s: float = 1.0
    timeout_s: float = 30.0


class PassingError(Exception):
    """A request failed in a way that may pass. wait_s: how long the server asks to wait."""

    def __init__(self, reason: str, code: int = 0, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.code = code
        self.wait_s = wait_s


def open_url(url: str, start: int = 0, timeout_s: float = 30.0) -> http.client.HTTPResponse:
    """Ask for the bytes of `url` from `start` on; PassingError if the failure may pass, else an error."""
    if not url.startswith(("https://", "http://")):
        raise SkyPartError(f"{url}: not a web address")
    headers = {"User-Agent": f"skypart/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout_s)
        return answer
    except urllib.error.HTTPError as error:
        with error:
            raise _sorted_out(url, error) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise SkyPartError(f"{url}: the server's certificate is not valid ({error.reason}); not opened") from error
        raise PassingError(str(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise PassingError(str(error) or type(error).__name__) from error


def _sorted_out(url: str, error: urllib.error.HTTPError) -> Exception:
    """What an error answer means."""
    told = f"{error.code} {error.reason}".strip()
    if error.code in (403, 429) and error.headers.get("X-RateLimit-Remaining") == "0":
        return SkyPartError(
            f"{url}: refused ({told}), too many requests from this address; wait an hour and start the same command "
            "again: what has arrived is kept"
        )
    if error.code in PASSING:
        wait = error.headers.get("Retry-After", "")
        return PassingError(told, error.code, float(wait) if wait.isdigit() else 0.0)
    return SkyPartError(f"{url}: the server answers {told}; the source has moved, gone or closed")


def refuse_stopped(stop: threading.Event | None) -> None:
    """An error once `stop` is set."""
    if stop is not None and stop.is_set():
        raise SkyPartError("stopped; start the same command again to go on")


def persist(
    action: Callable[[], T],
    url: str,
    patience: Patience = Patience(),
    progress: Callable[[], int] = lambda: 0,
    stop: threading.Event | None = None,
) -> T:
    """Repeat `action` while it breaks in passing; after `patience.attempts` failures without progress, an error.

    stop: set it to end the pauses and attempts.
    """
    stop = stop or threading.Event()
    failures = 0
    while True:
        refuse_stopped(stop)
        before = progress()
        try:
            return action()
        except PassingError as broken:
            failures = 1 if progress() > before else failures + 1
            if failures >= patience.attempts:
                raise SkyPartError(
                    f"{url} cannot be reached ({broken}); connect to the network and start the same command again: "
                    "what has arrived is kept"
                ) from broken
            pause = max(patience.pause_s * 2 ** (failures - 1), broken.wait_s)
            stop.wait(min(pause, LONGEST_PAUSE_S))


def read_json(url: str, patience: Patience = Patience()) -> Any:
    """The JSON that `url` answers with."""

    def read() -> bytes:
        try:
            with open_url(url, timeout_s=patience.timeout_s) as answer:
                return answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise PassingError(str(error) or type(error).__name__) from error

    try:
        return json.loads(persist(read, url, patience))
    except ValueError as error:
        raise SkyPartError(f"{url}: does not answer with JSON ({error}); a proxy may stand between") from error
