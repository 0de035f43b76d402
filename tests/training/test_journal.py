import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from skypart.errors import SkyPartError
from skypart.training.journal import Journal
from skypart.training.loop import train
from tests.training.small_runs import small_run


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
    with Journal(tmp_path / "run", 10, 0, "project", {}, leads=False) as journal:
        journal.step(1, "")
        journal.say("nothing")
        journal.record("train", 0, {"total": 1.0})
    assert not (tmp_path / "run").exists()


def test_wandb_asked_for_but_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SkyPartError, match=r"run\.wandb.*pip install"):
        Journal(tmp_path, 10, 0, "project", {}, leads=True)


def test_wandb_gets_the_same_scalars_when_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeRun:
        logged: list[tuple[dict[str, float], int]] = []  # noqa: RUF012
        finished = False

        def log(self, scalars: dict[str, float], step: int) -> None:
            self.logged.append((scalars, step))

        def finish(self) -> None:
            self.finished = True

    run, asked = FakeRun(), dict[str, Any]()
    fake = types.ModuleType("wandb")
    fake.init = lambda **settings: (asked.update(settings), run)[1]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with Journal(tmp_path, 10, 0, "project", {"run": {"seed": 1}}, leads=True) as journal:
        journal.record("train", 3, {"total": 2.0})
    assert run.logged == [({"train/total": 2.0}, 3)] and run.finished
    assert asked["project"] == "project" and asked["config"] == {"run": {"seed": 1}}
