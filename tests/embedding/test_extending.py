"""The worked example of docs/extending.md: a new runtime, used by every command that needs a model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import rasterio
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image
from pyproj import Transformer

import skypart
from skypart.embedding import register_runtime, runtimes
from skypart.embedding.files import embed_files
from skypart.errors import SkyPartError
from skypart.position.photos import open_locator
from skypart.serve.app import create_app
from skypart.serve.service import IndexService
from tests.conftest import Run

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
MAP_EDGE = 300
"""Pixels and metres."""
EAST, NORTH = 500_000.0, 5_300_000.0
"""UTM coordinates of the map's upper left corner."""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the example, for one test only."""
    monkeypatch.setattr(runtimes, "RUNTIMES", dict(runtimes.RUNTIMES))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    register_runtime(".npz", "projection_runtime:load_projection")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model file: a random projection to 64 dimensions."""
    projection = np.random.default_rng(0).normal(size=(64, 3 * 16 * 16)).astype(np.float32)
    np.savez(tmp_path / "model.npz", projection=projection, size=112)
    return tmp_path / "model.npz"


def random_ground(seed: int = 0) -> NDArray[np.uint8]:
    """(MAP_EDGE, MAP_EDGE, 3) random colours that vary over 25, 6 and 2 pixels."""
    rng = np.random.default_rng(seed)
    total = np.full((MAP_EDGE, MAP_EDGE, 3), 120.0, np.float32)
    for cells, strength in ((12, 40), (50, 20), (150, 14)):
        coarse = rng.normal(0, strength, (cells, cells, 3)).astype(np.float32)
        total += cv2.resize(coarse, (MAP_EDGE, MAP_EDGE), interpolation=cv2.INTER_CUBIC)
    return np.clip(total, 0, 255).astype(np.uint8)


def write_map(path: Path) -> Path:
    """A GeoTIFF of `random_ground` with one pixel per metre."""
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=MAP_EDGE,
        height=MAP_EDGE,
        count=3,
        dtype="uint8",
        crs="EPSG:32632",
        transform=rasterio.Affine(1.0, 0.0, EAST, 0.0, -1.0, NORTH),
    ) as file:
        file.write(random_ground().transpose(2, 0, 1))
    return path


def write_photo(path: Path, x: int, y: int) -> Path:
    """A photo of 100 x 100 m around a pixel of the map."""
    Image.fromarray(random_ground()[y - 50 : y + 50, x - 50 : x + 50]).resize((200, 200)).save(path)
    return path


def write_dataset(root: Path) -> Path:
    """A data set in the layout of University-1652: four locations, two drone images each."""
    folders = {"query_drone": 2, "query_satellite": 1, "gallery_drone": 2, "gallery_satellite": 1}
    for location in range(4):
        for name, count in folders.items():
            for number in range(count):
                file = root / "test" / name / f"{location:04d}" / f"image-{number}.jpeg"
                file.parent.mkdir(parents=True, exist_ok=True)
                noise = np.random.default_rng([location, number]).normal(0, 9, (48, 48, 3))
                pixels = cv2.resize(random_ground(location), (48, 48), interpolation=cv2.INTER_AREA) + noise
                Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file)
    return root


def test_load_uses_the_runtime_of_the_suffix(model: Path) -> None:
    embedder = skypart.load(model)
    assert type(embedder).__name__ == "ProjectionEmbedder"
    assert (embedder.size, embedder.dim) == (112, 64)
    assert skypart.load(model, size=96).digest != embedder.digest == skypart.load(model).digest
    images = [random_ground(seed) for seed in range(5)]
    vectors = embedder.embed(images, batch_size=2)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(vectors, embedder.embed(images, batch_size=5))
    assert np.abs(vectors @ vectors.T - np.eye(5)).max() < 0.99


def test_patch_tokens_are_row_by_row(model: Path) -> None:
    image = np.zeros((112, 112, 3), np.uint8)
    image[7:14, 14:21] = 255  # second row, third column
    embedder = skypart.load(model)
    _, found = embedder.embed_with_patches(embedder.preprocess([image]))
    brightness = found.tokens[0, 0].mean(axis=1)
    assert found.grid == (16, 16) and found.tokens.shape == (1, 1, 256, 147)
    assert brightness.argmax() == 16 + 2


@pytest.mark.parametrize(("options", "words"), [({"size": 100}, "use 96"), ({"readout": "cls"}, "readouts")])
def test_unsupported_options_raise(model: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(SkyPartError, match=words):
        skypart.load(model, **options)  # type: ignore[arg-type]


def test_embed(model: Path, tmp_path: Path) -> None:
    photo = write_photo(tmp_path / "photo.png", 100, 100)
    assert embed_files(skypart.load(model), [photo], tmp_path / "out.npz") == 1
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["embeddings"].shape == (1, 64) and str(stored["model"]) == skypart.load(model).digest


def test_index_and_locate(run: Run, model: Path, tmp_path: Path) -> None:
    index = tmp_path / "town.skyindex"
    code, _, error = run("index", write_map(tmp_path / "town.tif"), "-o", index, "--model", model, "--sizes", "100")
    assert code == 0, error
    photo = write_photo(tmp_path / "photo.png", 180, 120)
    code, out, error = run("locate", index, photo, "--format", "json", "--heading", "0")
    assert code in (0, 3), error  # 3: no fix, as no calibration is known for this model
    best = json.loads(out)["fixes"][0]["candidates"][0]["footprint"]
    to_utm = Transformer.from_crs("EPSG:4326", "EPSG:32632", always_xy=True)
    east, north = to_utm.transform(best["longitude"], best["latitude"])
    assert np.hypot(east - (EAST + 180), north - (NORTH - 120)) < 40


def test_evaluate(run: Run, model: Path, tmp_path: Path) -> None:
    data, out = write_dataset(tmp_path / "data"), tmp_path / "out"
    code, text, error = run("evaluate", model, data, "-o", out, "--cache", tmp_path / "cache")
    assert code == 0, error
    result = json.loads((out / "result.json").read_text())
    assert result["digest"] == skypart.load(model).digest and "100.00" in text


def test_other_runtimes_need_no_torch(model: Path, tmp_path: Path) -> None:
    write_map(tmp_path / "town.tif")
    write_photo(tmp_path / "photo.png", 150, 150)
    write_dataset(tmp_path / "data")
    commands = (
        "index town.tif -o i --model model.npz --sizes 100",
        "locate i photo.png",
        "evaluate model.npz data -o out --cache cache",
    )
    script = (
        "import sys\n"
        "from skypart.cli import app\n"
        "from skypart.embedding import register_runtime\n"
        "register_runtime('.npz', 'projection_runtime:load_projection')\n"
        f"for command in {commands}:\n"
        "    app(command.split(), standalone_mode=False)\n"
        "assert 'torch' not in sys.modules\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_serve(run: Run, model: Path, tmp_path: Path) -> None:
    index = tmp_path / "town.skyindex"
    assert run("index", write_map(tmp_path / "town.tif"), "-o", index, "--model", model, "--sizes", "100")[0] == 0
    client = TestClient(create_app(IndexService(open_locator(index))), base_url="http://127.0.0.1:8000")
    upload = {"photo": ("photo.png", write_photo(tmp_path / "photo.png", 150, 150).read_bytes())}
    assert client.post("/v1/locate", files=upload).json()["candidates"]
    response = client.post("/v1/parts", files=upload)
    assert response.status_code == 422 and "no parts" in response.json()["detail"]
