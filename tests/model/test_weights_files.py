"""Weights files are read without running code in them, and damage is a clear error."""

import os
import pickle
import random
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from skypart.errors import SkyPartError
from skypart.model.weights_files import read_state


class Payload:
    """Runs a command when unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


def test_pickled_objects_are_refused_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    torch.save({"weight": torch.zeros(3), "extra": Payload(marker)}, tmp_path / "evil.pth")
    (tmp_path / "old.bin").write_bytes(pickle.dumps({"weight": Payload(marker)}, protocol=2))
    for name in ("evil.pth", "old.bin"):
        with pytest.raises(SkyPartError, match=rf"{name}: contains pickled objects.*preferably as .safetensors"):
            read_state(tmp_path / name)
    assert not marker.exists()
    pickle.loads((tmp_path / "old.bin").read_bytes())
    assert marker.exists(), "the payload must work, or the test shows nothing"


def test_each_kind_of_damage_has_its_error(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1000)}, tmp_path / "good.pth")
    whole = (tmp_path / "good.pth").read_bytes()
    save_file({"weight": torch.zeros(1000)}, tmp_path / "good.safetensors")
    safe = (tmp_path / "good.safetensors").read_bytes()
    cases = {
        "cut.pth": whole[: len(whole) // 2],
        "empty.pth": b"",
        "text.pth": b"404: Not Found",
        "html.bin": b"<!doctype html><html></html>",
        "cut.safetensors": safe[:500],
        "empty.safetensors": b"",
        "text.safetensors": b"404: Not Found",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SkyPartError) as caught:
            read_state(tmp_path / name)
        assert name in str(caught.value)
        assert "download it again" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_random_damage_always_raises_skypart_error(tmp_path: Path) -> None:
    torch.save({"weight": torch.arange(300.0)}, tmp_path / "good.pth")
    whole = (tmp_path / "good.pth").read_bytes()
    rng = random.Random(0)
    file = tmp_path / "damaged.pth"
    for trial in range(80):
        content = bytearray(whole) if trial % 2 else bytearray(rng.randbytes(rng.randint(1, 300)))
        for _ in range(rng.randint(1, 20)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        file.write_bytes(content)
        with suppress(SkyPartError):
            assert list(read_state(file)) != []


def test_a_truncated_file_of_the_old_torch_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cut.pth"
    torch.save({"weight": torch.zeros(20)}, file, _use_new_zipfile_serialization=False)
    whole = file.read_bytes()
    assert list(read_state(file)) == ["weight"]
    for length in range(0, len(whole), 3):
        file.write_bytes(whole[:length])
        with pytest.raises(SkyPartError, match=r"cut\.pth: (not a|contains pickled) .*"):
            read_state(file)


def test_files_without_a_state_dict_are_refused(tmp_path: Path) -> None:
    for name, content in {"tensor.pth": torch.zeros(3), "counts.pth": {"epoch": 3}}.items():
        torch.save(content, tmp_path / name)
        with pytest.raises(SkyPartError, match=f"{name}: contains no state dict"):
            read_state(tmp_path / name)
    (tmp_path / "weights.onnx").write_bytes(b"x")
    with pytest.raises(SkyPartError, match=r"weights.onnx: weights must be .safetensors or"):
        read_state(tmp_path / "weights.onnx")
    with pytest.raises(SkyPartError, match="no such weights file"):
        read_state(tmp_path / "absent.pth")
