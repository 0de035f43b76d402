"""Compact patch tokens kept in an index: written with the views, checked, and removed with their map."""

import json
from pathlib import Path

import numpy as np
import pytest

from skypart.embedding.patches import PatchReader, compact_tokens, expand_tokens, project_tokens
from skypart.errors import SkyPartError
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex, remove_map
from skypart.maps.manifest import verify_index
from skypart.maps.store import Hit
from skypart.maps.view_tokens import TOKENS_FOLDER, bytes_per_view
from tests.position.stand_in import OPTIONS, ColourEmbedder, write_quilt


@pytest.fixture
def index(tmp_path: Path) -> MapIndex:
    maps = [write_quilt(tmp_path / "one.tif", edge=300), write_quilt(tmp_path / "two.tif", 2, 300, 400.0)]
    build_index([str(each) for each in maps], tmp_path / "i", ColourEmbedder(), "colours", OPTIONS)
    return MapIndex(tmp_path / "i")


def all_hits(index: MapIndex) -> list[Hit]:
    return index.search(np.eye(1, 36, dtype=np.float32), 1000)[0]


def test_every_view_has_the_tokens_of_its_image(index: MapIndex) -> None:
    found = all_hits(index)
    assert len(found) == sum(entry.views for entry in index.manifest.maps) > 20
    reader = PatchReader(ColourEmbedder())
    for hit in found[::7]:
        image = index.view(hit.footprint, 112)
        assert image is not None
        tokens = index.view_tokens(hit)
        assert tokens is not None and tokens.dtype == np.int8
        np.testing.assert_array_equal(tokens, compact_tokens(reader.read([image])[0].tokens))


def test_vectors_are_the_same_with_and_without_tokens(index: MapIndex, tmp_path: Path) -> None:
    paths = [str(tmp_path / "one.tif"), str(tmp_path / "two.tif")]
    build_index(paths, tmp_path / "plain", ColourEmbedder(), "colours", OPTIONS, tokens=False)
    plain = MapIndex(tmp_path / "plain")
    query = np.random.default_rng(0).normal(size=(1, 36)).astype(np.float32)
    scores = [[hit.score for hit in each.search(query, 50)[0]] for each in (index, plain)]
    assert scores[0] == scores[1]
    assert not (tmp_path / "plain" / TOKENS_FOLDER).exists() and bytes_per_view(tmp_path / "plain") == 0.0
    assert plain.view_tokens(all_hits(plain)[0]) is None
    assert 196 * 9 < bytes_per_view(index.folder) < 196 * 9 + 100


def test_the_tokens_of_a_removed_map_are_deleted(index: MapIndex) -> None:
    before = len(list((index.folder / TOKENS_FOLDER).iterdir()))
    remove_map(index.folder, "one")
    assert (before, len(list((index.folder / TOKENS_FOLDER).iterdir()))) == (6, 3)
    left = MapIndex(index.folder)
    assert all(left.view_tokens(hit) is not None for hit in all_hits(left))


@pytest.mark.parametrize("suffix", [".tokens.npy", ".places.npy", ".json"])
def test_damaged_tokens_are_reported_with_the_remedy(index: MapIndex, suffix: str) -> None:
    file = next(path for path in sorted((index.folder / TOKENS_FOLDER).iterdir()) if path.name.endswith(suffix))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    with pytest.raises(SkyPartError, match=r"damaged .*delete the folder"):
        verify_index(index.folder)
    opened = MapIndex(index.folder)
    with pytest.raises(SkyPartError, match="damaged"):
        opened.view_tokens(all_hits(opened)[0])


def test_a_missing_or_short_file_is_reported(index: MapIndex) -> None:
    file = next((index.folder / TOKENS_FOLDER).glob("*.tokens.npy"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SkyPartError, match="bytes instead of"):
        verify_index(index.folder)
    file.unlink()
    with pytest.raises(SkyPartError, match="damaged"):
        verify_index(index.folder)


def test_tokens_of_another_version_are_not_used(index: MapIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skypart.maps.view_tokens.COMPACT_VERSION", 99)
    opened = MapIndex(index.folder)
    assert opened.view_tokens(all_hits(opened)[0]) is None


def test_without_the_folder_the_index_works(index: MapIndex) -> None:
    for file in (index.folder / TOKENS_FOLDER).iterdir():
        file.unlink()
    opened = MapIndex(index.folder)
    assert opened.view_tokens(all_hits(opened)[0]) is None
    verify_index(index.folder)


def test_a_record_is_plain_json_with_a_checksum(index: MapIndex) -> None:
    record = json.loads(next((index.folder / TOKENS_FOLDER).glob("*.json")).read_text())
    assert record["shape"][1:] == [196, 9] and len(record["sha256"]) == 64


def test_compact_tokens_keep_cosines() -> None:
    """The error of one cosine is about 0.1; that of the mean of many pairs is much smaller."""
    rng = np.random.default_rng(3)
    tokens = rng.normal(size=(400, 768)).astype(np.float32)
    tokens[200:] = tokens[:200] + rng.normal(size=(200, 768)).astype(np.float32)
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    compact = expand_tokens(compact_tokens(tokens[200:]))
    assert compact.shape == (200, 96)
    error = np.sum(project_tokens(tokens[:200]) * compact, axis=1) - np.sum(tokens[:200] * tokens[200:], axis=1)
    assert np.abs(error).max() < 0.35 and np.abs(error.reshape(10, 20).mean(axis=1)).max() < 0.06
    few = tokens[:5, :9] / np.linalg.norm(tokens[:5, :9], axis=1, keepdims=True)
    np.testing.assert_allclose(expand_tokens(compact_tokens(few)), few, atol=0.51)
    np.testing.assert_array_equal(project_tokens(few), few / np.linalg.norm(few, axis=1, keepdims=True))
