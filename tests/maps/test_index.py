"""Building and opening an index: resuming, adding, replacing, moving and losing maps, and invalid input."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds, Footprint, join_bounds
from skypart.maps import build, manifest, sources
from skypart.maps import index as index_module
from skypart.maps.build import build_index
from skypart.maps.engines import interface
from skypart.maps.files import path_exists
from skypart.maps.index import MapIndex, maps_table, remove_map
from skypart.maps.manifest import IndexManifest
from skypart.maps.map_source import MapSource
from skypart.maps.sources import open_maps
from skypart.maps.store import approximate, embedded
from skypart.maps.views import View, ViewOptions, plan_views, read_view, view_options
from tests.maps.makers import write_raster, write_tile_folder
from tests.position.stand_in import ColourEmbedder, degrees, quilt, write_quilt

OPTIONS = ViewOptions(sizes_m=(120.0, 180.0), overlap=0.4)
VIEWS = 25


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BLOCK", 4)


@pytest.fixture
def town(tmp_path: Path) -> Path:
    """A map of 300 x 300 m: 16 views of 120 m and 9 of 180 m."""
    return write_quilt(tmp_path / "town.tif", seed=1, edge=300)


def built(folder: Path, *maps: Path, embedder: ColourEmbedder | None = None, **more: Any) -> dict[str, int]:
    return build_index(
        [str(path) for path in maps], folder, embedder or ColourEmbedder(), "colours", **({"options": OPTIONS} | more)
    )


def files(folder: Path) -> dict[str, bytes]:
    """All files by name, except the lock, which contains a process id."""
    every = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "writer.lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in every}


def test_every_view_is_found_by_its_own_image(town: Path, tmp_path: Path) -> None:
    assert built(tmp_path / "i", town) == {"town": VIEWS}
    index = MapIndex(tmp_path / "i")
    assert (index.name, index.manifest.model["digest"]) == ("i", ColourEmbedder().digest)
    source = open_maps([str(town)])[0]
    plan = plan_views(source, OPTIONS.sizes_m, OPTIONS.overlap, (0.0,))
    images = [read_view(source, view, 112).rgb for view in plan]
    embedder = ColourEmbedder()
    hits = index.search(embedder.embed(images), 1)
    for view, (best,) in zip(plan, hits, strict=True):
        assert best.footprint == view and best.map_name == "town" and best.score > 0.999


def test_only_maps_around_a_view_are_read_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = [write_quilt(tmp_path / f"{name}.tif", edge=300, east=east) for name, east in (("west", 0.0), ("east", 5e3))]
    built(tmp_path / "i", *maps)
    index = MapIndex(tmp_path / "i")
    asked: list[str] = []

    def reads(source: MapSource, footprint: Footprint, size: int) -> View:
        asked.append(source.name)
        return read_view(source, footprint, size)

    monkeypatch.setattr(index_module, "read_view", reads)
    centres = [index.sources[name].frame for name in ("west", "east")]
    places = [(each.latitude, each.longitude) for each in centres]
    between = ((places[0][0] + places[1][0]) / 2, (places[0][1] + places[1][1]) / 2)
    for place, wanted in ((places[0], ["west"]), (places[1], ["east"]), (between, [])):
        asked.clear()
        seen = index.view(Footprint(latitude=place[0], longitude=place[1], metres=120.0), 32)
        assert asked == wanted and (seen is None) == (not wanted)
    asked.clear()
    index.view(Footprint(latitude=between[0], longitude=between[1], metres=15_000.0), 32)
    assert asked == ["west", "east"]


class Killed(BaseException):
    """Simulates kill -9: nothing but `finally` runs after it."""


def _kill_embedding(monkeypatch: pytest.MonkeyPatch, embedder: ColourEmbedder) -> None:
    def embed_inputs(inputs: Any) -> Any:
        if embedder.calls >= 8:
            raise Killed
        return ColourEmbedder.embed_inputs(embedder, inputs)

    monkeypatch.setattr(embedder, "embed_inputs", embed_inputs)


def _kill_at(target: Any, attribute: str, when: int, after: bool = False) -> Any:
    """Die at the `when`-th call of `target.attribute` from now on, before or after it has done its work."""

    def arrange(monkeypatch: pytest.MonkeyPatch, embedder: ColourEmbedder) -> None:
        real, calls = getattr(target, attribute), 0

        def die(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == when and not after:
                raise Killed
            result = real(*arguments, **more)
            if calls == when:
                raise Killed
            return result

        monkeypatch.setattr(target, attribute, die)

    return arrange


BLANKS = 3
"""Blank images that are read once, from which the positional part of tokens is measured."""
KILLS = {
    "while embedding": _kill_embedding,
    "before the second block is written": _kill_at(interface, "atomic_path", 2),
    "before the store": _kill_at(build, "_store_map", 1),
    "while storing": _kill_at(embedded.EmbeddedStore, "add", 1, after=True),
    "between store and manifest": _kill_at(IndexManifest, "write", 2),
    "after the manifest": _kill_at(IndexManifest, "write", 2, after=True),
    "while cleaning up": _kill_at(shutil, "rmtree", 1),
}


@pytest.mark.parametrize("kill", KILLS)
def test_killed_indexing_resumes_with_the_same_result(
    kill: str, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path / "uninterrupted", town)
    embedder = ColourEmbedder()
    with monkeypatch.context() as patched:
        KILLS[kill](patched, embedder)
        with pytest.raises(Killed):
            built(tmp_path / "interrupted", town, embedder=embedder)
    again = ColourEmbedder()
    built(tmp_path / "interrupted", town, embedder=again)
    assert files(tmp_path / "interrupted") == files(tmp_path / "uninterrupted")
    assert again.calls <= VIEWS - 4 + BLANKS, "finished blocks were embedded again"
    assert not (tmp_path / "interrupted" / "work").exists()


@pytest.mark.parametrize("kill", ["before the store", "while storing", "between store and manifest"])
def test_killed_replacement_resumes_with_the_same_result(
    kill: str, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("uninterrupted", "interrupted"):
        built(tmp_path / name, town)
    write_quilt(town, seed=2, edge=300)
    built(tmp_path / "uninterrupted", town)
    if kill == "between store and manifest":
        arrange = _kill_at(IndexManifest, "write", 1)  # the first of this run
    else:
        arrange = KILLS[kill]
    with monkeypatch.context() as patched:
        arrange(patched, ColourEmbedder())
        with pytest.raises(Killed):
            built(tmp_path / "interrupted", town)
    views = MapIndex(tmp_path / "interrupted").store.stats().views
    assert views == VIEWS, "neither the old nor the new map can be searched"
    built(tmp_path / "interrupted", town)
    assert files(tmp_path / "interrupted") == files(tmp_path / "uninterrupted")


def test_adding_a_map_does_not_touch_the_others(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    before = {name: data for name, data in files(tmp_path / "i").items() if name.endswith(".npy")}
    village = write_quilt(tmp_path / "village.tif", seed=3, edge=200, east=2000.0)
    embedder = ColourEmbedder()
    added = built(tmp_path / "i", town, village, embedder=embedder)
    assert list(added) == ["village"] and embedder.calls == added["village"] + BLANKS
    after = files(tmp_path / "i")
    assert {name: after[name] for name in before} == before
    index = MapIndex(tmp_path / "i")
    assert [entry.name for entry in index.manifest.maps] == ["town", "village"]
    assert index.store.stats().views == VIEWS + added["village"]
    west, east = degrees(-150.0, 0.0)[1], degrees(2100.0, 0.0)[1]
    assert index.bounds.west == pytest.approx(west, abs=1e-5) and index.bounds.east == pytest.approx(east, abs=1e-5)


def test_changed_map_replaces_only_its_own_views(town: Path, tmp_path: Path) -> None:
    village = write_quilt(tmp_path / "village.tif", seed=3, edge=200, east=2000.0)
    built(tmp_path / "i", town, village)
    old = read_view(open_maps([str(town)])[0], MapIndex(tmp_path / "i").search(_any(), 1)[0][0].footprint, 112).rgb
    write_quilt(town, seed=2, edge=300)
    assert built(tmp_path / "i", town, village) == {"town": VIEWS}
    index = MapIndex(tmp_path / "i")
    counts = {entry.name: entry.views for entry in index.manifest.maps}
    assert index.store.stats().views == sum(counts.values()) and counts["town"] == VIEWS
    found = index.search(ColourEmbedder().embed([old]), 100)[0]
    assert {hit.map_name for hit in found} == {"town", "village"}
    assert found[0].score < 0.99, "the old pixels are still found"


def test_another_file_with_the_same_name_does_not_replace_a_map(town: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = write_quilt(tmp_path / "elsewhere" / "town.tif", seed=5, edge=200, east=4000.0)
    built(tmp_path / "i", town)
    before = files(tmp_path / "i")
    with pytest.raises(SkyPartError, match=r"already has a map town, from .*town\.tif; rename .*elsewhere"):
        built(tmp_path / "i", other)
    assert files(tmp_path / "i") == before
    town.unlink()
    assert set(built(tmp_path / "i", other)) == {"town"}


def test_calibration_belongs_to_the_maps_it_was_made_with(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    manifest = IndexManifest.read(tmp_path / "i")
    assert not manifest.calibration_fits
    replace(manifest, calibration={"maps": manifest.maps_digest}).write(tmp_path / "i")
    assert IndexManifest.read(tmp_path / "i").calibration_fits
    assert str(maps_table(MapIndex(tmp_path / "i")).caption).rpartition(", ")[2] == "calibrated"
    built(tmp_path / "i", write_quilt(tmp_path / "village.tif", seed=3, edge=200, east=2000.0))
    assert not IndexManifest.read(tmp_path / "i").calibration_fits
    assert "before its maps changed" in str(maps_table(MapIndex(tmp_path / "i")).caption)
    remove_map(tmp_path / "i", "village")
    assert IndexManifest.read(tmp_path / "i").calibration_fits


def test_unreadable_map_is_missing(town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tmp_path / "i", town)
    opened = Path.open

    def forbidden(path: Path, *more: Any, **options: Any) -> Any:
        if path.name == "town.tif":
            raise PermissionError(13, "Permission denied")
        return opened(path, *more, **options)

    monkeypatch.setattr(Path, "open", forbidden)
    assert MapIndex(tmp_path / "i").missing == ["town"]
    with pytest.raises(SkyPartError, match=r"town\.tif: cannot be read \(Permission denied\)"):
        open_maps([str(town)])

    def hidden(path: Path, **_: Any) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", hidden)
    assert not path_exists(town)


def _any() -> Any:
    return ColourEmbedder().embed([quilt(1, 200)])


def test_repeating_the_command_embeds_and_writes_nothing(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "i").rglob("*") if path.is_file()}
    embedder = ColourEmbedder()
    assert built(tmp_path / "i", town, embedder=embedder) == {} and embedder.calls == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "i").rglob("*") if path.is_file()} == stamps


def test_another_model_is_rejected_by_name(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    before = files(tmp_path / "i")
    with pytest.raises(SkyPartError, match=r"made with the model colours \([^)]+\) at 112 pixels, not with best"):
        build_index([str(town)], tmp_path / "i", ColourEmbedder("other"), "best", OPTIONS)
    assert files(tmp_path / "i") == before
    with pytest.raises(SkyPartError, match=r"made with the model colours .*not with this one"):
        MapIndex(tmp_path / "i").check_model(ColourEmbedder("other").digest)


def test_other_view_options_are_rejected_and_none_takes_those_of_the_index(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    for other in (ViewOptions((120.0,), 0.4), ViewOptions((120.0, 180.0), 0.5), ViewOptions((120.0, 180.0), 0.4, 4)):
        with pytest.raises(SkyPartError, match=r"have sizes \(120.0, 180.0\) m, overlap 0.4, 1 rotations"):
            built(tmp_path / "i", town, options=other)
    village = write_quilt(tmp_path / "village.tif", seed=3, edge=200, east=2000.0)
    built(tmp_path / "i", village, options=None)
    assert MapIndex(tmp_path / "i").manifest.options == OPTIONS


def test_failed_first_attempt_does_not_fix_the_options(town: Path, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="smaller than one view of 900 m"):
        built(tmp_path / "i", town, options=ViewOptions((900.0,)))
    with pytest.raises(SkyPartError, match="indexing was not finished"):
        MapIndex(tmp_path / "i")
    build_index([str(town)], tmp_path / "i", ColourEmbedder("other"), "best", OPTIONS)
    assert MapIndex(tmp_path / "i").manifest.model["name"] == "best"


def test_duplicate_map_names_are_rejected_before_writing(town: Path, tmp_path: Path) -> None:
    twin = write_quilt(tmp_path / "other" / "town.tif", seed=5, edge=200)
    with pytest.raises(SkyPartError, match="two maps are called town"):
        built(tmp_path / "i", town, twin)
    assert not (tmp_path / "i").exists()


def _blank(path: Path) -> Path:
    source = open_maps([str(path)])[0]
    blank = np.full((3, 300, 300), 90, np.uint8)
    return write_raster(path, blank, "EPSG:32632", source.images[0].grid.affine)


def test_empty_map_is_rejected(town: Path, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"town\.tif: every view of this map is empty"):
        built(tmp_path / "i", _blank(town))
    write_quilt(town, seed=1, edge=300)
    assert built(tmp_path / "i", town) == {"town": VIEWS}


def test_empty_replacement_leaves_the_index_unchanged(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    before = {name: data for name, data in files(tmp_path / "i").items() if not name.startswith("work")}
    with pytest.raises(SkyPartError, match="every view of this map is empty"):
        built(tmp_path / "i", _blank(town))
    assert {name: data for name, data in files(tmp_path / "i").items() if not name.startswith("work")} == before
    assert len(MapIndex(tmp_path / "i").search(_any(), 50)[0]) == VIEWS


def test_folder_with_other_files_is_left_alone(town: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    for place in (tmp_path / "mine", tmp_path / "mine" / "letter.txt"):
        with pytest.raises(SkyPartError, match="contains no map index"):
            built(place, town)
    assert list(files(tmp_path / "mine")) == ["letter.txt"]


def test_map_added_concurrently_by_another_process_is_kept(town: Path, tmp_path: Path) -> None:
    village = write_quilt(tmp_path / "village.tif", seed=3, edge=200, east=2000.0)
    built(tmp_path / "i", write_quilt(tmp_path / "first.tif", seed=4, edge=150, east=-2000.0))

    class Interrupted(ColourEmbedder):
        def embed_inputs(self, inputs: Any) -> Any:
            if not self.calls:
                built(tmp_path / "i", village)
            return super().embed_inputs(inputs)

    built(tmp_path / "i", town, embedder=Interrupted())
    assert [entry.name for entry in MapIndex(tmp_path / "i").manifest.maps] == ["first", "village", "town"]


def test_paths_become_absolute_and_addresses_do_not(
    town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"weights")
    monkeypatch.chdir(tmp_path)
    build_index(["town.tif"], "i", ColourEmbedder(), "model.safetensors", OPTIONS)
    manifest = IndexManifest.read(tmp_path / "i")
    assert manifest.model["name"] == str(model) and manifest.maps[0].paths == (str(town),)

    def open_elsewhere(paths: list[str], *, network: bool) -> Any:
        return [replace(open_maps([str(town)])[0], paths=("https://maps.example/town.tif",))]

    monkeypatch.setattr(build, "open_maps", open_elsewhere)
    build_index(["https://maps.example/town.tif"], "some/far", ColourEmbedder(), "colours", OPTIONS, network=True)
    assert IndexManifest.read(tmp_path / "some" / "far").maps[0].paths == ("https://maps.example/town.tif",)
    assert MapIndex(tmp_path / "some" / "far").missing == ["town"]


def test_unused_zoom_levels_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    town = np.random.default_rng(0).integers(0, 255, (256, 256, 3), dtype=np.uint8)
    tiles = {(16, x, y): town for x in (33000, 33001) for y in (22000, 22001)}
    folder = write_tile_folder(tmp_path / "tiles", tiles)
    options = ViewOptions((400.0,), 0.0)
    built(tmp_path / "i", folder, options=options)
    assert "zoom" not in caplog.text
    write_tile_folder(folder, {(18, 33000 * 4, 22000 * 4): town})
    built(tmp_path / "i", folder, options=options)
    assert caplog.text.count(f"{folder}: the map has zoom level 16; deeper levels (18) cover only a part of it") == 1


def test_links_to_maps_and_models_keep_their_names(town: Path, tmp_path: Path) -> None:
    """As in Hugging Face's cache: a link with a meaningful name points to a blob without one."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    town.rename(blobs / "c0ffee")
    (blobs / "beef").write_bytes(b"weights")
    link, model = snapshot / "town.tif", snapshot / "model.safetensors"
    link.symlink_to(blobs / "c0ffee")
    model.symlink_to(blobs / "beef")
    build_index([str(link)], tmp_path / "i", ColourEmbedder(), str(model), OPTIONS)
    manifest = IndexManifest.read(tmp_path / "i")
    assert manifest.model["name"] == str(model) and manifest.maps[0].paths == (str(link),)
    index = MapIndex(tmp_path / "i")
    assert index.missing == [] and list(index.sources) == ["town"]
    write_quilt(blobs / "c0ffee", seed=2, edge=300)
    assert built(tmp_path / "i", link) == {"town": VIEWS}, "a changed map is replaced"


