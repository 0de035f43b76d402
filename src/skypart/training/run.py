"""`skypart train`: run a recipe and summarise the result."""

from collections.abc import Sequence
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.training.distributed import start_workers, stop_workers
from skypart.training.loop import Result, train
from skypart.training.overfit import overfit
from skypart.training.recipe import load_recipe
from skypart.training.setup import prepare

STOPPED = 75
"""Exit code of a run that was stopped early and can be resumed; EX_TEMPFAIL of sysexits.h."""


def train_recipe(path: Path, overrides: Sequence[str], only_overfit: bool) -> tuple[str, int]:
    """Train, or overfit a few locations. Returns a summary for the user, empty except on rank 0, and the exit code."""
    recipe = load_recipe(path, overrides)
    workers = start_workers(recipe.run.device)
    try:
        if only_overfit:
            result = overfit(recipe, workers)
            if result.finished and result.progress.best < 100.0:
                raise SkyPartError(
                    f"R@1 on the training pairs reached only {result.progress.best:.1f} %: something is wrong with "
                    f"the data (`skypart data check`) or the settings; see the log in {result.model.parent}"
                )
            summary = f"overfit: R@1 100 % in both directions after {result.progress.step} steps ({result.model})"
            if not result.finished:
                summary = f"stopped at step {result.progress.step}, before R@1 reached 100 %"
        else:
            result = train(prepare(recipe, workers))
            summary = _summary(result)
        return summary if workers.is_leader else "", 0 if result.finished else STOPPED
    finally:
        stop_workers()


def _summary(result: Result) -> str:
    """One line about a run."""
    if not result.finished:
        return f"stopped at step {result.progress.step}; start the same command again to resume"
    best = ""
    if result.best is not None:
        best = f", best by validation at step {result.progress.best_step} in {result.best}"
        if result.progress.best_step < 0:
            best = f", without validation also {result.best}"
    return f"trained {result.progress.step} steps: {result.model}{best}"
