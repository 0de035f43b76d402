"""Whole sets from a server to a folder that worlds are rendered from."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from skypart.cli import main
from skypart.datasets.fetch import SETS, fetch
from skypart.datasets.fetch.github import Snapshot
from skypart.datasets.fetch.gridding import Grid
from skypart.datasets.fetch.indexed_images import Mosaic
from skypart.datasets.fetch.parts import EptMap, Mosaics, Places, PotreeMap
from skypart.datasets.fetch.reference import compare, hashes, summarise_maps
from skypart.datasets.fetch.run import fetch_set
from skypart.datasets.fetch.sets import MapSet
from skypart.errors import SkyPartError
from skypart.geo.units import US_SURVEY_FOOT
from skypart.worlds.rasters import find_sources
from tests.datasets.fetch.fake_clouds import ept, potree
from tests.datasets.fetch.fake_github import FAST_RETRIES, FakeGitHub, parts_left
from tests.datasets.fetch.test_indexed_images import place, smooth

CLOUD = Snapshot("student/final", "c1", "potree/pointclouds/index")
LOW = (5_100_000.0, 3_480_000.0, 500.0)


def hilly() -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Points over 300 x 300 feet: a slope with a block on it; colours tell where they lie."""
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, 299, (2, 12_000))
    z = 20 + 0.1 * x + 30 * ((np.abs(x - 200) < 20) & (np.abs(y - 80) < 20))
    rgb = np.stack([x * 0.8, y * 0.8, np.full_like(x, 90)], axis=1).astype(np.uint8)
    return np.column_stack([x, y, z]) + LOW, rgb


