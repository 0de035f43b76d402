"""One look for all progress bars."""

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


class RateColumn(ProgressColumn):
    """Items a second."""

    def render(self, task: Task) -> Text:
        """Draw the speed of `task`."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


def progress_bar() -> Progress:
    """A bar with count, rate, elapsed and remaining time, on standard error."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def track(items: Iterable[T], description: str, total: int | None = None) -> Generator[T, None, None]:
    """Iterate over `items` under a progress bar of `total` steps (default: their number).

    Where the work can fail, wrap it in `contextlib.closing`, so that the bar ends before the error is told.
    """
    with progress_bar() as bar:
        yield from bar.track(items, total=total, description=description)
