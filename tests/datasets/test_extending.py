"""The worked example of docs/extending.md, end to end, and what the registry refuses."""

import importlib.util
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from skypart.cli import app
from skypart.datasets import KINDS, Dataset, find_benchmark, open_dataset, recognise, register
from skypart.datasets.check import check
from skypart.datasets.registry import find_rendering, renderings
from skypart.errors import SkyPartError
from skypart.evaluation.protocol import Protocol
from skypart.evaluation.published import dataset_title, published_rows
from skypart.evaluation.run import open_source, run_evaluation, run_weather
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request
from skypart.worlds.sheet import write_sheet
from tests.evaluation.fake_embedder import FakeEmbedder

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "harbour_benchmark.py"


@pytest.fixture
def harbour() -> Iterator[ModuleType]:
    known = dict(KINDS)
    spec = importlib.util.spec_from_file_location("harbour_benchmark", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["harbour_benchmark"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["harbour_benchmark"]
    KINDS.clear()
    KINDS.update(known)


def test_the_example_is_rendered_recognised_checked_and_evaluated(harbour: ModuleType, tmp_path: Path) -> None:
    root = tmp_path / "port"
    make_world(root, build_request(None, "tiny", like="harbour30", seed=5, locations=6, maps=False), workers=1)
    assert recognise(root) == "harbour30"
    dataset = open_dataset(root)
    assert {split.name: (len(split.query), len(split.gallery)) for split in dataset.tests} == {
        "D2S": (4, 2),
        "S2D": (2, 4),
    }
    assert len({record.location for record in dataset.train}) == 4

    report = check(root)
    assert report.ok, report.faults
    assert [(count.folder.name, count.images.total()) for count in report.counts] == [
        ("train/*/uav", 8),
        ("train/*/ortho", 4),
        ("test/*/uav", 4),
        ("test/*/ortho", 2),
    ]

    console = Console(file=io.StringIO(), width=200)
    source = open_source(FakeEmbedder(), tmp_path / "cache")
    run_evaluation(source, dataset, tmp_path / "out", "fake", console=console)
    table = (tmp_path / "out/table.md").read_text()
    assert table.startswith("port (rendered, laid out like Harbour-30")
    assert "D→S R@1 | D→S R@5 | D→S AP | S→D R@1 | S→D R@5 | S→D AP" in table
    protocol = Protocol(24, "bicubic", weather="paper")
    run_weather(source, dataset, tmp_path / "weather", "fake", protocol, console=console)
    assert "ten weathers: AP official" in (tmp_path / "weather/weather-D2S.md").read_text()
    write_sheet(root, tmp_path / "sheet.png", rows=3, columns=2, size=64)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (3 * 64 + 64, 3 * 64 + 30), "labels at the left and above"


def test_the_example_is_named_in_error_messages(harbour: ModuleType, tmp_path: Path) -> None:
    assert next(iter(KINDS)) == "harbour30"  # tried before all others
    with pytest.raises(SkyPartError, match="choose one of harbour30, "):
        open_dataset(tmp_path, "visloc")
    with pytest.raises(SkyPartError, match="choose one of harbour30, "):
        build_request(None, "tiny", like="vigor")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(SkyPartError, match="Harbour-30: train/ and test/ with <location>/uav"):
        open_dataset(tmp_path)
    with pytest.raises(SkyPartError, match="already a benchmark of kind 'harbour30'"):
        register(harbour.Harbour())


def test_an_unknown_kind_raises_everywhere(tmp_path: Path) -> None:
    stranger = Dataset("visloc", "VisLoc", tmp_path, [], [])
    for use in (
        lambda: find_benchmark("visloc"),
        lambda: published_rows("visloc"),
        lambda: dataset_title(stranger),
        lambda: find_rendering("visloc"),
    ):
        with pytest.raises(SkyPartError, match=r"unknown .* 'visloc'; choose one of"):
            use()


def test_only_their_own_files_name_the_benchmarks() -> None:
    package = EXAMPLE.parents[2] / "src" / "skypart"
    own = {"sues200.py", "university1652.py", "denseuav.py", "folders.py", "split_sues.py", "registry.py"}
    kinds = {"sues200", "university1652", "denseuav"}
    named = ("worlds/request.py", "cli/data.py", "cli/training.py")
    allowed = {package / name: {"sues200"} for name in named}
    wrong = {
        (str(file.relative_to(package)), kind)
        for file in package.rglob("*.py")
        if file.name not in own
        for kind in kinds
        if kind in file.read_text(encoding="utf-8") and kind not in allowed.get(file, set())
    }
    assert not wrong


def test_a_wrong_layout_lists_all(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["world", "make", str(tmp_path / "out"), "--like", "vigor"])
    assert isinstance(result.exception, SkyPartError)
    assert str(result.exception) == f"unknown layout 'vigor'; choose one of {', '.join(renderings())}"
    assert set(renderings()) == {"sues200", "university1652", "denseuav", "free"}
