"""Maps that would hang, exhaust memory, leave their folder or end in a traceback: each is one error message."""

import gzip
import io
import os
import sqlite3
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.images.raster_files import sidecars
from skypart.maps import rasters, tile_sets
from skypart.maps.files import HANDLES
from skypart.maps.image_table import MAX_LINES
from skypart.maps.pixels import PixelBox
from skypart.maps.rasters import read_raster
from skypart.maps.sources import open_maps
from skypart.maps.store.manifest import read_manifest
from skypart.maps.views import plan_views
from skypart.worlds import find_sources
from tests.maps.makers import write_ground, write_mbtiles, write_pmtiles, write_tile_folder


def tile(edge: int = 256) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (edge, edge, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


TILE = tile()
FEW = {(16, 100 + x, 200 + y): TILE for x in range(2) for y in range(2)}


def refused(path: Path, match: str = ": ") -> str:
    with pytest.raises(SkyPartError, match=match) as error:
        open_maps([str(path)])
    assert "\n" not in str(error.value)
    return str(error.value)


def mbtiles(path: Path, *statements: str) -> Path:
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE metadata (name text, value text)")
    for statement in statements:
        base.execute(statement)
    base.commit()
    base.close()
    return path


# --- MBTiles --------------------------------------------------------------------------------------------------------

ENDLESS = (
    "CREATE VIEW tiles AS WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) "
    "SELECT 16 AS zoom_level, i AS tile_column, 0 AS tile_row, x'00' AS tile_data FROM n"
)


def test_a_recursive_view_is_refused(tmp_path: Path) -> None:
    refused(mbtiles(tmp_path / "a.mbtiles", ENDLESS), "view 'tiles' is not supported")


def test_a_virtual_table_is_refused(tmp_path: Path) -> None:
    refused(mbtiles(tmp_path / "a.mbtiles", "CREATE VIRTUAL TABLE tiles USING fts5(zoom_level)"), "not supported")


def test_a_query_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins of joins need no odd words, and this one never has a row."""
    monkeypatch.setattr(tile_sets, "QUERY_SECONDS", 0.5)
    first = "CREATE TABLE t0 (zoom_level integer, tile_column integer, tile_row integer, tile_data blob)"
    rows = [f"INSERT INTO t0 VALUES (16, {i}, 0, x'00')" for i in range(60)]
    join = "CREATE VIEW tiles AS SELECT a.* FROM t0 a, t0 b, t0 c, t0 d, t0 e, t0 f WHERE f.tile_row > a.tile_row"
    start = time.monotonic()
    refused(mbtiles(tmp_path / "a.mbtiles", first, *rows, join), "interrupted")
    assert time.monotonic() - start < 60


def test_the_queries_of_a_file_have_one_budget_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing the tiles is cheap here, and each tile expensive: an index of n tiles would take n times the limit."""
    monkeypatch.setattr(tile_sets, "MORE_SECONDS", 0.0)
    monkeypatch.setattr(tile_sets, "_STEPS", 1_000)
    count = "(SELECT count(*) FROM t0 a, t0 b, t0 c WHERE a.tile_row + b.tile_row + c.tile_row >= 0)"
    base = sqlite3.connect(tmp_path / "a.mbtiles")
    base.executescript(
        "CREATE TABLE metadata (name text, value text);"
        "CREATE TABLE t0 (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);"
        "CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, "
        f"substr(tile_data, 1, {count}) AS tile_data FROM t0;"
    )
    base.executemany("INSERT INTO t0 VALUES (16, ?, 0, ?)", [(x, TILE) for x in range(60)])
    base.commit()
    base.close()
    tiles = tile_sets.MbTiles(tmp_path / "a.mbtiles")
    tiles.tiles()
    before = time.thread_time()
    assert tiles.get(16, 0, (1 << 16) - 1)
    tiles._seconds_left = 5.5 * (time.thread_time() - before)
    read: list[int] = []

    def read_all() -> None:
        for x in range(60):
            tiles.get(16, x, (1 << 16) - 1)
            read.append(x)

    with pytest.raises(SkyPartError, match="interrupted"):
        read_all()
    assert 0 < len(read) < 20


def test_a_join_of_many_rows_is_refused_before_they_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four million rows from a file of some kilobytes; without a limit, SQLite would also sort them on disk."""
    monkeypatch.setattr(tile_sets, "_FREE_TILES", 50_000)
    first = "CREATE TABLE t0 (zoom_level integer, tile_column integer, tile_row integer, tile_data blob)"
    rows = [f"INSERT INTO t0 VALUES (16, {i}, 0, x'00')" for i in range(160)]
    join = "CREATE VIEW tiles AS SELECT a.* FROM t0 a, t0 b, t0 c"
    refused(mbtiles(tmp_path / "a.mbtiles", first, *rows, join), "table of tiles is damaged")


def test_views_that_share_equal_tiles_are_read(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "a.mbtiles")
    base.executescript(
        "CREATE TABLE metadata (name text, value text);"
        "CREATE TABLE map (zoom_level integer, tile_column integer, tile_row integer, tile_id text);"
        "CREATE TABLE images (tile_data blob, tile_id text);"
        "CREATE VIEW tiles AS SELECT map.zoom_level AS zoom_level, map.tile_column AS tile_column, "
        "map.tile_row AS tile_row, images.tile_data AS tile_data FROM map JOIN images ON images.tile_id = map.tile_id;"
    )
    base.execute("INSERT INTO images VALUES (?, 'a')", (TILE,))
    base.executemany("INSERT INTO map VALUES (16, ?, ?, 'a')", [(x, y) for x in range(2) for y in range(2)])
    base.commit()
    base.close()
    assert open_maps([str(tmp_path / "a.mbtiles")])[0].images[0].grid.width == 512


@pytest.mark.parametrize("place", [(-1, 0), (0, -1), (1 << 16, 0), (0, 1 << 16), (2**62, 2**62), (-(2**63), 0)])
def test_tile_numbers_beyond_the_world_are_refused(place: tuple[int, int], tmp_path: Path) -> None:
    path = write_mbtiles(tmp_path / "a.mbtiles", FEW)
    base = sqlite3.connect(path)
    base.execute("INSERT INTO tiles VALUES (16, ?, ?, x'00')", place)
    base.commit()
    base.close()
    refused(path, "table of tiles is damaged")


def test_the_file_is_opened_for_reading_only(tmp_path: Path) -> None:
    path = write_mbtiles(tmp_path / "a.mbtiles", FEW)
    with HANDLES.borrow(str(path), tile_sets.MbTiles(path)._connect) as base:
        assert base.execute("PRAGMA trusted_schema").fetchone() == (0,)
        with pytest.raises(sqlite3.Error):
            base.execute("DELETE FROM tiles")
        with pytest.raises(sqlite3.Error):
            base.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))


# --- folders of tiles -----------------------------------------------------------------------------------------------


def folder(path: Path) -> Path:
    pixels = np.asarray(Image.open(io.BytesIO(TILE)))
    return write_tile_folder(path, dict.fromkeys(FEW, pixels))


def test_a_pipe_among_tiles_does_not_hang(tmp_path: Path) -> None:
    made = folder(tmp_path / "tiles")
    os.mkfifo(made / "16" / "101" / "202.png")
    refused(made, "pipe")


@pytest.mark.parametrize("name", ["metadata.json", "tilemapresource.xml"])
def test_a_pipe_instead_of_metadata_does_not_hang(name: str, tmp_path: Path) -> None:
    made = folder(tmp_path / "tiles")
    os.mkfifo(made / name)
    open_maps([str(made)])  # it is no file, so there is no metadata


@pytest.mark.parametrize("name", ["town.tif", "town.mbtiles", "town.csv"])
def test_a_pipe_as_a_map_does_not_hang(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    refused(tmp_path / name, "pipe or device")


def test_links_of_tiles_may_not_leave_the_folder(tmp_path: Path) -> None:
    made = folder(tmp_path / "tiles")
    (tmp_path / "secret.png").write_bytes(TILE)
    (made / "16" / "100" / "202.png").symlink_to(tmp_path / "secret.png")
    refused(made, "outside the tiles' folder")


def test_a_linked_column_may_not_leave_the_folder(tmp_path: Path) -> None:
    made, other = folder(tmp_path / "tiles"), folder(tmp_path / "other")
    (made / "16" / "102").symlink_to(other / "16" / "100")
    refused(made, "outside the tiles' folder")


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    made = folder(tmp_path / "tiles")
    (made / "16" / "100" / "202.png").symlink_to(made / "16" / "100" / "201.png")
    assert open_maps([str(made)])
    link = tmp_path / "link"
    link.symlink_to(made)
    assert open_maps([str(link)])


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "", "\x00", '{"scheme": [1]}'])
def test_odd_tile_metadata_is_no_traceback(text: str, tmp_path: Path) -> None:
    made = folder(tmp_path / "tiles")
    (made / "metadata.json").write_text(text)
    if text.startswith('{"scheme"'):
        open_maps([str(made)])
    else:
        refused(made, "metadata.json")


def test_two_far_tiles_are_refused(tmp_path: Path) -> None:
    far = {(20, 5, 5): TILE, (20, 400_000, 600_000): TILE}
    refused(write_mbtiles(tmp_path / "a.mbtiles", far), "scattered")
    refused(write_pmtiles(tmp_path / "a.pmtiles", far), "scattered")


# --- rasters --------------------------------------------------------------------------------------------------------


def raster(path: Path, edge: int, gsd: float = 0.5, overviews: list[int] | None = None) -> Path:
    """A GeoTIFF without any data, a few KB on disk whatever its size."""
    place = {"crs": "EPSG:32643", "transform": Affine(gsd, 0, 500_000, 0, -gsd, 3_700_000), "dtype": "uint8"}
    tiles = {"tiled": True, "blockxsize": 16_384, "blockysize": 16_384, "SPARSE_OK": True, "BIGTIFF": "YES"}
    with rasterio.open(path, "w", driver="GTiff", width=edge, height=edge, count=1, **place, **tiles) as file:
        if overviews:
            file.build_overviews(overviews)
    return path


def test_forty_billion_pixels_without_overviews_are_refused(tmp_path: Path) -> None:
    """It would be read as a whole to make overviews, for minutes."""
    refused(raster(tmp_path / "a.tif", 200_000, 0.01), r"4e\+10 pixels and no overviews; add overviews with `gdaladdo")


def test_a_piece_of_too_many_pixels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rasters, "MAX_READ_PIXELS", 600 * 600)
    plain = rasters.RasterReader(str(raster(tmp_path / "a.tif", 1_024)), "GTiff")
    coarser = rasters.RasterReader(str(raster(tmp_path / "b.tif", 1_024, overviews=[2])), "GTiff")
    box = PixelBox(0, 0, 1_024, 1_024)
    with pytest.raises(SkyPartError, match=r"a piece of it has 1,024 x 1,024 pixels; add overviews"):
        plain.read(box, 4, 4)
    assert coarser.read(box, 4, 4).rgb.shape == (256, 256, 3)
    with pytest.raises(SkyPartError, match=r"a piece of it has 1,024 x 1,024 pixels"):
        coarser.read(box, 1.5, 4)


def test_fine_overviews_alone_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every coarse view of a map with one fine overview would read nearly all of it."""
    path = raster(tmp_path / "a.tif", 1_024, overviews=[2])
    assert rasters.RasterReader(str(path), "GTiff").has_overviews
    monkeypatch.setattr(rasters, "COARSE_PIXELS", 512 * 512 - 1)
    assert not rasters.RasterReader(str(path), "GTiff").has_overviews
    monkeypatch.setattr(rasters, "MAX_PIXELS", 512 * 512 - 1)
    with pytest.raises(SkyPartError, match="no overviews"):
        rasters.RasterReader(str(path), "GTiff")


@pytest.mark.parametrize("suffix", [".tif.aux.xml", ".prj", ".TIF.AUX.XML", ".tif.ovr.aux.xml"])
def test_a_giant_text_beside_a_map_is_refused(suffix: str, tmp_path: Path) -> None:
    """GDAL reads .aux.xml into memory as a whole, and so did we .prj: holes in a file cost nothing on disk."""
    path = write_ground(tmp_path / "town.tif", "EPSG:32643")
    with path.with_name("town" + suffix).open("wb") as file:
        file.truncate(1 << 30)
    assert "has more than 64 MB; remove it" in refused(path)


# --- PMTiles --------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def pmtiles(path: Path, directory: bytes, packed: bytes | None = None) -> Path:
    """A real file whose root directory is replaced by `directory`."""
    data = bytearray(write_pmtiles(path, FEW).read_bytes())
    content = gzip.compress(directory) if packed is None else packed
    struct.pack_into("<QQ", data, 8, len(data), len(content))
    path.write_bytes(bytes(data) + content)
    return path


@pytest.mark.parametrize(
    "directory",
    [
        varint(1) + varint(5) + varint(2**60) + varint(10) + varint(1),  # run length
        varint(1) + varint(2**63) + varint(1) + varint(10) + varint(1),  # tile id
        varint(2**50),  # count
        varint(10**9) + b"\0" * 1000,
        varint(1) + varint(5) + varint(1) + varint(2**60) + varint(1),  # length
        varint(1) + varint(5) + varint(1) + varint(10) + varint(2**62),  # offset
        b"\xff" * 64,
        b"",
    ],
)
def test_absurd_directories_are_refused(directory: bytes, tmp_path: Path) -> None:
    refused(pmtiles(tmp_path / "a.pmtiles", directory))


def columns(*values: int, count: int) -> bytes:
    """A directory of `count` equal entries: difference of ids, run length, length, offset."""
    return varint(count) + b"".join(varint(value) * count for value in values)


def test_a_directory_of_millions_of_entries_is_refused(tmp_path: Path) -> None:
    """Millions of entries in some KB took gigabytes."""
    refused(pmtiles(tmp_path / "a.pmtiles", columns(1, 1, 1, 1, count=1_000_000)), "1,000,000 entries")


def test_many_names_of_one_directory_are_refused(tmp_path: Path) -> None:
    """Directories that overlap would be unpacked as often as they are named: hours for a file of some kilobytes."""
    leaf = gzip.compress(columns(1, 0, 1, 1, count=20_000))
    names = 2_000
    root = varint(names) + varint(1) * names + varint(0) * names
    root += b"".join(varint(len(leaf) + number) for number in range(names)) + varint(1) * names
    path = write_pmtiles(tmp_path / "a.pmtiles", FEW)
    data, content = bytearray(path.read_bytes()), gzip.compress(root)
    struct.pack_into("<QQ", data, 8, len(data), len(content))
    struct.pack_into("<QQ", data, 40, len(data) + len(content), len(leaf) + names)
    path.write_bytes(bytes(data) + content + leaf + bytes(names))
    refused(path, "followed by something else")


def test_an_unpacked_directory_has_room_for_its_entries_only(tmp_path: Path) -> None:
    """Megabytes of zeros behind an empty directory, named often."""
    refused(pmtiles(tmp_path / "a.pmtiles", varint(1) + bytes(1 << 20)), "1 entries in")


def test_a_bomb_in_a_directory_is_refused(tmp_path: Path) -> None:
    bomb = gzip.compress(b"\0" * (200 << 20), 9)
    refused(pmtiles(tmp_path / "a.pmtiles", b"", bomb), "too large")


def test_damaged_headers_are_no_traceback(tmp_path: Path) -> None:
    whole = write_pmtiles(tmp_path / "whole.pmtiles", FEW).read_bytes()
    rng = np.random.default_rng(0)
    for number in range(300):
        harmed = bytearray(whole)
        for _ in range(1 + number % 4):
            harmed[int(rng.integers(7, 127))] = int(rng.integers(256))
        path = tmp_path / f"{number}.pmtiles"
        path.write_bytes(harmed)
        try:
            open_maps([str(path)])
        except SkyPartError:
            continue


@pytest.mark.parametrize("suffix", [".tif.aux.xml", ".tif.ovr", ".tfw", ".tif.msk", ".prj"])
def test_a_pipe_beside_a_map_is_refused(suffix: str, tmp_path: Path) -> None:
    """GDAL would wait for somebody to write into it."""
    write_ground(tmp_path / "town.tif")
    os.mkfifo(tmp_path / f"town{suffix}")
    refused(tmp_path / "town.tif", r"town\..* is not a file but a pipe or device; remove it")


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_pipe_beside_an_mbtiles_file_is_refused(suffix: str, tmp_path: Path) -> None:
    """SQLite would wait for it, in a call that no progress handler interrupts."""
    write_mbtiles(tmp_path / "town.mbtiles", FEW)
    os.mkfifo(tmp_path / f"town.mbtiles{suffix}")
    refused(tmp_path / "town.mbtiles", f"town.mbtiles{suffix}: is not a file but a pipe or device; remove it")


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
@pytest.mark.parametrize("kind", ["pipe", "link", "dangling link"])
def test_files_beside_the_target_of_a_linked_mbtiles_file_are_checked(suffix: str, kind: str, tmp_path: Path) -> None:
    """SQLite waits for a pipe there, and makes the file that a dangling link names, wherever that is."""
    (tmp_path / "real").mkdir()
    real = write_mbtiles(tmp_path / "real" / "m.mbtiles", FEW)
    base = sqlite3.connect(real)
    base.execute("PRAGMA journal_mode = WAL")
    base.close()
    beside, outside = real.with_name(real.name + suffix), tmp_path / "outside"
    if kind == "link":
        outside.write_bytes(b"private")
    if kind == "pipe":
        os.mkfifo(beside)
    else:
        beside.symlink_to(outside)
    (tmp_path / "town.mbtiles").symlink_to(real)
    for path in (real, tmp_path / "town.mbtiles"):
        refused(path, "is a link|pipe or device")
    assert outside.exists() == (kind == "link") and (kind != "link" or outside.read_bytes() == b"private")


def test_a_pipe_in_a_world_or_a_store_is_refused(tmp_path: Path) -> None:
    for name in ("a_meta.json", "manifest.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(SkyPartError, match=r"a_meta\.json: is not a file but a pipe"):
        find_sources(tmp_path)
    with pytest.raises(SkyPartError, match=r"manifest\.json: is not an ordinary file"):
        read_manifest(tmp_path)


def test_folders_and_dangling_links_beside_a_map_are_no_hindrance(tmp_path: Path) -> None:
    write_ground(tmp_path / "town.tif")
    (tmp_path / "town.skyindex").mkdir()
    (tmp_path / "town.tfw").symlink_to(tmp_path / "nowhere")
    assert open_maps([str(tmp_path / "town.tif")])[0].images[0].grid.width == 400


# --- rasters and tables ---------------------------------------------------------------------------------------------


def test_more_views_than_any_index_holds_are_refused(tmp_path: Path) -> None:
    giant = raster(tmp_path / "giant.tif", 180_000, 5.0)
    with pytest.raises(SkyPartError, match="would be cut into"):
        plan_views(open_maps([str(giant)])[0], (20.0,), 0.5, (0.0,))


NAMES: dict[str, Callable[[Path], str]] = {
    "absolute": lambda outside: str(outside),
    "above": lambda outside: f"../{outside.name}",
    "detour": lambda outside: f"images/../../{outside.name}",
    "backslash": lambda outside: f"..\\{outside.name}",
    "link": lambda outside: "link.tif",
    "address": lambda outside: "http://127.0.0.1:9/x.tif",
    "curl": lambda outside: "/vsicurl/http://127.0.0.1:9/x.tif",
    "scheme": lambda outside: "http:127.0.0.1:9",
}


@pytest.mark.parametrize("kind", NAMES)
def test_tables_may_not_name_images_elsewhere(kind: str, tmp_path: Path) -> None:
    outside = write_ground(tmp_path / "outside.tif")
    table = tmp_path / "maps" / "table.csv"
    table.parent.mkdir()
    (table.parent / "link.tif").symlink_to(outside)
    table.write_text(f"file,latitude,longitude,gsd\n{NAMES[kind](outside)},33.64,72.99,0.5\n")
    refused(table, "table's folder")


def test_a_file_named_like_an_address_is_read_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ground(tmp_path / "http:127.0.0.1:9")
    (tmp_path / "table.csv").write_text("file,latitude,longitude,gsd\nhttp:127.0.0.1:9,33.64,72.99,0.5\n")
    monkeypatch.chdir(tmp_path)  # a relative path would look like an address
    assert open_maps(["table.csv"])[0].images[0].grid.width == 400


@pytest.mark.parametrize(
    "text", ["", "\n", "file", "file\n", "file\n\n", ",\n,", '"', 'file\n"', "file,file\na,b", "a\0b\n1"]
)
def test_a_tiny_table_is_no_traceback(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    refused(tmp_path / "t.csv")


@pytest.mark.parametrize("length", [300, 5000])
def test_a_name_that_is_too_long_is_no_traceback(length: int, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"file,latitude,longitude,gsd\n{'a' * length}.tif,33.64,72.99,0.5\n")
    refused(tmp_path / "t.csv", "which cannot be opened")


def test_an_image_that_a_table_names_often_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening it for every line took 5 s for 3,700 lines."""
    write_ground(tmp_path / "a.tif")
    same = ["a.tif,33.64,72.99,0.5"] * 200
    (tmp_path / "t.csv").write_text("\n".join(["file,latitude,longitude,gsd", *same, "a.tif,33.65,72.99,0.5", *same]))
    opened: list[str] = []

    def read(path: str, *arguments: Any) -> Any:
        opened.append(path)
        return read_raster(path, *arguments)

    monkeypatch.setattr("skypart.maps.image_table.read_raster", read)
    monkeypatch.setattr("skypart.maps.rasters.read_raster", read)
    assert len(open_maps([str(tmp_path / "t.csv")])[0].images) == 2  # a line that repeats a place adds nothing
    assert len(opened) == 3  # its end, its size and its bands


def test_a_table_of_very_many_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("file,latitude,longitude,gsd\n" + "a.tif,33.64,72.99,0.5\n" * (MAX_LINES + 1))
    refused(tmp_path / "t.csv", "split the table")


def test_a_folder_of_many_maps_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing it for every map took time with the square of their number."""
    for number in range(50):
        (tmp_path / f"{number}.png").touch()
        (tmp_path / f"{number}.pgw").touch()
    listed: list[Path] = []
    listdir = os.listdir

    def list_once(folder: Path) -> list[str]:
        listed.append(folder)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", list_once)
    for number in range(50):
        assert sidecars(str(tmp_path / f"{number}.png")) == (tmp_path / f"{number}.png", tmp_path / f"{number}.pgw")
    assert len(listed) == 1


def test_odd_numbers_in_tables_are_no_traceback(tmp_path: Path) -> None:
    write_ground(tmp_path / "a.tif")
    for values in ("1e308,1e308,1e308", "90,180,1e-300", "89.999999,0,1e9", "0,0,-1", "nan,0,1"):
        (tmp_path / "t.csv").write_text(f"file,latitude,longitude,gsd\na.tif,{values}\n")
        refused(tmp_path / "t.csv")
    for code in ("0", "1e308", "99999999999", "-5", "4978"):
        (tmp_path / "t.csv").write_text(f"file,epsg,x_ul,y_ul,gsd\na.tif,{code},0,0,1\n")
        refused(tmp_path / "t.csv")
