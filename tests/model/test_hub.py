"""save_pretrained, from_pretrained and push_to_hub, without a network."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch

from skypart.images.preprocess import Preprocessing
from skypart.model import SkyPart
from skypart.model.embedder import load_torch
from tests.model.builders import random_images


@pytest.fixture
def described(tiny_model: SkyPart) -> SkyPart:
    tiny_model.preprocessing = Preprocessing(size=56, interpolation="area")
    tiny_model.provenance = {"backbone": "tiny ViT", "training": "Three epochs on fields.", "results": "R@1 12.3"}
    return tiny_model


def same(one: SkyPart, other: SkyPart) -> bool:
    images = random_images(2, 56, 56)
    with torch.no_grad():
        return torch.equal(one(images).embedding, other(images).embedding)


def check_card(card: str) -> None:
    for text in (
        "library_name: skypart",
        "license: other",
        "inherit the terms of their backbone",
        "pipeline_tag: image-feature-extraction",
        "- geo-localization",
        "**Input:** 56 x 56 RGB, area resize",
        "**Backbone:** tiny ViT",
        "**Readout:** full",
        "Three epochs on fields.",
        "R@1 12.3",
    ):
        assert text in card, text
    assert "{{" not in card
    assert "Not measured" not in card


def test_round_trip_through_a_folder(described: SkyPart, tmp_path: Path) -> None:
    described.save_pretrained(tmp_path / "model")
    check_card((tmp_path / "model" / "README.md").read_text())
    again = SkyPart.from_pretrained(tmp_path / "model")
    assert isinstance(again, SkyPart)
    assert same(again, described)
    assert again.provenance == described.provenance
    assert same(load_torch(tmp_path / "model").model, described)


def test_the_card_lists_known_licence_and_stages(described: SkyPart, tmp_path: Path) -> None:
    chain = {
        "licence": "cc-by-nc-4.0",
        "licence_chain": "CC-BY-NC 4.0, as its backbone.",
        "before": ["two epochs", "one"],
    }
    described.provenance |= chain
    described.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "license: cc-by-nc-4.0" in card and "CC-BY-NC 4.0, as its backbone." in card
    assert "- before that: two epochs\n- before that: one\n" in card
    assert "Not stated" not in card


def test_from_the_hub(described: SkyPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described.save_pretrained(tmp_path)
    requests: list[tuple[str, str | None]] = []

    def download(repo_id: str, filename: str, *, revision: str | None = None, **_: Any) -> str:
        requests.append((f"{repo_id}/{filename}", revision))
        return str(tmp_path / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr("skypart.model.sources.hub_reachable", lambda: True)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", download)
    assert same(SkyPart.from_pretrained("someone/fields", revision="v2"), described)
    assert ("someone/fields/model.safetensors", "v2") in requests
    requests.clear()
    assert same(load_torch("someone/fields@v3").model, described)
    assert ("someone/fields/model.safetensors", "v3") in requests


def test_push_uploads_model_and_card(described: SkyPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: dict[str, bytes] = {}

    class FakeApi:
        def __init__(self, token: str | None = None) -> None:
            pass

        def create_repo(self, repo_id: str, **_: Any) -> SimpleNamespace:
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, *, repo_id: str, folder_path: Path, **_: Any) -> str:
            uploaded.update({file.name: file.read_bytes() for file in folder_path.iterdir()})
            return f"https://hub.invalid/{repo_id}"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", FakeApi)
    url = described.push_to_hub("someone/fields", model_card_kwargs={"results": "R@1 12.3, again"})
    assert url == "https://hub.invalid/someone/fields"
    assert {"model.safetensors", "README.md"} <= set(uploaded)
    card = uploaded["README.md"].decode()
    check_card(card)
    assert 'skypart.load("someone/fields")' in card
    assert "R@1 12.3, again" in card
    (tmp_path / "model.safetensors").write_bytes(uploaded["model.safetensors"])
    assert same(load_torch(tmp_path / "model.safetensors").model, described)
