"""Two gloo processes give the same results as one with the joined batch."""

import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist

from skypart.errors import SkyPartError
from skypart.model.heads.skypart.fusion import JointBatchNorm
from skypart.model.storage import load_model
from skypart.training.checkpoint import Progress, list_checkpoints
from skypart.training.distributed import Workers, all_agree, gather, leader_first, start_workers
from skypart.training.journal import Journal
from skypart.training.loop import _Loop, train
from skypart.training.overfit import overfit
from skypart.training.recipe import Recipe
from skypart.training.setup import Run, prepare
from tests.training.fake_data import make_sues
from tests.training.small_runs import ALONE, SMALL_HEAD, small_recipe, write_recipe

FORK = multiprocessing.get_context("fork")
CPU = torch.device("cpu")
TOLERANCE = 0.02


def on_two(work: Any, folder: Path, *arguments: Any) -> list[Any]:
    """Run `work(workers, *arguments)` in two processes; returns the results by rank."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = [FORK.Process(target=_work, args=(work, rank, folder, arguments)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def _work(work: Any, rank: int, folder: Path, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
    torch.save(work(Workers(rank, 2, CPU), *arguments), folder / f"rank{rank}.pt")
    dist.destroy_process_group()


def perturb(run: Run) -> None:
    """Leave the symmetric initial state: prototypes not orthogonal, s_g not 0, average and student different."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in run.student.parameters():
            if parameter.requires_grad:
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
        for value, s in zip((0.4, -0.3, 0.2, -0.1), run.loss.log_variance.values(), strict=False):
            s.fill_(value)


def first_step(workers: Workers, recipe: Recipe) -> dict[str, Any]:
    """Loss, terms, gradients and running statistics of the first batch, with the MAR ramp at 0.6."""
    run = prepare(recipe, workers)
    perturb(run)
    loop = _Loop(run, Progress(step=3), None)
    report, _ = loop._forward(next(run.data.epoch(0)), 3)
    report.total.backward()  # type: ignore[no-untyped-call]
    return {
        "total": report.total.detach(),
        "terms": report.terms,
        "gradients": {name: p.grad for name, p in run.step.named_parameters() if p.grad is not None},
        "running": {name: b for name, b in run.student.named_buffers() if "running" in name},
    }


def assert_two_equal_one(recipe: Recipe, folder: Path) -> dict[str, Any]:
    one = first_step(ALONE, recipe)
    two = on_two(first_step, folder, recipe)
    torch.testing.assert_close((two[0]["total"] + two[1]["total"]) / 2, one["total"], rtol=1e-5, atol=1e-5)
    for rank in two:
        assert set(rank["gradients"]) == set(one["gradients"]) and set(rank["terms"]) == set(one["terms"])
        for name, gradient in one["gradients"].items():
            assert torch.allclose(rank["gradients"][name], gradient, rtol=1e-5, atol=1e-5), name
        for name, value in one["running"].items():
            torch.testing.assert_close(rank["running"][name], value, rtol=1e-5, atol=1e-5)
    for term, value in one["terms"].items():
        torch.testing.assert_close((two[0]["terms"][term] + two[1]["terms"][term]) / 2, value, rtol=1e-5, atol=1e-5)
    for name, gradient in two[0]["gradients"].items():
        assert torch.equal(gradient, two[1]["gradients"][name]), name
    return one


@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_two_processes_give_the_loss_and_gradients_of_one(
    sues: Path, tmp_path: Path, precision: Literal["float32", "auto"]
) -> None:
    recipe = small_recipe(sues, tmp_path)
    recipe = replace(recipe, optimiser=replace(recipe.optimiser, precision=precision))
    one = assert_two_equal_one(recipe, tmp_path / "two")
    assert len(one["terms"]) == 10  # all are on, and none is trivially 0
    assert all(float(value) > 1e-4 for value in one["terms"].values()), one["terms"]


def cls_only(recipe: Recipe) -> Recipe:
    """The baseline, in which most of the head has no loss."""
    loss = replace(recipe.loss, part=False, alt=False, patch_nce=False)
    return replace(recipe, loss=loss, head=replace(SMALL_HEAD, readout="cls"))


def test_two_processes_equal_one_for_the_cls_only_baseline(sues: Path, tmp_path: Path) -> None:
    assert_two_equal_one(cls_only(small_recipe(sues, tmp_path)), tmp_path / "two")


def trained(workers: Workers, recipe: Recipe) -> dict[str, Any]:
    run = prepare(recipe, workers)
    train(run)
    assert run.average is not None
    return {"student": run.student.state_dict(), "loss": run.loss.state_dict(), "average": run.average.state_dict()}