def below(folder: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{path}": content for path, content in files.items()}


@pytest.fixture
def lidar(github: FakeGitHub) -> MapSet:
    """A set of two maps from one Potree cloud, the second a crop, offered by the server."""
    xyz, rgb = hilly()
    github.repositories["student/final@c1"] = below(CLOUD.folder, potree(xyz, rgb, LOW, 300.0, leaf=200)) | {
        "README.md": b"unwanted"
    }
    facts = (("origin_lower_left_ft_ky_single_zone", LOW[:2]),)
    whole = PotreeMap(CLOUD, "whole", Grid(LOW[:2], US_SURVEY_FOOT, 0.75, 120, 120, 0.0, LOW[2]), facts)
    corner = (LOW[0] + 150, LOW[1] + 30)
    crop = PotreeMap(
        CLOUD,
        "crop",
        Grid(corner, US_SURVEY_FOOT, 0.75, 40, 40, 0.0, LOW[2]),
        (("origin_lower_left_ft_ky_single_zone", corner),),
    )
    return MapSet("lidar", "lidar_folder", "two hills", "CC0", "By nobody.", "Rasterised.", 1, (whole, crop))


def reference(dataset: MapSet, github: FakeGitHub, folder: Path) -> dict[str, Any]:
    """The reference made from a first fetch, for later ones to be compared with."""
    nothing: dict[str, Any] = {"sha256": {}, "likeness": {}}
    made = fetch_set(dataset, folder, nothing, print, github.hosts, FAST_RETRIES)
    github.requests.clear()
    return {"sha256": hashes(made), "likeness": summarise_maps(made)}


def test_a_fetched_set_becomes_worlds(github: FakeGitHub, lidar: MapSet, tmp_path: Path) -> None:
    messages: list[str] = []
    expected = reference(lidar, github, tmp_path / "first")
    made = fetch_set(lidar, tmp_path / "out", expected, messages.append, github.hosts, FAST_RETRIES)
    assert made == tmp_path / "out" / "lidar_folder"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lidar_folder"], "the sources are deleted"
    assert "licence: CC0. By nobody." in messages[0] and "all 6 files are byte for byte" in messages[-1]
    assert "CC0" in (made / "LICENSE").read_text()
    provenance = (made / "PROVENANCE.txt").read_text()
    assert CLOUD.address in provenance and "byte for byte" in provenance
    assert len(github.requested_files) == len(set(github.requested_files)), "the crop needs no further files"
    worlds = {source.name: source.load() for source in find_sources(made)}
    assert set(worlds) == {"whole", "crop"}
    block = worlds["whole"].satellite.rgb[int(120 - 80 * US_SURVEY_FOOT / 0.75), int(200 * US_SURVEY_FOOT / 0.75)]
    np.testing.assert_allclose(block, (160, 64, 90), atol=6)
    asked = len(github.requests)
    fetch_set(lidar, tmp_path / "out", expected, messages.append, github.hosts, FAST_RETRIES)
    assert "already exists" in messages[-1] and len(github.requests) == asked


def test_a_crop_downloads_only_the_nodes_it_needs(github: FakeGitHub, lidar: MapSet, tmp_path: Path) -> None:
    crop = MapSet(**{**vars(lidar), "parts": lidar.parts[1:]})
    reference(lidar, github, tmp_path / "all")
    fetch_set(crop, tmp_path / "out", {"sha256": {}, "likeness": {}}, print, github.hosts, FAST_RETRIES)
    nodes = sum(path.endswith(".bin") for path in github.repositories["student/final@c1"])
    assert 5 < len(github.requested_files) < 0.6 * nodes
    part, whole = (tmp_path / out / "lidar_folder" / "crop_dsm.png" for out in ("out", "all"))
    assert part.read_bytes() == whole.read_bytes()


def test_an_interrupted_fetch_resumes(github: FakeGitHub, lidar: MapSet, tmp_path: Path) -> None:
    expected = reference(lidar, github, tmp_path / "first")
    files = github.repositories["student/final@c1"]
    gone = [path for path in files if path.endswith(".bin")][len(files) // 2]
    github.codes[gone] = [404]
    with pytest.raises(SkyPartError, match="responded 404"):
        fetch_set(lidar, tmp_path / "out", expected, print, github.hosts, FAST_RETRIES)
    assert not (tmp_path / "out" / "lidar_folder").exists(), "written atomically"
    before = set(github.requested_files)
    github.requests.clear()
    github.breaks = 3
    made = fetch_set(lidar, tmp_path / "out", expected, print, github.hosts, FAST_RETRIES)
    assert compare(made, expected).identical == 6
    assert not any(path.startswith("/api/") for path, _ in github.requests), "the listing is cached"
    again = set(github.requested_files) & before
    assert len(again) < 0.5 * len(before), "finished downloads are not requested again"
    assert not parts_left(tmp_path)


def test_altered_sources_and_different_ground_raise(github: FakeGitHub, lidar: MapSet, tmp_path: Path) -> None:
    expected = reference(lidar, github, tmp_path / "first")
    path = next(path for path in github.repositories["student/final@c1"] if path.endswith("r.bin"))
    github.altered.add(f"/raw/student/final/c1/{path}")
    with pytest.raises(SkyPartError, match="unexpected size or checksum"):
        fetch_set(lidar, tmp_path / "out", expected, print, github.hosts, FAST_RETRIES)
    github.altered.clear()
    expected["likeness"]["whole"]["height"] = [each + 5 for each in expected["likeness"]["whole"]["height"]]
    assert compare(tmp_path / "first" / "lidar_folder", expected).identical == 6, "identical bytes are enough"
    expected["sha256"]["whole_dsm.png"] = "0" * 64
    with pytest.raises(SkyPartError, match=r"shows different ground .* heights by 5\.0 m"):
        fetch_set(lidar, tmp_path / "out", expected, print, github.hosts, FAST_RETRIES)
    assert not (tmp_path / "out" / "lidar_folder").exists()
    expected["likeness"]["whole"]["height"] = [each - 4.5 for each in expected["likeness"]["whole"]["height"]]
    messages: list[str] = []
    fetch_set(lidar, tmp_path / "out", expected, messages.append, github.hosts, FAST_RETRIES)
    assert "5 of 6 files are byte for byte" in messages[-1] and "heights by 0.50 m" in messages[-1]


def test_missing_points_raise(github: FakeGitHub, lidar: MapSet, tmp_path: Path) -> None:
    files = github.repositories["student/final@c1"]
    del files[next(path for path in files if path.endswith(".bin"))]
    with pytest.raises(SkyPartError, match=r"has [\d,]+ of 12,000 points"):
        fetch_set(lidar, tmp_path, {"sha256": {}, "likeness": {}}, print, github.hosts, FAST_RETRIES)


def test_point_tiles_places_and_mosaics_become_worlds(github: FakeGitHub, tmp_path: Path) -> None:
    xyz, rgb = hilly()
    github.repositories["PDAL/data@c2"] = below("entwine/binary", ept(xyz, rgb, LOW, False))
    grid = Grid(LOW[:2], 0.3048, 1.0, 90, 90, 0.0)
    facts = (("origin_ll_m", tuple(each * 0.3048 for each in LOW[:2])), ("crs", "Oregon Lambert"))
    tiled = EptMap(Snapshot("PDAL/data", "c2", "entwine/binary"), "autzen", grid, facts)
    tifs = [place(tmp_path / "tifs" / f"bishop_{year}_1.tif", year) for year in (2016, 2018)]
    github.repositories["trees/data@c3"] = {f"images/{tif.name}": tif.read_bytes() for tif in tifs}
    mosaic = Mosaic("kampala_0", 1238448, 1046528, 2, 1)
    tiles = {}
    for x, y in mosaic.tiles:
        image = io.BytesIO()
        Image.fromarray(smooth(x % 100, 256)).save(image, "PNG")
        tiles[f"data/2/OAM-{x}-{y}-21.png"] = image.getvalue()
    github.repositories["hotosm/utilities@c4"] = tiles | {"data/2/OAM-1-1-21.png": b"unwanted"}
    for name, part in (
        ("ept", tiled),
        ("places", Places(Snapshot("trees/data", "c3", "images"), 2)),
        ("mosaics", Mosaics(Snapshot("hotosm/utilities", "c4", "data"), (mosaic,))),
    ):
        dataset = MapSet(name, name, "w", "l", "t", "c", 1, (part,))
        made = fetch_set(dataset, tmp_path, {"sha256": {}, "likeness": {}}, print, github.hosts, FAST_RETRIES)
        assert all(source.load().satellite.rgb.any() for source in find_sources(made))
    assert (tmp_path / "ept" / "meta.json").is_file()
    assert not any("OAM-1-1" in path for path in github.requested_files)
    fewer = MapSet("n", "n", "w", "l", "t", "c", 1, (Places(Snapshot("trees/data", "c3", "images"), 3),))
    with pytest.raises(SkyPartError, match="2 instead of 3 images"):
        fetch_set(fewer, tmp_path, {"sha256": {}, "likeness": {}}, print, github.hosts, FAST_RETRIES)


def test_bad_arguments_get_a_clear_error_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SkyPartError, match="no data set called 'moon'; choose one of naip-california"):
        fetch("moon", tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SkyPartError, match=r"cannot write .*; choose another folder"):
        fetch("autzen", tmp_path / "file")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["skypart", "data", "fetch"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    assert all(name in shown for name in SETS) and "CC-BY 4.0" in shown


def test_leftovers_of_a_call_interrupted_at_its_end_are_removed(lidar: MapSet, tmp_path: Path) -> None:
    left = tmp_path / f".{lidar.folder}.part"
    for folder in (tmp_path / lidar.folder, left):
        folder.mkdir()
    (left / "large.bin").write_bytes(b"x")
    fetch_set(lidar, tmp_path, {"sha256": {}, "likeness": {}}, lambda _: None)
    assert not left.exists() and (tmp_path / lidar.folder).is_dir()


def test_temporary_files_of_a_killed_call_are_removed(github: FakeGitHub, tmp_path: Path) -> None:
    tif = place(tmp_path / "tifs" / "bishop_2016_1.tif", 0)
    github.repositories["trees/data@c3"] = {f"images/{tif.name}": tif.read_bytes()}
    places = MapSet("p", "p", "w", "l", "t", "c", 1, (Places(Snapshot("trees/data", "c3", "images"), 1),))
    expected = reference(places, github, tmp_path / "first")
    images = tmp_path / "out" / ".p.part" / "made" / "images"
    images.mkdir(parents=True)
    for left in (images / ".bishop_2016_1.tmp-0123abcd.jpg", images.parent / ".index.tmp-0123abcd.csv"):
        left.write_bytes(b"half")
    made = fetch_set(places, tmp_path / "out", expected, print, github.hosts, FAST_RETRIES)
    assert compare(made, expected).identical == 2
    assert not list(made.rglob(".*"))
    (made / "images" / ".DS_Store").touch()
    (made / ".index.tmp-0123abcd.csv").touch()
    assert hashes(made) == expected["sha256"], "hidden files do not count"
