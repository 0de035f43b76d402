"""Image tables, folders of rasters, remote maps, and reading from several threads."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.maps.files import HandlePool, redact_address, redact_message
from skypart.maps.map_source import MapSource
from skypart.maps.sources import open_maps
from skypart.maps.views import ground_at, plan_views, read_view
from tests.maps.makers import centred_affine, ground, ground_image, write_ground, write_raster

AROUND = (33.64, 72.99)
UTM = "EPSG:32643"


def check_ground(source: MapSource, view: Footprint, worst: float = 6.0) -> None:
    rgb, valid = read_view(source, view, 80)
    middle = (np.arange(80) + 0.5) / 80
    assert valid == 1.0
    assert np.abs(rgb - ground(*ground_at(view, middle[None, :], middle[:, None]), around=AROUND)).max() < worst


def write_images(folder: Path, centres: list[tuple[float, float]], edge: int = 200) -> list[Path]:
    """North-up PNGs of the synthetic ground, 0.5 m, around centres in metres east and north of AROUND."""
    frame = LocalFrame(latitude=AROUND[0], longitude=AROUND[1])
    files = []
    for number, (x, y) in enumerate(centres):
        lat, lon = (float(each) for each in frame.to_degrees(x, y))
        spot = LocalFrame(latitude=lat, longitude=lon)
        offsets = (np.arange(edge) + 0.5 - edge / 2) * 0.5
        rgb = ground(*spot.to_degrees(offsets[None, :], -offsets[:, None]), around=AROUND)
        file = folder / f"p{number}.png"
        Image.fromarray(np.rint(rgb).astype(np.uint8)).save(file)
        files.append(file)
    return files


def degrees(x: float, y: float) -> tuple[float, float]:
    lat, lon = LocalFrame(latitude=AROUND[0], longitude=AROUND[1]).to_degrees(x, y)
    return float(lat), float(lon)


@pytest.mark.parametrize(
    "columns", ["lat,lon,metres", "latitude,longitude,gsd", "lat_nw,lon_nw,gsd_m", "corners", "utm"]
)
def test_image_tables(tmp_path: Path, columns: str) -> None:
    if columns == "utm":
        affine = centred_affine(UTM, AROUND, 0.5, (200, 200))
        Image.fromarray(ground_image(UTM, affine, 200, 200, AROUND)).save(tmp_path / "p0.png")
        rows = f"file,epsg,x_ul,y_ul,gsd_m\np0.png,32643,{affine.c:.6f},{affine.f:.6f},0.5\n"
    else:
        write_images(tmp_path, [(0.0, 0.0)])
        corner, other = degrees(-50.0, 50.0), degrees(50.0, -50.0)
        values = {
            "lat,lon,metres": [*AROUND, 100.0],
            "latitude,longitude,gsd": [*AROUND, 0.5],
            "lat_nw,lon_nw,gsd_m": [*corner, 0.5],
            "corners": [corner[0], corner[1], other[0], other[1]],
        }[columns]
        names = "north,west,south,east" if columns == "corners" else columns
        rows = f"File,{names},note\np0.png,{','.join(f'{value:.9f}' for value in values)},x\n"
    (tmp_path / "places.csv").write_text(rows)
    source = open_maps([str(tmp_path / "places.csv")])[0]
    assert source.name == "places"
    assert source.gsd_m == pytest.approx(0.5, rel=0.01)
    check_ground(source, Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=70.0, rotation=10.0))


def test_adjacent_images_share_a_grid_and_distant_ones_do_not(tmp_path: Path) -> None:
    centres = [(0.0, 0.0), (100.0, 0.0), (0.0, -100.0), (100.0, -100.0), (5_000.0, 0.0)]
    write_images(tmp_path, centres)
    lines = [f"p{i}.png,{degrees(*centre)[0]:.9f},{degrees(*centre)[1]:.9f},100" for i, centre in enumerate(centres)]
    (tmp_path / "town.csv").write_text("file,lat,lon,metres\n" + "\n".join(lines))
    source = open_maps([str(tmp_path / "town.csv")])[0]
    seam = degrees(50.0, -50.0)
    check_ground(source, Footprint(latitude=seam[0], longitude=seam[1], metres=120.0, rotation=30.0), worst=8.0)
    alone = degrees(5_000.0, 0.0)
    check_ground(source, Footprint(latitude=alone[0], longitude=alone[1], metres=60.0))
    assert len(source.grids) == 2
    views = plan_views(source, [100.0], 0.5, [0.0])
    assert len(views) == 3 * 3 + 1
    assert all(read_view(source, view, 32).valid_share > 0.95 for view in views)
    nothing = degrees(2_500.0, 0.0)
    assert read_view(source, Footprint(latitude=nothing[0], longitude=nothing[1], metres=50.0), 32).valid_share == 0


def test_images_on_both_sides_of_the_antimeridian(tmp_path: Path) -> None:
    edge = 200
    for name, west in (("a", 179.998), ("b", -180.0)):
        column, row = np.meshgrid((np.arange(edge) + 0.5) * 1e-5, (np.arange(edge) + 0.5) * 1e-5)
        rgb = ground(0.001 - row, west + column, around=(0.0, 180.0))
        Image.fromarray(np.rint(rgb).astype(np.uint8)).save(tmp_path / f"{name}.png")
    rows = "a.png,0.001,179.998,-0.001,180.0\nb.png,0.001,-180,-0.001,-179.998\n"
    (tmp_path / "m.csv").write_text("file,north,west,south,east\n" + rows)
    source = open_maps([str(tmp_path / "m.csv")])[0]
    assert [source.bounds.west, source.bounds.east] == pytest.approx([179.998, -179.998])
    assert len(source.grids) == 1
    view = Footprint(latitude=0.0, longitude=180.0, metres=150.0)
    seen, valid = read_view(source, view, 64)
    middle = (np.arange(64) + 0.5) / 64
    truth = ground(*ground_at(view, middle[None, :], middle[:, None]), around=(0.0, 180.0))
    assert valid == 1.0 and np.abs(seen - truth).max() < 20  # averaged over 2 x 2 pixels of short waves
    assert (source.grids[0].width, source.grids[0].height) == (400, 200)
    views = plan_views(source, [100.0], 0.5, [0.0])
    assert len(views) == 8 * 4 and all(read_view(source, each, 32).valid_share > 0.99 for each in views)


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:3857"])
@pytest.mark.parametrize("first", ["west", "east"])
def test_sheets_on_both_sides_of_the_antimeridian_are_one_map(tmp_path: Path, crs: str, first: str) -> None:
    around = (-16.5, 180.0)
    turn = 360.0 if crs == "EPSG:4326" else 2 * np.pi * 6_378_137.0
    whole = centred_affine(crs, around, 1.0, (400, 300))
    whole = Affine(whole.a, 0.0, turn / 2 - 200 * whole.a, 0.0, whole.e, whole.f)
    rgb = ground_image(crs, whole, 400, 300, around).transpose(2, 0, 1)
    names = {"west": "a", "east": "b"} if first == "west" else {"west": "b", "east": "a"}
    write_raster(tmp_path / f"{names['west']}.tif", rgb[:, :, :200], crs, whole)
    beyond = Affine(whole.a, 0.0, -turn / 2, 0.0, whole.e, whole.f)
    write_raster(tmp_path / f"{names['east']}.tif", rgb[:, :, 200:], crs, beyond)
    source = open_maps([str(tmp_path)])[0]
    (grid,) = source.grids
    assert abs(grid.width - 400) <= 1 and 285 < grid.height < 302
    views = plan_views(source, [100.0], 0.5, [0.0])
    assert 7 * 5 <= len(views) <= 9 * 6
    for view in views:
        seen, valid = read_view(source, view, 100)
        middle = (np.arange(100) + 0.5) / 100
        truth = ground(*ground_at(view, middle[None, :], middle[:, None]), around=around)
        assert valid > 0.99 and np.median(np.abs(seen - truth)) < 6


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("file,lat,lon,metres\nq.png,1,2,3\n", "line 2: the image .*q.png does not exist"),
        ("file,lat,lon\np0.png,1,2\n", "line 2: does not give the size of the image; a line needs file and one of"),
        ("file,gsd\np0.png,1\n", "line 2: does not give the position of the image"),
        ("file,lat,lon,gsd\np0.png,north,2,1\n", "line 2: latitude is 'north', not a number"),
        ("file,lat,lon,gsd\np0.png,91,2,1\n", "line 2: latitude 91, longitude 2 is not a point on the Earth"),
        ("file,north,west,south,east\np0.png,1,2,3,4\n", "line 2: its corners span no area"),
        ("lat,lon,gsd\n1,2,3\n", "line 2: has no file"),
        ("file,lat,lon,gsd\n", "lists no images"),
        ("file,epsg,x_ul,y_ul,gsd\np0.png,99999999,1,1,1\n", "line 2: its coordinate system cannot be used"),
        ("file,epsg,x_ul,y_ul,gsd\np0.png,4326,16,48,0.05\n", "EPSG:4326 is in degrees"),
    ],
)
def test_invalid_tables_are_rejected(tmp_path: Path, text: str, match: str) -> None:
    Image.fromarray(np.zeros((10, 10, 3), np.uint8)).save(tmp_path / "p0.png")
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(SkyPartError, match=match):
        open_maps([str(tmp_path / "m.csv")])


def test_a_folder_of_rasters_is_one_map(tmp_path: Path) -> None:
    affine = centred_affine(UTM, AROUND, 0.5, (400, 300))
    rgb = ground_image(UTM, affine, 400, 300, AROUND).transpose(2, 0, 1)
    write_raster(tmp_path / "west.tif", rgb[:, :, :200], UTM, affine)
    write_raster(tmp_path / "east.tif", rgb[:, :, 200:], UTM, affine @ Affine.translation(200, 0))
    (tmp_path / "readme.txt").write_text("two halves")
    source = open_maps([str(tmp_path)])[0]
    check_ground(source, Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=80.0, rotation=15.0))
    assert (source.grids[0].width, source.grids[0].height) == (400, 300)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(SkyPartError, match="no map found in this folder; give GeoTIFF"):
        open_maps([str(tmp_path / "nothing")])


def test_hidden_files_in_a_folder_are_ignored(tmp_path: Path) -> None:
    """macOS leaves `._town.tif`, which is not a TIFF, on disks of other systems."""
    write_ground(tmp_path / "town.tif")
    before = open_maps([str(tmp_path)])[0]
    (tmp_path / "._town.tif").write_bytes(b"\x00\x05\x16\x07 Mac OS X")
    write_ground(tmp_path / ".other.tif", around=(33.65, 72.99))
    Image.fromarray(np.zeros((10, 10, 3), np.uint8)).save(tmp_path / "._p.png", "PNG")
    (tmp_path / "._p.pgw").write_bytes(b"\x00\x05\x16\x07 Mac OS X")
    after = open_maps([str(tmp_path)])[0]
    assert len(after.images) == 1 and after.fingerprint == before.fingerprint
    (tmp_path / "town.tif").unlink()
    with pytest.raises(SkyPartError, match="no map found in this folder"):
        open_maps([str(tmp_path)])


@pytest.mark.parametrize(
    ("name", "world", "system"),
    [
        ("SHEET.JPG", "SHEET.JGW", "SHEET.PRJ"),
        ("sheet.jpg", "sheet.jpgw", "sheet.prj"),
        ("sheet.jpeg", "sheet.jpegw", "sheet.prj"),
        ("sheet.PNG", "sheet.pngw", "sheet.prj"),
        ("sheet.png", "sheet.WLD", "sheet.prj"),
    ],
)
def test_images_in_a_folder_need_a_world_file(tmp_path: Path, name: str, world: str, system: str) -> None:
    affine = centred_affine(UTM, AROUND, 0.5, (200, 200))
    Image.fromarray(ground_image(UTM, affine, 200, 200, AROUND)).save(tmp_path / name, quality=98)
    first = affine @ Affine.translation(0.5, 0.5)
    values = (first.a, first.d, first.b, first.e, first.c, first.f)
    (tmp_path / world).write_text("\n".join(repr(float(each)) for each in values))
    (tmp_path / system).write_text(UTM)
    Image.fromarray(np.zeros((10, 10, 3), np.uint8)).save(tmp_path / "photo.jpg")
    source = open_maps([str(tmp_path)])[0]
    assert len(source.images) == 1
    check_ground(source, Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=60.0), worst=15.0)


def test_each_path_is_one_map(tmp_path: Path) -> None:
    paths = [str(write_ground(tmp_path / f"{name}.tif")) for name in ("one", "two")]
    assert [source.name for source in open_maps(paths)] == ["one", "two"]


RANGED = """
import http.server, re, sys
data = open(sys.argv[1], "rb").read()
class Ranged(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.answer(200 if self.path == "/map.tif" else 404, data, 0)
    def do_GET(self):
        wanted = re.match(r"bytes=(\\d+)-(\\d+)", self.headers.get("Range", ""))
        first, last = map(int, wanted.groups()) if wanted else (0, len(data) - 1)
        self.answer(206 if self.path == "/map.tif" else 404, data[first : last + 1], first)
    def answer(self, code, part, first):
        self.send_response(code)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranged)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_remote_raster_is_read_when_allowed(tmp_path: Path) -> None:
    path = write_ground(tmp_path / "map.tif")
    command = [
        sys.executable,
        "-c",
        RANGED,
        str(path),
    ]  # a separate process, because GDAL blocks all threads while it waits
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            source = open_maps([f"http://127.0.0.1:{server.stdout.readline().strip()}/map.tif"], network=True)[0]
            assert source.name == "map"
            check_ground(source, Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=60.0))
        finally:
            server.kill()


