import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from skypart.errors import SkyPartError
from skypart.training.journal import Journal
from skypart.training.loop import train
from skypart.training.recipe import RunRecipe
from tests.training.small_runs import small_run
from tests.training.test_loop import train_until


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_run_writes_tensorboard_and_json_lines(sues: Path, tmp_path: Path) -> None:
    train(small_run(sues, tmp_path))
    records = lines(tmp_path)
    steps = [record for record in records if record["kind"] == "train"]
    assert [record["step"] for record in steps] == list(range(10))
    for record in steps:
        for group in ("align", "part", "distill", "alt"):
            assert f"group_{group}" in record and record[f"weight_{group}"] > 0
        assert record["images_per_second"] > 0 and record["gradient_norm"] > 0
    assert steps[0]["lr"] == pytest.approx(1.5e-4) and steps[1]["lr"] == pytest.approx(3e-4)  # 2 steps of warm-up
    assert steps[-1]["lr"] == pytest.approx(3e-6)
    assert [record["step"] for record in records if record["kind"] == "validation"] == [5, 10]
    health = [record for record in records if record["kind"] == "health"]
    assert len(health) == 10 and 0 <= health[0]["usage_entropy"] <= 1
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    scalars = events.Tags()["scalars"]
    for name in ("train/group_align", "train/weight_align", "train/lr", "validation/score", "health/active"):
        assert name in scalars
    written = [event.value for event in events.Scalars("train/total")]
    assert written == pytest.approx([record["total"] for record in steps], rel=1e-5)


def test_other_processes_write_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "run", 10, 0, "project", {}, is_leader=False) as journal:
        journal.step(1, "")
        journal.say("nothing")
        journal.record("train", 0, {"total": 1.0})
    assert not (tmp_path / "run").exists()


def test_missing_wandb_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SkyPartError, match=r"run\.wandb.*pip install"):
        Journal(tmp_path, 10, 0, "project", {}, is_leader=True)


def test_missing_wandb_is_reported_before_any_work(sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in (None, ModuleType("wandb")):  # not installed, or a folder called wandb in the working directory
        monkeypatch.setitem(sys.modules, "wandb", missing)
        with pytest.raises(SkyPartError, match=r"run\.wandb.*pip install"):
            small_run(sues, tmp_path / "out", run=RunRecipe(out=str(tmp_path / "out"), wandb="project"))
    assert not (tmp_path / "out").exists(), "teacher features were computed"


class FakeRun:
    """The part of a W&B run that is used."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int]] = []
        self.finished = False

    def log(self, scalars: dict[str, float], step: int) -> None:
        self.logged.append((scalars, step))

    def finish(self) -> None:
        self.finished = True


def fake_wandb(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeRun, dict[str, Any]]:
    """Install a fake wandb. Returns its run and the last settings of `init`."""
    run, settings = FakeRun(), dict[str, Any]()
    fake = ModuleType("wandb")
    fake.init = lambda **given: (settings.update(given), run)[1]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return run, settings


def test_wandb_gets_the_same_scalars_when_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, settings = fake_wandb(monkeypatch)
    with Journal(tmp_path, 10, 0, "project", {"run": {"seed": 1}}, is_leader=True) as journal:
        journal.record("train", 3, {"total": 2.0})
    assert run.logged == [({"train/total": 2.0}, 3)] and run.finished
    assert settings["project"] == "project" and settings["config"] == {"run": {"seed": 1}}


def test_wandb_ids_are_unique_and_survive_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, settings = fake_wandb(monkeypatch)

    def identity(folder: Path, done: int) -> str:
        with Journal(folder, 10, done, "project", {}, is_leader=True):
            return str(settings["id"])

    one, other = tmp_path / "a" / "sues200", tmp_path / "b" / "sues200"
    first = identity(one, 0)
    assert len(first) >= 8 and first.isalnum()
    assert identity(other, 0) != first
    assert identity(one, 5) == identity(one, 7) == first
    again = identity(one, 0)
    assert again != first, "W&B rejects steps before its last one"
    assert identity(one, 5) == again
    for damaged in (b"", b"\xff\xfe", b"no/id at all"):
        next(one.glob("wandb*")).write_bytes(damaged)
        renewed = identity(one, 5)
        assert renewed.isalnum() and renewed != again and identity(one, 5) == renewed


class Full:
    """A file or TensorBoard writer on a full disk."""

    name = "log.jsonl"
    closes = 0

    def write(self, _: str) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        self.closes += 1
        raise OSError(28, "No space left on device")


def test_on_a_full_disk_the_first_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = fake_wandb(monkeypatch)
    board, log = Full(), Full()
    journal = Journal(tmp_path, 10, 0, "project", {}, is_leader=True)
    monkeypatch.setattr(journal.board, "close", board.close)
    monkeypatch.setattr(journal, "lines", log)
    with pytest.raises(SkyPartError, match=r"log\.jsonl: cannot be written"), journal:
        journal.record("train", 0, {"total": 1.0})
    assert (board.closes, log.closes, run.finished) == (1, 1, True), "everything is closed despite errors"


@pytest.mark.parametrize("part", ["board", "lines"])
def test_an_error_while_closing_is_a_clear_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    journal = Journal(tmp_path, 10, 0, "", {}, is_leader=True)
    log = journal.lines
    monkeypatch.setattr(journal, part, Full())
    with (
        pytest.raises(SkyPartError, match=r"the end of the log may be missing \(No space left on device\); free"),
        journal,
    ):
        pass
    assert log.closed is (part == "board")


def test_the_log_has_each_step_once_after_an_interruption(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_until(small_run(sues, tmp_path, teacher=False), 7, monkeypatch)
    monkeypatch.undo()
    assert [r["step"] for r in lines(tmp_path) if r["kind"] == "train"] == list(range(7))
    with (tmp_path / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind": "train", "step": 7, "time": 17')  # killed while writing
    train(small_run(sues, tmp_path, teacher=False))  # from the checkpoint of step 5
    for kind, steps in {"train": range(10), "health": range(10), "validation": (5, 10)}.items():
        assert [r["step"] for r in lines(tmp_path) if r["kind"] == kind] == list(steps)
    before = (tmp_path / "log.jsonl").read_bytes()
    assert train(small_run(sues, tmp_path, teacher=False)).finished
    assert (tmp_path / "log.jsonl").read_bytes() == before


@pytest.mark.parametrize("tail", ['{"kind": "tr', '{"kind": "train", "step": 1, "total": NaN}', "[]\n", "\x00\x00"])
def test_a_damaged_end_of_the_log_does_not_affect_the_next_line(tmp_path: Path, tail: str) -> None:
    (tmp_path / "log.jsonl").write_text(f'{{"kind": "train", "step": 0}}\n{tail}', encoding="utf-8")
    with Journal(tmp_path, 10, 2, "", {}, is_leader=True) as journal:
        journal.record("train", 2, {"total": 1.0})
    assert [record["step"] for record in lines(tmp_path)] == ([0, 1, 2] if "NaN" in tail else [0, 2])


def test_a_run_from_the_start_has_a_new_log(tmp_path: Path) -> None:
    for _ in range(2):
        with Journal(tmp_path, 10, 0, "", {}, is_leader=True) as journal:
            journal.record("train", 0, {"total": 1.0})
            journal.record("validation", 5, {"score": 1.0})
    assert [record["step"] for record in lines(tmp_path)] == [0, 5]
