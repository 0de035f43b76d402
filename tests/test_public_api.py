"""The public names of `import skypart`, and what importing it costs."""

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


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        skypart.lode  # noqa: B018


HEAVY = ("torch", "matplotlib", "rasterio", "cv2", "scipy", "faiss", "fastapi", "onnxruntime", "openvino", "nncf")
"""Packages that take long to import and are not needed for the first line of help."""


@pytest.mark.parametrize(
    "code",
    [
        "import skypart",
        "import skypart.cli",
        "from skypart.cli import app; app(['--help'], standalone_mode=False)",
        "from skypart.cli import app; app(['--version'], standalone_mode=False)",
        "from skypart.cli import app; app(['index', '--help'], standalone_mode=False)",
        "from skypart.cli import app; app(['export', '--help'], standalone_mode=False)",
    ],
)
def test_import_and_help_load_no_heavy_package(code: str) -> None:
    script = f"{code}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
