from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from skypart.losses.geopart import LossInputs, LossReport
from skypart.model.heads import Draws
from skypart.model.shared_trunk import TrunkTokens
from skypart.model.skypart import SkyPart
from skypart.model.vit import Trunk, VisionTransformer
from skypart.training.data import Batch
from skypart.training.loop import train
from skypart.training.recipe import BackboneRecipe, DistillRecipe
from skypart.training.setup import Run
from skypart.training.step import draw_step
from tests.model.builders import part_head
from tests.training.small_runs import SMALL_HEAD, small_recipe, small_run

CPU = torch.device("cpu")


def first_batch(run: Run) -> Batch:
    return next(run.data.epoch(0))


def draws(run: Run, images: int = 12) -> Draws:
    return draw_step(run.student.head, 1, 0, images, 4, run.recipe.distill)


def losses(run: Run, mar_ramp: float = 1.0) -> LossReport:
    batch = first_batch(run)
    teacher = run.teacher.features_for(batch.records, CPU) if run.teacher is not None else None
    average = run.average.model if run.average is not None else None
    report: LossReport = run.step(batch, draws(run), average, teacher, mar_ramp)[0]
    return report


def test_the_full_recipe_has_every_group_and_term(sues: Path, tmp_path: Path) -> None:
    report = losses(small_run(sues, tmp_path))
    assert set(report.groups) == {"align", "part", "distill", "alt"}
    assert set(report.terms) == {
        "circle", "proxy_anchor", "info_nce", "patch_nce", "uapa", "mar", "diversity", "teacher", "ema", "altitude",
    }  # fmt: skip
    assert all(bool(torch.isfinite(value)) for value in report.terms.values())
    assert float(report.terms["diversity"]) == pytest.approx(0.0, abs=1e-6)  # orthogonal at the start
    recomputed = sum(float(value) for value in report.groups.values())  # all s_g are 0
    assert float(report.total.detach()) == pytest.approx(recomputed, rel=1e-5)


def test_gradients_reach_exactly_the_trainable_parameters(sues: Path, tmp_path: Path) -> None:
    run = small_run(sues, tmp_path)
    part_head(run.student).bank.prototypes.data.add_(
        0.05 * torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    )
    losses(run).total.backward()  # type: ignore[no-untyped-call]
    for name, parameter in run.step.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None and bool(parameter.grad.abs().sum() > 0), name
        else:
            assert parameter.grad is None, name
    assert not any(p.grad is not None for p in run.average.model.parameters())  # type: ignore[union-attr]
    frozen = [name for name, p in run.step.named_parameters() if not p.requires_grad]
    assert frozen and all(name.startswith("student.backbone.") for name in frozen)


@pytest.mark.parametrize(
    ("switches", "groups"),
    [
        ({"alt": False}, {"align", "part", "distill"}),
        ({"part": False}, {"align", "distill", "alt"}),
        ({"distill": False}, {"align", "part", "alt"}),
        ({"align": False}, {"part", "distill", "alt"}),
        ({"teacher": False, "ema": False}, {"align", "part", "alt"}),
    ],
)
def test_groups_can_be_switched_off(sues: Path, tmp_path: Path, switches: dict[str, bool], groups: set[str]) -> None:
    loss = replace(small_recipe(sues, tmp_path).loss, **switches)  # type: ignore[arg-type]
    run = small_run(sues, tmp_path, loss=loss)
    assert set(losses(run).groups) == groups
    assert (run.average is None) == (not loss.distill or not loss.ema)
    assert (run.teacher is None) == (not loss.distill or not loss.teacher)


def test_terms_without_teacher_or_altitudes_are_absent_and_their_s_g_gets_no_gradient(
    sues: Path, tmp_path: Path
) -> None:
    run = small_run(sues, tmp_path, teacher=False)
    batch = first_batch(run)
    unlabelled = replace(batch, altitude=torch.full_like(batch.altitude, float("nan")))
    report = run.step(unlabelled, draws(run), run.average.model if run.average else None, None, 1.0)[0]
    assert "teacher" not in report.terms and set(report.groups) == {"align", "part", "distill"}
    report.total.backward()
    assert run.loss.log_variance["alt"].grad is None
    assert run.loss.log_variance["align"].grad is not None


def test_the_ramp_scales_mar_alone(sues: Path, tmp_path: Path) -> None:
    run = small_run(sues, tmp_path)
    state = {name: value.clone() for name, value in run.student.state_dict().items()}
    found = []
    for weight in (0.0, 0.5, 1.0):
        run.student.load_state_dict(state)
        report = losses(run, weight)
        assert float(report.groups["part"]) == pytest.approx(
            weight * float(report.terms["mar"]) + float(report.terms["diversity"]), rel=1e-5, abs=1e-6
        )
        found.append(report)
    assert float(found[0].terms["mar"]) == float(found[2].terms["mar"]) > 0.1


