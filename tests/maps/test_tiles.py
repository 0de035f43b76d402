"""Folders and archives of Web Mercator tiles."""

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pmtiles.tile import TileType, deserialize_header, tileid_to_zxy

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.maps.map_source import MapSource
from skypart.maps.sources import open_maps
from skypart.maps.tile_sets import PmTiles, tiles_from_ids
from skypart.maps.tiles import complete_levels
from skypart.maps.views import ground_at, read_view
from tests.maps.makers import (
    Rgb,
    ground,
    sample,
    tile_image,
    tile_of,
    write_mbtiles,
    write_pmtiles,
    write_tile_folder,
)

AROUND = (33.64, 72.99)
ZOOM = 18


def tiles_around(place: tuple[float, float], zoom: int, reach: int) -> dict[tuple[int, int, int], Rgb]:
    """Tiles of the synthetic ground, `reach` to every side of the one at a place."""
    x, y = tile_of(*place, zoom)
    span = range(-reach, reach + 1)
    spots = [((x + dx) % 2**zoom, y + dy) for dx in span for dy in span]
    return {(zoom, *spot): tile_image(zoom, *spot, place) for spot in spots}


def encoded(tiles: dict[tuple[int, int, int], Rgb]) -> dict[tuple[int, int, int], bytes]:
    found = {}
    for place, rgb in tiles.items():
        stream = io.BytesIO()
        Image.fromarray(rgb).save(stream, "PNG")
        found[place] = stream.getvalue()
    return found


def check_ground(source: MapSource, place: tuple[float, float], worst: float = 5.0, metres: float = 80.0) -> None:
    view = Footprint(latitude=place[0], longitude=place[1], metres=metres, rotation=20.0)
    rgb, valid = read_view(source, view, 96)
    middle = (np.arange(96) + 0.5) / 96
    assert valid == 1.0
    assert np.abs(rgb - ground(*ground_at(view, middle[None, :], middle[:, None]), around=place)).max() < worst


@pytest.mark.parametrize(("suffix", "worst"), [(".png", 5.0), (".jpg", 12.0), (".webp", 14.0)])
def test_folder_of_tiles(tmp_path: Path, suffix: str, worst: float) -> None:
    folder = write_tile_folder(tmp_path / "town", tiles_around(AROUND, ZOOM, 1), suffix)
    source = open_maps([str(folder)])[0]
    assert (source.name, source.paths) == ("town", (str(folder),))
    assert source.gsd_m == pytest.approx(0.597 * np.cos(np.radians(AROUND[0])), rel=0.01)
    check_ground(source, AROUND, worst)


@pytest.mark.parametrize("declared_in", ["tilemapresource.xml", "metadata.json"])
def test_tms_rows_count_from_the_south(tmp_path: Path, declared_in: str) -> None:
    folder = write_tile_folder(tmp_path / "town", tiles_around(AROUND, ZOOM, 1), tms=True)
    text = "<TileMap><SRS>EPSG:3857</SRS></TileMap>" if declared_in.endswith("xml") else json.dumps({"scheme": "tms"})
    (folder / declared_in).write_text(text)
    check_ground(open_maps([str(folder)])[0], AROUND)


def test_tms_in_degrees_is_rejected(tmp_path: Path) -> None:
    folder = write_tile_folder(tmp_path / "town", tiles_around(AROUND, ZOOM, 0))
    (folder / "tilemapresource.xml").write_text('<TileMap><TileSets profile="geodetic"/></TileMap>')
    with pytest.raises(SkyPartError, match="tiles are in degrees; create them in Web Mercator"):
        open_maps([str(folder)])


@pytest.mark.parametrize("profile", ["raster", "local", "mercator", "global-mercator"])
def test_tms_needs_a_mercator_profile(tmp_path: Path, profile: str) -> None:
    folder = write_tile_folder(tmp_path / "town", tiles_around(AROUND, ZOOM, 1), tms=True)
    text = f"<TileMap version='1.0.0'><SRS>EPSG:3857</SRS><TileSets profile='{profile}'/></TileMap>"
    (folder / "tilemapresource.xml").write_text(text)
    if "mercator" in profile:
        check_ground(open_maps([str(folder)])[0], AROUND)
        return
    with pytest.raises(SkyPartError, match=rf"tilemapresource\.xml: its tiles have the profile {profile}.*-p mercator"):
        open_maps([str(folder)])


