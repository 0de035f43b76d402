"""Progress bars that all look the same."""

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
    """Items per second."""

    def render(self, task: Task) -> Text:
        """Format the speed of `task`."""
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


def with_progress(items: Iterable[T], description: str, total: int | None = None) -> Generator[T, None, None]:
    """Iterate over `items` with a progress bar of `total` steps (default: their number).

    If the loop body can raise, wrap this in `contextlib.closing`, so that the bar ends before the error is printed.
    """
    with progress_bar() as bar:
        yield from bar.track(items, total=total, description=description)
