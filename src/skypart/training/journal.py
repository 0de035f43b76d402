"""Training logs: a progress bar, TensorBoard, one JSON line per record and, on request, W&B."""

import json
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.progress import console

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def _start_tensorboard(folder: Path, done: int) -> "SummaryWriter":
    """A TensorBoard log that continues at step `done`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SkyPartError("training needs TensorBoard; install it with `pip install 'skypart[train]'`") from error
    return SummaryWriter(folder, purge_step=done)


class Journal:
    """Logs scalars of a run that starts or resumes at step `done`. Writes only in the leader process."""

    def __init__(
        self, folder: Path, total: int, done: int, wandb: str, recipe: Mapping[str, Any], is_leader: bool
    ) -> None:
        self.is_leader, self.folder = is_leader, folder
        if not is_leader:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _truncate_log(folder / "log.jsonl", done)
            self.board = _start_tensorboard(folder / "tensorboard", done)
            self.lines = (folder / "log.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise SkyPartError(
                f"{folder}: cannot write the log there ({error.strerror or error}); choose another run.out"
            ) from error
        self.wandb = _start_wandb(wandb, folder, recipe, done) if wandb else None
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            console=console,
        )  # fmt: skip
        self.task = self.bar.add_task("step", total=total, completed=done)
        self.state = Text()
        self.live = Live(Group(self.bar, self.state), console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        """Start the progress bar."""
        if self.is_leader:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything. An error while closing is raised only if nothing failed before."""
        if not self.is_leader:
            return
        self.live.stop()
        if not console.is_terminal:
            console.print()  # rich ends the line only on terminals
        failed: OSError | None = None
        for close in (self.board.close, self.lines.close):
            try:
                close()
            except OSError as problem:
                failed = failed or problem
        if self.wandb is not None:
            self.wandb.finish()
        if failed is not None and error is None:
            raise SkyPartError(
                f"{self.folder}: the end of the log may be missing ({failed.strerror or failed}); free disk space"
            ) from failed

    def step(self, step: int, state: str) -> None:
        """Move the bar to `step` and show `state` below it."""
        if self.is_leader:
            self.bar.update(self.task, completed=step)
            self.state.plain = f"  {state}"

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.is_leader:
            self.live.console.print(text)

    def record(self, kind: str, step: int, scalars: Mapping[str, float]) -> None:
        """Log `scalars` of `kind` (train, validation, health) at `step`."""
        if not self.is_leader:
            return
        try:
            for key, value in scalars.items():
                self.board.add_scalar(f"{kind}/{key}", value, step)
            self.lines.write(json.dumps({"kind": kind, "step": step, "time": round(time.time(), 3), **scalars}) + "\n")
            self.lines.flush()
        except OSError as error:
            raise SkyPartError(
                f"{self.lines.name}: cannot be written ({error.strerror or error}); free disk space and start again"
            ) from error
        if self.wandb is not None:
            self.wandb.log({f"{kind}/{key}": value for key, value in scalars.items()}, step=step)


def load_wandb() -> Any:
    """The module wandb. Raises an error that says how to install it if it is missing."""
    try:
        import wandb

        wandb.init  # noqa: B018  # a folder called wandb can also be imported
    except (ImportError, AttributeError):
        raise SkyPartError(
            "run.wandb is set but wandb is not installed; pip install 'skypart[wandb]', or leave run.wandb empty"
        ) from None
    return wandb


def _start_wandb(project: str, folder: Path, recipe: Mapping[str, Any], done: int) -> Any:
    """A W&B run; when training resumes, the same one as before."""
    return load_wandb().init(
        project=project, dir=str(folder), config=dict(recipe), resume="allow", id=_wandb_id(folder, done)
    )


def _wandb_id(folder: Path, done: int) -> str:
    """The id stored in the run folder. A run from the start gets a new one, because W&B accepts each step only once."""
    file = folder / "wandb-id.txt"
    try:
        stored = file.read_text(encoding="utf-8", errors="replace").strip() if done and file.is_file() else ""
    except OSError as error:
        raise SkyPartError(f"{file}: cannot be read ({error.strerror or error}); fix its permissions") from error
    if not re.fullmatch(r"[\w-]{1,64}", stored, re.ASCII):
        stored = uuid.uuid4().hex[:16]
        write_text(file, f"{stored}\n")
    return stored


def _truncate_log(log: Path, done: int) -> None:
    """Delete the lines of steps that a run resumed at `done` repeats, and half-written lines of a killed run."""
    if not log.is_file():
        return
    before = log.read_text(encoding="utf-8", errors="replace")
    after = "".join(f"{line}\n" for line in before.split("\n") if _is_before(line, done))
    if after != before:
        write_text(log, after)


def _is_before(line: str, done: int) -> bool:
    """Whether a line belongs to the steps before `done`. A validation belongs to the steps before it."""
    try:
        record = json.loads(line)
        return bool(record["step"] < done + (record["kind"] == "validation"))
    except (ValueError, LookupError, TypeError):
        return False
