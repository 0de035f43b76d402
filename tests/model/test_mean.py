"""The mean of two models' weights."""

import copy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import skypart
from skypart.errors import SkyPartError
from skypart.model import SkyPart
from skypart.model.embedder import load_torch
from skypart.model.mean import main, mean_model
from skypart.model.vit import VisionTransformer
from tests.model.builders import TINY_HEAD, TINY_VIT, random_images


@pytest.fixture
def two(tiny_model: SkyPart, tmp_path: Path) -> tuple[Path, Path]:
    other = copy.deepcopy(tiny_model)
    with torch.no_grad():
        for value in other.parameters():
            value.add_(0.25)
    tiny_model.provenance = {"backbone": "tiny", "training": "7 steps on a meadow"}
    paths = tmp_path / "other.safetensors", tmp_path / "tiny.safetensors"
    skypart.save(other, paths[0])
    skypart.save(tiny_model, paths[1])
    return paths


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_each_weight_is_a_weighted_mean(two: tuple[Path, Path], share: float) -> None:
    earlier, last = (load_torch(path).model.state_dict() for path in two)
    found = mean_model(*two, share)
    for key, value in found.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, share * earlier[key] + (1 - share) * last[key])
    assert found.provenance["backbone"] == "tiny"
    assert "7 steps on a meadow; then the mean" in found.provenance["training"]


def test_the_command_writes_a_model(two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, about = tmp_path / "mean.safetensors", tmp_path / "about.json"
    about.write_text('{"licence": "apache-2.0"}')
    monkeypatch.setattr(sys, "argv", ["mean", *map(str, two), "--share=0.3", "-o", str(out), "--about", str(about)])
    main()
    assert load_torch(out).model.provenance["licence"] == "apache-2.0"
    images = random_images(2, 56, 56)
    with torch.no_grad():
        near = load_torch(out).model(images).embedding
        expected = mean_model(*two, 0.3)(images).embedding
    torch.testing.assert_close(near, expected, atol=5e-3, rtol=0)


@pytest.mark.parametrize("words", [["--about", "nothere.json"], ["--share", "2"], ["--about", "list.json"]])
def test_errors_are_clear_messages(
    two: tuple[Path, Path],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[]")
    monkeypatch.setattr(sys, "argv", ["mean", *map(str, two), "-o", "out.safetensors", *words])
    with pytest.raises(SystemExit) as left:
        main()
    message = capsys.readouterr().err
    assert left.value.code and message.startswith("error: ") and message.count("\n") == 1
    assert not (tmp_path / "out.safetensors").exists()


def test_different_architectures_and_bad_shares_are_refused(two: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="between 0 and 1"):
        mean_model(*two, 1.5)
    wide = SkyPart(VisionTransformer(TINY_VIT), replace(TINY_HEAD, refine_hidden=2 * TINY_HEAD.refine_hidden))
    skypart.save(wide, tmp_path / "wide.safetensors")
    with pytest.raises(SkyPartError, match="architectures differ"):
        mean_model(two[0], tmp_path / "wide.safetensors", 0.5)
