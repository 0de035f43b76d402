"""Progress bars and messages on standard error. The command line switches them on; a library call stays silent."""

import logging
from collections.abc import Generator, Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")
console = Console(stderr=True)
_bars_shown = False


def set_up_terminal(level: int = logging.WARNING, *, bars: bool = True) -> None:
    """Print log records of `skypart` from `level` on to standard error, and show progress bars there if `bars`."""
    global _bars_shown
    _bars_shown = bars
    log = logging.getLogger("skypart")
    log.handlers = [handler for handler in log.handlers if not isinstance(handler, ConsoleHandler)]
    log.addHandler(ConsoleHandler())
    log.setLevel(level)
    log.propagate = False


class ConsoleHandler(logging.Handler):
    """Prints log records on `console`, between the progress bars; warnings are yellow."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        style = "yellow" if record.levelno >= logging.WARNING else None
        console.print(self.format(record), style=style, markup=False, highlight=False, soft_wrap=True)


class RateColumn(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        """Format the speed of `task`."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


def progress_bar() -> Progress:
    """A bar with count, rate, elapsed and remaining time, on standard error; hidden unless `set_up_terminal` ran."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not _bars_shown,
    )


def with_progress(items: Iterable[T], description: str, total: int | None = None) -> Generator[T, None, None]:
    """Iterate over `items` with a progress bar of `total` steps (default: their number).

    If the loop body can raise, wrap this in `contextlib.closing`, so that the bar ends before the error is printed.
    """
    with progress_bar() as bar:
        yield from bar.track(items, total=total, description=description)