@pytest.mark.parametrize("baseline", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_all_ranks_hold_the_same_weights_after_training_and_only_the_first_writes(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baseline: bool
) -> None:
    recipe = small_recipe(sues, tmp_path / "out")
    recipe = cls_only(recipe) if baseline else recipe
    left, right = on_two(trained, tmp_path / "two", recipe)
    for part in left:
        for name, value in left[part].items():
            assert torch.equal(value, right[part][name]), f"{part} {name}"
    assert len(list_checkpoints(tmp_path / "out" / "checkpoints")) == 2
    records = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["kind"] == "train"] == list(range(10))  # each step once
    assert len(list((tmp_path / "out" / "tensorboard").iterdir())) == 1
    model = load_model(tmp_path / "out" / "model.safetensors").state_dict()
    assert all(torch.equal(model[name], value) for name, value in left["student"].items())


def relative_distance(
    one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], start: dict[str, torch.Tensor]
) -> float:
    """Distance between two trained models over the distance of the first from the start; Adam magnifies rounding."""
    names = [name for name, value in one.items() if value.is_floating_point()]
    gap = torch.cat([(one[name] - other[name]).flatten() for name in names]).norm()
    way = torch.cat([(one[name] - start[name]).flatten() for name in names]).norm()
    return float(gap / way)


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path / "two")
    start = {name: value.clone() for name, value in prepare(recipe, ALONE).student.state_dict().items()}
    two = on_two(trained, tmp_path / "ranks", recipe)[0]["student"]
    alone = replace(recipe, run=replace(recipe.run, out=str(tmp_path / "one")))
    assert relative_distance(trained(ALONE, alone)["student"], two, start) < TOLERANCE


def request_stop_on_one(workers: Workers, recipe: Recipe) -> int:
    run = prepare(recipe, workers)
    loop = _Loop(run, Progress(), None)
    inner = run.step.forward

    def forward(*inputs: Any) -> Any:
        if workers.rank == 1 and loop.progress.step == 2:
            loop.stop_requested = True
        return inner(*inputs)

    run.step.forward = forward  # type: ignore[method-assign, assignment]
    with Journal(run.folder, 10, 0, "", {}, workers.is_leader) as journal:
        loop.run_epochs(journal)
    return loop.progress.step


def test_a_signal_to_one_process_stops_all_after_the_same_step(sues: Path, tmp_path: Path) -> None:
    steps = on_two(request_stop_on_one, tmp_path / "two", small_recipe(sues, tmp_path / "out", teacher=False))
    assert steps == [3, 3]
    assert [path.name[5:13] for path in list_checkpoints(tmp_path / "out" / "checkpoints")] == ["00000003"]


def broken_on_one(workers: Workers, recipe: Recipe) -> str:
    run = prepare(recipe, workers)
    if workers.rank == 1:
        (mar,) = [term for term in run.loss.terms if term.name == "mar"]
        inner = mar.forward
        mar.forward = lambda **inputs: inner(**inputs) * float("nan")
    try:
        train(run)
    except SkyPartError as error:
        return str(error)
    return "nothing happened"


def test_a_nan_on_one_process_stops_all(sues: Path, tmp_path: Path) -> None:
    messages = on_two(broken_on_one, tmp_path / "two", small_recipe(sues, tmp_path / "out", teacher=False))
    assert all("NaN or infinite at step 0" in text for text in messages)
    assert "loss group part (term mar)" in messages[1]
    assert list_checkpoints(tmp_path / "out" / "checkpoints") == []


def joined(workers: Workers) -> list[Any]:
    rows = (torch.arange(3.0) + 10 * workers.rank).requires_grad_()
    found = gather(rows)
    (found * torch.arange(6.0)).sum().backward()  # type: ignore[no-untyped-call]
    return [found.detach(), rows.grad, all_agree(True, CPU), all_agree(workers.rank == 0, CPU)]


def test_gather_joins_in_rank_order_with_gradients_from_all_ranks(tmp_path: Path) -> None:
    for rank, (found, gradient, all_true, some_true) in enumerate(on_two(joined, tmp_path)):
        assert found.tolist() == [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]
        assert gradient.tolist() == [2 * (3 * rank + i) for i in range(3)]  # once from each process
        assert all_true and not some_true
    alone = torch.ones(2)
    assert gather(alone) is alone and not all_agree(False, CPU)


