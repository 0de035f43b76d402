"""What `skypart models` lists, and the check of the shipped model."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import skypart
from skypart.cli import main
from skypart.embedding import shipped
from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model import SkyPart, catalogue, save_model
from skypart.model.sources import BACKBONES, resolve
from tests.model.builders import TINY_VIT, scrambled_vit
from tests.model.test_storage import altered


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only weights folder that is searched; empty."""
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setenv("SKYPART_WEIGHTS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def default(tiny_model: SkyPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the place of the shipped one, its SHA-256 pinned."""
    file = tmp_path / "package" / "default.safetensors"
    tiny_model.preprocessing = Preprocessing(size=56)
    tiny_model.provenance = {"backbone": "dinov2_vits14", "training": "7 steps on a meadow", "date": "2026-01-02"}
    save_model(tiny_model, file)
    pin(file)
    for module in (shipped, catalogue):
        monkeypatch.setattr(module, "shipped_model", lambda: file)
    return file


def pin(file: Path) -> str:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.with_name("SHA256SUMS").write_text(f"{'0' * 64}  other.bin\n{digest}  {file.name}\n")
    return digest


def flip_last_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def by_name(entries: list[catalogue.Entry]) -> dict[str, catalogue.Entry]:
    return {entry.name: entry for entry in entries}


def test_the_default_model_is_verified_and_described_from_its_header(default: Path, tiny_model: SkyPart) -> None:
    entry = catalogue.default_entry()
    assert (entry.state, entry.kind, entry.place) == ("verified", "model", "shipped")
    assert entry.sha256 == hashlib.sha256(default.read_bytes()).hexdigest()
    assert "7 steps on a meadow" in entry.about and "2026-01-02" in entry.about and "56 px" in entry.about
    card = catalogue.read_card(default)
    assert card["parameters"] == sum(p.numel() for p in tiny_model.parameters())
    assert card["backbone"] == "dinov2_vits14"
    assert skypart.load("default").size == 56


def test_an_altered_default_model_is_refused(default: Path) -> None:
    skypart.load("default")
    flip_last_byte(default)
    assert catalogue.default_entry().state.startswith("altered")
    with pytest.raises(SkyPartError, match=r"altered since it was shipped.*reinstall skypart") as error:
        skypart.load("default")
    assert str(default) in str(error.value) and "\n" not in str(error.value)


def test_the_hash_is_computed_once_per_process(default: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    real = hashlib.file_digest

    def counted(stream: Any, name: str) -> Any:
        computed.append(name)
        return real(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    for _ in range(3):
        assert shipped.verified_default() == default
    assert len(computed) == 1


def test_a_default_model_without_a_listed_hash_is_refused(default: Path) -> None:
    sums = default.with_name("SHA256SUMS")
    assert skypart.load("default").size == 56
    for content in (None, b"", b"\xff\xfe\x00 default"):
        sums.unlink()
        if content is not None:
            sums.write_bytes(content)
        assert catalogue.default_entry().state.startswith("refused")
        with pytest.raises(SkyPartError, match="SHA256SUMS"):
            skypart.load("default")
        sums.touch()
    sums.write_text(f"{'0' * 64} *default.safetensors\n")
    assert catalogue.default_entry().state.startswith("altered"), "sha256sum's binary form is read too"


def test_a_missing_default_model_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (shipped, catalogue):
        monkeypatch.setattr(module, "shipped_model", lambda: tmp_path / "default.safetensors")
    assert catalogue.default_entry().state == "absent"
    with pytest.raises(SkyPartError, match="default model is missing; reinstall skypart"):
        skypart.load("default")


def test_weights_folders_are_listed_with_their_contents(
    weights: Path, tiny_model: SkyPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model.provenance = {"backbone": "somewhere", "training": "3 steps"}
    save_model(tiny_model, weights / "mine.safetensors")
    (weights / "folder").mkdir()
    save_model(tiny_model, weights / "folder" / "model.safetensors")
    save_file(scrambled_vit(TINY_VIT).state_dict(), weights / "bare.safetensors")
    save_file(scrambled_vit(TINY_VIT).state_dict(), weights / "dino_vits16.safetensors")
    for name in ("older", "dinov2_vits14"):  # folders of Hugging Face's older layout
        (weights / name).mkdir()
        torch.save(scrambled_vit(TINY_VIT).state_dict(), weights / name / "pytorch_model.bin")
    (weights / "empty").mkdir()
    (weights / "gone.safetensors").symlink_to(weights / "nowhere.safetensors")
    (weights / "broken.safetensors").write_bytes(b"not a model")
    (weights / "notes.txt").write_text("no weights")
    later = tmp_path / "later"
    save_model(tiny_model, later / "mine.safetensors")
    monkeypatch.setenv("SKYPART_WEIGHTS", f"{weights}:{later}")
    known = by_name(catalogue.list_models(tmp_path / "no hub"))
    assert known["mine"].kind == "model" and "3 steps" in known["mine"].about
    assert known["folder"].kind == "model"
    assert known[str(later / "mine.safetensors")].kind == "model", "hidden by the earlier folder: by its path"
    assert known["bare"].kind == "backbone" and known["bare"].state == "here"
    assert known["broken"].state == "cannot be used"
    assert "broken.safetensors: not a readable safetensors file" in known["broken"].about
    assert not {"notes", "empty", "gone"} & set(known)
    for name in ("older", "dinov2_vits14"):
        assert (known[name].kind, known[name].state) == ("backbone", "here")
        assert known[name].file == str(weights / name / "pytorch_model.bin")
    assert known["dino_vits16"].file == str(weights / "dino_vits16.safetensors")
    for name in ("mine", "folder"):
        assert skypart.load(name).dim == tiny_model.config.embedding_dim, "every listed name can be loaded"


def test_an_unusable_model_is_listed_with_its_error(weights: Path, tiny_model: SkyPart, tmp_path: Path) -> None:
    for name, changes in {"good": {}, "newer": {"format_version": "99"}, "odd": {"provenance": "null"}}.items():
        save_model(tiny_model, weights / "good.safetensors")
        altered(weights / "good.safetensors", weights / f"{name}.safetensors", **changes)
    known = by_name(catalogue.list_models(tmp_path / "no hub"))
    assert {name: (known[name].kind, known[name].state) for name in ("good", "newer", "odd")} == {
        "good": ("model", "here"),
        "newer": ("model", "cannot be used"),
        "odd": ("model", "cannot be used"),
    }
    assert "upgrade skypart" in known["newer"].about and "again" not in known["newer"].about
    assert "header is damaged (provenance is None)" in known["odd"].about


def test_listed_names_can_be_loaded(
    weights: Path, tiny_model: SkyPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tmp_path / "later"
    monkeypatch.setenv("SKYPART_WEIGHTS", f"{weights}:{later}:{weights}")
    for file in ("mine.safetensors", "mine/model.safetensors", "default.safetensors"):
        save_model(tiny_model, weights / file)
    (weights / "bare").mkdir()
    save_model(tiny_model, later / "bare.safetensors")
    entries = [entry for entry in catalogue.list_models(tmp_path / "no hub") if entry.place == "weights folder"]
    assert {entry.name: entry.file for entry in entries} == {
        "mine": str(weights / "mine.safetensors"),
        str(weights / "mine"): str(weights / "mine" / "model.safetensors"),
        str(weights / "default.safetensors"): str(weights / "default.safetensors"),
        str(later / "bare.safetensors"): str(later / "bare.safetensors"),
    }
    assert len(entries) == 4
    assert all(str(resolve(entry.name).file) == entry.file for entry in entries)


def test_the_hub_cache_is_listed(weights: Path, tiny_model: SkyPart, tmp_path: Path) -> None:
    def cached(repository: str, revision: str) -> Path:
        base = tmp_path / "hub" / f"models--{repository.replace('/', '--')}"
        (base / "refs").mkdir(parents=True)
        (base / "refs" / "main").write_text(revision)
        (base / "snapshots" / revision).mkdir(parents=True)
        return base / "snapshots" / revision / "model.safetensors"

    save_model(tiny_model, cached("someone/sky", "a" * 40))
    save_file(scrambled_vit(TINY_VIT).state_dict(), cached("someone/language-model", "b" * 40))
    small = BACKBONES["dinov2_vits14"]
    assert small.repository is not None and small.revision is not None
    save_file(scrambled_vit(TINY_VIT).state_dict(), cached(small.repository, small.revision))
    known = by_name(catalogue.list_models(tmp_path / "hub"))
    assert known[f"someone/sky@{'a' * 40}"].place == "hub cache"
    assert not any("language-model" in name for name in known)
    assert (known["dinov2_vits14"].place, known["dinov2_vits14"].state) == ("hub cache", "here")
    assert (known["dinov2_vitb14"].place, known["dinov2_vitb14"].state) == ("hub", "downloaded on first use")
    assert "moco-v3" in known["mocov3_vits16"].about and known["mocov3_vits16"].file is None


def test_the_command_prints_a_table_or_json(
    default: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(sys, "argv", ["skypart", "models", "--json"])
    with pytest.raises(SystemExit):
        main()
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed["default"]["state"] == "verified" and listed["default"]["megabytes"] > 0
    assert set(BACKBONES) <= set(listed)
    monkeypatch.setattr(sys, "argv", ["skypart", "models"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    for word in ("default", "verified", "7 steps on a meadow", "facebook/dinov2-small", "OWNER/NAME[@REVISION]"):
        assert word in shown, word
