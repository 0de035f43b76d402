"""Going on with a broken-off run: only with the same recipe and data, from its newest readable checkpoint."""

from typing import Any

from skypart.errors import SkyPartError
from skypart.progress import console
from skypart.training.checkpoint import Progress, load_checkpoint, newest_checkpoint, read_facts
from skypart.training.recipe import Recipe
from skypart.training.setup import Run

_WAYS = {"weather": "weather is drawn", "level": "weak contrast is lifted"}
_THEN = ", then "
MODELS = ("model.safetensors", "best.safetensors")
"""What a run leaves in its folder."""


def resume(run: Run) -> Progress:
    """Go on from the newest checkpoint, if it belongs to the same recipe and data."""
    newest = newest_checkpoint(run.folder / "checkpoints")
    if newest is None:
        _check_no_other_models(run)
        return Progress()
    _, facts = read_facts(newest)
    if facts["data"]["fingerprint"] != run.facts["data"]["fingerprint"]:
        raise SkyPartError(f"{newest}: was trained on other data than {run.recipe.data.root}; choose another run.out")
    ways = {"weather": bool(run.recipe.data.weather), "level": run.preprocessing.level}
    for way, counts in ways.items():
        if counts and facts.get(way, run.facts[way]) != run.facts[way]:
            raise SkyPartError(
                f"{newest}: {_WAYS[way]} in another way since that run began; go on with the version of SkyPart that "
                "began it, or choose another run.out"
            )
    changed = _differences(facts["recipe"], run.facts["recipe"])
    if changed:
        raise SkyPartError(
            f"{newest}: the recipe has changed since ({', '.join(changed)}); put it back or choose another run.out"
        )
    progress = load_checkpoint(newest, run.modules, run.optimiser)
    codes = facts["code"].split(_THEN)
    if codes[-1] != run.facts["code"] and progress.step < run.last_step:
        if run.workers.is_leader:
            console.print(f"begun with the code {codes[-1]}, going on with {run.facts['code']}: last digits may differ")
        codes.append(run.facts["code"])
    run.facts["code"] = _THEN.join(codes)
    return progress


def _check_no_other_models(run: Run) -> None:
    """A run that begins must not end beside, or in place of, another run's models."""
    for name in MODELS:
        if (run.folder / name).is_file():
            raise SkyPartError(
                f"{run.folder / name}: is of an earlier run whose checkpoints are gone; move it away or choose another "
                "run.out"
            )


# What may differ between a run and its continuation: nothing of this changes a single number.
_MAY_DIFFER = {
    "data.root",
    "data.also",
    "data.workers",
    "run.out",
    "run.keep",
    "run.log_every",
    "run.wandb",
    "run.device",
    "run.checkpoint_every",
}


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The keys, dotted, in which two recipes differ, but for those that change no number."""
    keys = [f"{section}.{key}" for section in new for key in new[section]]
    usual = Recipe().to_dict()  # what a run from before a key was there did
    changed = []
    for dotted in keys:
        section, key = dotted.split(".")
        before = old.get(section, {}).get(key, usual[section].get(key))
        if dotted not in _MAY_DIFFER and _plain(before) != _plain(new[section][key]):
            changed.append(dotted)
    return changed


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON gives them back."""
    return list(value) if isinstance(value, tuple) else value
