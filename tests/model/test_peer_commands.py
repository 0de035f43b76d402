"""A model of every head goes through the commands: info, embed, evaluate, index, locate."""

import json
from pathlib import Path

import numpy as np
import pytest

import skypart
from skypart.images.preprocess import Preprocessing
from skypart.maps.index import MapIndex
from skypart.model import SkyPart, VisionTransformer
from skypart.position.photos import NO_FIX
from tests.conftest import Run
from tests.model.builders import TINY_VIT, scramble
from tests.model.test_peer_heads import SMALL
from tests.position.stand_in import write_quilt
from tests.test_cli_position import save
from tests.training.fake_data import make_sues


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set laid out like SUES-200, and `town.tif` beside it."""
    folder = tmp_path_factory.mktemp("places")
    write_quilt(folder / "town.tif", edge=200)
    root = make_sues(folder / "sues", locations=4)
    (root / "train_ids.txt").write_text(sorted(path.name for path in (root / "satellite-view").iterdir())[0])
    return root


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_every_command_takes_a_model_with_a_peers_head(kind: str, places: Path, run: Run, tmp_path: Path) -> None:
    model = SkyPart(VisionTransformer(TINY_VIT), SMALL[kind])
    scramble(model, 1)
    model.preprocessing = Preprocessing(size=56)
    file = tmp_path / f"{kind}.safetensors"
    skypart.save(model.eval(), file)
    code, said, _ = run("info", file)
    assert code == 0 and kind in said

    code, _, errors = run("embed", places / "satellite-view", "--model", file, "-o", tmp_path / "e.npz")
    assert code == 0, errors
    vectors = np.load(tmp_path / "e.npz")["embeddings"]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors.shape == (4, model.head.widths["embedding"]) and len(np.unique(vectors, axis=0)) == 4

    code, _, errors = run("evaluate", file, places, "-o", tmp_path / "ev", "--cache", tmp_path / "cache")
    assert code == 0, errors
    result = json.loads((tmp_path / "ev" / "result.json").read_text())
    assert {split["direction"] for split in result["splits"]} == {"D2S", "S2D"}

    out = tmp_path / "town.skyindex"
    code, said, errors = run(
        "index", places.parent / "town.tif", "-o", out, "--model", file, "--sizes", "100", "--overlap", 0.4
    )
    assert code == 0 and said.startswith("indexed town"), errors
    assert MapIndex(out).manifest.maps[0].views > 3
    code, said, errors = run("locate", out, save(tmp_path / "photo.jpg"), "--format", "json")
    assert code in (0, NO_FIX) and "photo.jpg" in said + errors, "an untrained model may find nothing"
