"""Progress of an engine: a bar on a terminal, a line a minute in the log of a batch job."""

import time
from datetime import timedelta

from rich.progress import Progress

LINE_S = 60.0
"""Seconds between two lines where there is no terminal."""
_SPEED_S = 600.0
"""Seconds over which the bar averages its speed: a block of a slow worker takes longer than the 30 of rich."""


class ViewProgress:
    """Finished views of one map, with views a second and the time left. bar: disabled, it shows nothing.

    The first report is that of views which were finished before; it does not count for the speed.
    """

    def __init__(self, name: str, total: int, bar: Progress) -> None:
        self._name, self._total, self._bar = name, total, bar
        bar.speed_estimate_period = _SPEED_S
        self._task = bar.add_task(f"indexing {name}", total=total)
        self._done = self._before = 0
        self._start: float | None = None
        self._printed = 0.0

    def advance(self, views: int) -> None:
        """Report that `views` more are finished."""
        self._bar.advance(self._task, views)
        self._done += views
        now = time.monotonic()
        if self._start is None:
            self._start = self._printed = now
            self._before = self._done
        elif now - self._printed >= LINE_S and not self._bar.disable and not self._bar.console.is_terminal:
            self._printed = now
            self._bar.console.print(self._line(now - self._start), highlight=False, soft_wrap=True)

    def _line(self, seconds: float) -> str:
        """The state after some seconds of work."""
        speed = (self._done - self._before) / seconds
        left = f"{timedelta(seconds=round((self._total - self._done) / speed))} left" if speed else "time left unknown"
        return f"indexing {self._name}: {self._done:,} of {self._total:,} views, {speed:.1f} views/s, {left}"
