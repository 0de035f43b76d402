"""`skypart experiment` end to end on a tiny world, and what it refuses before hours are spent."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from skypart.datasets import open_dataset
from skypart.datasets.records import Dataset, Position, Record, TestSplit
from skypart.errors import SkyPartError
from skypart.evaluation.protocol import Protocol, evaluate
from skypart.experiments import estimate
from skypart.experiments import run as module
from skypart.experiments.command import run_command
from skypart.experiments.jobs import Job, Options, check_data, make_jobs
from skypart.experiments.measure import CLEAN, _rank_split, load_scores
from skypart.experiments.plan import RunPlan, build_plan, read_plan, recipe_file
from skypart.experiments.report import write_report
from skypart.experiments.run import Comparison, run_experiment
from skypart.experiments.sheet import Cell, Sheet
from skypart.experiments.tables import build_sheets, reference_of, row_plans
from skypart.model import storage
from skypart.model.storage import load_model
from skypart.training.loop import Result, train
from skypart.training.recipe import load_recipe
from skypart.training.setup import Run
from tests.training.fake_data import make_sues
from tests.training.small_runs import small_recipe, write_recipe

PLANS = [module.PLANS / f"{name}.toml" for name in module.plan_names()]
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
    for table in (
        "headline", "details-D2S", "details-S2D", "altitudes-D2S", "altitudes-S2D", "seeds", "weather-paper-D2S",
        "weather-paper-S2D", "weatherAP-paper-D2S", "weatherAP-paper-S2D", "differences", "kendall",
    ):  # fmt: skip
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
        stored = load_scores(out / "scores" / f"gem-seed{seed}.npz")
        assert stored is not None
        scores, about = stored
        assert about["seed"] == seed and about["wrapper"] == ""
        splits = [split for name, split in scores.conditions[CLEAN].items() if name.startswith("D2S")]
        by_seed.append(np.mean([100 * np.mean(split.first == 0) for split in splits]))
    assert row[column]["text"] == f"{np.mean(by_seed):.2f} ± {np.std(by_seed, ddof=1):.2f}"
    reference = np.mean([s.headline(CLEAN, "D2S") for s in found.rows["SkyPart"]])
    assert row[column + 2]["text"] == f"{np.mean(by_seed) - reference:+.2f}"
    assert headline["blocks"] == {"1": "B. Branches", "2": "Peers"}
    assert any("(quoted)" in row[0]["text"] for row in headline["rows"])


def test_tables_of_each_direction_altitude_and_seed_stand_beside_the_paper(
    done: tuple[Path, Path, Comparison],
) -> None:
    found = done[2]
    sheets = {sheet.name: sheet for sheet in build_sheets(found)}
    scores = found.rows["GeM"]
    for direction in ("D2S", "S2D"):
        altitudes = sheets[f"altitudes-{direction}"]
        assert altitudes.headings == [
            "method", "150m R@1", "150m AP", "200m R@1", "200m AP", "250m R@1", "250m AP", "300m R@1", "300m AP",
            "mean R@1",
        ]  # fmt: skip
        rows = {row[0].text: [cell.text for cell in row] for row in altitudes.rows}
        values = [100 * s.conditions[CLEAN][f"{direction} 200m"].ap.mean() for s in scores]
        assert rows["GeM"][4] == f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
        assert rows["GeM"][-1].split()[0] == f"{np.mean([s.headline(CLEAN, direction) for s in scores]):.2f}"
        details = sheets[f"details-{direction}"]
        assert details.headings == ["method", "R@1", "R@5", "R@10", "R@top1", "AP", "AP standard"]
        cells = {row[0].text: [cell.text for cell in row] for row in details.rows}
        top = [np.mean([s.headline(CLEAN, direction, "R@top1")]) for s in scores]
        assert cells["GeM"][4].split()[0] == f"{np.mean(top):.2f}"
        assert altitudes.blocks == details.blocks == {1: "B. Branches", 2: "Peers"}
    quoted = next(row for row in sheets["altitudes-D2S"].rows if row[0].text == "SkyPart (paper) (quoted)")
    assert [cell.text for cell in quoted[1:]] == [
        "97.25", "97.90", "98.75", "99.33", "99.30", "99.64", "99.60", "99.77", "98.74",
    ]  # fmt: skip
    assert all(cell.mark == "quoted" for cell in quoted)
    seeds = {row[0].text: [cell.text for cell in row] for row in sheets["seeds"].rows}
    ours = [s.headline(CLEAN, "S2D") for s in scores]
    assert seeds["GeM"][5:] == [f"{v:.2f}" for v in (*ours, np.mean(ours), np.std(ours, ddof=1))]
    wet = {row[0].text: [cell.text for cell in row] for row in sheets["weatherAP-paper-D2S"].rows}
    fog = [s.headline("paper/fog", "D2S", "AP") for s in scores]
    assert wet["GeM"][2].split()[0] == f"{np.mean(fog):.2f}"
    assert any("(quoted)" in name for name in wet)


def test_sdm_of_queries_gives_the_sdm_of_the_protocol() -> None:
    rng = np.random.default_rng(3)

    def somewhere() -> Position:
        return Position(120 + rng.normal() / 9e3, 30.0)

    split = TestSplit(
        "D2S",
        None,
        [
            Record(Path(f"q{n}"), "drone", str(n // 2), position=Position(120 + rng.normal() / 9e3, 30.0))
            for n in range(10)
        ],
        [
            Record(Path(f"g{n}"), "satellite", str(n), position=Position(120 + rng.normal() / 9e3, 30.0))
            for n in range(7)
        ],
    )
    query, gallery = (rng.standard_normal((n, 4)).astype(np.float32) for n in (10, 7))
    scores = _rank_split(split, query, gallery)
    assert scores.metrics[-3:] == ("SDM@1", "SDM@3", "SDM@5") and int(scores.gallery) == 7
    vectors = {record.path: v for record, v in zip([*split.query, *split.gallery], [*query, *gallery], strict=True)}
    dataset = Dataset("denseuav", "x", Path(), [], [split])
    expected = evaluate(dataset, vectors, Protocol(14, "bicubic")).splits[0].metrics
    for name in ("R@1", "R@5", "R@top1", "AP", "AP standard", "SDM@1", "SDM@3", "SDM@5"):
        assert scores.metric(name).mean() == pytest.approx(expected[name], abs=1e-4), name
    unknown = replace(split, query=[replace(record, position=None) for record in split.query])
    assert _rank_split(unknown, query, gallery).metrics[-1] == "AP standard"


def test_scores_of_an_older_version_are_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "old.npz"
    np.savez(file, about=json.dumps({"format": 1, "digest": "x"}))
    assert load_scores(file) is None
    np.savez(file, about="nonsense")
    with pytest.raises(SkyPartError, match=r"old\.npz: damaged"):
        load_scores(file)


def test_names_with_signs_of_latex_are_escaped() -> None:
    sheet = Sheet("x", "50 % of {a} ~ b^2", ["Δ R@1"], [[Cell("c_1 & $2 \\x → ±", "large")]])
    made = sheet.to_latex()
    assert r"\caption{50 \% of \{a\} \textasciitilde{} b\textasciicircum{}2}" in made
    assert r"\textcolor{blue}{c\_1 \& \$2 \textbackslash{}x $\to$ $\pm$}" in made


def test_a_plan_without_a_reference_compares_with_its_first_row(done: tuple[Path, Path, Comparison]) -> None:
    found = replace(done[2], plan=done[2].plan.model_copy(update={"reference": ""}))
    plans = row_plans(found)
    assert [reference_of(found, plan) for plan in plans] == [None, "SkyPart", "SkyPart", "SkyPart"]
    lifted = replace(found, plan=found.plan.model_copy(update={"lift": "CLS-only"}))
    assert [reference_of(lifted, plan) for plan in plans] == [None] * 4


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
    for place, name in ((module, "train"), (module, "measure"), (estimate, "time_steps")):
        monkeypatch.setattr(place, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
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


WORLD = """
[presets.small.world]
locations = 4
image_size = 64
views = 1
spacing = 60
"""


def test_a_dry_run_renders_nothing_and_prints_the_plan(
    sues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "make_world", lambda *_: pytest.fail("a world was rendered"))
    plan = write_plan(tmp_path, sues, PLAN.replace("[[runs]]", f"{WORLD}[[runs]]", 1))
    assert run_experiment(str(plan), Options(out=tmp_path / "out", device="cpu", dry_run=True)) is None
    said = capsys.readouterr().out
    assert "Two heads" in said and "4 trainings" in said and "once the world is rendered" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("head.kind=gem", "head.kind=nonsense"), "unknown head 'nonsense'"),
        (("head.kind=gem", "backbone.name=missing.safetensors"), "missing.safetensors: no such file"),
        (('readout = "cls"', 'readout = "nonsense"'), "has no readout 'nonsense'"),
        (('title = "Two heads"', 'title = "Two heads"\ntransfer = true'), "renders no data of its own"),
    ],
)
def test_nothing_is_rendered_for_a_plan_that_cannot_run(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], words: str
) -> None:
    monkeypatch.setattr(module, "make_world", lambda *_: pytest.fail("a world was rendered"))
    plan = write_plan(tmp_path, sues, PLAN.replace("[[runs]]", f"{WORLD}[[runs]]", 1).replace(*change, 1))
    with pytest.raises(SkyPartError) as error:
        run_experiment(str(plan), Options(out=tmp_path / "out", device="cpu"))
    assert words in str(error.value) and not (tmp_path / "out").exists()


def test_runs_of_one_seed_come_together(sues: Path, tmp_path: Path) -> None:
    plan_file = write_plan(tmp_path, sues)
    plan = read_plan(plan_file)
    options = Options(out=tmp_path / "out", data=sues, device="cpu")
    jobs = make_jobs(plan, plan_file, plan.presets["small"], options, sues, "sues200", (1, 2))
    assert [(job.seed, job.run.name) for job in jobs] == [(1, "SkyPart"), (1, "GeM"), (2, "SkyPart"), (2, "GeM")]


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
        (
            ('overrides = ["head.kind=gem"]', 'overrides = ["backbone.name=missing.safetensors"]'),
            "missing.safetensors: no such file; check the path, or see `skypart doctor`; another backbone: --set backb",
        ),
        (("[presets.small]", "[presets.other]"), "has no preset 'small'"),
        (('title = "Two heads"', "title = "), "not valid TOML"),
        (('wrapper = "query_expansion"', 'wrapper = "magic"'), "the unknown wrapper 'magic'; choose one of query_exp"),
        (('readout = "cls"', 'readout = "nonsense"'), "the head skypart has no readout 'nonsense'; choose one of full"),
        (('run = "GeM"\nblock', 'run = "GeM"\nreadout = "part"\nblock'), "the head gem has no readout 'part'"),
        (('overrides = ["head.kind=gem"]', 'only = ["smal"]'), "names the preset 'smal'; choose one of small"),
        (("[1, 2]", "[2, 2]"), "seeds 2, 2: one is given twice"),
        (("head.kind=gem", "distill.teacher=none.safetensors"), "none.safetensors"),
        (('recipe = "recipe.toml"', 'recipe = { denseuav = "recipe.toml" }'), "has no recipe for sues200 data"),
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
    with pytest.raises(SkyPartError, match=r"unknown experiment 'nothing'; choose one of .*peers") as error:
        run_experiment("nothing", Options(out=tmp_path))
    assert "small" not in str(error.value), "recipes are no comparisons"
    with pytest.raises(SkyPartError, match="unknown experiment 'small'; choose one of"):
        run_experiment("small", Options(out=tmp_path))
    plan = write_plan(tmp_path, sues)
    with pytest.raises(SkyPartError, match="renders no data of its own; pass --data"):
        run_experiment(str(plan), Options(out=tmp_path / "out"))
    with pytest.raises(SkyPartError, match="--test is for comparisons that transfer"):
        run_experiment(str(plan), Options(out=tmp_path / "out", data=sues, test=sues))
    with pytest.raises(SkyPartError, match="compares no backbones"):
        run_experiment(str(plan), Options(out=tmp_path / "out", data=sues, backbones=("untrained:tiny",)))


def test_data_that_lack_what_a_comparison_needs_are_reported_before_any_work(tmp_path: Path) -> None:
    """Each data set lacks one thing; the message names its folder."""
    broken = {}
    for name in ("no test", "no drone", "no tiles", "one place"):
        root = broken[name] = make_sues(tmp_path / name, locations=6)
        places = sorted(path.name for path in (root / "satellite-view").iterdir())
        (root / "train_ids.txt").write_text("\n".join(places if name == "no test" else places[:4]))
        gone = {"no test": 0, "no drone": 4, "no tiles": 4, "one place": 3}[name]
        view = {"no drone": "drone_view_512", "one place": "drone_view_512"}.get(name, "satellite-view")
        for place in places[:gone]:
            shutil.rmtree(root / view / place)
    plan = write_plan(tmp_path, tmp_path)
    for name, words in (
        ("no test", "D2S 150m has no query images"),
        ("no drone", "has no drone images to train on"),
        ("no tiles", "has no satellite images to train on"),
        ("one place", "fewer than two training locations have both views"),
    ):
        with pytest.raises(SkyPartError) as error:
            run_experiment(str(plan), Options(out=tmp_path / "out", data=broken[name], device="cpu"))
        assert words in str(error.value) and str(broken[name]) in str(error.value)
    with pytest.raises(SkyPartError, match="nothing here"):
        run_experiment(str(plan), Options(out=tmp_path / "out", data=tmp_path / "nothing here", device="cpu"))
    assert not (tmp_path / "out").exists()


def test_altitudes_are_needed_only_where_a_run_differs_by_them(sues: Path, tmp_path: Path) -> None:
    dataset = open_dataset(sues)
    without = replace(dataset, train=[replace(record, altitude=None) for record in dataset.train])
    plan_file = write_plan(tmp_path, sues, PLAN.replace("head.kind=gem", "loss.alt=false"))
    plan = read_plan(plan_file)
    options = Options(out=tmp_path / "out", data=sues, device="cpu")
    jobs = make_jobs(plan, plan_file, plan.presets["small"], options, sues, "sues200", (1,))
    check_data(plan, dataset, jobs)
    check_data(plan, without, jobs[:1])
    with pytest.raises(SkyPartError, match=r"has no altitudes, so that mine cannot compare 'GeM'"):
        check_data(plan, without, jobs)


def test_a_disk_that_is_too_small_is_reported_before_training(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write_plan(tmp_path, sues)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    monkeypatch.setattr(module, "train", lambda _: pytest.fail("training began"))
    with pytest.raises(SkyPartError, match=r"need about 0\.0 GB, but the disk has 0\.0 GB left; free disk space"):
        run_experiment(str(plan), Options(out=tmp_path / "out", data=sues, device="cpu"))


@pytest.mark.slow
def test_a_disk_that_fills_keeps_finished_runs(sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = write_plan(tmp_path, sues, PLAN.replace('weather = ["paper"]', ""))
    options = Options(out=tmp_path / "out", data=sues, device="cpu", seeds=(1,))
    saved: list[str] = []

    def full_disk(state: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        if "gem-seed1" in str(path):
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        saved.append(path.parent.name)
        save_file(state, path, metadata=metadata)

    monkeypatch.setattr(storage, "save_file", full_disk)
    with pytest.raises(SkyPartError, match=r"gem-seed1/.*No space left on device.*free disk space"):
        run_experiment(str(plan), options)
    assert "skypart-seed1" in saved
    kept = tmp_path / "out" / "runs" / "skypart-seed1"
    assert (kept / "finished.json").is_file() and (kept / "model.safetensors").is_file()
    assert not list((tmp_path / "out").rglob(".*.tmp-*"))

    trained: list[str] = []

    def counted(run: Run) -> Result:
        trained.append(run.folder.name)
        return train(run)

    monkeypatch.setattr(storage, "save_file", save_file)
    monkeypatch.setattr(module, "train", counted)
    assert run_experiment(str(plan), options) is not None
    assert trained == ["gem-seed1"]


def test_a_run_stays_finished_when_recipes_gain_settings(done: tuple[Path, Path, Comparison], sues: Path) -> None:
    folder, plan_file, _ = done
    plan = read_plan(plan_file)
    options = Options(out=folder / "out", data=sues, device="cpu")
    job = make_jobs(plan, plan_file, plan.presets["small"], options, sues, "sues200", (1,))[0]
    note = job.folder / "finished.json"
    before = note.read_text()
    assert job.finished
    try:
        older = json.loads(before)
        del older["backbone"]["polar"]
        note.write_text(json.dumps(older))
        assert job.finished, "a setting that did not exist had its default"
        older["backbone"]["polar"] = True
        note.write_text(json.dumps(older))
        assert not job.finished
        note.write_text("[]")
        assert not job.finished
    finally:
        note.write_text(before)


def test_a_comparison_that_is_moved_stays_finished(
    done: tuple[Path, Path, Comparison], sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan, found = done
    shutil.copytree(folder / "out", tmp_path / "moved")
    monkeypatch.setattr(module, "train", lambda run: pytest.fail(f"{run.folder} was trained again"))
    monkeypatch.chdir(tmp_path)
    options = Options(out=Path("moved"), data=Path(os.path.relpath(sues)), device="cpu")
    again = run_experiment(str(plan), options)
    assert again is not None and again.rows["GeM"][0].digest == found.rows["GeM"][0].digest


def test_a_run_is_not_finished_with_other_data_or_another_start(
    done: tuple[Path, Path, Comparison], sues: Path, tmp_path: Path
) -> None:
    folder, plan_file, _ = done
    plan = read_plan(plan_file)
    options = Options(out=folder / "out", data=sues, device="cpu")
    job = make_jobs(plan, plan_file, plan.presets["small"], options, sues, "sues200", (1,))[0]
    assert job.finished
    elsewhere = replace(job.recipe.data, root=str(tmp_path))
    assert not replace(job, recipe=replace(job.recipe, data=elsewhere)).finished
    started = replace(job.recipe.backbone, start=str(tmp_path / "best.safetensors"))
    assert not replace(job, recipe=replace(job.recipe, backbone=started)).finished


@pytest.mark.parametrize("key", ["data.root", "backbone.start"])
def test_paths_inside_of_a_comparison_move_with_it(key: str, tmp_path: Path) -> None:
    section, name = key.split(".")
    jobs = []
    for out in ("before", "after"):
        recipe = load_recipe(
            module.PLANS / "small-paper.toml", [f"{key}={tmp_path}/{out}/x", f"run.out={tmp_path}/{out}/runs/a-seed1"]
        )
        jobs.append(Job(RunPlan(name="a"), 1, recipe, tmp_path / out / "runs" / "a-seed1"))
    jobs[1].folder.mkdir(parents=True)
    (jobs[1].folder / "finished.json").write_text(json.dumps(jobs[0].recipe.to_dict()))
    assert getattr(getattr(jobs[0].recipe, section), name) != getattr(getattr(jobs[1].recipe, section), name)
    assert jobs[1].finished


@pytest.mark.slow
def test_departures_at_inference_and_the_polar_warp_run_end_to_end(sues: Path, tmp_path: Path) -> None:
    rows = "".join(
        f'[[rows]]\nname = "{name}"\nrun = "SkyPart"\nwrapper = "{name}"\n'
        for name in ("tent", "token_merging", "multi_crop", "k_reciprocal")
    )
    text = PLAN.split("[[rows]]")[0].replace('name = "GeM"\noverrides = ["head.kind=gem"]', 'name = "polar"\n'
        'overrides = ["backbone.polar=true"]')  # fmt: skip
    text = text.replace('weather = ["paper"]\n', "").replace("[1, 2]", "[1]").replace("pareto", "parts")
    plan = write_plan(
        tmp_path, sues, text + '[[rows]]\nname = "SkyPart"\nrun = "SkyPart"\n' + rows
        + '[[rows]]\nname = "polar"\nrun = "polar"\n',
    )  # fmt: skip
    found = run_command(str(plan), Options(out=tmp_path / "out", data=sues, device="cpu"))
    assert found is not None
    single = found.rows["SkyPart"][0]
    for name in ("tent", "token_merging", "multi_crop", "polar"):
        assert (found.rows[name][0].digest == single.digest) == (name == "tent"), "Tent adapts anew for every split"
    for name in ("multi_crop", "polar"):
        other = found.rows[name][0]
        assert not np.array_equal(other.queries(CLEAN, "D2S", "AP")[0], single.queries(CLEAN, "D2S", "AP")[0]), name
    assert load_model(tmp_path / "out" / "runs" / "polar-seed1" / "model.safetensors").preprocessing.polar
    headline = json.loads((tmp_path / "out" / "tables" / "headline.json").read_text())
    costs = {row[0]["text"]: row[2]["text"] for row in headline["rows"]}
    assert costs["tent"] == costs["token_merging"] == costs["multi_crop"] == "", "no single pass"
    assert costs["polar"] == costs["k_reciprocal"] == costs["SkyPart"] != ""


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_plan_holds_together_and_its_recipes_load(path: Path) -> None:
    plan = read_plan(path)
    assert {"small", "paper"} <= set(plan.presets)
    for name, preset in plan.presets.items():
        for kind in ("sues200", "university1652", "denseuav"):
            for run in plan.all_runs(name):
                load_recipe(recipe_file(path, preset, run, kind), [*preset.overrides, *run.overrides])


def test_rows_of_axes_are_compared_with_the_label_of_the_lift() -> None:
    axes: dict[str, dict[str, list[str]]] = {
        "backbone": {"a": [], "b": []},
        "head": {"CLS-only": [], "full": []},
    }
    content = {"name": "x", "title": "x", "presets": {"small": {"recipe": "r"}}, "axes": axes, "lift": "CLS-only"}
    rows = build_plan(content, "x").all_rows("small")
    assert {row.name: row.reference for row in rows} == {
        "a, CLS-only": "",
        "a, full": "a, CLS-only",
        "b, CLS-only": "",
        "b, full": "b, CLS-only",
    }


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
