"""Truncated, altered or missing files raise errors that name them, and never crash the process."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.maps.store import segment
from skypart.maps.store.embedded import EmbeddedStore
from tests.maps.store.builders import DIMENSION, make_batch, unit_vectors

QUERIES = unit_vectors(5, 99)
VECTORS, PLACES = "000000000000-300.vectors.npy", "000000000000-300.footprints.npy"


@pytest.fixture(params=["mapped", "read"])
def folder(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of two maps whose segments are mapped or read."""
    monkeypatch.setattr(segment, "SMALL_BYTES", 0 if request.param == "mapped" else 1 << 20)
    with EmbeddedStore(tmp_path) as store:
        store.add(make_batch(300, 0))
        store.add(make_batch(20, 1, "port"))
    return tmp_path


def alter(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("name", [VECTORS, PLACES])
@pytest.mark.parametrize("place", [0, 40, 127, 128, 5_000, -1])
def test_an_altered_byte_is_found(folder: Path, name: str, place: int) -> None:
    alter(folder / name, place)
    store = EmbeddedStore(folder)  # sizes fit
    with pytest.raises(SkyPartError, match=rf"{name}: damaged \(its SHA-256 has changed\); .* remove the map town"):
        store.search(QUERIES, 5)
    with pytest.raises(SkyPartError, match=name):
        store.verify()


@pytest.mark.parametrize("name", [VECTORS, PLACES])
@pytest.mark.parametrize("change", [lambda size: 0, lambda size: 100, lambda size: size - 1, lambda size: size + 1])
def test_another_size_is_found_when_opening(folder: Path, name: str, change: Callable[[int], int]) -> None:
    os.truncate(folder / name, change((folder / name).stat().st_size))
    with pytest.raises(SkyPartError, match=rf"{name}: damaged \([\d,]+ bytes instead of"):
        EmbeddedStore(folder)


@pytest.mark.parametrize("name", [VECTORS, PLACES])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(SkyPartError, match=rf"{name}: damaged \(missing\); .* remove the map town"):
        EmbeddedStore(folder)
    with pytest.raises(SkyPartError, match=name):
        EmbeddedStore(folder, check=False).search(QUERIES, 5)


def test_file_truncated_while_open_raises_instead_of_crashing(folder: Path) -> None:
    store = EmbeddedStore(folder)
    before = store.search(QUERIES, 5)
    os.truncate(folder / VECTORS, 200)
    if segment.SMALL_BYTES:  # it was read: nothing is lost
        assert store.search(QUERIES, 5) == before
        return
    with pytest.raises(SkyPartError, match=rf"{VECTORS}: damaged \(now 200 bytes\)"):
        store.search(QUERIES, 5)


def test_above_the_hash_limit_only_verify_compares_vectors(folder: Path) -> None:
    alter(folder / VECTORS, 5_000)
    store = EmbeddedStore(folder, hash_limit=1_000)
    assert len(store.search(QUERIES, 5)[0]) == 5
    with pytest.raises(SkyPartError, match=VECTORS):
        store.verify()
    alter(folder / PLACES, 5_000)
    with pytest.raises(SkyPartError, match=PLACES):  # positions are always compared
        EmbeddedStore(folder, hash_limit=1_000).search(QUERIES, 5)


def test_hash_limit_includes_its_value(folder: Path) -> None:
    alter(folder / VECTORS, 5_000)
    size = sum(path.stat().st_size for path in folder.glob("*.vectors.npy"))
    with pytest.raises(SkyPartError, match=VECTORS):
        EmbeddedStore(folder, hash_limit=size).search(QUERIES, 5)
    assert EmbeddedStore(folder, hash_limit=size - 1).search(QUERIES, 5)


def test_wrong_header_is_damage_even_above_the_hash_limit(folder: Path) -> None:
    content = (folder / VECTORS).read_bytes()
    (folder / VECTORS).write_bytes(content.replace(b"(300, 24)", b"(900, 24)"))
    with pytest.raises(SkyPartError, match=rf"{VECTORS}: damaged \(not a 300 x 24 array"):
        EmbeddedStore(folder, hash_limit=0).search(QUERIES, 5)


def test_verify_names_every_damaged_file(folder: Path) -> None:
    EmbeddedStore(folder).verify()
    store = EmbeddedStore(folder)
    alter(folder / VECTORS, 300)
    alter(folder / "000000000300-20.footprints.npy", 300)
    with pytest.raises(SkyPartError) as raised:
        store.verify()
    assert VECTORS in str(raised.value)
    assert "000000000300-20.footprints.npy" in str(raised.value)


def test_removing_the_damaged_map_repairs_the_store(folder: Path) -> None:
    os.truncate(folder / VECTORS, 50)
    with EmbeddedStore(folder, check=False) as store:
        assert store.remove("town") == 300
    store = EmbeddedStore(folder)
    assert store.stats().maps == {"port": 20}
    store.verify()


def test_damage_is_not_merged_into_a_new_segment(folder: Path) -> None:
    alter(folder / VECTORS, 5_000)
    before = sorted(folder.iterdir())
    with pytest.raises(SkyPartError, match=VECTORS):
        EmbeddedStore(folder).add(make_batch(400, 5))
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"[" * 100_000,
        b'{"format": 1}',
        b'{"format": 1, "sha256": "x"}',
    ],
)
def test_garbage_in_place_of_the_manifest(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(SkyPartError, match=r"manifest\.json: damaged"):
        EmbeddedStore(folder)


def test_every_altered_character_of_the_manifest_is_noticed(folder: Path) -> None:
    path = folder / "manifest.json"
    good = path.read_bytes()
    expected = EmbeddedStore(folder).stats()
    noticed = 0
    for place in np.random.default_rng(0).integers(0, len(good), 150):
        alter(path, int(place))
        try:
            assert EmbeddedStore(folder, check=False).stats() == expected  # nothing but spaces between values changed
        except SkyPartError as error:
            noticed += "manifest.json" in str(error)
        path.write_bytes(good)
    assert noticed > 100


def rewrite(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change the manifest and make its own hash fit again."""
    body = json.loads((folder / "manifest.json").read_text())
    del body["sha256"]
    change(body)
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"sha256": digest, **body}))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "", "..", "a/b", ".hidden"])
def test_a_manifest_cannot_reach_outside_its_folder(folder: Path, name: str) -> None:
    def change(body: dict[str, object]) -> None:
        body["segments"][0]["vectors"]["name"] = name  # type: ignore[index]

    rewrite(folder, change)
    with pytest.raises(SkyPartError, match=r"manifest\.json: damaged"):
        EmbeddedStore(folder)


def test_newer_format_raises_a_clear_error(folder: Path) -> None:
    rewrite(folder, lambda body: body.update(format=2))
    with pytest.raises(SkyPartError, match=r"has format 2, this version of SkyPart reads 1"):
        EmbeddedStore(folder)


def test_missing_manifest_raises_and_no_data_is_deleted(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    before = sorted(folder.iterdir())
    with pytest.raises(SkyPartError, match=r"manifest\.json: missing"):
        EmbeddedStore(folder)
    assert sorted(folder.iterdir()) == before


def test_a_wrong_dimension_in_the_manifest_is_damage(folder: Path) -> None:
    rewrite(folder, lambda body: body.update(dimension=DIMENSION * 2))
    with pytest.raises(SkyPartError, match="damaged"):
        EmbeddedStore(folder).search(unit_vectors(1, 0, DIMENSION * 2), 1)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("x")
    with pytest.raises(SkyPartError, match="cannot read"):
        EmbeddedStore(tmp_path / "store")
