"""What a run tells while it runs: a progress bar, TensorBoard and a JSON line a record; W&B when asked."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from torch.utils.tensorboard import SummaryWriter

from skypart.errors import SkyPartError
from skypart.progress import console


class Journal:
    """Logs scalars of a run; only the leading process has one that writes."""

    def __init__(self, folder: Path, total: int, done: int, wandb: str, recipe: Mapping[str, Any], leads: bool) -> None:
        self.leads = leads
        if not leads:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.board = SummaryWriter(folder / "tensorboard", purge_step=done or None)
            self.lines = (folder / "log.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise SkyPartError(
                f"{folder}: no log can be written there ({error.strerror}); choose another run.out"
            ) from error
        self.wandb = _start_wandb(wandb, folder, recipe) if wandb else None
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            console=console,
        )  # fmt: skip
        self.task = self.bar.add_task("step", total=total, completed=done)
        self.state = Text()
        self.live = Live(Group(self.bar, self.state), console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        """Start the bar."""
        if self.leads:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything."""
        if self.leads:
            self.live.stop()
            if not console.is_terminal:
                console.print()  # rich ends the line on terminals only
            self.board.close()
            self.lines.close()
            if self.wandb is not None:
                self.wandb.finish()

    def step(self, step: int, state: str) -> None:
        """Move the bar to `step`, with a line about its losses under it."""
        if self.leads:
            self.bar.update(self.task, completed=step)
            self.state.plain = f"  {state}"

    def say(self, text: str) -> None:
        """A line above the bar."""
        if self.leads:
            self.live.console.print(text)

    def record(self, kind: str, step: int, scalars: Mapping[str, float]) -> None:
        """Log `scalars` of `kind` (train, validation, health) at `step`."""
        if not self.leads:
            return
        try:
            for key, value in scalars.items():
                self.board.add_scalar(f"{kind}/{key}", value, step)
            self.lines.write(json.dumps({"kind": kind, "step": step, "time": round(time.time(), 3), **scalars}) + "\n")
            self.lines.flush()
        except OSError as error:
            raise SkyPartError(
                f"{self.lines.name}: cannot be written ({error.strerror}); free the disk and start again"
            ) from error
        if self.wandb is not None:
            self.wandb.log({f"{kind}/{key}": value for key, value in scalars.items()}, step=step)


def _start_wandb(project: str, folder: Path, recipe: Mapping[str, Any]) -> Any:
    """A W&B run, or a sentence about how to get one."""
    try:
        import wandb
    except ImportError:
        raise SkyPartError(
            "run.wandb is set but wandb is missing: pip install 'skypart[wandb]', or leave it empty"
        ) from None
    return wandb.init(project=project, dir=str(folder), config=dict(recipe), resume="allow", id=folder.name)