def test_network_errors_do_not_reveal_keys() -> None:
    address = "http://me:SECRET@127.0.0.1:9/a/map.tif?v=1&sig=SECRET(1)"
    with pytest.raises(SkyPartError, match=r"^http://127\.0\.0\.1:9/a/map\.tif: cannot be read") as raised:
        open_maps([address], network=True)
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("https://h.example/a/map.tif?sig=KEY", "https://h.example/a/map.tif"),
        ("s3://me:KEY@bucket/map.tif#KEY", "s3://bucket/map.tif"),
        ("/vsicurl/https://h.example/map.tif?sig=KEY'KEY", "/vsicurl/https://h.example/map.tif"),
        ("/vsicurl?url=https://h.example/map.tif%3FKEY", "/vsicurl"),
        ("/data/what?/map.tif", "/data/what?/map.tif"),
    ],
)
def test_addresses_are_redacted(path: str, shown: str) -> None:
    assert redact_address(path) == shown
    assert redact_message(f"HTTP 403 at '{path}', twice", path) == f"HTTP 403 at '{shown}', twice"
    assert redact_message("'/vsicurl/https://h.example/b?KEY' (see https://h.example/?KEY)", path) == (
        "'/vsicurl/https://h.example/b' (see https://h.example/)"
    )


@pytest.mark.parametrize("beside", ["link", "target"])
def test_world_file_beside_a_link_or_its_target_is_used(tmp_path: Path, beside: str) -> None:
    for name in ("link", "target"):
        (tmp_path / name).mkdir()
    affine = centred_affine(UTM, AROUND, 0.5, (200, 200))
    Image.fromarray(ground_image(UTM, affine, 200, 200, AROUND)).save(tmp_path / "target" / "blob.tif")
    link = tmp_path / "link" / "town.tif"
    link.symlink_to(tmp_path / "target" / "blob.tif")
    first = affine @ Affine.translation(0.5, 0.5)
    lines = "\n".join(repr(float(each)) for each in (first.a, first.d, first.b, first.e, first.c, first.f))
    (tmp_path / beside / ("town.tfw" if beside == "link" else "blob.tfw")).write_text(lines)
    (tmp_path / "link" / "town.prj").write_text(UTM)
    source = open_maps([str(link)])[0]
    assert source.name == "town"
    check_ground(source, Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=60.0))


