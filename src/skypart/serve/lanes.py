"""Worker threads with a bounded queue: what does not fit is told when to come back, never dropped in silence."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.types import Receive

from skypart.serve.problems import RefusedError

T = TypeVar("T")
LONGEST_WAIT_S = 30


class Lane:
    """`threads` workers and at most `queue` jobs that wait for one."""

    def __init__(self, name: str, threads: int, queue: int) -> None:
        self.name = name
        self._threads = threads
        self._room = threads + queue
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"skypart-{name}")
        self._lock = threading.Lock()
        self._jobs = 0
        self._mean_seconds = 0.5

    @property
    def running(self) -> int:
        """Jobs that are worked on."""
        return min(self._jobs, self._threads)

    @property
    def waiting(self) -> int:
        """Jobs that wait for a worker."""
        return max(0, self._jobs - self._threads)

    def check_room(self) -> None:
        """Refuse with 503 and the time until there is likely to be room, if the queue is full."""
        if self._jobs >= self._room:
            raise self.busy()

    def busy(self) -> RefusedError:
        """The refusal of a full queue."""
        seconds = math.ceil(self._mean_seconds * self._room / self._threads / 2)
        wait = str(min(max(seconds, 1), LONGEST_WAIT_S))
        return RefusedError(503, f"the server is busy; try again in {wait} s", {"Retry-After": wait})

    async def run(self, work: Callable[[], T], receive: Receive) -> T:
        """Do `work` in a worker thread. If the client leaves while it still waits, it is never begun.

        receive: of the request, whose body was read or has none.
        """
        self.check_room()
        with self._lock:
            self._jobs += 1
        job = self._pool.submit(self._timed, work)
        job.add_done_callback(self._finished)
        result = asyncio.wrap_future(job)
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait((result, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                job.cancel()
                result.cancel()
                raise RefusedError(400, "the client went away")
            return result.result()
        finally:
            leaving.cancel()

    def close(self) -> None:
        """Give up what waits; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _timed(self, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        try:
            return work()
        finally:
            seconds = time.perf_counter() - start
            with self._lock:
                self._mean_seconds += 0.1 * (seconds - self._mean_seconds)

    def _finished(self, job: "Future[Any]") -> None:
        with self._lock:
            self._jobs -= 1


async def _left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
