"""Worker threads with a bounded queue. When the queue is full, clients get a 503 that says when to retry."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.types import Receive

from skypart.serve.errors import HttpError

T = TypeVar("T")
MAX_RETRY_S = 30
"""Longest wait that Retry-After asks for."""


class WorkerPool:
    """`threads` workers, and at most `queue` jobs waiting for one.

    With `max_wait_s`, slow jobs shorten the queue: only as many jobs may wait as are likely to start within that many
    seconds, but at least one. Until the first job is done its duration is unknown, and two jobs may wait.
    clock: returns seconds; tests replace it.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        queue: int,
        max_wait_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self._threads = threads
        self._queue = queue
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"skypart-{name}")
        self._lock = threading.Lock()
        self._jobs = 0
        self._recent_seconds: deque[float] = deque(maxlen=8)

    @property
    def running(self) -> int:
        """Number of jobs being worked on."""
        return min(self._jobs, self._threads)

    @property
    def waiting(self) -> int:
        """Number of jobs waiting for a worker."""
        return max(0, self._jobs - self._threads)

    @property
    def capacity(self) -> int:
        """Number of jobs that may run or wait at present."""
        if self._max_wait_s is None:
            return self._threads + self._queue
        in_time = 2
        if self._recent_seconds:
            in_time = int(self._max_wait_s * self._threads / max(self._mean_seconds(), 1e-3))
        return self._threads + min(self._queue, max(1, in_time))

    def check_capacity(self) -> None:
        """Raise a 503 error if the queue is full."""
        if self._jobs >= self.capacity:
            raise self.busy_error()

    def busy_error(self) -> HttpError:
        """The 503 error for a full queue, with the time after which to retry."""
        seconds = math.ceil(self._mean_seconds() * self.capacity / self._threads / 2)
        wait = str(min(max(seconds, 1), MAX_RETRY_S))
        return HttpError(503, f"the server is busy; try again in {wait} s", {"Retry-After": wait})

    async def run(self, work: Callable[[], T], receive: Receive) -> T:
        """Run `work` in a worker thread. If the client disconnects while the job waits, it is never started.

        receive: the request's ASGI `receive`, after its body was read.
        """
        self.check_capacity()
        with self._lock:
            self._jobs += 1
        holder = [work]
        job = self._pool.submit(self._run_timed, holder)
        job.add_done_callback(self._job_done)
        result = asyncio.wrap_future(job)
        disconnect = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((result, disconnect), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                if job.cancel():
                    holder.clear()  # the pool keeps a cancelled job until a worker reaches it; free its photo now
                result.cancel()
                raise HttpError(400, "the client disconnected")
            return result.result()
        finally:
            disconnect.cancel()

    def close(self) -> None:
        """Cancel waiting jobs; running ones finish on their own."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run_timed(self, holder: list[Callable[[], T]]) -> T:
        start = self._clock()
        result = holder.pop()()
        with self._lock:  # a job that failed says nothing about how long others take
            self._recent_seconds.append(self._clock() - start)
        return result

    def _mean_seconds(self) -> float:
        """Mean duration of recent jobs."""
        with self._lock:
            return sum(self._recent_seconds) / len(self._recent_seconds) if self._recent_seconds else 1.0

    def _job_done(self, job: "Future[Any]") -> None:
        with self._lock:
            self._jobs -= 1


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
