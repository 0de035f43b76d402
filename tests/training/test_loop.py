import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils.tensorboard import SummaryWriter

from skypart.errors import SkyPartError
from skypart.losses.altitude import AltitudeLoss
from skypart.losses.masked_reconstruction import MaskedReconstructionLoss
from skypart.losses.proxy_anchor import ProxyAnchorLoss
from skypart.losses.teacher_distillation import TeacherDistillationLoss
from skypart.model.storage import load_model, read_metadata, save_model
from skypart.training import checkpoint
from skypart.training import loop as module
from skypart.training.checkpoint import Progress, list_checkpoints, newest_checkpoint, read_facts
from skypart.training.data import Batch
from skypart.training.journal import Journal
from skypart.training.loop import Result, _Loop, train
from skypart.training.recipe import BatchRecipe
from skypart.training.setup import Run, prepare
from tests.model.builders import part_head
from tests.training.fake_data import make_sues
from tests.training.small_runs import ALONE, SMALL_HEAD, small_recipe, small_run


def tensors(path: Path | None) -> dict[str, torch.Tensor]:
    assert path is not None
    with safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def assert_identical(one: Path | None, other: Path | None) -> None:
    """Bit-identical weights, optimiser, average, s_g, random state."""
    mine, theirs = tensors(one), tensors(other)
    assert set(mine) == set(theirs)
    assert {key.split("/")[0] for key in mine} == {"student", "average", "loss", "optimiser", "rng"}
    for key, value in mine.items():
        assert torch.equal(value, theirs[key]), key


class KilledError(Exception):
    """Simulates a process that was killed."""


