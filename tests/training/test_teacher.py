import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from skypart.datasets import open_dataset
from skypart.datasets.records import Record
from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model.backbone import load_backbone
from skypart.model.vit import ViTConfig
from skypart.training import teacher as module
from skypart.training.teacher import TeacherFeatures
from tests.model.builders import scrambled_vit
from tests.training.small_runs import small_recipe, small_run

CPU = torch.device("cpu")


@pytest.fixture
def weights(tmp_path: Path) -> str:
    vit = scrambled_vit(ViTConfig(dim=64, depth=2, heads=1, hidden=64, grid=(3, 3)))
    save_file(vit.state_dict(), tmp_path / "teacher.safetensors")
    return str(tmp_path / "teacher.safetensors")


@pytest.fixture
def records(sues: Path) -> list[Record]:
    return list(open_dataset(sues).train)


def direct(weights: str, records: list[Record], size: int) -> torch.Tensor:
    """The normed CLS token of every image, preprocessed as in evaluation, one at a time."""
    backbone = load_backbone(weights).eval()
    with torch.no_grad():
        return torch.cat(
            [backbone(torch.from_numpy(Preprocessing(size=size)(record.path))[None])[0].cls for record in records]
        )


def test_features_equal_direct_computation(weights: str, records: list[Record], tmp_path: Path) -> None:
    features = TeacherFeatures(weights, 28, records, tmp_path / "cache", CPU)
    expected = direct(weights, records, 28)
    assert features.dim == 64
    torch.testing.assert_close(features.features, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(features.features_for([5, 2, 5], CPU), expected[[5, 2, 5]], rtol=1e-5, atol=1e-5)


def test_a_second_run_reads_the_cache_and_recomputes_missing_shards(
    weights: str, records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHARD", 30)
    first = TeacherFeatures(weights, 28, records, tmp_path / "cache", CPU).features
    shards = sorted((tmp_path / "cache").glob("*.npy"))
    assert len(shards) == 3  # 72 images
    kept = {shard: shard.stat().st_mtime_ns for shard in shards[1:]}
    shards[0].unlink()
    again = TeacherFeatures(weights, 28, records, tmp_path / "cache", CPU).features
    assert torch.equal(first, again)
    assert {shard: shard.stat().st_mtime_ns for shard in shards[1:]} == kept

    def refuse(name: str) -> None:
        raise AssertionError("the teacher was loaded although all features are there")

    monkeypatch.setattr(module, "load_backbone", refuse)
    assert torch.equal(TeacherFeatures(weights, 28, records, tmp_path / "cache", CPU).features, first)


def test_an_interrupted_computation_leaves_only_complete_shards(
    weights: str, records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHARD", 30)
    save = np.save
    written: list[Path] = []

    def save_once(path: Path, array: np.ndarray) -> None:
        if written:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        written.append(path)
        save(path, array)

    monkeypatch.setattr(np, "save", save_once)
    with pytest.raises(KeyboardInterrupt):
        TeacherFeatures(weights, 28, records, tmp_path / "cache", CPU)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    monkeypatch.undo()
    monkeypatch.setattr(module, "_SHARD", 30)
    features = TeacherFeatures(weights, 28, records, tmp_path / "cache", CPU).features
    torch.testing.assert_close(features, direct(weights, records, 28), rtol=1e-5, atol=1e-5)


def test_the_cache_depends_on_size_and_images(weights: str, records: list[Record], tmp_path: Path) -> None:
    few = records[:10]
    small = TeacherFeatures(weights, 28, few, tmp_path / "cache", CPU).features
    large = TeacherFeatures(weights, 42, few, tmp_path / "cache", CPU).features
    other = TeacherFeatures(weights, 28, records[1:11], tmp_path / "cache", CPU).features
    assert not torch.allclose(small, large) and not torch.allclose(small, other)
    torch.testing.assert_close(small[1:], other[:-1], rtol=1e-5, atol=1e-5)


def test_the_cache_depends_on_the_content_of_the_teacher_file(
    weights: str, records: list[Record], tmp_path: Path
) -> None:
    few = records[:3]
    TeacherFeatures(weights, 28, few, tmp_path / "cache", CPU)
    before = Path(weights).stat()
    vit = scrambled_vit(ViTConfig(dim=64, depth=2, heads=1, hidden=64, grid=(3, 3)), seed=9)
    save_file(vit.state_dict(), weights)
    assert Path(weights).stat().st_size == before.st_size
    again = TeacherFeatures(weights, 28, few, tmp_path / "cache", CPU).features
    torch.testing.assert_close(again, direct(weights, few, 28), rtol=1e-5, atol=1e-5)


def test_a_teacher_folder_is_identified_by_its_content(
    weights: str, records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "published"
    folder.mkdir()
    Path(weights).rename(folder / "model.safetensors")
    keys = {_key(str(folder)), _key(str(folder))}
    monkeypatch.setenv("SKYPART_WEIGHTS", str(tmp_path))
    keys.add(_key("published"))
    assert len(keys) == 1, "the same weights under any name"
    (folder / "model.safetensors").write_bytes(b"others")
    keys |= {_key(str(folder)), _key(f"transformers:{folder}")}
    (folder / "model.safetensors").write_bytes(b"theirs")
    keys |= {_key(str(folder)), _key(f"transformers:{folder}"), _key("transformers:some/name")}
    assert len(keys) == 6


def _key(name: str) -> str:
    return module._teacher_key(name)


def test_the_cache_depends_on_the_modification_time_of_images(
    weights: str, records: list[Record], tmp_path: Path
) -> None:
    one = replace(records[0], path=tmp_path / "image.bmp")
    found = []
    for shade in (10, 200):
        Image.fromarray(np.full((40, 40, 3), shade, np.uint8)).save(one.path)
        os.utime(one.path, ns=(shade, shade))
        found.append(TeacherFeatures(weights, 28, [one], tmp_path / "cache", CPU).features)
        torch.testing.assert_close(found[-1], direct(weights, [one], 28), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found[0], found[1])


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "zip", "header", "short", "double"])
def test_a_damaged_shard_is_recomputed(
    weights: str, records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(module, "_SHARD", 4)
    few = records[:8]
    first = TeacherFeatures(weights, 28, few, tmp_path / "cache", CPU).features
    good, bad = sorted((tmp_path / "cache").glob("*.npy"))
    whole, kept, before = bad.read_bytes(), np.load(bad), good.stat().st_mtime_ns
    broken = {"empty": b"", "text": b"half of it", "cut": whole[:-7], "zip": b"PK\x03\x04 and so on"}
    broken["header"] = whole.replace(b"}", b" ", 1)
    if damage in broken:
        bad.write_bytes(broken[damage])
    else:
        np.save(bad, kept[:-1] if damage == "short" else kept.astype(np.float64))
    assert torch.equal(TeacherFeatures(weights, 28, few, tmp_path / "cache", CPU).features, first)
    assert bad.read_bytes() == whole and good.stat().st_mtime_ns == before


def test_an_unreadable_shard_is_a_clear_error(
    weights: str, records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TeacherFeatures(weights, 28, records[:2], tmp_path / "cache", CPU)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(np, "load", denied)
    with pytest.raises(
        SkyPartError, match=r"cache/\w+\.npy: cannot be read \(Permission denied\); fix its permissions"
    ):
        TeacherFeatures(weights, 28, records[:2], tmp_path / "cache", CPU)


def test_teacher_features_come_from_images_without_augmentation(sues: Path, tmp_path: Path, weights: str) -> None:
    recipe = small_recipe(sues, tmp_path)
    run = small_run(sues, tmp_path / "out", distill=replace(recipe.distill, teacher=weights))
    assert run.teacher is not None
    batch = next(run.data.epoch(0))
    expected = direct(weights, [run.split.train[i] for i in batch.records], 28)
    torch.testing.assert_close(run.teacher.features_for(batch.records, CPU), expected, rtol=1e-5, atol=1e-5)


def test_the_start_of_a_run_does_not_depend_on_whether_features_were_cached(sues: Path, tmp_path: Path) -> None:
    fresh, cached = small_run(sues, tmp_path), small_run(sues, tmp_path)
    for name, value in fresh.loss.state_dict().items():
        assert torch.equal(value, cached.loss.state_dict()[name]), name
    for name, value in fresh.student.state_dict().items():
        assert torch.equal(value, cached.student.state_dict()[name]), name
