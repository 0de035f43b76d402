"""Worker threads with a bounded queue: what does not fit is told when to come back, never dropped in silence."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.types import Receive

from skypart.serve.problems import RefusedError

T = TypeVar("T")
LONGEST_WAIT_S = 30


class Lane:
    """`threads` workers and at most `queue` jobs that wait for one.

    With `wait_s`, fewer may wait where jobs take long: as many as are likely to be begun within so many seconds, and
    one at least. Before the first is done nobody knows how long they take: then two may wait.
    """

    def __init__(self, name: str, threads: int, queue: int, wait_s: float | None = None) -> None:
        self.name = name
        self._threads = threads
        self._queue = queue
        self._wait_s = wait_s
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"skypart-{name}")
        self._lock = threading.Lock()
        self._jobs = 0
        self._lately: deque[float] = deque(maxlen=8)

    @property
    def running(self) -> int:
        """Jobs that are worked on."""
        return min(self._jobs, self._threads)

    @property
    def waiting(self) -> int:
        """Jobs that wait for a worker."""
        return max(0, self._jobs - self._threads)

    @property
    def room(self) -> int:
        """Jobs that may run and wait at present."""
        if self._wait_s is None:
            return self._threads + self._queue
        in_time = int(self._wait_s * self._threads / max(self._seconds(), 1e-3)) if self._lately else 2
        return self._threads + min(self._queue, max(1, in_time))

    def check_room(self) -> None:
        """Refuse with 503 and the time until there is likely to be room, if the queue is full."""
        if self._jobs >= self.room:
            raise self.busy()

    def busy(self) -> RefusedError:
        """The refusal of a full queue."""
        seconds = math.ceil(self._seconds() * self.room / self._threads / 2)
        wait = str(min(max(seconds, 1), LONGEST_WAIT_S))
        return RefusedError(503, f"the server is busy; try again in {wait} s", {"Retry-After": wait})

    async def run(self, work: Callable[[], T], receive: Receive) -> T:
        """Do `work` in a worker thread. If the client leaves while it still waits, it is never begun.

        receive: of the request, whose body was read or has none.
        """
        self.check_room()
        with self._lock:
            self._jobs += 1
        held = [work]
        job = self._pool.submit(self._timed, held)
        job.add_done_callback(self._finished)
        result = asyncio.wrap_future(job)
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait((result, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                if job.cancel():
                    held.clear()  # the pool keeps the job until a worker comes to it, but not its photo
                result.cancel()
                raise RefusedError(400, "the client went away")
            return result.result()
        finally:
            leaving.cancel()

    def close(self) -> None:
        """Give up what waits; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _timed(self, held: list[Callable[[], T]]) -> T:
        start = time.perf_counter()
        result = held.pop()()
        with self._lock:  # what failed at once says nothing of how long the others take
            self._lately.append(time.perf_counter() - start)
        return result

    def _seconds(self) -> float:
        """How long a job takes, judged by the last ones."""
        with self._lock:
            return sum(self._lately) / len(self._lately) if self._lately else 1.0

    def _finished(self, job: "Future[Any]") -> None:
        with self._lock:
            self._jobs -= 1


async def _left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
