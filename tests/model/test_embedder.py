"""`skypart.load(...)`: the same vector for a photo in any batch, any order and any form."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import skypart
from skypart.embedding.files import embed_files
from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model import Embedder, SkyPart, VisionTransformer, save_model
from skypart.model.embedder import load_torch, new_model
from tests.model.builders import TINY_HEAD, TINY_VIT, part_head, scene, write_scene


@pytest.fixture
def model_path(tiny_model: SkyPart, tmp_path: Path) -> Path:
    tiny_model.preprocessing = Preprocessing(size=56)
    save_model(tiny_model, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_embeddings_do_not_depend_on_batch_size_or_order(model_path: Path, tmp_path: Path) -> None:
    embedder = skypart.load(model_path)
    photos = [write_scene(tmp_path / f"{i}.png", seed=i) for i in range(11)]
    vectors = embedder.embed(photos)
    assert vectors.shape == (11, 48) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    gram = vectors @ vectors.T
    assert gram[~np.eye(11, dtype=bool)].max() < 0.9999, "different photos differ, or the test shows nothing"
    for batch_size in (1, 2, 3, 11, 64):
        np.testing.assert_allclose(embedder.embed(photos, batch_size=batch_size), vectors, atol=1e-5)
    order = np.random.default_rng(0).permutation(11)
    np.testing.assert_allclose(embedder.embed([photos[i] for i in order], batch_size=4), vectors[order], atol=1e-5)


def test_paths_strings_images_and_arrays_give_the_same_embedding(model_path: Path, tmp_path: Path) -> None:
    embedder = skypart.load(str(model_path))
    photo = write_scene(tmp_path / "a.png")
    vectors = embedder.embed([photo, str(photo), Image.open(photo), scene()], batch_size=1)
    assert (vectors == vectors[0]).all()
    assert embedder.embed([]).shape == (0, 48)


def test_load_sets_size_readout_and_device(model_path: Path) -> None:
    assert skypart.load(model_path).size == 56
    bigger = skypart.load(model_path, size=84, readout="cls")
    assert (bigger.size, bigger.interpolation, bigger.dim) == (84, "bicubic", 48)
    seen = bigger.explain(scene())
    assert seen.assignment.shape == (6, 6, 6)
    assert seen.gate.tolist() == [0.0, 1.0, 0.0]
    for size in (0, -14, 13, 57):
        with pytest.raises(SkyPartError, match=rf"input size {size} is not divisible by the patch size 14; use \d+"):
            skypart.load(model_path, size=size)
    for device in ("nonsense", "cuda:99"):
        with pytest.raises(SkyPartError, match=f"device '{device}' is not available.*use cpu"):
            skypart.load(model_path, device=device)
    with pytest.raises(SkyPartError, match="batch_size=0"):
        skypart.load(model_path).embed([scene()], batch_size=0)


def test_explanation_equals_the_model_output(model_path: Path) -> None:
    embedder = load_torch(model_path)
    assert embedder.can_explain
    seen = embedder.explain(scene())
    output: Any = embedder.forward(embedder.preprocessing(scene())[None])
    assert seen.assignment.shape == (4, 4, 6)
    assert np.array_equal(seen.assignment.reshape(16, 6), output.assignment[0].numpy())
    assert np.array_equal(seen.embedding, embedder.embed([scene()])[0])
    assert np.array_equal(seen.active, seen.salience > 0)


def test_different_models_have_different_digests(tiny_model: SkyPart) -> None:
    def digest(model: SkyPart) -> str:
        return Embedder(model).digest

    first = digest(tiny_model)
    assert digest(tiny_model) == first
    tiny_model.preprocessing = Preprocessing(size=56)
    seen = {first, digest(tiny_model)}
    tiny_model.preprocessing = Preprocessing(size=56, level=True)
    seen.add(digest(tiny_model))
    tiny_model.with_readout("part")
    seen.add(digest(tiny_model))
    # The same tensors under another number of heads are another model.
    for config in (replace(TINY_VIT, heads=4), replace(TINY_VIT, position_mode="huggingface")):
        twin = SkyPart(VisionTransformer(config), TINY_HEAD)
        twin.load_state_dict(tiny_model.state_dict())
        seen.add(digest(twin))
    with torch.no_grad():
        part_head(tiny_model).bank.prototypes[0, 0] += 1e-6
    seen.add(digest(tiny_model))
    assert len(seen) == 7


def test_embedding_files(model_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "deep"
    folder.mkdir(parents=True)
    photos = [write_scene(folder / f"{name}.jpg", seed=i) for i, name in enumerate("cab")]
    (folder / "notes.txt").write_text("no photo")
    embedder = skypart.load(model_path)
    assert embed_files(embedder, [tmp_path / "photos"], tmp_path / "out.npz", batch_size=2) == 3
    with np.load(tmp_path / "out.npz") as stored:
        assert [Path(p).name for p in stored["paths"]] == ["a.jpg", "b.jpg", "c.jpg"]
        np.testing.assert_allclose(stored["embeddings"], embedder.embed(sorted(photos)), atol=1e-5)
        assert str(stored["model"]) == embedder.digest
    for sources, output, batch_size, message in (
        ([tmp_path / "photos"], "out.csv", 2, "written as .npz"),
        ([tmp_path / "photos"], "new.npz", 0, "batch_size=0"),
        ([folder / "absent.jpg"], "new.npz", 2, "absent.jpg: no such file"),
    ):
        with pytest.raises(SkyPartError, match=message):
            embed_files(embedder, sources, tmp_path / output, batch_size)
    (tmp_path / "none").mkdir()
    with pytest.raises(SkyPartError, match="no images in"):
        embed_files(embedder, [tmp_path / "none"], tmp_path / "new.npz")
    assert not (tmp_path / "new.npz").exists()


def test_a_new_model_on_a_backbone(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file(VisionTransformer(TINY_VIT).state_dict(), tmp_path / "vit.safetensors")
    model = new_model(str(tmp_path / "vit.safetensors"), size=70, seed=1)
    assert model.preprocessing.size == 70
    assert "untrained" in model.provenance["training"]
    for size in (0, 71):
        with pytest.raises(SkyPartError, match=f"input size {size} is not divisible"):
            new_model(str(tmp_path / "vit.safetensors"), size=size)


@pytest.mark.slow
def test_eight_images_at_448_stay_below_three_gigabytes() -> None:
    script = (
        "import resource, torch\n"
        "from skypart.model import SkyPart, VisionTransformer, ViTConfig\n"
        "model = SkyPart(VisionTransformer(ViTConfig())).eval()\n"
        "with torch.inference_mode():\n"
        "    assert model(torch.randn(8, 3, 448, 448)).embedding.shape == (8, 768)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    kibibytes = int(done.stdout)
    assert 200_000 < kibibytes < 3_000_000


def test_patch_tokens_are_the_same_with_and_without_embeddings(model_path: Path) -> None:
    embedder = load_torch(model_path)
    inputs = np.random.default_rng(0).normal(size=(2, 3, embedder.size, embedder.size)).astype(np.float32)
    embeddings, patches = embedder.embed_with_patches(inputs)
    alone = embedder.patch_tokens(inputs)
    np.testing.assert_array_equal(alone.tokens, patches.tokens)
    assert alone.grid == patches.grid == (4, 4)
    middle, last = embedder.matched_blocks
    assert (middle, last) == (2, 3) and last == max(embedder.model.taps)
    backbone = embedder.model.backbone
    with torch.inference_mode():
        expected = [tokens.patches.numpy() for tokens in backbone(torch.from_numpy(inputs), (middle, last))]
    np.testing.assert_allclose(alone.tokens, np.stack(expected), atol=1e-6)
    np.testing.assert_allclose(embeddings, embedder.embed_inputs(inputs), atol=1e-6)


def test_unreadable_photos_and_outputs_are_reported_before_embedding(
    tiny_model: SkyPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (40, 40), "teal").save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"")
    monkeypatch.setattr("skypart.embedding.files.embed_paths", lambda *_: pytest.fail("worked"))
    with pytest.raises(SkyPartError, match=r"b\.png.*nothing was embedded"):
        embed_files(Embedder(tiny_model), [tmp_path], tmp_path / "out.npz")
    (tmp_path / "b.png").unlink()
    (tmp_path / "taken.npz").mkdir()
    with pytest.raises(SkyPartError, match="is a folder"):
        embed_files(Embedder(tiny_model), [tmp_path], tmp_path / "taken.npz")
