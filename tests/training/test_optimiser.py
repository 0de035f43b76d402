import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from skypart.model.skypart import stored_name
from skypart.training.checkpoint import parameter_names
from skypart.training.optimiser import learning_rate_factor, set_learning_rate
from skypart.training.recipe import BackboneRecipe
from skypart.training.setup import Run
from tests.training.small_runs import small_recipe, small_run

ALL_BLOCKS = BackboneRecipe(name="untrained:tiny", size=28, trainable_blocks=4)


def settings_by_name(run: Run) -> dict[str, tuple[float, float]]:
    """(learning rate, weight decay) of every parameter of the optimiser."""
    names = parameter_names(run.modules)
    found: dict[str, tuple[float, float]] = {}
    for group in run.optimiser.param_groups:
        for parameter in group["params"]:
            assert names[id(parameter)] not in found
            assert group["peak"] == group["lr"]
            found[names[id(parameter)]] = (group["lr"], group["weight_decay"])
    return found


def test_the_groups_contain_each_trainable_parameter_once(sues: Path, tmp_path: Path) -> None:
    run = small_run(sues, tmp_path)
    learning = {
        f"{part}.{stored_name(name)}"
        for part, module in (("student", run.student), ("loss", run.loss))
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }
    assert set(settings_by_name(run)) == learning
    assert not any("backbone.blocks.0." in name for name in learning)


def test_backbone_head_and_proxies_have_different_learning_rates(sues: Path, tmp_path: Path) -> None:
    for name, (speed, _) in settings_by_name(small_run(sues, tmp_path)).items():
        if name.startswith("student.backbone."):
            assert speed == 3e-5, name
        elif name == "loss.proxy_anchor.proxies":
            assert speed == pytest.approx(3e-3), name
        else:
            assert speed == 3e-4, name


def test_weight_decay_of_each_parameter(sues: Path, tmp_path: Path) -> None:
    settings = settings_by_name(small_run(sues, tmp_path, backbone=ALL_BLOCKS))
    free = [name for name, (_, decay) in settings.items() if decay == 0.0]
    decayed = [name for name, (_, decay) in settings.items() if decay == 0.05]
    assert len(free) + len(decayed) == len(settings)
    for name in settings:
        ends = name.endswith((".bias", "norm.weight", "norm1.weight", "norm2.weight", "gamma", "beta"))
        marked = ("prototypes", "film.", "log_variance", "log_scale", "pos_embed", "cls_token")
        if ends or any(word in name for word in marked):
            assert name in free, name
    for name in (
        "student.backbone.patch_embed.proj.weight",
        "student.backbone.blocks.3.mlp.fc1.weight",
        "student.project.weight",
        "student.cls_branch.project.weight",
        "loss.mar.decoder.0.weight",
        "loss.proxy_anchor.proxies",
    ):
        assert name in decayed
    for group in ("align", "part", "distill", "alt"):
        assert settings[f"loss.log_variance.{group}"] == (3e-4, 0.0)


def test_warm_up_is_linear_then_a_cosine_to_the_floor_at_the_last_step() -> None:
    total, warmup, floor = 100, 20, 0.01
    curve = [learning_rate_factor(step, total, warmup, floor) for step in range(total)]
    assert curve[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
    assert max(curve) == curve[19] == curve[20] == 1.0
    assert curve[-1] == pytest.approx(floor, abs=1e-12)
    for step in range(20, 100):
        expected = floor + (1 - floor) * (1 + math.cos(math.pi * (step - 20) / 79)) / 2
        assert curve[step] == pytest.approx(expected)
    assert all(a > b for a, b in itertools.pairwise(curve[20:]))


@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (1, 1), (5, 5), (5, 9), (2, 1)])
def test_short_runs_have_a_positive_learning_rate(total: int, warmup: int) -> None:
    for step in range(total):
        assert 0 < learning_rate_factor(step, total, warmup, 0.01) <= 1


def test_setting_the_factor_keeps_the_ratio_of_learning_rates(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path, teacher=False)
    run = small_run(sues, tmp_path, teacher=False, optimiser=replace(recipe.optimiser, head_lr=1e-2))
    set_learning_rate(run.optimiser, 0.25)
    set_learning_rate(run.optimiser, 0.5)
    rates = {speed for speed, _ in [(group["lr"], group["peak"]) for group in run.optimiser.param_groups]}
    assert rates == {5e-3, 1.5e-5, 5e-2}
    assert isinstance(run.optimiser, torch.optim.AdamW)
