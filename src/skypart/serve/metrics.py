"""Request counts and durations in the Prometheus text format."""

import os
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def resident_bytes() -> int:
    """Resident memory of this process; its peak on systems that do not report the current value."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource  # not available on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Metrics:
    """Requests by route and status, their durations, and gauges that are read on demand."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "process_resident_memory_bytes": ("Resident memory.", resident_bytes)
        }
        self._started = time.time()

    def add_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a value that is read on demand."""
        self._gauges[name] = (text, read)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one finished request."""
        self._requests[method, route, status] += 1
        buckets = self._times.setdefault(route, [0] * (len(BUCKETS_S) + 1))
        buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self._sums[route] = self._sums.get(route, 0.0) + seconds

    def text(self) -> str:
        """All metrics in the Prometheus text format."""
        lines: list[str] = []
        self._add_requests(lines)
        self._add_times(lines)
        for name, (text, read) in self._gauges.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {read():g}"]
        start = "process_start_time_seconds"
        lines += [f"# HELP {start} Start time of the server.", f"# TYPE {start} gauge", f"{start} {self._started:.3f}"]
        return "\n".join(lines) + "\n"

    def _add_requests(self, lines: list[str]) -> None:
        name = "skypart_requests_total"
        lines += [f"# HELP {name} Finished requests.", f"# TYPE {name} counter"]
        for (method, route, status), count in sorted(self._requests.items()):
            lines.append(f'{name}{{method="{method}",route="{route}",status="{status}"}} {count}')
        sums = {
            "skypart_errors_total": ("Responses with status 500.", 500),
            "skypart_busy_total": ("Responses with status 503 (server busy).", 503),
        }
        for name, (text, wanted) in sums.items():
            count = sum(number for (_, _, status), number in self._requests.items() if status == wanted)
            lines += [f"# HELP {name} {text}", f"# TYPE {name} counter", f"{name} {count}"]

    def _add_times(self, lines: list[str]) -> None:
        name = "skypart_request_seconds"
        lines += [f"# HELP {name} Time from request to response.", f"# TYPE {name} histogram"]
        for route, buckets in sorted(self._times.items()):
            cumulative = 0
            for edge, count in zip((*BUCKETS_S, "+Inf"), buckets, strict=True):
                cumulative += count
                lines.append(f'{name}_bucket{{route="{route}",le="{edge}"}} {cumulative}')
            lines.append(f'{name}_sum{{route="{route}"}} {self._sums[route]:.6f}')
            lines.append(f'{name}_count{{route="{route}"}} {cumulative}')


class MetricsMiddleware:
    """ASGI middleware that counts every request in `metrics`."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_record)
        finally:
            self._metrics.observe(_method(scope), route_pattern(scope), status, time.perf_counter() - start)


def route_pattern(scope: Scope) -> str:
    """The path pattern of the requested route, so that the number of labels stays bounded."""
    path = getattr(scope.get("route"), "path", None)
    if path:
        return str(path)
    return "/static" if scope["path"].startswith("/static/") else "other"


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
