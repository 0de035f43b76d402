"""Exports give the results of PyTorch, prove it, and run wherever a model does."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import skypart
from skypart.embedding.exported import ExportContract, contract_file, parity_file
from skypart.embedding.interface import Inputs, PatchTokens, Vectors
from skypart.errors import SkyPartError
from skypart.export import ExportOptions, export_model, located, parity
from skypart.export.parity import judge
from skypart.export.places import Places, named_images, render_places
from skypart.images.preprocess import Preprocessing
from skypart.images.weather import CONDITIONS
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.model import SkyPart, VisionTransformer
from skypart.model.storage import save_model
from skypart.position.locate import Locator
from tests.conftest import Run
from tests.embedding.test_extending import random_ground, write_map
from tests.model.builders import TINY_HEAD, TINY_VIT, scene, scramble, write_scene
from tests.position.stand_in import ColourEmbedder

pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
pytest.importorskip("openvino", reason="the extra `export` is not installed")
pytest.importorskip("onnxscript", reason="the extra `export` is not installed")
pytest.importorskip("nncf", reason="the extra `export` is not installed")


def quick(to: str, precision: str = "fp32", size: int | None = None) -> ExportOptions:
    """Options with few images."""
    return ExportOptions(to, precision, size, calibration=12, parity=12)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.safetensors and its exports model.onnx and model.xml; an export takes seconds."""
    folder = tmp_path_factory.mktemp("exports")
    save_model(small_model(), folder / "model.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skypart.export.run.render_places", scenes)
        for to, suffix in (("onnx", ".onnx"), ("openvino", ".xml")):
            export_model(str(folder / "model.safetensors"), folder / f"model{suffix}", quick(to))
    return folder


@pytest.fixture
def model(exports: Path) -> Path:
    return exports / "model.safetensors"


def small_model() -> SkyPart:
    """A small model with every parameter drawn from one seed."""
    model = SkyPart(VisionTransformer(TINY_VIT), TINY_HEAD)
    scramble(model, 1)
    return model.eval()


def scenes(photos: int, seed: int, size: int = 320) -> Places:
    """Scenes instead of rendered places, which take seconds."""
    drones = [scene(seed=100 * seed + number) for number in range(photos)]
    return Places(drones, [scene(seed=100 * seed + number) for number in range(0, photos, 2)], _places(photos))


@pytest.fixture(autouse=True)
def _small_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skypart.export.run.render_places", scenes)
    monkeypatch.setattr("skypart.export.run.compare_locating", lambda *_: np.ones((5, 2), np.bool_))