@pytest.mark.parametrize("place", [AROUND, (-16.5, 180.0), (-80.0, -179.9999)])
def test_archives(tmp_path: Path, place: tuple[float, float]) -> None:
    data = encoded(tiles_around((place[0], min(place[1], 179.99999)), ZOOM, 1))
    for path in (write_mbtiles(tmp_path / "town.mbtiles", data), write_pmtiles(tmp_path / "town.pmtiles", data)):
        source = open_maps([str(path)])[0]
        assert source.name == "town"
        assert (source.bounds.east - source.bounds.west) % 360 < 0.01
        truth = (place[0], min(place[1], 179.99999))
        check_ground(source, truth, metres=80.0 if place[0] > -60 else 40.0)


def test_vector_tiles_are_rejected(tmp_path: Path) -> None:
    data = {(0, 0, 0): b"\x1f\x8b vector"}
    for path in (
        write_mbtiles(tmp_path / "a.mbtiles", data, "pbf"),
        write_pmtiles(tmp_path / "a.pmtiles", data, TileType.MVT),
    ):
        with pytest.raises(SkyPartError, match=r"contains vector tiles; give raster tiles"):
            open_maps([str(path)])


def test_deepest_complete_zoom_level_is_used(tmp_path: Path) -> None:
    """Zoom level 19 covers one street only, so the map has level 18; coarse views come from level 16."""
    tiles = tiles_around(AROUND, ZOOM, 2)
    for x, y in {(x >> 2, y >> 2) for _, x, y in tiles}:
        tiles[(16, x, y)] = np.full((256, 256, 3), 77, np.uint8)
    tiles |= tiles_around(AROUND, 19, 0)
    source = open_maps([str(write_tile_folder(tmp_path / "town", tiles))])[0]
    check_ground(source, AROUND)
    far = Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=400.0)
    assert (read_view(source, far, 20).rgb == 77).all()
    note = f"{tmp_path / 'town'}: the map has zoom level 18; deeper levels (19) cover only a part of it"
    assert source.images[0].note.startswith(note)


def test_complete_levels() -> None:
    x, y = np.meshgrid(np.arange(8), np.arange(8))
    levels = {3: np.stack([x.ravel(), y.ravel()], axis=1)}
    levels[2] = np.unique(levels[3] >> 1, axis=0)
    levels[5] = levels[3] << 2  # one of sixteen descendants each is enough
    assert set(complete_levels(levels)) == {2, 3, 5}
    levels[5] = levels[5][:40]
    assert set(complete_levels(levels)) == {2, 3}


def test_missing_and_transparent_tiles_are_invalid(tmp_path: Path) -> None:
    tiles = tiles_around(AROUND, ZOOM, 1)
    x, y = tile_of(*AROUND, ZOOM)
    del tiles[(ZOOM, x + 1, y)]
    clear = np.dstack([tiles.pop((ZOOM, x - 1, y)), np.zeros((256, 256), np.uint8)])
    folder = write_tile_folder(tmp_path / "town", tiles | {(ZOOM, x - 1, y): clear})
    source = open_maps([str(folder)])[0]
    grid = source.grids[0]
    column, row = np.meshgrid(np.arange(768) + 0.5, np.arange(256, 512) + 0.5)
    lat, lon = grid.to_degrees(column[::4, ::4], row[::4, ::4])
    rgb, valid = sample(source, lat, lon)
    assert (valid == ((column[::4, ::4] > 256) & (column[::4, ::4] < 512))).mean() > 0.98
    seen = ground(lat, lon, around=AROUND)
    inner = np.s_[:, 70:122]
    assert np.abs(rgb[inner] - seen[inner]).max() < 25  # averaged over 4 x 4 pixels


def test_error_names_a_damaged_tile(tmp_path: Path) -> None:
    data = encoded(tiles_around(AROUND, ZOOM, 1))
    x, y = tile_of(*AROUND, ZOOM)
    data[(ZOOM, x, y)] = data[(ZOOM, x, y)][:2000]
    source = open_maps([str(write_mbtiles(tmp_path / "town.mbtiles", data))])[0]
    with pytest.raises(SkyPartError, match=rf"town.mbtiles: tile {ZOOM}/{x}/{y} is not an image or is truncated"):
        check_ground(source, AROUND)


