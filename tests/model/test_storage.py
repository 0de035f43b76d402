"""Model files: round trips, and clear errors for files that are not models."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from skypart import __version__
from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model import SkyPart, load_model, save_model
from skypart.model.storage import FORMAT_VERSION, read_metadata
from tests.model.builders import TINY_VIT, random_images, scrambled_vit


@pytest.fixture
def saved(tiny_model: SkyPart, tmp_path: Path) -> Path:
    tiny_model.preprocessing = Preprocessing(size=56, interpolation="area")
    tiny_model.recipe = {"epochs": 3, "losses": {"circle": 1.0}}
    tiny_model.provenance = {"data": "fields", "training_only_parameters": {"proxies": 70}}
    save_model(tiny_model, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def altered(source: Path, target: Path, **changes: str | None) -> Path:
    """A copy of a model file with other header fields; None removes one."""
    with safe_open(source, "pt") as file:
        metadata = dict(file.metadata()) | changes
    save_file(load_file(source), target, metadata={key: text for key, text in metadata.items() if text is not None})
    return target


def test_round_trip_is_exact(saved: Path, tiny_model: SkyPart) -> None:
    again = load_model(saved)
    assert not again.training
    assert (again.config, again.preprocessing) == (tiny_model.config, tiny_model.preprocessing)
    assert (again.recipe, again.provenance) == (tiny_model.recipe, tiny_model.provenance)
    assert again.backbone.config == tiny_model.backbone.config
    state, expected = again.state_dict(), tiny_model.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], expected[key]) for key in expected)
    images = random_images(3, 56, 56)
    with torch.no_grad():
        assert torch.equal(again(images).embedding, tiny_model(images).embedding)


def test_half_precision_halves_the_file(saved: Path, tiny_model: SkyPart, tmp_path: Path) -> None:
    save_model(tiny_model, tmp_path / "half.safetensors", dtype="float16")
    assert (tmp_path / "half.safetensors").stat().st_size < 0.62 * saved.stat().st_size
    again = load_model(tmp_path / "half.safetensors")
    assert {tensor.dtype for tensor in again.state_dict().values()} == {torch.float32, torch.int64}
    images = random_images(8, 56, 56)
    with torch.no_grad():
        cosine = (again(images).embedding * tiny_model(images).embedding).sum(dim=1)
    assert float(cosine.min()) > 0.9999


def test_the_header_describes_the_model(saved: Path) -> None:
    header = read_metadata(saved)
    assert header["format"] == "skypart"
    assert int(header["format_version"]) == FORMAT_VERSION
    assert header["skypart_version"] == __version__
    assert header["recipe"] == {"epochs": 3, "losses": {"circle": 1.0}}
    assert header["provenance"]["data"] == "fields"
    assert header["backbone"]["kind"] == "vit"
    assert header["head"]["prototypes"] == 6
    assert header["preprocessing"] == {"size": 56, "interpolation": "area", "level": False}


def test_newer_files_are_refused(saved: Path, tmp_path: Path) -> None:
    newer = altered(saved, tmp_path / "newer.safetensors", format_version=str(FORMAT_VERSION + 1))
    with pytest.raises(
        SkyPartError,
        match=rf"newer.safetensors: model format {FORMAT_VERSION + 1} is newer than {FORMAT_VERSION}; upgrade",
    ):
        load_model(newer)
    head = json.dumps(read_metadata(saved)["head"] | {"wings": 2})
    with pytest.raises(SkyPartError, match="unknown head settings wings; upgrade skypart"):
        load_model(altered(saved, tmp_path / "wings.safetensors", head=head))
    backbone = json.dumps({"kind": "mamba"})
    with pytest.raises(SkyPartError, match="unknown kind of backbone 'mamba'"):
        load_model(altered(saved, tmp_path / "mamba.safetensors", backbone=backbone))


def test_a_newer_format_is_reported_before_its_sections_are_read(saved: Path, tmp_path: Path) -> None:
    newer = altered(saved, tmp_path / "newer.safetensors", format_version=str(FORMAT_VERSION + 1), head="[]")
    with pytest.raises(SkyPartError, match="upgrade skypart"):
        read_metadata(newer)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"preprocessing": "{}"}, "no 'size'"),
        ({"preprocessing": '{"size": "large", "interpolation": "area"}'}, "size of preprocessing is 'large'"),
        ({"provenance": "null"}, "provenance is None"),
        ({"recipe": "3"}, "recipe is 3"),
        ({"head": "[]"}, r"head is \[\]"),
        ({"head": '{"altitude_bins": 3}'}, "altitude_bins of head is 3"),
        ({"backbone": "{}"}, "no 'grid'"),
        ({"backbone": '{"kind": "transformers"}'}, "no 'config'"),
        ({"backbone": '{"kind": []}'}, "unhashable"),
        ({"format_version": '"2"'}, "format_version is '2'"),
        ({"format_version": "true"}, "format_version is True"),
        ({"format_version": None}, "no 'format_version'"),
        ({"skypart_version": None}, "no 'skypart_version'"),
        ({"head": None}, "no 'head'"),
        ({"recipe": "{"}, "Expecting"),
    ],
)
def test_a_damaged_header_is_a_clear_error(
    saved: Path, tmp_path: Path, changes: dict[str, str | None], reason: str
) -> None:
    odd = altered(saved, tmp_path / "odd.safetensors", **changes)
    for read in (read_metadata, load_model):
        with pytest.raises(SkyPartError, match=rf"odd.safetensors: the model's header is damaged \({reason}.*again$"):
            read(odd)


def test_models_of_format_1_load(saved: Path, tmp_path: Path, tiny_model: SkyPart) -> None:
    older = '{"size": 56, "interpolation": "area"}'
    again = load_model(altered(saved, tmp_path / "older.safetensors", format_version="1", preprocessing=older))
    assert again.preprocessing == tiny_model.preprocessing


def test_a_backbone_file_is_not_a_model(tmp_path: Path) -> None:
    save_file(scrambled_vit(TINY_VIT).state_dict(), tmp_path / "vit.safetensors")
    with pytest.raises(SkyPartError, match=r"vit.safetensors: contains weights but not a SkyPart model.*`skypart new`"):
        load_model(tmp_path / "vit.safetensors")


def test_weights_of_another_architecture_are_listed(saved: Path, tmp_path: Path) -> None:
    backbone = json.dumps(read_metadata(saved)["backbone"] | {"depth": 4, "hidden": 72})
    with pytest.raises(SkyPartError) as caught:
        load_model(altered(saved, tmp_path / "other.safetensors", backbone=backbone))
    text = str(caught.value)
    assert "other.safetensors: the weights belong to another architecture: missing (14): backbone.blocks.3" in text
    assert "wrong shape (9): backbone.blocks.0.mlp.fc1.bias (64,) instead of (72,)" in text


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="no such model file"):
        load_model(tmp_path / "absent.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(SkyPartError, match=r"text.safetensors: not a readable safetensors file"):
        load_model(tmp_path / "text.safetensors")


def test_only_safetensors_are_written(tiny_model: SkyPart, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"must end in .safetensors"):
        save_model(tiny_model, tmp_path / "model.pth")
    assert list(tmp_path.iterdir()) == []


def test_other_dtypes_are_refused(tiny_model: SkyPart, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"model.safetensors: .* fp16; choose float32 or float16"):
        save_model(tiny_model, tmp_path / "model.safetensors", dtype="fp16")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_keeps_the_old_model(saved: Path) -> None:
    before = saved.read_bytes()
    limit = len(before) // 2
    script = (
        "import resource, signal, sys\n"
        "from skypart.model import load_model, save_model\n"
        "from skypart.errors import SkyPartError\n"
        "model = load_model(sys.argv[1])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "try:\n    save_model(model, sys.argv[1])\n"
        "except SkyPartError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(saved)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {saved}: ")
    assert "free disk space" in done.stdout
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