def train_until(run: Run, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train and simulate a kill in the middle of the step after `step`."""
    inner = run.step.forward

    def forward(*inputs: Any) -> Any:
        if forward.calls == step:  # type: ignore[attr-defined]
            raise KilledError
        forward.calls += 1  # type: ignore[attr-defined]
        return inner(*inputs)

    forward.calls = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(run.step, "forward", forward)
    with pytest.raises(KilledError):
        train(run)


@pytest.mark.parametrize(
    "killed_after", [pytest.param(5, marks=pytest.mark.slow), 7, pytest.param(8, marks=pytest.mark.slow)]
)
def test_resume_is_exact_at_the_end_of_and_within_an_epoch(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    run_recipe = replace(small_recipe(sues, tmp_path).run, checkpoint_every=2)
    straight = small_run(sues, tmp_path / "a", run=replace(run_recipe, out=str(tmp_path / "a")))
    train(straight)
    broken = replace(run_recipe, out=str(tmp_path / "b"))
    train_until(small_run(sues, tmp_path / "b", run=broken), killed_after, monkeypatch)
    checkpoint_file = newest_checkpoint(tmp_path / "b" / "checkpoints")
    assert checkpoint_file is not None and read_facts(checkpoint_file)[0].step == {5: 5, 7: 6, 8: 8}[killed_after]
    result = train(small_run(sues, tmp_path / "b", run=broken))
    assert result.finished and result.progress.step == 10
    assert_identical(
        newest_checkpoint(tmp_path / "a" / "checkpoints"), newest_checkpoint(tmp_path / "b" / "checkpoints")
    )
    one, other = (tensors(tmp_path / name / "model.safetensors") for name in "ab")
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_finished_run_does_not_train_again(sues: Path, tmp_path: Path) -> None:
    train(small_run(sues, tmp_path))
    before = tensors(newest_checkpoint(tmp_path / "checkpoints"))
    result = train(small_run(sues, tmp_path))
    assert result.finished and result.progress.step == 10
    after = tensors(newest_checkpoint(tmp_path / "checkpoints"))
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_models_of_a_run_without_checkpoints_are_not_overwritten(sues: Path, tmp_path: Path) -> None:
    train(small_run(sues, tmp_path))
    shutil.rmtree(tmp_path / "checkpoints")
    before = (tmp_path / "best.safetensors").read_bytes()
    with pytest.raises(SkyPartError, match="earlier run whose checkpoints are gone"):
        train(small_run(sues, tmp_path))
    assert (tmp_path / "best.safetensors").read_bytes() == before


def test_the_model_file_contains_the_student_and_its_provenance(sues: Path, tmp_path: Path) -> None:
    run = small_run(sues, tmp_path)
    result = train(run)
    model = load_model(result.model)
    for name, value in run.student.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    assert model.preprocessing.size == 28
    header = read_metadata(result.model)
    assert header["recipe"]["batch"]["locations"] == 4
    assert header["provenance"]["data"]["fingerprint"] == run.facts["data"]["fingerprint"]
    assert "10 steps on 6 locations" in header["provenance"]["training"]


@pytest.mark.slow
def test_the_best_model_by_validation_is_kept(sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([(10.0, 90.0), (40.0, 50.0), (40.0, 60.0), (40.0, 60.0), (20.0, 99.0)])
    states = []

    def judge(model: torch.nn.Module, *_: Any) -> dict[str, float]:
        states.append({name: value.clone() for name, value in model.state_dict().items()})
        score, precision = next(scores)
        return {"score": score, "D2S AP": precision, "S2D AP": 50.0}

    monkeypatch.setattr(module, "validate", judge)
    optimiser = replace(small_recipe(sues, tmp_path).optimiser, epochs=5)
    result = train(small_run(sues, tmp_path, optimiser=optimiser))
    assert (result.progress.best, result.progress.best_step) == (40.0, 15)  # ties: higher AP, then the earlier one
    assert [entry["score"] for entry in result.progress.history] == [10.0, 40.0, 40.0, 40.0, 20.0]
    assert result.best is not None
    best = load_model(result.best).state_dict()
    assert all(torch.equal(best[name], value) for name, value in states[2].items())
    assert not all(torch.equal(best[name], value) for name, value in states[4].items())


def test_the_idle_share_does_not_count_validation(sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a fake clock: 1 s of waiting and 3 s of work per step, and 1000 s per validation."""
    run = small_run(sues, tmp_path, teacher=False)
    plain, forward, now = run.data.epoch, run.step.forward, [0.0]

    def slow_epoch(*numbers: int) -> Iterator[Batch]:
        for batch in plain(*numbers):
            now[0] += 1.0
            yield batch

    def slow_forward(*inputs: Any) -> Any:
        now[0] += 3.0
        return forward(*inputs)

    def slow_validation(*_: Any) -> dict[str, float]:
        now[0] += 1000.0
        return {"score": 1.0, "D2S AP": 1.0, "S2D AP": 1.0}

    monkeypatch.setattr(run.data, "epoch", slow_epoch)
    monkeypatch.setattr(run.step, "forward", slow_forward)
    monkeypatch.setattr(module, "validate", slow_validation)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    loop = _Loop(run, Progress(), None)
    with Journal(tmp_path, run.last_step, 0, "", {}, False) as journal:
        loop.run_epochs(journal)
    assert (loop.waited, loop.worked) == (run.last_step * 1.0, run.last_step * 3.0)
    assert loop.idle == 0.25 and now[0] > 2000


@pytest.mark.slow
def test_validation_runs_every_n_epochs_and_never_without_a_split(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path)
    every = replace(recipe.run, validate_every=2, out=str(tmp_path / "a"))
    assert [e["epoch"] for e in train(small_run(sues, tmp_path, run=every)).progress.history] == [2]
    nothing = replace(recipe.data, validation=0.0)
    result = train(small_run(sues, tmp_path / "b", data=nothing))
    assert result.progress.history == [] and result.progress.best_step == -1


GROUPS = [
    (ProxyAnchorLoss, "align", "proxy_anchor", "nan"),
    (MaskedReconstructionLoss, "part", "mar", "inf"),
    (TeacherDistillationLoss, "distill", "teacher", "nan"),
    (AltitudeLoss, "alt", "altitude", "inf"),
]


@pytest.mark.parametrize(("loss", "group", "term", "value"), GROUPS)
def test_a_non_finite_loss_stops_the_run_at_once(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: type, group: str, term: str, value: str
) -> None:
    run = small_run(sues, tmp_path, run=replace(small_recipe(sues, tmp_path).run, checkpoint_every=1))
    inner = loss.forward  # type: ignore[attr-defined]

    def forward(self: Any, **inputs: Any) -> torch.Tensor:
        forward.calls += 1  # type: ignore[attr-defined]
        found: torch.Tensor = inner(self, **inputs)
        return found * float(value) if forward.calls == 4 else found  # type: ignore[attr-defined]

    forward.calls = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(loss, "forward", forward)
    with pytest.raises(SkyPartError) as error:
        train(run)
    good = tensors(newest_checkpoint(tmp_path / "checkpoints"))
    assert f"group {group} (term {term})" in str(error.value) and "step 3" in str(error.value)
    assert [read_facts(path)[0].step for path in list_checkpoints(tmp_path / "checkpoints")] == [2, 3]
    assert all(bool(torch.isfinite(v).all()) for v in good.values() if v.is_floating_point())
    batch = list(run.data.epoch(0))[3]
    listing = (tmp_path / "broken-batch-3-rank0.txt").read_text().split("\n")[:-1]
    assert listing == [str(run.split.train[index].path) for index in batch.records]
    assert listing[0] in str(error.value)
    if group == "align":  # and it resumes from the last good checkpoint
        monkeypatch.undo()
        assert train(small_run(sues, tmp_path)).finished


def test_an_infinite_gradient_stops_the_run_before_the_update(sues: Path, tmp_path: Path) -> None:
    run = small_run(sues, tmp_path)
    before = {name: value.clone() for name, value in run.step.named_parameters()}
    part_head(run.student).project.weight.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[no-untyped-call]
    with pytest.raises(SkyPartError, match=r"the gradient is NaN or infinite at step 0.*\.jpg"):
        train(run)
    assert all(torch.equal(before[name], value) for name, value in run.step.named_parameters())
    assert list_checkpoints(tmp_path / "checkpoints") == []


def test_a_full_disk_is_a_clear_error_and_the_run_can_resume(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: Any, path: Path, metadata: Any) -> None:
        if '"step": 10' in metadata["progress"]:
            raise OSError(28, "No space left on device")
        save_file(state, path, metadata)

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(SkyPartError, match="No space left"):
        train(small_run(sues, tmp_path))
    newest = newest_checkpoint(tmp_path / "checkpoints")
    assert newest is not None and read_facts(newest)[0].step == 5
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    monkeypatch.undo()
    assert train(small_run(sues, tmp_path)).finished


def test_a_changed_recipe_or_other_data_is_refused_and_a_harmless_change_is_not(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path, teacher=False)
    train(prepare(recipe, ALONE))
    changed = replace(
        recipe,
        optimiser=replace(recipe.optimiser, head_lr=1e-3),
        augment=replace(recipe.augment, blur=0.2),
    )
    with pytest.raises(SkyPartError, match=r"recipe has changed since \(augment\.blur, optimiser\.head_lr\)"):
        train(prepare(changed, ALONE))
    other = make_sues(tmp_path / "other", locations=8, per_altitude=1)
    with pytest.raises(SkyPartError, match="trained on data other than"):
        train(prepare(replace(recipe, data=replace(recipe.data, root=str(other))), ALONE))
    moved = tmp_path / "moved"
    moved.symlink_to(sues)
    free = replace(
        recipe,
        data=replace(recipe.data, root=str(moved), workers=1),
        run=replace(recipe.run, keep=1, log_every=3, checkpoint_every=7),
    )
    assert train(prepare(free, ALONE)).progress.step == 10


def test_collapsed_prototypes_give_a_warning(sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(Journal, "say", lambda _, text: messages.append(text))
    healthy = small_run(sues, tmp_path / "a")
    train(healthy)
    assert not any("collapsing" in text for text in messages)
    run = small_run(sues, tmp_path / "b", optimiser=replace(healthy.recipe.optimiser, head_lr=1e-12, epochs=1))
    head = part_head(run.student)
    head.bank.temperature = 1e-3
    head.film.gamma.data.zero_()
    head.film.beta.data.copy_(head.bank.prototypes.data[2].expand(4, -1))
    train(run)
    assert any("prototypes are collapsing" in text and "100 %" in text for text in messages)
    assert run.student.training


def accumulated(sues: Path, out: Path, accumulate: int, steps: int) -> Run:
    """A run without clipping and with full MAR weight from the first step."""
    recipe = small_recipe(sues, out)
    return small_run(
        sues,
        out,
        batch=BatchRecipe(locations=4, drone=2, steps=steps, accumulate=accumulate),
        optimiser=replace(recipe.optimiser, clip=0.0),
        distill=replace(recipe.distill, mar_ramp_epochs=0.0),
    )


def gradients_of_steps(run: Run, batches: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """The gradients the optimiser would have used in the first step of a run with `batches` batches per step."""
    found: dict[str, torch.Tensor] = {}

    def catch(loop: _Loop, *_: Any) -> float:
        found.update({n: p.grad.clone() for n, p in run.step.named_parameters() if p.grad is not None})
        raise KilledError

    monkeypatch.setattr(_Loop, "_update", catch)
    with pytest.raises(KilledError):
        train(run)
    monkeypatch.undo()
    return found


def test_accumulation_gives_the_mean_of_the_batches_gradients(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = gradients_of_steps(accumulated(sues, tmp_path / "a", 2, 3), 2, monkeypatch)
    run = accumulated(sues, tmp_path / "b", 1, 6)  # the same batches, one per step
    loop = _Loop(run, Progress(), None)
    expected: dict[str, torch.Tensor] = {}
    for draw, batch in zip(range(2), run.data.epoch(0), strict=False):
        run.step.zero_grad()
        loop._forward(batch, draw)[0].total.backward()  # type: ignore[no-untyped-call]
        for name, parameter in run.step.named_parameters():
            if parameter.grad is not None:
                expected[name] = expected.get(name, torch.zeros(())) + parameter.grad / 2
    assert set(both) == set(expected)
    for name, gradient in both.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_accumulated_runs_count_optimiser_steps(sues: Path, tmp_path: Path) -> None:
    result: Result = train(accumulated(sues, tmp_path, 2, 3))
    assert result.progress.step == 6 and 0 <= result.idle < 1


def test_mar_ramps_up_and_the_learning_rate_follows_the_schedule(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(sues, tmp_path)
    inner, weights = run.step.forward, []

    def forward(*inputs: Any) -> Any:
        weights.append(inputs[-1])
        return inner(*inputs)

    monkeypatch.setattr(run.step, "forward", forward)
    train(run)
    assert weights == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0])
    for group in run.optimiser.param_groups:
        assert group["lr"] == pytest.approx(0.01 * group["peak"])  # at the last step


@pytest.mark.slow
def test_fine_tuning_starts_from_a_models_weights(sues: Path, tmp_path: Path) -> None:
    first = small_run(sues, tmp_path / "a")
    result = train(first)
    recipe = small_recipe(sues, tmp_path / "b")
    again = prepare(replace(recipe, backbone=replace(recipe.backbone, start=str(result.model), size=42)), ALONE)
    for name, value in first.student.state_dict().items():
        assert torch.equal(again.student.state_dict()[name], value), name
    assert again.student.preprocessing.size == 42
    frozen = [name for name, p in again.student.named_parameters() if not p.requires_grad]
    assert any("blocks.1." in name for name in frozen) and not any("blocks.2." in name for name in frozen)
    done = train(again)
    assert done.finished
    earlier, later = (read_metadata(each.model)["provenance"] for each in (result, done))
    assert later["backbone"] == earlier["backbone"] == recipe.backbone.name
    assert later["start"] == str(result.model) and later["before"] == [earlier["training"]]
    assert "(reduced like SUES-200)" in later["training"] and "recipe" not in later


def test_a_run_from_before_a_key_existed_resumes(sues: Path, tmp_path: Path) -> None:
    run = prepare(small_recipe(sues, tmp_path, teacher=False), ALONE)
    old = {section: dict(values) for section, values in run.facts["recipe"].items()}
    del old["data"]["shares"], old["batch"]["alike"]
    run.facts["recipe"] = old
    train(run)
    assert train(prepare(small_recipe(sues, tmp_path, teacher=False), ALONE)).finished
    shared = small_recipe(sues, tmp_path, teacher=False)
    with pytest.raises(SkyPartError, match=r"recipe has changed since \(data\.shares\)"):
        train(prepare(replace(shared, data=replace(shared.data, shares=(0.9,))), ALONE))


def test_a_run_with_other_weather_rendering_does_not_resume(sues: Path, tmp_path: Path) -> None:
    plain = small_recipe(sues, tmp_path / "plain", teacher=False)
    stormy = small_recipe(sues, tmp_path / "stormy", teacher=False)
    stormy = replace(stormy, data=replace(stormy.data, weather="paper"))
    for recipe in (plain, stormy):
        run = prepare(recipe, ALONE)
        run.facts["weather"] -= 1
        train(run)
    assert train(prepare(plain, ALONE)).finished
    with pytest.raises(SkyPartError, match="weather rendering has changed"):
        train(prepare(stormy, ALONE))


def test_a_run_with_another_contrast_stretch_does_not_resume(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path, teacher=False)
    recipe = replace(recipe, backbone=replace(recipe.backbone, level=True))
    run = prepare(recipe, ALONE)
    run.facts["level"] -= 1
    train(run)
    with pytest.raises(SkyPartError, match="contrast stretching has changed"):
        train(prepare(recipe, ALONE))


def test_a_finished_model_keeps_its_code_versions(sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small_run(sues, tmp_path, teacher=False)
    first.facts["code"] = "old"
    train_until(first, 7, monkeypatch)
    second = small_run(sues, tmp_path, teacher=False)
    second.facts["code"] = "new"
    model = train(second).model
    assert read_metadata(model)["provenance"]["code"] == "old, then new"
    written = model.read_bytes()
    third = small_run(sues, tmp_path, teacher=False)
    third.facts["code"] = "newest"
    assert train(third).finished
    assert model.read_bytes() == written


def test_a_start_model_keeps_its_head(sues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = small_recipe(sues, tmp_path / "a", teacher=False)
    start = prepare(replace(recipe, head=replace(SMALL_HEAD, pooled_parts=5)), ALONE).student
    start.preprocessing = replace(start.preprocessing, interpolation="area", level=True)
    save_model(start, tmp_path / "start.safetensors")
    backbone = replace(recipe.backbone, start=str(tmp_path / "start.safetensors"))
    model = load_model(train(prepare(replace(recipe, backbone=backbone), ALONE)).model)
    assert vars(model.config)["pooled_parts"] == model.recipe["head"]["pooled_parts"] == 5
    assert model.preprocessing.interpolation == "area"
    assert model.preprocessing.level and model.recipe["backbone"]["level"]
    assert "not from the recipe: head.pooled_parts = 5" in " ".join(capsys.readouterr().err.split())


def test_a_run_without_any_computable_loss_is_an_error(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path, teacher=False)
    nothing = replace(recipe.loss, align=False, part=False, alt=False, ema=False)
    with pytest.raises(SkyPartError, match="none of the recipe's losses has the inputs it needs"):
        train(prepare(replace(recipe, loss=nothing), ALONE))


def test_a_file_in_place_of_the_run_folder_is_an_error(sues: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(SkyPartError, match="taken: is a file, but a run needs a folder"):
        prepare(small_recipe(sues, tmp_path / "taken", teacher=False), ALONE)
    assert (tmp_path / "taken").read_text() == "mine"


def test_an_unwritable_log_is_a_clear_error(sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SummaryWriter, "add_scalar", full)
    with pytest.raises(SkyPartError, match=r"log.jsonl: cannot be written \(No space left on device\)"):
        train(small_run(sues, tmp_path, teacher=False))


def test_a_start_takes_over_the_switch_of_the_salience_gate(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path / "a", teacher=False)
    start = prepare(recipe, ALONE).student
    save_model(start, tmp_path / "start.safetensors")
    changed = replace(
        recipe,
        head=replace(SMALL_HEAD, salience_gate=False),
        backbone=replace(recipe.backbone, start=str(tmp_path / "start.safetensors")),
        run=replace(recipe.run, out=str(tmp_path / "b")),
    )
    student = prepare(changed, ALONE).student
    assert vars(student.config)["salience_gate"] is False
    assert bool(student.eval()(torch.zeros(1, 3, 28, 28)).active.all())


def test_without_validation_the_last_model_is_also_the_best(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path, teacher=False)
    result = train(prepare(replace(recipe, data=replace(recipe.data, validation=0.0)), ALONE))
    assert result.best is not None
    assert tensors(result.best).keys() == tensors(result.model).keys()
    assert all(torch.equal(value, tensors(result.best)[name]) for name, value in tensors(result.model).items())
