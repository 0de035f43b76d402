"""Every call to the file system fails in turn within whole commands: old files stay valid, one message names the file.

A quick sample of the calls here; `make torture` lets every call fail, with every error.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from skypart.maps.index import MapIndex
from skypart.maps.manifest import IndexManifest
from skypart.model import SkyPart
from skypart.model.storage import load_model, save_model
from skypart.position.locate import Locator
from skypart.training.checkpoint import newest_checkpoint, read_facts
from tests.conftest import Run
from tests.datasets.fakes import make_university
from tests.position.stand_in import ColourEmbedder, Shot, make_index, quilt, write_quilt
from tests.position.test_calibrate import outcomes
from tests.torture.test_failing_io import ALL, CALLS, ERRORS, failing_calls
from tests.torture.test_power_loss import note
from tests.training.fake_data import make_sues
from tests.training.small_runs import small_recipe, write_recipe

QUICK = 3
"""Calls of each kind that fail in the quick form."""


def fail_each_call(
    root: Path,
    run: Run,
    arguments: list[object],
    check: Callable[[bool], None],
    prepare: Callable[[], object],
    quick: int = QUICK,
) -> Counter[str]:
    """Run a command again and again, each time with one failing call below `root`.

    prepare: restores what was there before the command. check: gets whether the command succeeded, and raises if what
    was there before is damaged. quick: how many calls of each kind fail in the quick form.
    """
    prepare()
    with failing_calls("none", 0, 0, root) as failing:
        assert run(*arguments)[0] == 0
    check(True)
    counts: Counter[str] = Counter()
    chosen = random.Random(0)
    for kind in CALLS:
        numbers = list(range(1, failing.seen[kind] + 1))
        pairs = [(number, code) for number in numbers for code in ERRORS]
        for number, code in pairs if ALL else sorted(chosen.sample(pairs, min(quick, len(pairs)))):
            prepare()
            with failing_calls(kind, number, code, root) as now:
                exit_code, _, errors = run(*arguments)
            if not now.happened:  # calls depend a little on timing
                continue
            what = f"call {number} of {kind} failed with error {code}: {errors}"
            messages = [line for line in errors.splitlines() if line.startswith("skypart: ")]
            if exit_code:
                assert len(messages) == 1, what
                assert str(root) in messages[0] and ";" in messages[0] and "Traceback" not in errors, what
            counts[f"{kind} failures"] += 1
            counts["errors" if exit_code else "survived"] += 1
            try:
                check(exit_code == 0)
            except Exception as error:
                raise AssertionError(f"after {what}") from error
    assert counts["errors"] >= 2
    return counts


@pytest.fixture(autouse=True)
def _one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of a quilt; commands use it with the embedder of colours."""
    make_index(tmp_path / "town.skyindex", [write_quilt(tmp_path / "town.tif")]).store.close()

    def open_locator(folder: Path, *_: object, **__: object) -> Locator:
        return Locator(MapIndex(folder), ColourEmbedder())

    monkeypatch.setattr("skypart.position.photos.open_locator", open_locator)
    return tmp_path / "town.skyindex"


def photos(folder: Path, count: int) -> Path:
    """Photos along a line over the quilt."""
    folder.mkdir()
    for number in range(count):
        photo = Shot(-60.0 + 20.0 * number, 10.0).photo(quilt(1), 160)
        Image.fromarray(photo).save(folder / f"{number:03d}.jpg", quality=95)
    return folder


