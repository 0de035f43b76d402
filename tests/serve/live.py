"""A server in a thread of this process, or as a program: python -m tests.serve.live --port 8000 [--delay S]."""

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from skypart.serve.options import ServeOptions
from skypart.serve.server import build_server, listen, page_url, run_server
from skypart.serve.service import LocateService
from tests.serve.fake_service import FakeService

DEADLINE_S = 60.0
"""Generous, for busy machines; a test that reaches it fails."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll `condition` until it holds; fail after `DEADLINE_S`."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.01)


@contextmanager
def serving(service: LocateService, options: ServeOptions | None = None) -> Iterator[str]:
    """Serve on a free port while the block runs; yields the URL without a trailing slash."""
    options = options or ServeOptions(port=0)
    bound = listen(options)
    server = build_server(service, options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    assert server.started
    try:
        yield page_url(options, bound).rstrip("/")
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--queue", type=int, default=16)
    chosen = parser.parse_args()
    options = ServeOptions(port=chosen.port, workers=chosen.workers, queue=chosen.queue)
    run_server(FakeService(delay=chosen.delay), options)


if __name__ == "__main__":
    main()
