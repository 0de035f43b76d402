import asyncio
import gc
import http.client
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import httpx
import pytest

from skypart.images.decode import RgbImage
from skypart.position.fix import Fix, Hints, Prior
from skypart.serve.errors import HttpError
from skypart.serve.options import ServeOptions
from skypart.serve.workers import WorkerPool
from tests.serve.fake_service import FakeService
from tests.serve.live import DEADLINE_S, serving, wait_until


async def stays() -> dict[str, Any]:
    """The receive() of a client that waits for its response."""
    await asyncio.Event().wait()
    return {}


async def disconnects() -> dict[str, Any]:
    """The receive() of a client that disconnects at once."""
    return {"type": "http.disconnect"}


async def eventually(condition: Callable[[], bool]) -> None:
    """Let other tasks run until `condition` holds; fail after `DEADLINE_S`."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        await asyncio.sleep(0)


class FakeClock:
    """A clock that jobs advance themselves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def test_work_runs_in_a_worker_thread() -> None:
    pool = WorkerPool("test", 1, 1)
    name = asyncio.run(pool.run(lambda: threading.current_thread().name, stays))
    assert name.startswith("skypart-test")
    pool.close()


def test_errors_propagate_and_free_the_worker() -> None:
    pool = WorkerPool("test", 1, 0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(pool.run(lambda: 1 // 0, stays))
    assert pool.running == pool.waiting == 0
    pool.close()


def test_a_full_queue_says_when_to_retry() -> None:
    async def crowd() -> list[object]:
        jobs = [asyncio.create_task(pool.run(release.wait, stays)) for _ in range(3)]
        await eventually(lambda: (pool.running, pool.waiting) == (1, 2))
        with pytest.raises(HttpError) as caught:
            await pool.run(release.wait, stays)
        assert caught.value.status == 503
        assert 1 <= int(caught.value.headers["Retry-After"]) <= 30
        release.set()
        return list(await asyncio.gather(*jobs))

    release = threading.Event()
    pool = WorkerPool("test", 1, 2)
    try:
        assert asyncio.run(crowd()) == [True, True, True]
    finally:
        release.set()
    assert pool.running == pool.waiting == 0
    pool.close()


def test_slow_jobs_shorten_the_queue() -> None:
    clock = FakeClock()
    pool = WorkerPool("test", 1, 10, max_wait_s=0.5, clock=clock)
    assert pool.capacity == 1 + 2, "two may wait before a duration is known"
    for seconds, capacity in ((0.0, 1 + 10), (0.15, 1 + 3), (9.0, 1 + 1)):
        for _ in range(8):
            asyncio.run(pool.run(partial(clock.advance, seconds), stays))
        assert pool.capacity == capacity
    pool.close()


def test_retry_after_grows_with_the_duration_of_jobs() -> None:
    clock = FakeClock()
    pool = WorkerPool("test", 1, 3, clock=clock)
    for seconds, retry in ((0.1, "1"), (4.0, "8"), (60.0, "30")):
        for _ in range(8):
            asyncio.run(pool.run(partial(clock.advance, seconds), stays))
        assert pool.busy_error().headers == {"Retry-After": retry}
    pool.close()


def test_jobs_of_disconnected_clients_are_never_started() -> None:
    async def crowd() -> None:
        first = asyncio.create_task(pool.run(release.wait, stays))
        await eventually(lambda: pool.running == 1)
        with pytest.raises(HttpError, match="disconnected"):
            await pool.run(lambda: done.append("second"), disconnects)
        assert pool.waiting == 0
        release.set()
        await first
        await pool.run(lambda: done.append("third"), stays)

    done: list[str] = []
    release = threading.Event()
    pool = WorkerPool("test", 1, 2)
    try:
        asyncio.run(crowd())
    finally:
        release.set()
    assert done == ["third"]
    pool.close()


def test_photos_of_disconnected_clients_are_freed() -> None:
    """The pool keeps a cancelled job until a worker reaches it. The job must not hold megabytes until then."""

    class Photo:
        pass

    async def crowd() -> None:
        first = asyncio.create_task(pool.run(release.wait, stays))
        await eventually(lambda: pool.running == 1)
        for _ in range(5):
            photo = Photo()
            held.add(photo)
            with pytest.raises(HttpError, match="disconnected"):
                await pool.run(partial(id, photo), disconnects)
            del photo
        gc.collect()
        assert len(held) == 0
        release.set()
        await first

    held: weakref.WeakSet[Photo] = weakref.WeakSet()
    release = threading.Event()
    pool = WorkerPool("test", 1, 2)
    try:
        asyncio.run(crowd())
    finally:
        release.set()
    pool.close()


class Gated(FakeService):
    """Locates nothing until its gate is opened."""

    def __init__(self, town: RgbImage) -> None:
        super().__init__(town)
        self.gate = threading.Event()
        self.started = threading.Semaphore(0)

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        self.started.release()
        self.gate.wait()
        return super().locate(image, name, prior, hints)

    def close(self) -> None:
        """Open the gate."""
        self.gate.set()


def gauge(url: str, name: str) -> float:
    """One value of /metrics."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def wait_for(url: str, name: str, value: float) -> None:
    wait_until(lambda: gauge(url, name) == value)


def test_a_full_server_rejects_and_recovers(service: FakeService, photo: bytes) -> None:
    gated = Gated(service.town)
    with serving(gated, ServeOptions(port=0, workers=1, queue=2)) as url, ThreadPoolExecutor(8) as pool, closing(gated):

        def ask(_: int) -> httpx.Response:
            return httpx.post(f"{url}/v1/locate", files={"photo": ("a.jpg", photo)}, timeout=None)

        held = [pool.submit(ask, i) for i in range(3)]
        wait_for(url, "skypart_queue_length", 2)
        rejected = [ask(i) for i in range(4)]
        assert {each.status_code for each in rejected} == {503}
        assert all(int(each.headers["retry-after"]) >= 1 for each in rejected)
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/v1/examples/town-1.jpg").status_code == 200
        gated.gate.set()
        assert [each.result().status_code for each in held] == [200, 200, 200]
        assert ask(0).status_code == 200
        assert gauge(url, "skypart_busy_total") == 4
        assert gauge(url, "skypart_upload_bytes") == 0


def test_a_client_that_disconnects_leaves_the_queue(service: FakeService, photo: bytes) -> None:
    gated = Gated(service.town)
    with serving(gated, ServeOptions(port=0, workers=1, queue=2)) as url, ThreadPoolExecutor(2) as pool, closing(gated):
        first = pool.submit(httpx.post, f"{url}/v1/locate", files={"photo": ("first.jpg", photo)}, timeout=None)
        gated.started.acquire()
        request = httpx.Request("POST", f"{url}/v1/locate", files={"photo": ("second.jpg", photo)})
        client = http.client.HTTPConnection("127.0.0.1", request.url.port)
        client.request("POST", request.url.path, request.read(), dict(request.headers))
        wait_for(url, "skypart_queue_length", 1)
        client.close()
        wait_for(url, "skypart_queue_length", 0)
        gated.gate.set()
        assert first.result().status_code == 200
        assert [name for name, _, _ in gated.calls] == ["first.jpg"]
