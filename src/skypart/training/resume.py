"""Resume an interrupted run from its newest readable checkpoint, if recipe and data are the same."""

from typing import Any

from skypart.errors import SkyPartError
from skypart.progress import console
from skypart.training.checkpoint import Progress, load_checkpoint, newest_checkpoint, read_facts
from skypart.training.recipe import Recipe
from skypart.training.setup import Run

_RENDERERS = {"weather": "weather rendering", "level": "contrast stretching"}
_THEN = ", then "
MODELS = ("model.safetensors", "best.safetensors")
"""The model files that a run writes to its folder."""


def resume(run: Run) -> Progress:
    """Load the newest checkpoint. Raises if it belongs to another recipe or other data."""
    newest = newest_checkpoint(run.folder / "checkpoints")
    if newest is None:
        _check_no_other_models(run)
        return Progress()
    _, facts = read_facts(newest)
    if facts["data"]["fingerprint"] != run.facts["data"]["fingerprint"]:
        raise SkyPartError(f"{newest}: was trained on data other than {run.recipe.data.root}; choose another run.out")
    used = {"weather": bool(run.recipe.data.weather), "level": run.preprocessing.level}
    for name, is_used in used.items():
        if is_used and facts.get(name, run.facts[name]) != run.facts[name]:
            raise SkyPartError(
                f"{newest}: {_RENDERERS[name]} has changed since that run began; resume with the version of SkyPart "
                "that began it, or choose another run.out"
            )
    changed = _differences(facts["recipe"], run.facts["recipe"])
    if changed:
        raise SkyPartError(
            f"{newest}: the recipe has changed since ({', '.join(changed)}); restore it or choose another run.out"
        )
    progress = load_checkpoint(newest, run.modules, run.optimiser)
    codes = facts["code"].split(_THEN)
    if codes[-1] != run.facts["code"] and progress.step < run.last_step:
        if run.workers.is_leader:
            console.print(
                f"the run began with version {codes[-1]} and resumes with {run.facts['code']}: last digits may differ"
            )
        codes.append(run.facts["code"])
    run.facts["code"] = _THEN.join(codes)
    return progress


def _check_no_other_models(run: Run) -> None:
    """Raise if the folder of a new run holds the models of another run."""
    for name in MODELS:
        if (run.folder / name).is_file():
            raise SkyPartError(
                f"{run.folder / name}: belongs to an earlier run whose checkpoints are gone; move it away or choose "
                "another run.out"
            )


MAY_DIFFER = {
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
"""Settings that may change when a run resumes, because they do not affect any result."""


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The dotted keys in which two recipes differ, except those in MAY_DIFFER."""
    keys = [f"{section}.{key}" for section in new for key in new[section]]
    defaults = Recipe().to_dict()  # the values of keys that did not exist yet when the old run began
    changed = []
    for dotted in keys:
        section, key = dotted.split(".")
        before = old.get(section, {}).get(key, defaults[section].get(key))
        if dotted not in MAY_DIFFER and _as_json(before) != _as_json(new[section][key]):
            changed.append(dotted)
    return changed


def _as_json(value: Any) -> Any:
    """Turn a tuple into a list, as JSON does."""
    return list(value) if isinstance(value, tuple) else value
