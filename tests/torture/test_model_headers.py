"""Model files with odd headers or weights: one error message each, at once, and without much memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from skypart.errors import SkyPartError
from skypart.model import SkyPart
from skypart.model.embedder import load_torch
from skypart.model.published_weights import infer_config
from skypart.model.storage import load_model, save_model

Json = dict[str, Any]


def changed(model: SkyPart, path: Path, section: str, **settings: Any) -> Path:
    """A model file with other settings in one section of its header."""
    save_model(model, path)
    with safe_open(path, "pt") as file:
        header = dict(file.metadata())
    content = json.loads(header[section])
    content.update(settings)
    header[section] = json.dumps(content)
    save_file(load_file(path), path, metadata=header)
    return path


ODD: list[tuple[str, Json]] = [
    ("backbone", {"depth": 100_000}),
    ("backbone", {"depth": 0}),
    ("backbone", {"depth": True}),
    ("backbone", {"dim": -1}),
    ("backbone", {"dim": 0}),
    ("backbone", {"dim": 10**9}),
    ("backbone", {"dim": "64"}),
    ("backbone", {"heads": 0}),
    ("backbone", {"heads": 7}),
    ("backbone", {"hidden": 10**12}),
    ("backbone", {"patch": 0}),
    ("backbone", {"patch": -14}),
    ("backbone", {"grid": [10**6, 10**6]}),
    ("backbone", {"grid": [4]}),
    ("backbone", {"grid": ["4", 4]}),
    ("backbone", {"registers": -1}),
    ("backbone", {"eps": float("nan")}),
    ("backbone", {"eps": "small"}),
    ("backbone", {"position_mode": "sideways"}),
    ("backbone", {"unknown": 1}),
    ("backbone", {"kind": ["vit"]}),
    ("backbone", {"kind": "mystery"}),
    ("head", {"prototypes": 10**9}),
    ("head", {"prototypes": -1}),
    ("head", {"prototypes": "12"}),
    ("head", {"part_dim": 0}),
    ("head", {"embedding_dim": 10**12}),
    ("head", {"graph_heads": 0}),
    ("head", {"graph_layers": 10**7}),
    ("head", {"altitude_bins": ["low", "high"]}),
    ("head", {"assignment_temperature": 0}),
    ("head", {"salience_temperature": float("nan")}),
    ("head", {"patch_layer": 10**6}),
    ("head", {"readout": 5}),
    ("head", {"kind": 5}),
    ("preprocessing", {"size": 0}),
    ("preprocessing", {"size": -448}),
    ("preprocessing", {"size": 10**9}),
    ("preprocessing", {"interpolation": "magic"}),
]


@pytest.mark.parametrize(("section", "settings"), ODD, ids=lambda value: str(value)[:40])
def test_odd_settings_are_one_error_message(section: str, settings: Json, tiny_model: SkyPart, tmp_path: Path) -> None:
    path = changed(tiny_model, tmp_path / "odd.safetensors", section, **settings)
    with pytest.raises(SkyPartError, match=r"odd\.safetensors") as error:
        load_model(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "null", "1e999", '"', ""])
@pytest.mark.parametrize("section", ["head", "backbone", "preprocessing", "format_version"])
def test_odd_sections_are_one_error_message(section: str, text: str, tiny_model: SkyPart, tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    save_model(tiny_model, path)
    with safe_open(path, "pt") as file:
        header = dict(file.metadata()) | {section: text}
    save_file(load_file(path), path, metadata=header)
    with pytest.raises(SkyPartError, match=r"odd\.safetensors"):
        load_model(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(value: float, tiny_model: SkyPart, tmp_path: Path) -> None:
    path = tmp_path / "nan.safetensors"
    with torch.no_grad():
        next(tiny_model.parameters()).view(-1)[3] = value
    save_model(tiny_model, path)
    with pytest.raises(SkyPartError, match=r"nan\.safetensors: weights are NaN or infinite"):
        load_model(path)


@pytest.mark.parametrize("size", [1e20, 3e38])
def test_weights_that_are_finite_but_huge_give_no_embeddings(size: float, tiny_model: SkyPart, tmp_path: Path) -> None:
    """They overflow within the network, and every similarity would be NaN."""
    with torch.no_grad():
        for parameter in tiny_model.parameters():
            parameter.copy_(parameter.sign() * size)
    save_model(tiny_model, tmp_path / "huge.safetensors")
    model = load_torch(tmp_path / "huge.safetensors")
    photo = np.random.default_rng(0).integers(0, 256, (80, 80, 3), dtype=np.uint8)
    with pytest.raises(SkyPartError, match="embeddings are NaN or infinite"):
        model.embed(photo)
    with pytest.raises(SkyPartError, match="embeddings are NaN or infinite"):
        model.embed_with_patches(model.preprocess([photo]))


def test_a_good_file_still_loads(tiny_model: SkyPart, tmp_path: Path) -> None:
    save_model(tiny_model, tmp_path / "good.safetensors")
    loaded = load_model(tmp_path / "good.safetensors")
    assert loaded.config == tiny_model.config
    for one, other in zip(loaded.parameters(), tiny_model.parameters(), strict=True):
        assert torch.equal(one, other)


VIT = {
    "pos_embed": torch.zeros(1, 17, 64),
    "cls_token": torch.zeros(1, 1, 64),
    "patch_embed.proj.weight": torch.zeros(64, 3, 14, 14),
    "blocks.0.mlp.fc1.weight": torch.zeros(256, 64),
}


@pytest.mark.parametrize(
    ("more", "declared"),
    [
        ({"pos_embed": torch.zeros(5)}, {}),
        ({"pos_embed": torch.zeros(())}, {}),
        ({"patch_embed.proj.weight": torch.zeros(())}, {}),
        ({"blocks.0.mlp.fc1.weight": torch.zeros(())}, {}),
        ({"blocks.x.y": torch.zeros(1)}, {}),
        ({"blocks.1000000.y": torch.zeros(1)}, {}),
        ({"register_tokens": torch.zeros(3)}, {}),
        ({}, {"num_attention_heads": "many"}),
        ({}, {"num_attention_heads": 0}),
        ({}, {"num_attention_heads": [1]}),
        ({}, {"layer_norm_eps": None}),
        ({}, {"layer_norm_eps": float("nan")}),
    ],
)
def test_odd_published_weights_are_one_error_message(more: dict[str, torch.Tensor], declared: Json) -> None:
    with pytest.raises(SkyPartError, match="weights: "):
        infer_config(VIT | more, "weights", declared)
