import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import httpx
import pytest

from skypart.images.decode import RgbImage
from skypart.position.fix import Fix, Hints, Prior
from skypart.serve.lanes import Lane
from skypart.serve.options import ServeOptions
from skypart.serve.problems import RefusedError
from tests.serve.fake_service import FakeService
from tests.serve.live import serving


async def stays() -> dict[str, Any]:
    """The receive() of a client that waits for its answer."""
    await asyncio.Event().wait()
    return {}


async def leaves() -> dict[str, Any]:
    """The receive() of a client that leaves at once."""
    return {"type": "http.disconnect"}


def test_work_is_done_in_a_thread_of_the_lane() -> None:
    lane = Lane("test", 1, 1)
    name = asyncio.run(lane.run(lambda: threading.current_thread().name, stays))
    assert name.startswith("skypart-test")
    lane.close()


def test_errors_come_through_and_free_the_place() -> None:
    lane = Lane("test", 1, 0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(lane.run(lambda: 1 // 0, stays))
    assert lane.running == lane.waiting == 0
    lane.close()


def test_a_full_queue_says_when_to_come_back() -> None:
    async def crowd() -> list[object]:
        jobs = [asyncio.create_task(lane.run(free.wait, stays)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert (lane.running, lane.waiting) == (1, 2)
        with pytest.raises(RefusedError) as refused:
            await lane.run(free.wait, stays)
        assert refused.value.status == 503
        assert 1 <= int(refused.value.headers["Retry-After"]) <= 30
        free.set()
        return list(await asyncio.gather(*jobs))

    free = threading.Event()
    lane = Lane("test", 1, 2)
    try:
        assert asyncio.run(crowd()) == [True, True, True]
    finally:
        free.set()
    assert lane.running == lane.waiting == 0
    lane.close()


def test_fewer_may_wait_where_jobs_take_long() -> None:
    lane = Lane("test", 1, 10, wait_s=0.5)
    for _ in range(40):
        asyncio.run(lane.run(lambda: None, stays))
    assert lane.room == 11
    for _ in range(20):
        asyncio.run(lane.run(lambda: time.sleep(0.15), stays))
    assert 2 <= lane.room <= 6
    lane.close()


def test_who_leaves_the_queue_is_never_worked_for() -> None:
    async def crowd() -> None:
        first = asyncio.create_task(lane.run(free.wait, stays))
        await asyncio.sleep(0.05)
        with pytest.raises(RefusedError, match="went away"):
            await lane.run(lambda: done.append("second"), leaves)
        assert lane.waiting == 0
        free.set()
        await first
        await lane.run(lambda: done.append("third"), stays)

    done: list[str] = []
    free = threading.Event()
    lane = Lane("test", 1, 2)
    try:
        asyncio.run(crowd())
    finally:
        free.set()
    assert done == ["third"]
    lane.close()


def test_who_leaves_takes_his_photo_along() -> None:
    """The pool keeps what was given up until a worker comes to it: it must not keep megabytes for it."""

    class Photo:
        pass

    async def crowd() -> None:
        first = asyncio.create_task(lane.run(free.wait, stays))
        await asyncio.sleep(0.05)
        for _ in range(5):
            photo = Photo()
            held.add(photo)
            with pytest.raises(RefusedError, match="went away"):
                await lane.run(partial(id, photo), leaves)
            del photo
        gc.collect()
        assert len(held) == 0
        free.set()
        await first

    held: weakref.WeakSet[Photo] = weakref.WeakSet()
    free = threading.Event()
    lane = Lane("test", 1, 2)
    try:
        asyncio.run(crowd())
    finally:
        free.set()
    lane.close()


class Gated(FakeService):
    """Answers when it is let."""

    def __init__(self, town: RgbImage) -> None:
        super().__init__(town)
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        self.begun.release()
        self.gate.wait()
        return super().locate(image, name, prior, hints)

    def close(self) -> None:
        """Let everyone through."""
        self.gate.set()


def gauge(url: str, name: str) -> float:
    """One value of /metrics."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def wait_for(url: str, name: str, value: float) -> None:
    while gauge(url, name) != value:
        time.sleep(0.02)


def test_a_full_server_refuses_and_goes_on(service: FakeService, photo: bytes) -> None:
    gated = Gated(service.town)
    with serving(gated, ServeOptions(port=0, workers=1, queue=2)) as url, ThreadPoolExecutor(8) as pool, closing(gated):

        def ask(_: int) -> httpx.Response:
            return httpx.post(f"{url}/v1/locate", files={"photo": ("a.jpg", photo)}, timeout=None)

        held = [pool.submit(ask, i) for i in range(3)]
        wait_for(url, "skypart_queue_length", 2)
        refused = [ask(i) for i in range(4)]
        assert {each.status_code for each in refused} == {503}
        assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/v1/examples/town-1.jpg").status_code == 200
        gated.gate.set()
        assert [each.result().status_code for each in held] == [200, 200, 200]
        assert ask(0).status_code == 200
        assert gauge(url, "skypart_busy_total") == 4
        assert gauge(url, "skypart_upload_bytes") == 0


def test_a_client_that_leaves_gives_up_its_place(service: FakeService, photo: bytes) -> None:
    gated = Gated(service.town)
    with serving(gated, ServeOptions(port=0, workers=1, queue=2)) as url, ThreadPoolExecutor(2) as pool, closing(gated):
        first = pool.submit(httpx.post, f"{url}/v1/locate", files={"photo": ("first.jpg", photo)}, timeout=None)
        gated.begun.acquire()
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/locate", files={"photo": ("left.jpg", photo)}, timeout=httpx.Timeout(5, read=0.3))
        wait_for(url, "skypart_queue_length", 0)
        gated.gate.set()
        assert first.result().status_code == 200
        assert [name for name, _, _ in gated.calls] == ["first.jpg"]
