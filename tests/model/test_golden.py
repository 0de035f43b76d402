"""Stored outputs of a seeded tiny model and of the shared weights; any change must be intended.

`SKYPART_GOLDEN=write pytest tests/model/test_golden.py` rewrites golden.json.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from skypart.model import SkyPart, load_backbone
from tests.model.builders import wave

FILE = Path(__file__).with_name("golden.json")


def tiny_values(model: SkyPart) -> dict[str, Any]:
    """A few numbers of every output of the tiny model, at its native size and at another."""
    values: dict[str, Any] = {}
    for size in (56, 84):
        with torch.no_grad():
            output = model(wave(size))
        values[str(size)] = {
            "embedding": output.embedding[0, :12].tolist(),
            "gate": output.gate[0].tolist(),
            "salience": output.salience[0].tolist(),
            "active": output.active[0].tolist(),
            "centroids": output.centroids[0].flatten().tolist(),
            "assignment": output.assignment[0, :2].flatten().tolist(),
            "tokens": output.tokens[0, -1, :6].tolist(),
        }
    return values


def shared_values(file: Path) -> dict[str, Any]:
    """A few token values of the shared backbone at the size of its positions and at the deployed one's half."""
    vit = load_backbone(str(file)).eval()
    values: dict[str, Any] = {}
    for size in (518, 224):
        with torch.no_grad():
            eighth, last = vit(wave(size), taps=(8, 12))
        values[str(size)] = {
            "cls": last.cls[0, :6].tolist(),
            "patch": last.patches[0, 100, :6].tolist(),
            "eighth": eighth.patches[0, -1, :6].tolist(),
            "mean of squares": float(last.patches.square().mean()),
        }
    return values


def stored(part: str, fresh: dict[str, Any]) -> dict[str, Any]:
    """The stored values of `part`; with SKYPART_GOLDEN=write, `fresh` after it was stored."""
    content: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    if os.environ.get("SKYPART_GOLDEN") == "write":
        content[part] = fresh
        FILE.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    found: dict[str, Any] = content[part]
    return found


def agree(fresh: dict[str, Any], golden: dict[str, Any], tolerance: float) -> None:
    for size, values in golden.items():
        for name, expected in values.items():
            assert fresh[size][name] == pytest.approx(expected, abs=tolerance), f"{name} at {size}"


def test_seeded_tiny_model(tiny_model: SkyPart) -> None:
    fresh = tiny_values(tiny_model)
    agree(fresh, stored("tiny", fresh), 1e-5)


def test_shared_weights(shared_weights: Path) -> None:
    fresh = shared_values(shared_weights)
    agree(fresh, stored("shared", fresh), 1e-4)
