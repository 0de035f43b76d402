"""index.json: every flipped bit is noticed, a kill at any moment can be resumed, and the folder is flushed."""

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from skypart import atomic
from skypart.errors import SkyPartError
from skypart.maps.index import MapIndex
from skypart.maps.manifest import IndexManifest, verify_index
from skypart.position.photos import open_locator
from tests.maps.makers import write_ground
from tests.maps.test_index import built
from tests.position.stand_in import ColourEmbedder

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    town = write_ground(tmp_path / "town.tif", pixels=(700, 700))
    built(tmp_path / "i", town)
    return tmp_path / "i"


def test_no_flipped_bit_of_index_json_goes_unnoticed(index: Path) -> None:
    file = index / "index.json"
    whole = file.read_bytes()
    before = IndexManifest.read(index)
    chosen = random.Random(0)
    for _ in range(1500):
        harmed = bytearray(whole)
        harmed[chosen.randrange(len(whole))] ^= 1 << chosen.randrange(8)
        file.write_bytes(harmed)
        try:
            found = IndexManifest.read(index)
        except SkyPartError:
            continue
        assert found == before, "a flipped bit changed the index in silence"


def test_no_flipped_bit_of_any_file_goes_unnoticed(index: Path) -> None:
    """100 flips in each file that a reader uses; `maps --verify` compares all of them."""
    verify_index(index)
    chosen = random.Random(1)
    files = [file for file in sorted(index.rglob("*")) if file.is_file() and file.name != "writer.lock"]
    assert len(files) == 8
    for file in files:
        whole = file.read_bytes()
        for _ in range(100):
            harmed = bytearray(whole)
            harmed[chosen.randrange(len(whole.rstrip()))] ^= 1 << chosen.randrange(8)
            file.write_bytes(harmed)
            try:
                verify_index(index)
            except SkyPartError:
                continue
            # another last digit may be the same number
            assert file.suffix == ".json" and json.loads(harmed) == json.loads(whole), file.name
        file.write_bytes(whole)


def test_a_pipe_instead_of_any_file_does_not_hang(index: Path) -> None:
    for file in sorted(file for file in index.rglob("*.npy")):
        whole = file.read_bytes()
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(SkyPartError, match=r"not an ordinary file"):
            verify_index(index)
        file.unlink()
        file.write_bytes(whole)
    verify_index(index)


def test_an_index_json_of_gigabytes_is_refused(index: Path) -> None:
    os.truncate(index / "index.json", 4 << 30)
    with pytest.raises(SkyPartError, match=r"index\.json: has 4,294,967,296 bytes"):
        IndexManifest.read(index)


def test_any_truncation_of_index_json_is_noticed(index: Path) -> None:
    file = index / "index.json"
    whole = file.read_bytes()
    for length in range(0, len(whole) - 2, 7):
        file.write_bytes(whole[:length])
        with pytest.raises(SkyPartError):
            IndexManifest.read(index)


@pytest.mark.parametrize("name", ["owner/model", "owner/model@main"])
def test_an_index_cannot_make_its_user_download_a_model(
    name: str, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index may come from somebody else; the network is used only with --network."""
    asked: list[str] = []

    def load(name: str, device: str, size: int) -> ColourEmbedder:
        asked.append(name)
        return ColourEmbedder()

    monkeypatch.setattr("skypart.position.photos.load_fastest", load)
    manifest = IndexManifest.read(index)
    replace(manifest, model={**manifest.model, "name": name}).write(index)
    with pytest.raises(SkyPartError, match=r"the model owner/model.* of the hub, used only with --network"):
        open_locator(index)
    assert asked == []
    open_locator(index, network=True)
    open_locator(index, "mine")
    assert asked == [name, "mine"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / name.partition("/")[2]).mkdir(parents=True)
    open_locator(index)  # a folder is called so


def test_verify_compares_index_and_store(index: Path, run: Run) -> None:
    verify_index(index)
    file = index / "index.json"
    content = json.loads(file.read_text())
    del content["sha256"]  # as in files of older versions
    content["maps"][0]["views"] += 1
    file.write_text(json.dumps(content))
    with pytest.raises(SkyPartError, match=r"index\.json: lists [\d,]+ views of the map town, the store has"):
        verify_index(index)
    code, _, error = run("maps", index, "--verify")
    assert code == 2 and "index.json" in error


def test_index_files_of_older_versions_are_read(index: Path) -> None:
    file = index / "index.json"
    content = json.loads(file.read_text())
    before = IndexManifest.read(index)
    del content["sha256"]
    file.write_text(json.dumps(content))
    assert IndexManifest.read(index) == before


def test_deeply_nested_json_is_an_error_message(index: Path) -> None:
    (index / "index.json").write_text("[" * 100_000)
    with pytest.raises(SkyPartError, match="damaged"):
        IndexManifest.read(index)


def test_a_kill_while_the_first_index_json_is_written_does_not_block_the_folder(tmp_path: Path) -> None:
    town = write_ground(tmp_path / "town.tif", pixels=(700, 700))
    folder = tmp_path / "i"
    folder.mkdir()
    (folder / ".index.tmp-0123abcd.json").write_text('{"model":')  # what the killed process left
    built(folder, town)
    assert MapIndex(folder).manifest.maps
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    "name", ["notes.txt", ".index.tmp-0123abcd.txt", ".index.tmp-XYZ.json", ".other.tmp-0123abcd.json"]
)
def test_files_of_others_still_block_the_folder(name: str, tmp_path: Path) -> None:
    town = write_ground(tmp_path / "town.tif", pixels=(700, 700))
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / name).write_text("mine")
    with pytest.raises(SkyPartError, match="is not empty"):
        built(tmp_path / "i", town)
    assert (tmp_path / "i" / name).read_text() == "mine"


def test_the_folders_of_an_index_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    real = atomic.sync_folder

    def record(folder: Path) -> None:
        flushed.append(os.path.realpath(folder))
        real(folder)

    monkeypatch.setattr(atomic, "sync_folder", record)
    town = write_ground(tmp_path / "town.tif", pixels=(700, 700))
    built(tmp_path / "new" / "i", town)
    assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "i")} <= set(flushed)