def test_index_with_the_target_of_a_link_finds_its_map(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    town.rename(tmp_path / "town-v2.tif")
    town.symlink_to(tmp_path / "town-v2.tif")
    manifest = IndexManifest.read(tmp_path / "i")
    entry = replace(manifest.maps[0], paths=(str(tmp_path / "town-v2.tif"),))
    replace(manifest, maps=(entry,)).write(tmp_path / "i")
    index = MapIndex(tmp_path / "i")
    assert index.missing == [] and index.sources["town"].name == "town"
    write_quilt(tmp_path / "town-v2.tif", seed=2, edge=300)
    assert built(tmp_path / "i", town) == {"town": VIEWS}


def test_remote_map_is_read_only_with_network_permission(
    town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "https://maps.example/town.tif"
    asked: list[str] = []

    def open_elsewhere(text: str) -> Any:
        asked.append(text)
        return replace(open_maps([str(town)])[0], paths=(text,))

    monkeypatch.setattr(sources, "_open_remote", open_elsewhere)
    with pytest.raises(SkyPartError, match="or allow network access with --network"):
        build_index([address], tmp_path / "i", ColourEmbedder(), "colours", OPTIONS)
    build_index([address], tmp_path / "i", ColourEmbedder(), "colours", OPTIONS, network=True)
    assert asked == [address]
    alone = MapIndex(tmp_path / "i")  # the file of the same name beside it is not that map
    footprint = alone.search(_any(), 1)[0][0].footprint
    assert alone.missing == ["town"] and alone.view(footprint, 64) is None and not alone.tile(15, 17203, 11357).any()
    assert alone.missing_reasons() == [
        f"the map town is on the network ({address}), which is used only with --network: "
        "positions in it are not refined, and it is not shown"
    ]
    assert asked == [address], "the network was not used"
    online = MapIndex(tmp_path / "i", network=True)
    assert online.missing == [] and online.missing_reasons() == [] and online.view(footprint, 64) is not None
    assert asked == [address, address]
    town.unlink()
    gone = MapIndex(tmp_path / "i", network=True)
    assert f"cannot be read from {address}" in gone.missing_reasons()[0] and gone.missing == ["town"]


def test_large_index_gets_its_approximate_cache(town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tmp_path / "i", town)
    assert MapIndex(tmp_path / "i").store.stats().recall is None
    monkeypatch.setattr(approximate, "MIN_VIEWS", VIEWS)
    assert built(tmp_path / "i", town) == {}  # a missing cache, as after a crash, is built
    recall = MapIndex(tmp_path / "i").store.stats().recall
    assert recall is not None and recall >= approximate.MIN_RECALL
    before = files(tmp_path / "i")
    built(tmp_path / "i", town)
    assert files(tmp_path / "i") == before, "built only once"


def test_moved_map_is_found_beside_the_index_and_a_lost_one_is_missing(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "kept" / "i", town)
    footprint = MapIndex(tmp_path / "kept" / "i").search(_any(), 1)[0][0].footprint
    whole = MapIndex(tmp_path / "kept" / "i")
    assert whole.missing == []
    before = whole.view(footprint, 64)
    shutil.move(town, tmp_path / "kept" / "town.tif")
    beside = MapIndex(tmp_path / "kept" / "i")
    assert beside.missing == []
    after = beside.view(footprint, 64)
    assert before is not None and after is not None and np.array_equal(before, after)
    (tmp_path / "kept" / "town.tif").unlink()
    lost = MapIndex(tmp_path / "kept" / "i")
    assert lost.missing == ["town"] and lost.view(footprint, 64) is None and (lost.render() == 255).all()
    assert [why.partition(":")[0] for why in lost.missing_reasons()] == [
        "the map town was moved or changed since it was indexed"
    ]
    assert not lost.tile(15, 17203, 11357).any()
    assert len(lost.search(_any(), 5)[0]) == 5, "what was indexed can still be searched"


@pytest.mark.parametrize("harm", ["changed", "cut short", "not a map"])
def test_changed_or_damaged_map_is_missing(harm: str, town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    if harm == "changed":
        write_quilt(town, seed=9, edge=300)
    else:
        data = town.read_bytes()
        town.write_bytes(data[: len(data) // 2] if harm == "cut short" else b"no map")
    index = MapIndex(tmp_path / "i")
    assert index.missing == ["town"] and index.view(index.search(_any(), 1)[0][0].footprint, 64) is None


DAMAGES: dict[str, Any] = {
    "no JSON": lambda text: text[:100],
    "not UTF-8": lambda text: b"\xff\xfe" + text.encode(),
    "a list": lambda text: "[]",
    "null": lambda text: "null",
    "no model": lambda text: text.replace('"digest"', '"digestive"'),
    "no bounds": lambda text: text.replace('"south"', '"somewhere"'),
    "no options": lambda text: text.replace('"overlap"', '"underlap"'),
    "sizes of words": lambda text: text.replace("120.0", '"wide"'),
    "store without address": lambda text: text.replace('"format": 1', '"format": 1, "store": 5'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_manifest_raises_a_clear_error(damage: str, town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    file = tmp_path / "i" / "index.json"
    harmed = DAMAGES[damage](file.read_text())
    file.write_bytes(harmed if isinstance(harmed, bytes) else harmed.encode())
    with pytest.raises(SkyPartError, match=r"index\.json: damaged .*index the map again"):
        MapIndex(tmp_path / "i")


def test_another_format_and_a_missing_index_raise_clear_errors(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    file = tmp_path / "i" / "index.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
    with pytest.raises(SkyPartError, match="has format 99, this version of SkyPart reads 1"):
        MapIndex(tmp_path / "i")
    with pytest.raises(SkyPartError, match="no map index; create one with `skypart index"):
        MapIndex(tmp_path / "nowhere")


def test_index_without_views_raises_a_clear_error(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    shutil.rmtree(tmp_path / "i" / "store")
    with pytest.raises(SkyPartError, match="store: the views of this index are gone; restore them from a backup"):
        MapIndex(tmp_path / "i")


def test_index_json_omits_the_default_store(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    file = tmp_path / "i" / "index.json"
    content = json.loads(file.read_text())
    assert list(content) == ["model", "options", "maps", "calibration", "format", "sha256"]
    del content["sha256"]  # as in files of older versions
    file.write_text(json.dumps(content | {"store": "embedded:"}))
    assert MapIndex(tmp_path / "i").store.stats().views == VIEWS
    file.write_text(json.dumps(content | {"store": "nowhere:town"}))
    with pytest.raises(
        SkyPartError, match=r"store: unknown store address nowhere:; use one that starts with embedded:"
    ):
        MapIndex(tmp_path / "i")


def test_manifest_round_trip(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    manifest = replace(MapIndex(tmp_path / "i").manifest, calibration={"weights": [1, 2.5]})
    manifest.write(tmp_path / "i")
    assert IndexManifest.read(tmp_path / "i") == manifest


@pytest.mark.parametrize(
    ("sizes", "overlap", "rotations", "words"),
    [
        ("a,b", None, None, "give metres separated by commas"),
        ("100,", None, None, "give metres separated by commas"),
        ("100,-5", None, None, "greater than 0"),
        ("nan", None, None, "greater than 0"),
        ("100,inf", None, None, "greater than 0"),
        ("", 0.95, None, "between 0 and 0.9"),
        ("", float("nan"), None, "between 0 and 0.9"),
        ("", None, 0, "between 1 and 36"),
    ],
)
def test_invalid_view_options_are_rejected(
    sizes: str, overlap: float | None, rotations: int | None, words: str
) -> None:
    with pytest.raises(SkyPartError, match=words):
        view_options(sizes, overlap, rotations)


def test_view_options_of_the_command_line() -> None:
    assert view_options("", None, None) is None
    assert view_options("80, 120", None, 4) == ViewOptions((80.0, 120.0), ViewOptions().overlap, 4)
    assert ViewOptions(rotations=4).angles == (0.0, 90.0, 180.0, 270.0)


def box(west: float, east: float, south: float = 0.0, north: float = 1.0) -> Bounds:
    return Bounds(south=south, west=west, north=north, east=east)


@pytest.mark.parametrize(
    ("boxes", "west", "east"),
    [
        ([(10, 12)], 10, 12),
        ([(10, 12), (11, 20)], 10, 20),
        ([(170, 175), (-175, -170)], 170, -170),
        ([(179, -179)], 179, -179),
        ([(179, -179), (-170, -160)], 179, -160),
        ([(-5, 5), (170, -170)], -5, -170),
        ([(-10, -9), (9, 10), (169, 170), (-170, -169)], -10, -169),
        ([(-180, 180), (5, 6)], -180, 180),
        ([(0, 170), (160, -20), (-30, 10)], -180, 180),
    ],
)
def test_join_bounds_gives_the_smallest_box(boxes: list[tuple[float, float]], west: float, east: float) -> None:
    joined = join_bounds([box(*each) for each in boxes])
    assert (joined.south, joined.north) == (0, 1)
    wide = Bounds(south=0, west=west, north=1, east=east).degrees_wide
    assert joined.degrees_wide == pytest.approx(wide)
    for each in boxes:
        for longitude in each:
            assert (longitude - joined.west) % 360 <= joined.degrees_wide + 1e-9
    if len(boxes) < 4:
        assert (joined.west, joined.east) == pytest.approx((west, east))


def test_rendered_image_shows_each_map_at_its_position(town: Path, tmp_path: Path) -> None:
    village = write_quilt(tmp_path / "village.tif", seed=3, edge=300, east=600.0)
    built(tmp_path / "i", town, village)
    index = MapIndex(tmp_path / "i")
    image = index.render(edge=450)
    assert image.shape[1] == 450 and abs(image.shape[0] - 150) <= 2
    assert (image[10:-10, 160:290] == 255).all(), "the gap between the maps is white"
    for seed, left in ((1, 0), (3, 300)):
        shown = image[:, left : left + 150].astype(float)
        small = quilt(seed, 300).reshape(150, 2, 150, 2, 3).mean(axis=(1, 3))
        rows = min(len(shown), 150)
        inner = np.abs(shown[:rows] - small[:rows])[8:-8, 8:-8]
        assert inner.mean() < 12, f"map {seed} is not where it should be"


def test_tile_shows_the_map(town: Path, tmp_path: Path) -> None:
    built(tmp_path / "i", town)
    index = MapIndex(tmp_path / "i")
    latitude, longitude = degrees(0.0, 0.0)
    z = 17
    x = int((longitude + 180) / 360 * 2**z)
    y = int((1 - np.arcsinh(np.tan(np.radians(latitude))) / np.pi) / 2 * 2**z)
    tile = index.tile(z, x, y)
    assert tile.shape == (256, 256, 4) and (tile[..., 3] == 255).any()
    assert not index.tile(z, x + 50, y)[..., 3].any()


def test_views_of_an_abandoned_attempt_are_deleted(town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Negative(ColourEmbedder):
        """Another model, with the opposite embeddings."""

        def embed_inputs(self, inputs: Any) -> Any:
            return -super().embed_inputs(inputs)

    first = ColourEmbedder()
    with monkeypatch.context() as patched:
        KILLS["between store and manifest"](patched, first)
        with pytest.raises(Killed):
            built(tmp_path / "again", town, embedder=first)
    for folder in ("again", "fresh"):
        built(tmp_path / folder, town, embedder=Negative("negative"))
    assert files(tmp_path / "again") == files(tmp_path / "fresh")


def test_keys_in_addresses_are_not_shown(town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_quilt(tmp_path / "other.tif", seed=5, edge=200, east=4000.0)

    def open_elsewhere(text: str) -> Any:
        file = town if "2024" in text else other
        return replace(open_maps([str(file)])[0], name="town", paths=(text,))

    monkeypatch.setattr(sources, "_open_remote", open_elsewhere)
    first, second = (f"https://me:SECRET@maps.example/{year}/town.tif?sig=SECRET" for year in (2024, 2025))
    build_index([first], tmp_path / "i", ColourEmbedder(), "colours", OPTIONS, network=True)
    messages = MapIndex(tmp_path / "i").missing_reasons()
    town.unlink()
    messages += MapIndex(tmp_path / "i", network=True).missing_reasons()
    for wrong, network in ((first, False), (second, True)):
        with pytest.raises(SkyPartError) as raised:
            build_index([wrong], tmp_path / "i", ColourEmbedder(), "colours", OPTIONS, network=network)
        messages.append(str(raised.value))
    assert len(messages) == 4
    for message in messages:
        assert "https://maps.example/202" in message and "SECRET" not in message


def test_another_address_with_the_same_name_does_not_replace_a_map(
    town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_quilt(tmp_path / "other.tif", seed=5, edge=200, east=4000.0)

    def open_elsewhere(text: str) -> Any:
        file = town if "2024" in text else other
        return replace(open_maps([str(file)])[0], name="town", paths=(text,))

    monkeypatch.setattr(sources, "_open_remote", open_elsewhere)
    first, second = (f"https://maps.example/{year}/town.tif" for year in (2024, 2025))
    build_index([first], tmp_path / "i", ColourEmbedder(), "colours", OPTIONS, network=True)
    before = files(tmp_path / "i")
    with pytest.raises(SkyPartError, match=r"already has a map town, from https://maps\.example/2024/town\.tif"):
        build_index([second], tmp_path / "i", ColourEmbedder(), "colours", OPTIONS, network=True)
    assert files(tmp_path / "i") == before
    table = maps_table(MapIndex(tmp_path / "i"))
    assert list(table.columns[-1].cells) == ["on the network"]


def test_index_opened_as_the_current_folder(town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tmp_path / "i.skyindex", town)
    (tmp_path / "far").mkdir()
    (tmp_path / "i.skyindex").rename(tmp_path / "far" / "i.skyindex")
    town.rename(tmp_path / "far" / "town.tif")
    monkeypatch.chdir(tmp_path / "far" / "i.skyindex")
    index = MapIndex(".")
    assert index.name == "i" and index.missing == []


def test_unreadable_index_raises_a_clear_error(town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tmp_path / "i", town)

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    for owner, function in ((manifest, "read_file"), (Path, "is_file")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, function, refuse)
            with pytest.raises(SkyPartError, match=r"index\.json: cannot be read \(Permission denied\)"):
                IndexManifest.read(tmp_path / "i")