def _places(photos: int) -> list[int]:
    return [number // 2 for number in range(photos)]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_an_export_gives_the_embeddings_and_tokens_of_pytorch(exports: Path, model: Path, suffix: str) -> None:
    file = exports / f"model{suffix}"
    torch_model, exported = skypart.load(model), skypart.load(file)
    images = [scene(seed=number) for number in range(11)]  # more than one pass
    np.testing.assert_allclose(exported.embed(images), torch_model.embed(images), atol=2e-4)
    inputs = exported.preprocess(images)
    vectors, patches = exported.embed_with_patches(inputs)
    expected = torch_model.patch_tokens(inputs)
    assert patches.grid == expected.grid and patches.tokens.shape == expected.tokens.shape
    np.testing.assert_allclose(patches.tokens, expected.tokens, atol=2e-3)
    np.testing.assert_array_equal(exported.patch_tokens(inputs).tokens, patches.tokens)
    np.testing.assert_allclose(exported.embed(images[3:4])[0], vectors[3], atol=1e-5)
    assert exported.weights_digest == torch_model.digest != exported.digest
    report = json.loads(parity_file(file).read_text())
    assert report["images"] == 18 and report["failures"] == []
    assert report["min_cosine"] > 0.9999


@pytest.mark.slow
def test_an_export_has_the_size_that_is_asked_for(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.onnx"
    export_model(str(model), file, quick("onnx", size=42))
    content = json.loads(contract_file(file).read_text())
    assert content["input"]["shape"] == ["n", 3, 42, 42]
    assert content["preprocessing"]["mean"] == [0.485, 0.456, 0.406]
    assert ExportContract.read(file).preprocessing.size == skypart.load(file).size == 42
    assert content["weights"] == skypart.load(model, size=42).digest


@pytest.mark.slow
@pytest.mark.parametrize(("to", "suffix"), [("onnx", ".onnx"), ("openvino", ".xml")])
def test_reduced_precisions_are_written_and_smaller(
    model: Path, tmp_path: Path, to: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "MIN_MEAN_COSINE", 0.8)  # random weights: the outputs of int8 are far off
    monkeypatch.setattr(parity, "MIN_COSINE", {"fp32": 0.9999, "fp16": 0.9})
    monkeypatch.setattr(parity, "MIN_SAME_TOP1", 0.0)
    monkeypatch.setattr(parity, "MAX_RECALL_LOSS", 1.0)
    sizes = {}
    for precision in ("fp32", "fp16", "int8"):
        file = tmp_path / f"{precision}{suffix}"
        export_model(str(model), file, quick(to, precision))
        weights = file.with_suffix(".bin") if to == "openvino" else file
        sizes[precision] = weights.stat().st_size
        assert skypart.load(file).embed([scene()]).shape == (1, 48)
    assert sizes["fp16"] < 0.9 * sizes["fp32"]
    assert max(sizes.values()) == sizes["fp32"]  # the scales of int8 outweigh the weights of this small model
    digests = {skypart.load(tmp_path / f"{precision}{suffix}").digest for precision in sizes}
    assert len(digests) == len(sizes)


@pytest.mark.slow
def test_an_image_is_embedded_alike_in_any_batch_of_an_int8_export(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime quantises activations by the range of all images of a pass."""
    monkeypatch.setattr(parity, "MIN_MEAN_COSINE", -1.0)
    monkeypatch.setattr(parity, "MAX_RECALL_LOSS", 1.0)
    export_model(str(model), tmp_path / "int8.onnx", quick("onnx", "int8"))
    pair = [scene(), scene(seed=9)]
    int8 = skypart.load(tmp_path / "int8.onnx")
    np.testing.assert_array_equal(int8.embed(pair)[1], int8.embed(pair[1:])[0])


@pytest.mark.slow
def test_an_export_that_differs_is_not_kept(
    model: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "MIN_COSINE", {"fp32": 1.5})
    file = tmp_path / "out" / "bad.onnx"
    code, _, error = run("export", model, "-o", file, "--parity", 10)
    assert code != 0 and "was not kept" in error and "cosine" in error
    assert list(file.parent.iterdir()) == []


def test_parity_judges_each_precision_by_its_own_limits() -> None:
    rng = np.random.default_rng(0)
    ours = rng.normal(size=(30, 16)).astype(np.float32)
    ours /= np.linalg.norm(ours, axis=1, keepdims=True)
    image = np.zeros((2, 2, 3), np.uint8)
    places = Places([image] * 20, [image] * 10, _places(20))
    near = ours + 0.02 * rng.normal(size=ours.shape).astype(np.float32)
    assert not judge(ours, ours, places, "fp32").failures
    assert "smallest cosine" in judge(ours, near, places, "fp32").failures[0]
    assert judge(ours, near, places, "int8").mean_cosine > 0.99
    far = np.roll(ours, 1, axis=0)
    assert any("mean cosine" in failure for failure in judge(ours, far, places, "int8").failures)
    perfect = np.concatenate([ours[20:][_places(20)], ours[20:]])
    swapped = perfect.copy()
    swapped[:2] = ours[25]
    assert any("R@1" in failure for failure in judge(perfect, swapped, places, "int8").failures)
    broken = np.full_like(ours, np.nan)
    assert judge(ours, broken, places, "fp32").failures and judge(ours, broken, places, "int8").failures


@pytest.mark.parametrize(("lost", "gained", "kept"), [(1, 0, True), (5, 0, False), (9, 8, True), (0, 9, True)])
def test_an_int8_export_must_place_as_many_photos(lost: int, gained: int, kept: bool) -> None:
    """It may lose one in a hundred, and what chance explains."""
    ours = np.eye(20, dtype=np.float32)
    right = np.zeros((100, 2), dtype=np.bool_)
    right[:60] = True
    right[:lost, 1] = False
    right[60 : 60 + gained, 1] = True
    found = judge(ours, ours, Places([], [], []), "int8").with_located(right)
    assert (found.failures == ()) == kept
    assert f"{60 - lost + gained} % (60 %)" in found.summary()


@pytest.mark.slow
def test_an_export_locates_the_photos_that_pytorch_locates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that embeds every photo alike locates fewer."""

    class Blind(ColourEmbedder):
        def embed_with_patches(self, inputs: Inputs) -> tuple[Vectors, PatchTokens]:
            vectors, patches = super().embed_with_patches(np.zeros_like(inputs))
            return vectors, patches

    monkeypatch.setattr(located, "STYLES", ("town",))
    monkeypatch.setattr(located, "EDGE_M", 320.0)
    same = located.compare_locating(ColourEmbedder(), ColourEmbedder(), 6, 5, tmp_path / "same")
    other = located.compare_locating(ColourEmbedder(), Blind(), 6, 5, tmp_path / "other")
    assert np.array_equal(same[:, 0], same[:, 1]) and np.array_equal(same[:, 0], other[:, 0])
    assert other[:, 1].sum() < other[:, 0].sum() >= 2


@pytest.mark.slow
def test_an_index_takes_exports_of_its_own_weights_only(exports: Path, model: Path, tmp_path: Path) -> None:
    own, other = exports / "model.onnx", tmp_path / "other.onnx"
    shutil.copyfile(own, other)
    contract = ExportContract.read(own)
    contract_file(other).write_text(replace(contract, weights="0" * 32).to_json())
    folder = tmp_path / "map.skyindex"
    build_index([str(write_map(tmp_path / "map.tif"))], folder, skypart.load(model), str(model))
    index, photo = MapIndex(folder), random_ground()[40:160, 60:180]
    plain = Locator(index, skypart.load(model)).locate(photo)
    fast = Locator(index, skypart.load(own)).locate(photo)
    assert fast.candidates[0].footprint == plain.candidates[0].footprint
    with pytest.raises(SkyPartError, match="was made with the model"):
        Locator(index, skypart.load(other))
    made = tmp_path / "by-export.skyindex"
    build_index([str(tmp_path / "map.tif")], made, skypart.load(own), str(own))
    assert Locator(MapIndex(made), skypart.load(model)).locate(photo).candidates


@pytest.mark.slow
def test_options_that_an_export_has_fixed_are_errors(exports: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.onnx"
    shutil.copyfile(exports / "model.onnx", file)
    shutil.copyfile(contract_file(exports / "model.onnx"), contract_file(file))
    for options, words in (({"size": 42}, "--size 42"), ({"device": "cuda"}, "CPU"), ({"readout": "cls"}, "readout")):
        with pytest.raises(SkyPartError, match=words):
            skypart.load(file, **options)
    contract_file(file).unlink()
    with pytest.raises(SkyPartError, match="export again"):
        skypart.load(file)


def test_bad_arguments_are_clear_error_messages(tmp_path: Path, run: Run) -> None:
    for arguments, words in (
        (("--to", "tflite"), "no such format"),
        (("--precision", "int4"), "no such precision"),
        (("-o", tmp_path / "x.xml"), "has the suffix .onnx"),
        (("--parity", 3), "at least 10"),
    ):
        code, _, error = run("export", "default", *arguments)
        assert code == 2 and words in error


@pytest.mark.parametrize(("suffix", "package"), [(".onnx", "onnxruntime"), (".xml", "openvino")])
def test_a_missing_runtime_is_a_clear_error_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, package: str
) -> None:
    file = tmp_path / f"model{suffix}"
    file.write_bytes(b"")
    contract = ExportContract(
        weights="w",
        digest="d",
        precision="fp32",
        dim=4,
        grid=(1, 1),
        blocks=(1,),
        preprocessing=Preprocessing(14, "bilinear", True),
    )
    contract_file(file).write_text(contract.to_json())
    assert ExportContract.read(file) == contract
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SkyPartError, match="pip install"):
        skypart.load(file)


@pytest.mark.slow
def test_an_exported_model_runs_without_torch(exports: Path) -> None:
    file = exports / "model.onnx"
    code = (
        "import sys, numpy as np, skypart\n"
        f"skypart.load({str(file)!r}).embed([np.zeros((20, 20, 3), np.uint8)])\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'openvino', 'onnx')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": "src"})


@pytest.mark.slow
def test_rendered_places_show_all_weathers_and_are_reproducible() -> None:
    first, second = render_places(22, 5, 64), render_places(22, 5, 64)
    assert len(first.drones) == 22 >= 2 * len(CONDITIONS) and len(first.satellites) == 11
    assert all(np.array_equal(one, other) for one, other in zip(first.images, second.images, strict=True))
    assert first.place == _places(22)


def test_named_images_are_used_in_all_weathers(tmp_path: Path) -> None:
    for number in range(12):
        write_scene(tmp_path / f"{number:02d}.png", number)
    assert len(named_images([tmp_path], 30).drones) == 30
    for file in sorted(tmp_path.iterdir())[:3]:
        file.unlink()
    with pytest.raises(SkyPartError, match="too few"):
        named_images([tmp_path], 30)
