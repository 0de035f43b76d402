"""The commands new, embed, parts, info and doctor, in this process and, where marked slow, as subprocesses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

import skypart
from skypart.images.preprocess import Preprocessing
from skypart.model import SkyPart, load_model, save_model
from tests.conftest import Run
from tests.images.test_decode import png_bomb
from tests.model.builders import TINY_VIT, scrambled_vit, write_scene


@pytest.fixture
def model(tiny_model: SkyPart, tmp_path: Path) -> Path:
    tiny_model.preprocessing = Preprocessing(size=56)
    tiny_model.recipe = {"epochs": 3}
    tiny_model.provenance = {"training": "none", "training_only_parameters": {"proxies": 70}}
    save_model(tiny_model, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def bad_photo(kind: str, folder: Path) -> Path:
    photo = folder / f"{kind}.jpg"
    if kind == "text":
        photo.write_text("not a photo")
    elif kind == "empty":
        photo.touch()
    elif kind == "truncated":
        write_scene(photo)
        photo.write_bytes(photo.read_bytes()[:700])
    elif kind == "bomb":
        photo.write_bytes(png_bomb())
    return photo


BAD = ("text", "empty", "truncated", "bomb", "missing")


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("verb", ["embed", "parts"])
def test_bad_photos_end_in_a_one_line_error(verb: str, kind: str, run: Run, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / ("out.npz" if verb == "embed" else "out.png")
    photo = bad_photo(kind, tmp_path)
    good = [write_scene(tmp_path / "good.png")] if verb == "embed" else []
    code, _, err = run(verb, *good, photo, "-o", output, "--model", model)
    assert code == 2
    messages = [line for line in err.splitlines() if line.startswith("skypart: ")]
    assert len(messages) == 1 and photo.name in messages[0]
    assert err.splitlines()[-1] == messages[0], "the progress bar ends before the message"
    assert "Traceback" not in err
    assert not output.exists() and (not output.parent.exists() or not list(output.parent.iterdir()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "truncated", "bomb", "checkpoint"])
def test_bad_input_to_the_real_command(kind: str, model: Path, tmp_path: Path) -> None:
    photo = write_scene(tmp_path / "good.png") if kind == "checkpoint" else bad_photo(kind, tmp_path)
    named = photo
    if kind == "checkpoint":
        named = model = tmp_path / "vit.safetensors"
        save_file(scrambled_vit(TINY_VIT).state_dict(), model)
    command = [sys.executable, "-m", "skypart.cli", "parts", str(photo), "-o", str(tmp_path / "out.png")]
    done = subprocess.run([*command, "--model", str(model)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(f"skypart: {named}: ")
    assert not (tmp_path / "out.png").exists()


def test_embed_writes_paths_and_vectors(run: Run, model: Path, tmp_path: Path) -> None:
    photos = [write_scene(tmp_path / f"{i}.jpg", seed=i) for i in range(3)]
    code, out, _ = run("embed", *photos, "-o", tmp_path / "out.npz", "--model", model, "--batch-size", 2)
    assert code == 0 and "3 embeddings" in out
    with np.load(tmp_path / "out.npz") as stored:
        assert set(stored.files) == {"paths", "embeddings", "model"}
        assert stored["paths"].tolist() == list(map(str, photos))
        assert stored["embeddings"].dtype == np.float32
        np.testing.assert_allclose(stored["embeddings"], skypart.load(model).embed(photos), atol=1e-5)


def test_parts_draws_a_figure(run: Run, model: Path, tmp_path: Path) -> None:
    photo = write_scene(tmp_path / "meadow.jpg")
    code, out, _ = run("parts", photo, "-o", tmp_path / "parts.png", "--model", model, "--size", 112)
    assert code == 0 and "parts.png" in out
    with Image.open(tmp_path / "parts.png") as drawn:
        assert drawn.size == (1272, 590)
        assert len(drawn.getcolors(10**6) or []) > 1000
    code, _, err = run("parts", photo, "-o", tmp_path / "parts.xyz", "--model", model)
    assert code == 2 and "end the name in .png" in err


def test_info_as_text_and_json(run: Run, model: Path) -> None:
    code, out, _ = run("info", model, "--json")
    assert code == 0
    report = json.loads(out)
    deployed = sum(p.numel() for p in load_model(model).parameters())
    assert report["deployed_parameters"] == deployed == sum(report["parameters"].values())
    assert report["training_only_parameters"] == {"proxies": 70}
    assert report["recipe"] == {"epochs": 3}
    assert report["provenance"]["training"] == "none"
    assert report["input_size"] == 56
    assert len(report["giga_operations"]) == 5
    code, out, _ = run("info", model, "--size", 112)
    assert code == 0
    for word in (
        "deployed",
        f"{deployed:,}",
        "training only: proxies",
        "without attention products",
        "2 images",
        "112",
    ):
        assert word in out, word
    code, _, err = run("info", model, "--size", 100)
    assert code == 2 and "not divisible by the patch size 14" in err


def test_new_adds_a_head_to_a_backbone(run: Run, tmp_path: Path) -> None:
    save_file(scrambled_vit(TINY_VIT).state_dict(), tmp_path / "vit.safetensors")
    code, out, _ = run("new", tmp_path / "vit.safetensors", "-o", tmp_path / "new.safetensors", "--size", 70)
    assert code == 0 and "untrained" in out
    made = load_model(tmp_path / "new.safetensors")
    assert made.preprocessing.size == 70
    assert made.provenance["backbone"] == str(tmp_path / "vit.safetensors")
    code, _, err = run("new", tmp_path / "vit.safetensors", "-o", tmp_path / "odd.safetensors", "--size", 71)
    assert code == 2 and "71 is not divisible by the patch size 14; use 70" in err
    assert not (tmp_path / "odd.safetensors").exists()


@pytest.mark.parametrize("options", [["--size", "57"], ["--batch-size", "0"], ["--device", "nonsense"]])
def test_bad_options_end_in_a_one_line_error(options: list[str], run: Run, model: Path, tmp_path: Path) -> None:
    photo = write_scene(tmp_path / "a.jpg")
    code, _, err = run("embed", photo, "-o", tmp_path / "out.npz", "--model", model, *options)
    assert code == 2 and err.startswith("skypart: ") and len(err.splitlines()) == 1
    assert not (tmp_path / "out.npz").exists()


def test_doctor_lists_what_is_installed_and_what_is_missing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    save_file(scrambled_vit(TINY_VIT).state_dict(), weights / "dino_vits16.safetensors")
    (weights / "ibot_vits16.json").write_text("{}")
    monkeypatch.setenv("SKYPART_WEIGHTS", str(weights))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "600")
    code, out, _ = run("doctor")
    assert code == 0
    for word in ("torch", "2.13", "cores", "accelerators", "weights folder", "(2 files)", "(absent)", "mocov3_vits16"):
        assert word in out, word
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.count("│") == 4}
    assert "dino_vits16.safetensors" in rows["dino_vits16"]
    assert "not on this disk" in rows["ibot_vits16"]
    assert "bytedance/ibot" in rows["ibot_vits16"]
    assert "PyTorch 2.13" in rows["engine"] and "for .safetensors" in rows["engine"]
    assert any(word in rows["bfloat16 on the CPU"] for word in ("native", "emulated"))


def test_version(run: Run) -> None:
    assert run("--version")[:2] == (0, f"skypart {skypart.__version__}\n")
