"""Finding weights: paths, weights folders, and the hub at a pinned revision, without a network."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled, RemoteEntryNotFoundError
from safetensors.torch import save_file

from skypart.errors import SkyPartError
from skypart.model import VisionTransformer, load_backbone, sources
from skypart.model.sources import BACKBONES, resolve, weights_folders
from tests.model.builders import TINY_VIT, scrambled_vit


class FakeHub:
    """Replaces hf_hub_download: serves files of a local folder and records the requests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[tuple[str, str, str | None]] = []

    def __call__(self, repo_id: str, filename: str, *, revision: str | None = None) -> str:
        self.requests.append((repo_id, filename, revision))
        if not (self.folder / filename).is_file():
            answer: Any = SimpleNamespace(headers={}, request=None)
            raise RemoteEntryNotFoundError(f"no {filename}", response=answer)
        return str(self.folder / filename)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SKYPART_WEIGHTS", raising=False)
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=2, image_size=56, patch_size=14
    )
    transformers.Dinov2Model(config).save_pretrained(tmp_path / "hub")
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fake)
    monkeypatch.setattr(sources, "hub_reachable", lambda: True)
    return fake


@pytest.mark.parametrize("name", [name for name, published in BACKBONES.items() if published.repository])
def test_published_names_are_downloaded_at_their_pinned_revision(name: str, hub: FakeHub) -> None:
    published = BACKBONES[name]
    assert published.revision is not None and len(published.revision) == 40
    vit = load_backbone(name)
    assert isinstance(vit, VisionTransformer)
    assert vit.config.heads == 2, "comes from config.json: 32 channels alone would mean one head"
    assert {(repo, revision) for repo, _, revision in hub.requests} == {(published.repository, published.revision)}


def test_revisions_can_be_given_either_way(hub: FakeHub) -> None:
    resolve("someone/model@abc123")
    resolve("someone/model", revision="def456")
    resolve("someone/model")
    resolve("dinov2_vits14", revision="main")
    assert [revision for _, file, revision in hub.requests if file == "config.json"] == [
        "abc123",
        "def456",
        None,
        "main",
    ]


def test_a_repository_with_only_a_bin_file_is_supported(hub: FakeHub) -> None:
    (hub.folder / "model.safetensors").unlink()
    torch.save(scrambled_vit(TINY_VIT).state_dict(), hub.folder / "pytorch_model.bin")
    assert resolve("someone/model").file.name == "pytorch_model.bin"
    (hub.folder / "config.json").unlink()
    assert resolve("someone/model").config is None


class ReadError(Exception):
    """Simulates errors of HTTP libraries, which are neither OSError nor errors of the hub."""


@pytest.mark.parametrize(
    "error", [LocalEntryNotFoundError("offline"), OfflineModeIsEnabled("offline"), OSError("net"), ReadError("broken")]
)
def test_without_a_network_the_error_names_the_remedy(
    error: Exception, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(SkyPartError) as caught:
        load_backbone("dinov2_vits14")
    text = str(caught.value)
    assert "facebook/dinov2-small@ed25f3a" in text
    assert "connect to the network once, or download the file elsewhere and pass its path" in text
    assert "skypart/weights" in text
    assert "\n" not in text


def test_an_unreachable_hub_is_reported_without_retries(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "hub_reachable", lambda: False)
    with pytest.raises(SkyPartError, match=r"cannot be downloaded .*\(no connection\); connect to the network once"):
        resolve("someone/model")
    assert hub.requests == []


def test_the_hub_counts_as_unreachable_if_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert not sources.hub_reachable(timeout_s=1.0)


def test_a_damaged_config_from_the_hub_is_reported(hub: FakeHub) -> None:
    (hub.folder / "config.json").write_text("{")
    with pytest.raises(SkyPartError, match=r"config.json: not readable as JSON .*download it again"):
        resolve("someone/model")


def test_invalid_hub_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SkyPartError, match="check the spelling"):
        resolve("my folder/my model!")
    with pytest.raises(SkyPartError, match=r"no weights called 'dinov2_vitt14'.*`default`.*dinov2_vits14"):
        resolve("dinov2_vitt14")
    for path in ("runs/absent.safetensors", "runs/absent.bin", "a/b/c", "./absent"):
        with pytest.raises(SkyPartError, match=f"{path}: no such file; check the path"):
            resolve(path)


def test_a_name_matches_only_the_whole_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYPART_WEIGHTS", str(tmp_path))
    for name in ("mine.1.safetensors", "mine.safetensors", "minere.safetensors"):
        (tmp_path / name).write_bytes(b"")
    assert resolve("mine").file.name == "mine.safetensors"
    assert resolve("mine.1").file.name == "mine.1.safetensors"


def test_weights_folders_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, cache = tmp_path / "first", tmp_path / "second", tmp_path / "cache"
    monkeypatch.setenv("SKYPART_WEIGHTS", f"{first}:{second}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert weights_folders() == [first, second, cache / "skypart" / "weights"]
    state = scrambled_vit(TINY_VIT).state_dict()
    for folder in (second, cache / "skypart" / "weights"):
        folder.mkdir(parents=True)
        save_file(state, folder / "dinov2_vits14.safetensors")
    (second / "dinov2_vits14.json").write_text("{}")
    (second / "dinov2_vits14.safetensors.part").write_text("")
    assert resolve("dinov2_vits14").file == second / "dinov2_vits14.safetensors"
    first.mkdir()
    (first / "dinov2_vits14").mkdir()
    save_file(state, first / "dinov2_vits14" / "model.safetensors")
    assert resolve("dinov2_vits14").file == first / "dinov2_vits14" / "model.safetensors"


def test_a_file_is_preferred_to_a_folder_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYPART_WEIGHTS", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.safetensors").touch()
    assert resolve("mine").file == tmp_path / "mine" / "model.safetensors"
    (tmp_path / "mine.safetensors").touch()
    assert resolve("mine").file == tmp_path / "mine.safetensors"


def test_an_empty_cache_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert weights_folders()[-1] == Path.home() / ".cache" / "skypart" / "weights"


def test_backbones_outside_the_hub_say_where_to_download_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SKYPART_WEIGHTS", raising=False)
    for name in ("ibot_vits16", "mocov3_vits16"):
        with pytest.raises(SkyPartError, match=rf"not on the hub; download .* repository.*as {name}.pth"):
            resolve(name)


def test_hugging_face_folders_are_read(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"contains neither model.safetensors nor pytorch_model.bin"):
        resolve(str(tmp_path))
    save_file(scrambled_vit(TINY_VIT).state_dict(), tmp_path / "model.safetensors")
    assert resolve(str(tmp_path)).config is None
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 2, "layer_norm_eps": 1e-6}))
    vit = load_backbone(str(tmp_path))
    assert isinstance(vit, VisionTransformer) and vit.config == TINY_VIT
    for broken in ("{", "[1]"):
        (tmp_path / "config.json").write_text(broken)
        with pytest.raises(SkyPartError, match=r"config.json: .*download it again"):
            resolve(str(tmp_path))


def test_the_position_mode_can_be_chosen(tmp_path: Path) -> None:
    save_file(scrambled_vit(TINY_VIT).state_dict(), tmp_path / "model.safetensors")
    for mode in ("original", "huggingface"):
        vit = load_backbone(str(tmp_path / "model.safetensors"), position_mode=mode)
        assert isinstance(vit, VisionTransformer) and vit.config.position_mode == mode