def normalised(workers: Workers, rows: torch.Tensor) -> list[torch.Tensor | None]:
    """JointBatchNorm over one half of the rows, and the gradient of a sum over all of them."""
    mine = rows.chunk(2)[workers.rank].clone().requires_grad_()
    layer = JointBatchNorm(rows.shape[1])
    found = layer(mine)
    (found * weights_of(rows).chunk(2)[workers.rank]).sum().backward()
    return [found.detach(), mine.grad, layer.running_mean, layer.running_var]


def weights_of(rows: torch.Tensor) -> torch.Tensor:
    return torch.arange(rows.numel()).reshape(rows.shape).float().sin()


def _first(workers: Workers, made: Path) -> tuple[int, bool, int]:
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    with leader_first():
        threads, found = torch.get_num_threads(), made.exists()
        made.touch()
    return threads, found, torch.get_num_threads()


def test_the_leader_runs_first_with_the_threads_of_waiting_ranks(tmp_path: Path) -> None:
    made = tmp_path / "made"
    both = min(2, os.cpu_count() or 1)
    assert on_two(_first, tmp_path / "two", made) == [(both, False, 1), (1, True, 1)]


def test_joint_batch_norm_over_two_processes_equals_one_even_far_from_zero(tmp_path: Path) -> None:
    rows = torch.randn(24, 5, generator=torch.Generator().manual_seed(0)) + torch.tensor(
        [0.0, 1.0, 15.0, 100.0, -300.0]
    )
    plain, whole = torch.nn.BatchNorm1d(5).double(), rows.double().requires_grad_()
    wanted = plain(whole)
    (wanted * weights_of(rows)).sum().backward()
    halves = on_two(normalised, tmp_path, rows)
    assert whole.grad is not None and plain.running_var is not None
    # float32 resolves -300 only to 3e-5
    torch.testing.assert_close(torch.cat([half[0] for half in halves]).double(), wanted.detach(), rtol=0, atol=1e-4)
    torch.testing.assert_close(torch.cat([half[1] for half in halves]).double(), whole.grad, rtol=0, atol=1e-4)
    for half in halves:
        torch.testing.assert_close(half[3].double(), plain.running_var, rtol=1e-5, atol=0)


def overfit_result(workers: Workers, recipe: Recipe) -> tuple[float, bool, int, int]:
    result = overfit(recipe, workers, locations=5)
    return result.progress.best, result.finished, result.progress.step, len(result.progress.history)


@pytest.mark.slow
def test_overfit_ends_the_same_way_on_both_processes(tmp_path: Path) -> None:
    """Both processes get equal shares of an odd number of locations, and both know the score."""
    root = make_sues(tmp_path / "data", locations=6, per_altitude=2)
    recipe = small_recipe(root, tmp_path / "out", teacher=False)
    recipe = replace(recipe, optimiser=replace(recipe.optimiser, head_lr=3e-3, backbone_lr=3e-4))
    one, two = on_two(overfit_result, tmp_path / "two", recipe)
    assert one[:3] == two[:3] and one[:2] == (100.0, True)
    assert one[3] > 0 and two[3] == 0


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "meta", "cpu:one"])
def test_an_unknown_device_is_a_clear_error(device: str) -> None:
    with pytest.raises(SkyPartError, match=rf"^run\.device={device}: .*run\.device=cpu"):
        start_workers(device)


@pytest.mark.parametrize(
    ("device", "chosen"), [("auto", "cuda:1"), ("cuda", "cuda:1"), ("cuda:0", "cuda:0"), ("cpu", "cpu")]
)
def test_each_process_of_torchrun_uses_its_own_gpu(monkeypatch: pytest.MonkeyPatch, device: str, chosen: str) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert start_workers(device) == Workers(1, 2, torch.device(chosen))
    assert taken == ([] if chosen == "cpu" else [torch.device(chosen)])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    if chosen == "cuda:1":
        with pytest.raises(SkyPartError, match=r"run\.device=cuda: .*no cuda:1, torch sees 1 GPU.*--nproc-per-node"):
            start_workers(device)


@pytest.mark.slow
def test_torchrun_trains_end_to_end(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path / "out")
    file = write_recipe(tmp_path / "recipe.toml", recipe)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "skypart.cli", "train", str(file), "data.workers=1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 10 steps") == 1, "only the first process prints"
    assert "FutureWarning" not in done.stderr
    start = {name: value.clone() for name, value in prepare(recipe, ALONE).student.state_dict().items()}
    one = trained(ALONE, replace(recipe, run=replace(recipe.run, out=str(tmp_path / "one"))))["student"]
    two = load_model(tmp_path / "out" / "model.safetensors").state_dict()
    assert relative_distance(one, two, start) < TOLERANCE
    assert len(list_checkpoints(tmp_path / "out" / "checkpoints")) == 2