def test_threads_read_the_same_pixels(tmp_path: Path) -> None:
    path = write_ground(
        tmp_path / "map.tif", pixels=(600, 600), tiled=True, blockxsize=128, blockysize=128, compress="deflate"
    )
    source = open_maps([str(path)])[0]
    views = plan_views(source, [60.0], 0.3, [0.0, 90.0])
    alone = [read_view(source, view, 48).rgb for view in views]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda view: read_view(source, view, 48).rgb, views))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def test_handle_pool_lends_to_one_borrower_and_closes_surplus_handles() -> None:
    closed: list[int] = []

    class File:
        def __init__(self, number: int) -> None:
            self.number = number

        def close(self) -> None:
            closed.append(self.number)

    opened = iter(range(100))
    pool = HandlePool(limit=2)
    with pool.borrow("a", lambda: File(next(opened))) as first, pool.borrow("a", lambda: File(next(opened))) as second:
        assert first.number != second.number
    with pool.borrow("a", lambda: File(next(opened))) as again:
        assert again.number in (0, 1)
    with pytest.raises(ValueError), pool.borrow("a", lambda: File(next(opened))) as broken:
        raise ValueError
    assert closed == [broken.number]
    for name in "bcd":
        with pool.borrow(name, lambda: File(next(opened))):
            pass
    assert len(closed) == 3  # two are left