@pytest.mark.parametrize("kind", ["folder", "pmtiles"])
def test_error_names_an_unreadable_tile(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = tiles_around(AROUND, ZOOM, 1)
    if kind == "folder":
        path = write_tile_folder(tmp_path / "town", tiles)
    else:
        path = write_pmtiles(tmp_path / "town.pmtiles", encoded(tiles))
    source = open_maps([str(path)])[0]

    def broken(*_: object, **__: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("skypart.maps.tile_sets.read_file", broken)
    monkeypatch.setattr(PmTiles, "_bytes", broken)
    with pytest.raises(
        SkyPartError, match=rf"town.*: tile {ZOOM}/\d+/\d+ cannot be read \(Input/output error\); check"
    ):
        check_ground(source, AROUND)


def test_truncated_archives_are_rejected(tmp_path: Path) -> None:
    data = encoded(tiles_around(AROUND, ZOOM, 2))
    whole = write_pmtiles(tmp_path / "town.pmtiles", data)
    whole.write_bytes(whole.read_bytes()[:140])
    with pytest.raises(SkyPartError, match=r"town.pmtiles: .*copy it again"):
        open_maps([str(whole)])
    base = write_mbtiles(tmp_path / "town.mbtiles", data)
    base.write_bytes(base.read_bytes()[:5000])
    with pytest.raises(SkyPartError, match=r"town.mbtiles: cannot be read as MBTiles"):
        open_maps([str(base)])


def test_damaged_directory_raises_a_clear_error(tmp_path: Path) -> None:
    whole = write_pmtiles(tmp_path / "town.pmtiles", encoded(tiles_around(AROUND, ZOOM, 1))).read_bytes()
    header = deserialize_header(whole[:127])
    root = header["root_offset"]
    rejected = 0
    for number in range(header["root_length"]):
        changed = bytearray(whole)
        changed[root + number] ^= 0x5A
        (tmp_path / f"{number}.pmtiles").write_bytes(changed)
        try:
            open_maps([str(tmp_path / f"{number}.pmtiles")])
        except SkyPartError:
            rejected += 1
    assert rejected > header["root_length"] / 2


def test_cyclic_and_oversized_directories_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = PmTiles(write_pmtiles(tmp_path / "town.pmtiles", encoded(tiles_around(AROUND, ZOOM, 1))))
    monkeypatch.setattr(archive, "_directory", lambda *_: np.array([[0, 0, 0, 10]]))
    with pytest.raises(SkyPartError, match="directories form a cycle"):
        archive.tiles()
    monkeypatch.setattr(archive, "_directory", lambda *_: np.array([[0, 10**12, 0, 10]]))
    with pytest.raises(SkyPartError, match=r"lists more than 1,000,000 tiles"):
        archive.tiles()


@pytest.mark.parametrize("change", ["zoom_level = NULL", "zoom_level = 'deep'", "zoom_level = 99", "tile_data = NULL"])
def test_damaged_table_of_tiles_raises_a_clear_error(tmp_path: Path, change: str) -> None:
    path = write_mbtiles(tmp_path / "town.mbtiles", encoded(tiles_around(AROUND, ZOOM, 1)))
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"UPDATE tiles SET {change}")
    with pytest.raises(SkyPartError, match=r"town.mbtiles: its table of tiles is damaged"):
        check_ground(open_maps([str(path)])[0], AROUND)


def test_archive_without_tiles_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"town.mbtiles: contains no tiles"):
        open_maps([str(write_mbtiles(tmp_path / "town.mbtiles", {}))])


def test_tile_ids_follow_the_hilbert_curve() -> None:
    numbers = np.concatenate([np.arange(1 + 4 + 16 + 64), np.array([12_345_678_901, 4**15])])
    found = {(z, *place) for z, places in tiles_from_ids(numbers).items() for place in places.tolist()}
    assert found == {tileid_to_zxy(int(number)) for number in numbers}


def test_fingerprint_depends_on_the_tiles(tmp_path: Path) -> None:
    folder = write_tile_folder(tmp_path / "town", tiles_around(AROUND, ZOOM, 1))
    first = open_maps([str(folder)])[0].fingerprint
    assert open_maps([str(folder)])[0].fingerprint == first
    next(folder.rglob("*.png")).unlink()
    assert open_maps([str(folder)])[0].fingerprint != first
