"""`skypart experiment` end to end on a tiny world, and what it refuses before hours are spent."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skypart.errors import SkyPartError
from skypart.experiments import run as module
from skypart.experiments.command import run_command
from skypart.experiments.measure import CLEAN, load_scores
from skypart.experiments.plan import build_plan, read_plan, recipe_file
from skypart.experiments.report import write_report
from skypart.experiments.run import Comparison, Options, run_experiment
from skypart.experiments.tables import build_sheets
from skypart.training.loop import Result, train
from skypart.training.recipe import load_recipe
from skypart.training.setup import Run
from tests.training.fake_data import make_sues
from tests.training.small_runs import small_recipe, write_recipe

PLANS = sorted(path for path in module.PLANS.glob("*.toml") if not path.stem.startswith("small"))
PLAN = """
title = "Two heads"
about = "For a test."
reference = "SkyPart"
quoted = true
figures = ["weather", "pareto", "parts"]
[presets.small]
recipe = "recipe.toml"
seeds = [1, 2]
weather = ["paper"]
[[runs]]
name = "SkyPart"
[[runs]]
name = "GeM"
overrides = ["head.kind=gem"]
[[rows]]
name = "SkyPart"
run = "SkyPart"
[[rows]]
name = "CLS readout"
run = "SkyPart"
readout = "cls"
block = "B. Branches"
[[rows]]
name = "GeM"
run = "GeM"
block = "Peers"
[[rows]]
name = "GeM, query expansion"
run = "GeM"
wrapper = "query_expansion"
block = "Peers"
"""


def write_plan(folder: Path, sues: Path, text: str = PLAN) -> Path:
    write_recipe(folder / "recipe.toml", small_recipe(sues, folder / "unused", teacher=False))
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def sues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_sues(tmp_path_factory.mktemp("sues"), locations=10)
    names = sorted(path.name for path in (root / "satellite-view").iterdir())
    (root / "train_ids.txt").write_text("\n".join(names[:6]))
    return root


@pytest.fixture(scope="module")
def done(sues: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Comparison]:
    folder = tmp_path_factory.mktemp("experiment")
    plan = write_plan(folder, sues)
    found = run_command(str(plan), Options(out=folder / "out", data=sues, device="cpu"))
    assert found is not None
    return folder, plan, found


def test_one_command_trains_evaluates_and_writes_everything(done: tuple[Path, Path, Comparison]) -> None:
    out = done[0] / "out"
    assert sorted(path.name for path in (out / "runs").iterdir()) == [
        "gem-seed1", "gem-seed2", "skypart-seed1", "skypart-seed2",
    ]  # fmt: skip
    names = {path.name for path in (out / "tables").iterdir()}
    for table in ("headline", "altitudes", "weather-paper-D2S", "weather-paper-S2D", "differences", "kendall"):
        assert {f"{table}.{suffix}" for suffix in ("json", "csv", "md", "tex")} <= names
    figures = {path.name for path in (out / "figures").iterdir()}
    assert {"pareto.png", "radar-paper-D2S.png", "drop-paper-S2D.png", "parts-skypart.png"} <= figures
    assert "parts-gem.png" not in figures, "a head without parts has none to show"
    for path in (out / "figures").iterdir():
        with Image.open(path) as image:
            assert np.asarray(image).std() > 5


def test_numbers_in_the_tables_are_those_of_the_queries(done: tuple[Path, Path, Comparison]) -> None:
    out, found = done[0] / "out", done[2]
    headline = json.loads((out / "tables" / "headline.json").read_text())
    row = next(row for row in headline["rows"] if row[0]["text"] == "GeM")
    column = headline["headings"].index("D→S R@1")
    by_seed = []
    for seed in (1, 2):
        scores, about = load_scores(out / "scores" / f"gem-seed{seed}.npz")
        assert about["seed"] == seed and about["wrapper"] == ""
        splits = [split for name, split in scores.conditions[CLEAN].items() if name.startswith("D2S")]
        by_seed.append(np.mean([100 * np.mean(split.first == 0) for split in splits]))
    assert row[column]["text"] == f"{np.mean(by_seed):.2f} ± {np.std(by_seed, ddof=1):.2f}"
    reference = np.mean([s.headline(CLEAN, "D2S") for s in found.rows["SkyPart"]])
    assert row[column + 2]["text"] == f"{np.mean(by_seed) - reference:+.2f}"
    assert headline["blocks"] == {"1": "B. Branches", "2": "Peers"}
    assert any("(quoted)" in row[0]["text"] for row in headline["rows"])


def test_readouts_and_wrappers_change_the_scores_not_the_weights(done: tuple[Path, Path, Comparison]) -> None:
    found = done[2]
    full, cls, plain, expanded = (found.rows[name][0] for name in found.rows)
    assert full.digest != cls.digest, "a readout is another model for caches"
    assert plain.digest == expanded.digest
    assert not np.array_equal(full.queries(CLEAN, "D2S", "AP")[0], cls.queries(CLEAN, "D2S", "AP")[0])


def test_differences_are_paired_over_places(done: tuple[Path, Path, Comparison]) -> None:
    sheet = next(sheet for sheet in build_sheets(done[2]) if sheet.name == "differences")
    assert [row[0].text for row in sheet.rows[:4]] == ["CLS readout - SkyPart"] * 4
    assert [row[1].text for row in sheet.rows[:4]] == [
        "D→S clean", "D→S weather, paper", "S→D clean", "S→D weather, paper",
    ]  # fmt: skip
    for row in sheet.rows:
        low, high = (float(word) for word in row[3].text.split(" to "))
        assert low <= float(row[2].text) <= high
        assert (row[6].text == "yes") == (low > 0 or high < 0)


def test_a_second_call_trains_and_measures_nothing(
    done: tuple[Path, Path, Comparison], sues: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan, found = done
    for name in ("train", "measure", "time_steps"):
        monkeypatch.setattr(module, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    again = run_experiment(str(plan), Options(out=folder / "out", data=sues, device="cpu"))
    assert again is not None
    assert [s.headline(CLEAN, "D2S") for s in again.rows["GeM"]] == [
        s.headline(CLEAN, "D2S") for s in found.rows["GeM"]
    ]


def test_a_stopped_comparison_resumes_with_the_missing_run(
    done: tuple[Path, Path, Comparison], sues: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan, _ = done
    shutil.rmtree(folder / "out" / "runs" / "gem-seed2")
    (folder / "out" / "scores" / "gem-seed2.npz").unlink()
    trained: list[str] = []

    def counted(run: Run) -> Result:
        trained.append(run.folder.name)
        return train(run)

    monkeypatch.setattr(module, "train", counted)
    assert run_experiment(str(plan), Options(out=folder / "out", data=sues, device="cpu")) is not None
    assert trained == ["gem-seed2"]


def test_a_dry_run_prints_the_plan_with_an_estimate_and_writes_nothing(
    sues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, sues)
    options = Options(out=tmp_path / "out", data=sues, device="cpu", dry_run=True, seeds=(5,))
    assert run_experiment(str(plan), options) is None
    said = capsys.readouterr().out
    assert "Two heads" in said and "2 trainings" in said and "to train" in said and "training takes about" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('name = "GeM"\noverrides', 'name = "SkyPart"\noverrides'), "two runs are called 'SkyPart'"),
        (("head.kind=gem", "head.kind=nonsense"), "unknown head 'nonsense'"),
        (('recipe = "recipe.toml"', 'recipe = "none.toml"'), "recipe none.toml does not exist"),
        (("[1, 2]", "[]"), "presets.small.seeds"),
        (('title = "Two heads"', 'title = "Two heads"\nnonsense = 1'), "nonsense"),
        (('reference = "SkyPart"', 'reference = "Nobody"'), "'Nobody' is no row"),
        (('run = "GeM"\nblock', 'run = "Nobody"\nblock'), "'Nobody', which is no run"),
        (('readout = "cls"', 'readout = "cls"\nreference = "Nobody"'), "'Nobody' is no row"),
        (('overrides = ["head.kind=gem"]', 'start = "Nobody"'), "starts from 'Nobody'"),
        (('overrides = ["head.kind=gem"]', 'overrides = ["backbone.name=missing.safetensors"]'), "missing.safetensors"),
        (("[presets.small]", "[presets.other]"), "has no preset 'small'"),
        (('title = "Two heads"', "title = "), "not valid TOML"),
    ],
)
def test_mistakes_in_a_plan_are_reported_before_any_work(
    sues: Path, tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    assert change[0] in PLAN
    plan = write_plan(tmp_path, sues, PLAN.replace(*change, 1))
    with pytest.raises(SkyPartError) as error:
        run_experiment(str(plan), Options(out=tmp_path / "out", data=sues, device="cpu"))
    assert words in str(error.value)
    assert not (tmp_path / "out").exists()


def test_missing_data_and_unknown_names_are_reported(tmp_path: Path, sues: Path) -> None:
    with pytest.raises(SkyPartError, match=r"unknown experiment 'nothing'; choose one of .*peers"):
        run_experiment("nothing", Options(out=tmp_path))
    plan = write_plan(tmp_path, sues)
    with pytest.raises(SkyPartError, match="renders no data of its own; pass --data"):
        run_experiment(str(plan), Options(out=tmp_path / "out"))
    with pytest.raises(SkyPartError, match="--test is for comparisons that transfer"):
        run_experiment(str(plan), Options(out=tmp_path / "out", data=sues, test=sues))
    with pytest.raises(SkyPartError, match="compares no backbones"):
        run_experiment(str(plan), Options(out=tmp_path / "out", data=sues, backbones=("untrained:tiny",)))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_plan_holds_together_and_its_recipes_load(path: Path) -> None:
    plan = read_plan(path)
    assert {"small", "paper"} <= set(plan.presets)
    for name, preset in plan.presets.items():
        for kind in ("sues200", "university1652", "denseuav"):
            for run in plan.all_runs(name):
                load_recipe(recipe_file(path, preset, run, kind), [*preset.overrides, *run.overrides])


def test_axes_make_every_combination() -> None:
    content = {
        "name": "x",
        "title": "x",
        "presets": {"small": {"recipe": "r"}},
        "axes": {
            "backbone": {"a": ["backbone.name=a"], "b": ["backbone.name=b"]},
            "head": {"c": ["head.kind=c"], "d": []},
        },
    }
    runs = build_plan(content, "x").all_runs("small")
    assert [(run.name, run.overrides) for run in runs] == [
        ("a, c", ("backbone.name=a", "head.kind=c")),
        ("a, d", ("backbone.name=a",)),
        ("b, c", ("backbone.name=b", "head.kind=c")),
        ("b, d", ("backbone.name=b",)),
    ]


def test_the_report_is_one_page_without_requests(done: tuple[Path, Path, Comparison], tmp_path: Path) -> None:
    write_report([done[0] / "out"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Two heads" in page and "What differs between runs" in page and "head.kind" in page
    assert "http://" not in page and "https://" not in page and "src='data:image/png" in page
    with pytest.raises(SkyPartError, match="end the name in"):
        write_report([done[0] / "out"], tmp_path / "report.pdf")
    with pytest.raises(SkyPartError, match="holds no results"):
        write_report([tmp_path], tmp_path / "report.html")
