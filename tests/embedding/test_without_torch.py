"""The core install, without the extra `torch`: ONNX Runtime runs the shipped model; all else says what to install."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skypart.embedding import runtimes
from skypart.embedding.exported import ExportContract
from skypart.embedding.onnx import OnnxEmbedder, load_shipped, shipped_size
from skypart.embedding.shipped import shipped_graph, shipped_model
from skypart.errors import SkyPartError
from skypart.export.shared_weights import share_weights, stored_tensors
from skypart.model.embedder import TorchEmbedder, load_torch
from tests.model.builders import scene

HIDDEN = "import sys\nsys.modules.update(dict.fromkeys(('torch', 'safetensors', 'huggingface_hub', 'tensorboard')))\n"
"""Makes packages of the extras `torch` and `train` look as if they were not installed."""
COMMAND = "from skypart.cli import main\nsys.argv[0] = 'skypart'\nmain()"


def run_hidden(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", HIDDEN + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def torch_default() -> TorchEmbedder:
    return load_torch("default")


@pytest.fixture(scope="module")
def onnx_default() -> OnnxEmbedder:
    return load_shipped("default")


def test_the_graph_belongs_to_the_shipped_model(torch_default: TorchEmbedder, onnx_default: OnnxEmbedder) -> None:
    assert onnx_default.weights_digest == torch_default.digest, "run packaging/default_onnx.py"
    assert onnx_default.preprocessing == torch_default.preprocessing and shipped_size() == torch_default.size
    assert onnx_default.contract.blocks == torch_default.matched_blocks
    report = json.loads(shipped_graph().with_name("default.onnx.parity.json").read_text(encoding="utf-8"))
    assert report["failures"] == [] and report["min_cosine"] > 0.9999


def test_both_runtimes_give_the_same_vectors_tokens_and_parts(
    torch_default: TorchEmbedder, onnx_default: OnnxEmbedder
) -> None:
    images = [scene(seed=seed) for seed in range(3)]
    (ours, patches), (theirs, others) = (
        each.embed_with_patches(each.preprocess(images)) for each in (torch_default, onnx_default)
    )
    assert np.allclose(ours, theirs, atol=1e-5)
    assert others.grid == patches.grid and np.allclose(patches.tokens, others.tokens, atol=2e-3)
    assert torch_default.can_explain and onnx_default.can_explain
    one, other = torch_default.explain(images[0]), onnx_default.explain(images[0])
    assert one.assignment.shape == other.assignment.shape and np.array_equal(one.active, other.active)
    for name in ("assignment", "salience", "centroids", "gate", "embedding"):
        assert np.allclose(getattr(one, name), getattr(other, name), atol=1e-4), name


def test_the_default_model_needs_no_torch(tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    Image.fromarray(scene(seed=1)).save(photo)
    code = "import skypart\nmodel = skypart.load('default')\nprint(model.engine, model.embed(sys.argv[1]).shape)"
    done = run_hidden(code, str(photo))
    assert done.returncode == 0 and done.stdout.startswith("ONNX Runtime") and "(768,)" in done.stdout, done.stderr
    done = run_hidden(COMMAND, "parts", str(photo), "-o", str(tmp_path / "parts.png"))
    assert done.returncode == 0 and (tmp_path / "parts.png").is_file(), done.stderr


def test_doctor_says_what_runs_the_default_model() -> None:
    done = run_hidden("from skypart.doctor import report\nfor row in report(): print(*row, sep=' | ')")
    assert done.returncode == 0, done.stderr
    assert "`default` in ONNX Runtime" in done.stdout and "default.onnx (verified)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["train", "sues200", "data.root=x"], "skypart[train]"),
        (["info", "default"], "skypart[torch]"),
        (["models"], "skypart[torch]"),
        (["new", "untrained:tiny", "-o", "model.safetensors"], "skypart[torch]"),
        (["index", "town.tif", "--model", "model.safetensors", "-o", "town.skyindex"], "skypart[torch]"),
    ],
)
def test_other_commands_say_what_to_install(arguments: list[str], extra: str, tmp_path: Path) -> None:
    done = run_hidden(COMMAND, *arguments)
    assert done.returncode == 2 and "PyTorch" in done.stderr and extra in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_the_graph_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "has_torch", lambda: False)
    for words, given in (
        ("'cuda' needs PyTorch", {"device": "cuda"}),
        ("at 336 pixels", {"size": 336}),
        ("readout 'cls'", {"readout": "cls"}),
    ):
        with pytest.raises(SkyPartError, match=words):
            runtimes.load("default", **given)
    (tmp_path / "other.safetensors").touch()
    for other in (tmp_path / "other.safetensors", "owner/name"):
        with pytest.raises(SkyPartError, match=r"(other\.safetensors|owner/name): needs PyTorch"):
            runtimes.load(other)
    with pytest.raises(SkyPartError, match=r"defalt: no such file, and not the name .* give `default`"):
        runtimes.load("defalt")
    assert isinstance(runtimes.load("default", size=shipped_size()), OnnxEmbedder)


def test_names_that_need_torch_say_so() -> None:
    done = run_hidden("import skypart\ntry:\n    skypart.save\nexcept skypart.SkyPartError as error:\n    print(error)")
    assert done.stdout.startswith("skypart.save needs PyTorch; pip install 'skypart[torch]'"), done.stderr


def test_weights_are_read_from_the_safetensors_file(tmp_path: Path) -> None:
    assert shipped_graph().stat().st_size < 0.05 * shipped_model().stat().st_size
    tensors = stored_tensors(shipped_model())
    assert sum(each.length for each in tensors) > 0.99 * shipped_model().stat().st_size
    with pytest.raises(SkyPartError, match=r"must be in the folder of default\.safetensors"):
        share_weights(shipped_graph(), shipped_model(), tmp_path / "default.onnx")
    graph = tmp_path / "default.onnx"
    graph.write_bytes(shipped_graph().read_bytes())
    with pytest.raises(SkyPartError, match="ONNX Runtime cannot load it"):  # without the weights beside it
        OnnxEmbedder(graph, ExportContract.read(shipped_graph()))
