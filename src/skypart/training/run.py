"""`skypart train`: from the command's words to a finished run and a sentence about it."""

from collections.abc import Sequence
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.training.distributed import start_workers, stop_workers
from skypart.training.loop import Result, train
from skypart.training.overfit import overfit
from skypart.training.recipe import load_recipe
from skypart.training.setup import prepare

STOPPED = 75
"""Exit code of a run that was stopped before its end and can go on: by convention, a failure to be tried again."""


def train_recipe(path: Path, overrides: Sequence[str], only_overfit: bool) -> tuple[str, int]:
    """Train, or overfit a handful of locations; what to tell the user, which of many processes only the first does,
    and the exit code."""
    recipe = load_recipe(path, overrides)
    workers = start_workers(recipe.run.device)
    try:
        if only_overfit:
            result = overfit(recipe, workers)
            if result.finished and result.progress.best < 100.0:
                raise SkyPartError(
                    f"R@1 on its own training pairs reached only {result.progress.best:.1f} %: something is wrong "
                    f"with the data (`skypart data check`) or the settings; look at the log in {result.model.parent}"
                )
            told = f"overfit: R@1 100 % in both directions after {result.progress.step} steps ({result.model})"
            if not result.finished:
                told = f"stopped at step {result.progress.step}, before it was known"
        else:
            result = train(prepare(recipe, workers))
            told = _summary(result)
        return told if workers.is_leader else "", 0 if result.finished else STOPPED
    finally:
        stop_workers()


def _summary(result: Result) -> str:
    """One sentence about a run."""
    if not result.finished:
        return f"stopped at step {result.progress.step}; start the same command again to go on"
    chosen = f", best by validation at step {result.progress.best_step} in {result.best}" if result.best else ""
    return f"trained {result.progress.step} steps: {result.model}{chosen}"
