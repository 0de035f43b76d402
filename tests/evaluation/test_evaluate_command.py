"""`skypart evaluate` from the outside, with a small real model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from skypart.cli import app
from skypart.datasets import open_dataset
from skypart.errors import SkyPartError
from skypart.evaluation.run import EvaluateOptions, _default_output, _model_name
from skypart.model import SkyPart
from skypart.model.storage import save_model
from tests.datasets.fakes import make_sues_raw, make_university


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors on many threads are slow when other programs run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def model_file(tiny_model: SkyPart, tmp_path: Path) -> Path:
    save_model(tiny_model, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)], catch_exceptions=True)
    if isinstance(result.exception, SkyPartError):
        return f"SkyPartError: {result.exception}"
    assert result.exit_code == 0, result.output
    return result.output


def test_evaluate_with_figures(model_file: Path, tmp_path: Path) -> None:
    data, out, cache = make_university(tmp_path / "data"), tmp_path / "out", tmp_path / "cache"
    text = run(model_file, data, "-o", out, "--cache", cache, "--figures", "--gallery", "masked")
    assert "quoted from the paper" in text and "gallery masked" in text and "(reduced, laid out like University" in text
    assert {path.name for path in out.iterdir()} >= {"result.json", "table.csv", "table.md", "table.tex", "figures"}
    assert (out / "figures/retrieval-S2D.png").is_file()
    assert "0 images embedded" in run(model_file, data, "-o", out, "--cache", cache)
    smaller = json.loads((out / "result.json").read_text())["digest"]
    run(model_file, data, "-o", out, "--cache", cache, "--size", 28, "--readout", "cls")
    result = json.loads((out / "result.json").read_text())
    assert result["digest"] != smaller and result["protocol"]["size"] == 28 and result["model"] == "tiny-cls"


def test_bad_options_get_a_clear_error_message(model_file: Path, tmp_path: Path) -> None:
    data = make_university(tmp_path / "data")
    assert "not divisible by the patch" in run(model_file, data, "--size", 50)
    assert "choose full or masked" in run(model_file, data, "--gallery", "half")
    assert "choose one of" in run(model_file, data, "--readout", "everything")
    assert "--severity needs --weather" in run(model_file, data, "--severity", "0.5")
    assert "numbers from 0 to 1" in run(model_file, data, "--weather", "paper", "--severity", "0.5,x")
    assert "is in a sub-folder; pass" in run(model_file, tmp_path)
    assert "at least 1" in run(model_file, data, "--batch-size", 0, "--cache", tmp_path / "cache")


@pytest.mark.slow
def test_killed_runs_resume(model_file: Path, tmp_path: Path) -> None:
    """kill -9 in the middle, start again: every embedding was computed exactly once."""
    data, cache = make_sues_raw(tmp_path / "data", ids=range(1, 21), images=3), tmp_path / "cache"
    command = [sys.executable, "-m", "skypart.cli", "evaluate", str(model_file), str(data), "-o", str(tmp_path / "out")]
    command += ["--cache", str(cache), "--batch-size", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    rows = 4 * 48  # bytes of a vector, at least
    try:
        while sum(path.stat().st_size for path in cache.rglob("*.vectors")) < 50 * rows and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None, "the run ended before it could be killed"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    kept = sum(path.stat().st_size // 20 for path in cache.rglob("*.keys"))
    assert kept > 0
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    total = 20 * (3 * 4 + 1)
    assert f"\n{total - kept} images embedded" in "\n" + done.stdout
    assert sum(path.stat().st_size // 20 for path in cache.rglob("*.keys")) == total


def test_every_option_that_changes_numbers_has_its_own_folder(tmp_path: Path) -> None:
    dataset = open_dataset(make_university(tmp_path / "data"))
    chosen = [
        EvaluateOptions(),
        EvaluateOptions(gallery="masked"),
        EvaluateOptions(flip=True),
        EvaluateOptions(size=28),
        EvaluateOptions(weather="paper"),
        EvaluateOptions(weather="paper", seed=3),
    ]
    assert len({_default_output("tiny", dataset, options, "d1") for options in chosen}) == len(chosen)
    names = [_model_name(str(tmp_path / run / "best.safetensors")) for run in ("a", "b")]
    assert names == ["a-best", "b-best"] and _model_name("default") == "default"


def test_brackets_in_a_folder_name_are_printed_literally(model_file: Path, tmp_path: Path) -> None:
    data, out = make_university(tmp_path / "data"), tmp_path / "out[/x] [bold]"
    assert "out[/x] [bold]/" in run(model_file, data, "-o", out, "--cache", tmp_path / "cache", "--size", 28)


def test_models_and_data_with_the_same_name_get_different_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (open_dataset(make_university(tmp_path / folder / "data")) for folder in ("x", "y"))
    options = EvaluateOptions()
    first = _default_output("tiny", one, options, "d1")
    first.mkdir(parents=True)
    (first / "result.json").write_text(json.dumps({"digest": "d1", "root": str(one.root.resolve())}))
    assert _default_output("tiny", one, options, "d1") == first
    others = {_default_output("tiny", one, options, "d2"), _default_output("tiny", other, options, "d1")}
    assert len(others | {first}) == 3


def test_figures_with_weather_are_refused(model_file: Path, tmp_path: Path) -> None:
    assert "leave --weather out" in run(model_file, tmp_path, "--figures", "--weather", "paper")
