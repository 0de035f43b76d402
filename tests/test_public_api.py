"""What `import skypart` offers."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import skypart
from skypart.model import SkyPart


def test_load_save_round_trip(tmp_path: Path, tiny_model: SkyPart) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    skypart.save(tiny_model, first)
    loaded = skypart.load(first)
    skypart.save(loaded, second)
    assert skypart.load(second).digest == loaded.digest
    photo = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    assert np.array_equal(loaded.embed([photo]), skypart.load(second).embed([photo]))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        skypart.lode  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, skypart, skypart.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
