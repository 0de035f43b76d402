"""The training loop."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.losses.geopart import LossReport
from skypart.model.heads import HeadOutput
from skypart.model.storage import save_model
from skypart.signals import handle_signals
from skypart.training.checkpoint import Progress, save_checkpoint
from skypart.training.data import Batch
from skypart.training.distributed import all_agree
from skypart.training.journal import Journal
from skypart.training.optimiser import learning_rate_factor, set_learning_rate
from skypart.training.resume import resume
from skypart.training.setup import Run
from skypart.training.step import draw_step
from skypart.training.validation import ranking_key, validate


@dataclass(frozen=True)
class Result:
    """How a run ended. model: the file of the student. idle: share of the time spent waiting for images."""

    model: Path
    best: Path | None
    progress: Progress
    idle: float
    finished: bool


def train(run: Run, done: Callable[[dict[str, float]], bool] | None = None) -> Result:
    """Train to the last epoch, from the newest checkpoint in the run folder or from the start.

    done: called with the result of each validation; if it returns True, the run ends early.
    """
    progress = resume(run)
    loop = _Loop(run, progress, done)
    with (
        Journal(
            run.folder, run.last_step, progress.step, run.recipe.run.wandb, run.recipe.to_dict(), run.workers.is_leader
        ) as journal,
        _stop_on_signal(loop),
    ):
        loop.run_epochs(journal)
    model = run.folder / "model.safetensors"
    best = run.folder / "best.safetensors"
    return Result(model, best if best.is_file() else None, progress, loop.idle, loop.finished)


def time_steps(run: Run, steps: int) -> float:
    """Seconds per optimiser step, waiting for images included, over `steps` steps after a first one; writes no file.

    The run is trained by these steps and must not be used afterwards.
    """
    loop = _Loop(run, Progress(), None)
    accumulate = run.recipe.batch.accumulate
    batches = run.data.epoch(0)
    ends: list[float] = []
    for accumulated in zip(*[batches] * accumulate, strict=False):
        for number, batch in enumerate(accumulated):
            report, _ = loop._forward(batch.to(run.workers.device), len(ends) * accumulate + number)
            (report.total / accumulate).backward()  # type: ignore[no-untyped-call]
        loop._update(1e-6, [])
        ends.append(time.perf_counter())
        if len(ends) > steps:
            break
    if len(ends) < 2:
        raise SkyPartError("an epoch of one step is too short to estimate the time; raise batch.steps")
    return (ends[-1] - ends[0]) / (len(ends) - 1)


class _Loop:
    """The state of a running loop."""

    def __init__(self, run: Run, progress: Progress, done: Callable[[dict[str, float]], bool] | None) -> None:
        self.run, self.progress, self.done = run, progress, done
        self.step = (
            DistributedDataParallel(run.step, find_unused_parameters=True) if run.workers.world > 1 else run.step
        )
        self.stop_requested = False
        self.finished = False
        self.waited = self.worked = 0.0

    @property
    def idle(self) -> float:
        """Share of the training time, without validation, spent waiting for images."""
        return self.waited / max(1e-9, self.waited + self.worked)

    def run_epochs(self, journal: Journal) -> None:
        """Train epoch by epoch, until the last step or a request to stop."""
        run, per_epoch, accumulate = self.run, self.run.steps_per_epoch, self.run.recipe.batch.accumulate
        stop, first_step = False, self.progress.step
        while self.progress.step < run.last_step and not self.finished and not stop:
            epoch, first = divmod(self.progress.step, per_epoch)
            batches = self._count_waiting(run.data.epoch(epoch, first * accumulate))
            for accumulated in zip(*[batches] * accumulate, strict=True):
                self._train_step(accumulated, journal)
                # all processes stop after the same step
                stop = not all_agree(not self.stop_requested, run.workers.device)
                every = run.recipe.run.checkpoint_every
                epoch_ends = self.progress.step % per_epoch == 0
                if epoch_ends:
                    self._after_epoch(epoch, journal)
                if epoch_ends or stop or (every and self.progress.step % every == 0):
                    self._checkpoint()
                if stop or self.finished:
                    break
        self.finished = self.finished or self.progress.step >= run.last_step
        model = run.folder / "model.safetensors"
        if self.finished and run.workers.is_leader and not (model.is_file() and self.progress.step == first_step):
            self._save_student(model)
            if not run.split.drone:  # nothing to choose by: later stages find the last model under the same name
                self._save_student(run.folder / "best.safetensors")
        journal.say(f"waited for images {100 * self.idle:.1f} % of the time")

    def _count_waiting(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the batches, adding the time spent waiting for them to `waited`."""
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            self.waited += time.perf_counter() - start
            yield batch

    def _train_step(self, batches: tuple[Batch, ...], journal: Journal) -> None:
        """One optimiser step: forward, check and backward for each batch, then the update."""
        run, step, recipe = self.run, self.progress.step, self.run.recipe
        start = time.perf_counter()
        for number, batch in enumerate(batches):
            report, output = self._forward(batch.to(run.workers.device), step * len(batches) + number)
            self._check_finite(report, batch.records)
            (report.total / len(batches)).backward()  # type: ignore[no-untyped-call]
        warmup = round(recipe.optimiser.warmup_epochs * run.steps_per_epoch)
        factor = learning_rate_factor(step, run.total_steps, warmup, recipe.optimiser.floor, recipe.optimiser.cycles)
        norm = self._update(factor, [index for batch in batches for index in batch.records])
        self.progress.step += 1
        seconds = time.perf_counter() - start
        self.worked += seconds
        rate = sum(len(batch.images) for batch in batches) * run.workers.world / seconds
        journal.step(self.progress.step, _state(report, recipe.optimiser.head_lr * factor, rate))
        if step % recipe.run.log_every == 0:
            journal.record("train", step, _scalars(report, recipe.optimiser.head_lr * factor, rate, norm))
            journal.record("health", step, run.student.head.health(output))

    def _forward(self, batch: Batch, draw: int) -> tuple[LossReport, HeadOutput]:
        """Losses of one batch. draw: number of the batch in the run, which determines its random numbers."""
        run, recipe = self.run, self.run.recipe
        each, rank = len(batch.images), run.workers.rank
        patches = (recipe.backbone.size // run.student.backbone_interface.patch) ** 2
        joined = draw_step(run.student.head, recipe.run.seed, draw, each * run.workers.world, patches, recipe.distill)
        ramp = recipe.distill.mar_ramp_epochs * run.steps_per_epoch
        found: tuple[LossReport, HeadOutput] = self.step(
            batch,
            joined.rows(slice(rank * each, (rank + 1) * each), run.workers.device),
            run.average.model if run.average is not None else None,
            run.teacher.features_for(batch.records, run.workers.device) if run.teacher is not None else None,
            min(1.0, self.progress.step / max(1.0, ramp)),
        )
        return found

    def _update(self, factor: float, records: list[int]) -> float:
        """Update the weights and the moving average. Returns the gradient norm before clipping."""
        run = self.run
        with_gradient = [p for group in run.optimiser.param_groups for p in group["params"] if p.grad is not None]
        limit = run.recipe.optimiser.clip or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(with_gradient, limit))
        if not torch.isfinite(torch.tensor(norm)):
            raise self._non_finite_error("the gradient", records)
        set_learning_rate(run.optimiser, factor)
        run.optimiser.step()
        run.optimiser.zero_grad(set_to_none=True)
        if run.average is not None:
            run.average.update(run.student)
        return norm

    def _check_finite(self, report: LossReport, records: list[int]) -> None:
        """Raise, on all processes, if a loss is not finite on any of them. No checkpoint is written."""
        if not report.groups:
            raise SkyPartError(
                "none of the recipe's losses has the inputs it needs (altitudes, a teacher) in this data; "
                "switch on a loss that has"
            )
        bad = [name for name, value in report.groups.items() if not torch.isfinite(value)]
        if not all_agree(not bad and bool(torch.isfinite(report.total)), self.run.workers.device):
            terms = [name for name, value in report.terms.items() if not torch.isfinite(value)]
            where = f"loss group {', '.join(bad)} (term {', '.join(terms)})" if bad else "the loss"
            raise self._non_finite_error(where, records)

    def _non_finite_error(self, what: str, records: list[int]) -> SkyPartError:
        """The error of a run with a loss or gradient that is not finite. Writes the batch's images beside the log."""
        paths = [str(self.run.data.images.records[index].path) for index in records]
        listing = self.run.folder / f"broken-batch-{self.progress.step}-rank{self.run.workers.rank}.txt"
        write_text(listing, "\n".join(paths) + "\n")
        return SkyPartError(
            f"{what} is NaN or infinite at step {self.progress.step}, on {', '.join(paths[:4])} and "
            f"{max(0, len(paths) - 4)} more images (all in {listing}); the last checkpoint is untouched: "
            "check these images or lower the learning rate, then start again"
        )

    def _after_epoch(self, epoch: int, journal: Journal) -> None:
        """Validate, save the best model, warn of collapse."""
        run = self.run
        if run.workers.is_leader and run.split.drone and (epoch + 1) % run.recipe.run.validate_every == 0:
            result = validate(run.student, run.split, run.data.images, run.workers.device)
            journal.record("validation", self.progress.step, result)
            better = ranking_key(result) > max(map(ranking_key, self.progress.history), default=(-1.0, 0.0))
            self.progress.history.append({"epoch": epoch + 1, "step": self.progress.step, **result})
            journal.say(f"epoch {epoch + 1}: " + ", ".join(f"{k} {v:.2f}" for k, v in result.items()))
            if better:
                self.progress.best, self.progress.best_step = result["score"], self.progress.step
                self._save_student(run.folder / "best.safetensors")
            if self.done is not None and self.done(result):
                self.finished = True
        self._warn_of_collapse(journal)
        if run.workers.world > 1:
            state = torch.tensor([float(self.finished), self.progress.best], dtype=torch.float64)
            state = state.to(run.workers.device)
            dist.broadcast(state, 0)
            self.finished, self.progress.best = bool(state[0].item()), float(state[1].item())

    def _warn_of_collapse(self, journal: Journal) -> None:
        """Run the model on a few training images and print a warning if the head has degenerated."""
        run = self.run
        if not run.workers.is_leader or not (run.student.head.readouts.current != "cls" or run.recipe.loss.part):
            return
        with torch.no_grad():
            sample = run.split.train[:: max(1, len(run.split.train) // 8)][:8]
            images = torch.stack([torch.from_numpy(run.preprocessing(r.path)) for r in sample])
            warning = run.student.head.collapse_warning(run.student.eval()(images.to(run.workers.device)))
            run.student.train()
        if warning:
            journal.say(f"[yellow]{warning}[/]")

    def _checkpoint(self) -> None:
        """Write a checkpoint from the leader process."""
        run = self.run
        if run.workers.is_leader:
            save_checkpoint(
                run.folder / "checkpoints", run.modules, run.optimiser, self.progress, run.facts, run.recipe.run.keep
            )
        if run.workers.world > 1:
            dist.barrier()

    def _save_student(self, path: Path) -> None:
        """Write the student as a deployable model file."""
        run = self.run
        run.student.recipe = run.trained_recipe.to_dict()
        run.student.provenance = run.provenance(vars(self.progress))
        save_model(run.student, path)


def _state(report: LossReport, rate: float, images: float) -> str:
    """One line with the loss groups and their weights, the learning rate and the speed."""
    groups = " ".join(
        f"{name} {float(value):.3g}*{float(report.weights[name]):.2f}" for name, value in report.groups.items()
    )
    return f"{groups} lr {rate:.1e} {images:.0f} img/s"


def _scalars(report: LossReport, rate: float, images: float, norm: float) -> dict[str, float]:
    """The scalars logged for a step."""
    return {
        "total": float(report.total.detach()),
        **{f"group_{name}": float(value) for name, value in report.groups.items()},
        **{f"term_{name}": float(value) for name, value in report.terms.items()},
        **{f"weight_{name}": float(value) for name, value in report.weights.items()},
        "lr": rate,
        "images_per_second": images,
        "gradient_norm": norm,
    }


def _stop_on_signal(loop: _Loop) -> AbstractContextManager[None]:
    """Ctrl-C or SIGTERM ends the run after the current step, with a checkpoint; a second one ends it at once."""

    def request_stop(number: int, frame: FrameType | None) -> None:
        if loop.stop_requested:
            raise KeyboardInterrupt
        loop.stop_requested = True

    return handle_signals(request_stop, signal.SIGINT, signal.SIGTERM)