def test_draws_depend_only_on_seed_and_step(tiny_model: SkyPart) -> None:
    recipe = DistillRecipe(mar_ratio=0.3, patches=4)
    one, same, other = (draw_step(tiny_model.head, 5, step, 8, 16, recipe) for step in (3, 3, 4))
    assert one.head is not None and same.head is not None and other.head is not None
    assert torch.equal(one.head, same.head) and torch.equal(one.patches, same.patches)
    assert not torch.equal(one.head, other.head) and not torch.equal(one.masked, other.masked)
    assert one.masked.sum(1).tolist() == [5] * 8  # round(0.3 * 16)
    assert one.patches.shape == (8, 4)
    assert all(len(set(row)) == 4 for row in one.patches.tolist())
    half = one.rows(slice(4, 8), CPU)
    assert half.head is not None and torch.equal(half.head, one.head[4:]) and torch.equal(half.masked, one.masked[4:])


@pytest.mark.parametrize("trainable", [0, 2, 4])
def test_the_average_uses_only_its_own_weights(sues: Path, tmp_path: Path, trainable: int) -> None:
    """Self-distillation compares with the average's own embedding, however many blocks are shared."""
    run = small_run(sues, tmp_path, backbone=BackboneRecipe("untrained:tiny", 28, trainable))
    assert run.average is not None
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in run.student.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    batch = first_batch(run)
    seen: list[LossInputs] = []
    run.step.loss.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    run.step(batch, draws(run), run.average.model, None, 1.0)
    with torch.no_grad():
        torch.testing.assert_close(seen[0].joined["ema_embedding"], run.average.model(batch.images).embedding)


def test_gradient_checkpointing_changes_no_gradient(sues: Path, tmp_path: Path) -> None:
    gradients = []
    for wanted in (False, True):
        run = small_run(sues, tmp_path, backbone=BackboneRecipe("untrained:tiny", 28, 2, wanted))
        assert run.student.backbone_interface.gradient_checkpointing is wanted
        losses(run).total.backward()  # type: ignore[no-untyped-call]
        gradients.append([p.grad for p in run.step.parameters() if p.grad is not None])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed)


def test_bfloat16_stays_near_float32_and_finite(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path)
    totals = []
    for precision in ("float32", "bfloat16"):
        run = small_run(sues, tmp_path, optimiser=replace(recipe.optimiser, precision=precision))
        report = losses(run)
        report.total.backward()  # type: ignore[no-untyped-call]
        assert all(bool(torch.isfinite(p.grad).all()) for p in run.step.parameters() if p.grad is not None)
        totals.append(float(report.total.detach()))
    assert totals[0] != totals[1] and totals[1] == pytest.approx(totals[0], rel=0.05)


def test_runs_that_share_frozen_tokens_learn_the_same_bit_by_bit(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    trunk = VisionTransformer.trunk

    def counted(self: VisionTransformer, images: Tensor, taps: Sequence[int] | None = None) -> Trunk:
        if torch.is_grad_enabled():  # not the validation
            computed.append("")
        return trunk(self, images, taps)

    monkeypatch.setattr(VisionTransformer, "trunk", counted)
    tokens = TrunkTokens()
    found: dict[str, tuple[int, dict[str, Tensor]]] = {}
    for name, shared, head in (
        ("alone", False, SMALL_HEAD),
        ("first", True, SMALL_HEAD),
        ("second", True, SMALL_HEAD),
        ("other head", True, replace(SMALL_HEAD, salience_gate=False)),
    ):
        run = small_run(sues, tmp_path / name, teacher=False, head=head)
        if shared:
            run.step.share_trunk(tokens)
        computed.clear()
        train(run)
        found[name] = len(computed), run.student.state_dict()
    steps = found["alone"][0]
    assert {name: count for name, (count, _) in found.items()} == {
        "alone": steps, "first": steps, "second": 0, "other head": 0,
    }  # fmt: skip
    for name in ("first", "second"):
        for key, value in found["alone"][1].items():
            assert torch.equal(found[name][1][key], value), (name, key)


def test_a_run_whose_blocks_all_learn_shares_nothing(sues: Path, tmp_path: Path) -> None:
    tokens = TrunkTokens()
    run = small_run(sues, tmp_path / "run", teacher=False)
    run.student.freeze(run.student.backbone_interface.depth)
    run.step.share_trunk(tokens)
    train(run)
    assert len(tokens) == 0