def test_embed_survives_failing_calls(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skypart.embedding.load", lambda *_: ColourEmbedder())
    folder, out = photos(tmp_path / "photos", 3), tmp_path / "out" / "e.npz"

    def prepare() -> None:
        out.parent.mkdir(exist_ok=True)
        np.savez(out, embeddings=np.zeros((1, 36), np.float32))

    def check(succeeded: bool) -> None:
        with np.load(out) as found:
            assert found["embeddings"].shape == ((3, 36) if succeeded else (1, 36))

    note("io-embed", fail_each_call(tmp_path, run, ["embed", folder, "-o", out], check, prepare))


@pytest.mark.slow
def test_calibrate_survives_failing_calls(
    run: Run, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skypart.position.calibrate.locate_labelled", lambda *_: outcomes(3, 200))
    monkeypatch.setattr("skypart.position.calibrate.MIN_PHOTOS", 0)
    folder, out = photos(tmp_path / "photos", 2), tmp_path / "out" / "c.png"
    (folder / "positions.csv").write_text("file,latitude,longitude\n000.jpg,47.8,9.0\n001.jpg,,\n")
    plain = (town / "index.json").read_bytes()

    def prepare() -> None:
        out.parent.mkdir(exist_ok=True)
        (town / "index.json").write_bytes(plain)
        Image.new("RGB", (9, 9)).save(out)
        out.with_suffix(".json").write_text("{}")

    def check(succeeded: bool) -> None:
        manifest = IndexManifest.read(town)
        assert manifest.calibration is not None or not succeeded
        MapIndex(town).store.close()
        with Image.open(out) as image:
            assert (image.size != (9, 9)) == succeeded
        assert bool(json.loads(out.with_suffix(".json").read_text())) or not succeeded

    note("io-calibrate", fail_each_call(tmp_path, run, ["calibrate", town, folder, "-o", out], check, prepare))


@pytest.mark.slow
def test_track_survives_failing_calls(run: Run, town: Path, tmp_path: Path) -> None:
    folder, out, figure = photos(tmp_path / "photos", 2), tmp_path / "out" / "t.csv", tmp_path / "out" / "t.png"

    def prepare() -> None:
        out.parent.mkdir(exist_ok=True)
        out.write_text("before\n")
        Image.new("RGB", (9, 9)).save(figure)

    def check(succeeded: bool) -> None:
        assert out.read_text() == "before\n" or out.read_text().count("\n") >= 2
        assert (out.read_text() != "before\n") or not succeeded
        with Image.open(figure) as image:
            image.load()

    arguments = ["track", town, folder, "-o", out, "--picture", figure, "--heading", 0]
    note("io-track", fail_each_call(tmp_path, run, arguments, check, prepare, quick=1))


@pytest.mark.slow
def test_evaluate_survives_failing_calls(run: Run, tiny_model: SkyPart, tmp_path: Path) -> None:
    model, out, cache = tmp_path / "m.safetensors", tmp_path / "out", tmp_path / "cache"
    save_model(tiny_model, model)
    data = make_university(tmp_path / "data")
    arguments = ["evaluate", model, data, "-o", out, "--cache", cache, "--batch-size", 4]

    def prepare() -> None:
        out.mkdir(exist_ok=True)
        (out / "result.json").write_text("{}")
        for shard in [*cache.rglob("*.keys"), *cache.rglob("*.vectors")]:
            shard.unlink()

    def check(succeeded: bool) -> None:
        assert bool(json.loads((out / "result.json").read_text())) or not succeeded
        if not succeeded:
            assert run(*arguments)[0] == 0  # with what is left of the cache
            assert json.loads((out / "result.json").read_text())

    note("io-evaluate", fail_each_call(tmp_path, run, arguments, check, prepare, quick=1))


@pytest.mark.slow
def test_train_survives_failing_calls(run: Run, tmp_path: Path) -> None:
    """The run folder only: reading images is the same as in `evaluate`, and there are many of them."""
    data = make_sues(tmp_path / "data", per_altitude=2)
    out = tmp_path / "run"
    recipe = write_recipe(tmp_path / "r.toml", small_recipe(data, out, teacher=False))
    arguments = ["train", recipe, "batch.steps=1", "optimiser.epochs=2"]
    assert run(*arguments)[0] == 0
    before = {file.relative_to(out): file.read_bytes() for file in out.rglob("*") if file.is_file()}
    last = Path("checkpoints", "step-00000002.ckpt.safetensors")
    assert before.pop(last) and before.pop(Path("model.safetensors"))  # as if it was stopped after the first epoch

    def prepare() -> None:
        for file in sorted(out.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        for name, content in before.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)

    def check(succeeded: bool) -> None:
        newest = newest_checkpoint(out / "checkpoints")
        assert newest is not None
        assert read_facts(newest)[0].step in ((2,) if succeeded else (1, 2))
        for model in out.glob("*.safetensors"):
            if ".ckpt." not in model.name:
                load_model(model)

    note("io-train", fail_each_call(out, run, arguments, check, prepare))
