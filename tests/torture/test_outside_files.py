"""A map reads nothing but itself: no other local file, no address, whatever it refers to."""

import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from PIL import Image
from pyproj import CRS
from rasterio.transform import Affine

from skypart.confine import confine_thread, landlock_version, run_confined
from skypart.errors import SkyPartError
from skypart.geo.crs_files import files_elsewhere, parameters_elsewhere
from skypart.images import raster_files
from skypart.maps.pixels import PixelBox
from skypart.maps.sources import open_maps
from skypart.position.terrain import Terrain
from skypart.worlds import find_sources
from tests.maps.makers import write_ground

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")
SECRET = b"the secret that no map may show " * 4096


def vrt(file: Path) -> str:
    """Inline VRT of 200 x 150 pixels whose pixels are the bytes of `file`."""
    return (
        "<VRTDataset rasterXSize='200' rasterYSize='150'>"
        + "".join(
            f"<VRTRasterBand dataType='Byte' band='{band}' subClass='VRTRawRasterBand'>"
            f"<SourceFilename relativetoVRT='0'>{file}</SourceFilename><ImageOffset>0</ImageOffset>"
            "<PixelOffset>1</PixelOffset><LineOffset>200</LineOffset></VRTRasterBand>"
            for band in (1, 2, 3)
        )
        + "</VRTDataset>"
    )


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "elsewhere" / "secret.bin"
    file.parent.mkdir()
    file.write_bytes(SECRET)
    return file


@pytest.fixture
def requests() -> Iterator[tuple[int, list[str]]]:
    """A web server on this machine: its port, and the paths it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], asked
    server.shutdown()


def tagged(path: Path, target: str) -> None:
    """Write the reference into the TIFF's own tag."""
    with rasterio.open(path, "r+") as raster:
        raster.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=target)


def aux_xml(path: Path, target: str) -> None:
    """Write the reference into the .aux.xml file beside the TIFF."""
    escaped = target.replace("<", "&lt;")
    item = f'<Metadata domain="OVERVIEWS"><MDI key="OVERVIEW_FILE">{escaped}</MDI></Metadata>'
    path.with_name(f"{path.name}.aux.xml").write_text(f"<PAMDataset>{item}</PAMDataset>")


def overview_file(path: Path, target: str) -> None:
    """Write the reference into a TIFF of overviews beside the TIFF."""
    beside = path.with_name(f"{path.name}.ovr")
    with rasterio.open(beside, "w", driver="GTiff", width=200, height=150, count=3, dtype="uint8") as raster:
        raster.write(np.zeros((3, 150, 200), np.uint8))
        raster.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=target)


WAYS = [tagged, aux_xml, overview_file]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inline", [True, False])
def test_a_map_that_refers_to_a_file_is_refused(
    way: Callable[[Path, str], None], inline: bool, secret: Path, tmp_path: Path
) -> None:
    town = write_ground(tmp_path / "town.tif")
    target = vrt(secret)
    if not inline:
        (tmp_path / "elsewhere" / "other.vrt").write_text(target)
        target = str(tmp_path / "elsewhere" / "other.vrt")
    way(town, target)
    with pytest.raises(SkyPartError, match=r"refers to another file .*OVERVIEW_FILE"):
        open_maps([str(town)])


@pytest.mark.parametrize("way", WAYS)
def test_a_map_that_refers_to_an_address_makes_no_request(
    way: Callable[[Path, str], None], requests: tuple[int, list[str]], tmp_path: Path
) -> None:
    town = write_ground(tmp_path / "town.tif")
    way(town, f"/vsicurl/http://127.0.0.1:{requests[0]}/overview.tif")
    with pytest.raises(SkyPartError):
        open_maps([str(town)])
    assert requests[1] == []


@needs_landlock
@pytest.mark.parametrize("way", WAYS)
def test_without_the_check_the_kernel_still_refuses(
    way: Callable[[Path, str], None],
    secret: Path,
    requests: tuple[int, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second line of defence, for references that nobody has thought of."""
    monkeypatch.setattr(raster_files, "check_dataset", lambda raster, path: None)
    monkeypatch.setenv("GDAL_VRT_ENABLE_RAWRASTERBAND", "YES")
    for number, target in enumerate((vrt(secret), f"/vsicurl/http://127.0.0.1:{requests[0]}/x.tif")):
        town = write_ground(tmp_path / f"town{number}.tif")
        way(town, target)
        try:
            reader = open_maps([str(town)])[0].images[0].reader
            patch = reader.read(PixelBox(0, 0, 400, 300), 2, 2)
        except SkyPartError:
            continue
        assert SECRET[:64] not in np.ascontiguousarray(patch.rgb[..., 0]).tobytes()
    assert requests[1] == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["town.tif", "town_dsm.tif"])
def test_a_raster_of_a_world_that_refers_to_a_file_is_refused(
    way: Callable[[Path, str], None], name: str, secret: Path, tmp_path: Path
) -> None:
    for each in ("town.tif", "town_dsm.tif"):
        write_ground(tmp_path / each)
    way(tmp_path / name, vrt(secret))
    with pytest.raises(SkyPartError, match=rf"{name}.* refers to another file .*OVERVIEW_FILE"):
        find_sources(tmp_path)[0].load()


def test_a_vrt_named_as_a_tiff_is_refused(secret: Path, tmp_path: Path) -> None:
    (tmp_path / "town.tif").write_text(vrt(secret))
    with pytest.raises(SkyPartError, match=r"town\.tif: cannot be read, it is not a GeoTIFF"):
        find_sources(tmp_path / "town.tif")
    with pytest.raises(SkyPartError, match=r"town\.tif: cannot be read, it is not a GeoTIFF"):
        Terrain.read(tmp_path / "town.tif")


@needs_landlock
@pytest.mark.parametrize("read", [Terrain.read, lambda path: find_sources(path)[0].load()])
def test_world_and_terrain_are_read_in_a_confined_thread(
    read: Callable[[Path], object], secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens while GDAL has the file open, other files and sockets are out of reach."""
    town = write_ground(tmp_path / "town.tif")
    tried: list[str] = []

    def check(raster: object, path: str) -> None:
        for work in (secret.read_bytes, socket.socket):
            try:
                work()
            except PermissionError:
                tried.append("refused")
            else:
                tried.append("allowed")

    monkeypatch.setattr(raster_files, "check_dataset", check)
    read(town)
    assert tried and set(tried) == {"refused"}


@needs_landlock
def test_a_confined_thread_reads_only_its_files(secret: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")

    def attempt(work: Callable[[], object]) -> Callable[[], str]:
        def run() -> str:
            try:
                return str(work())
            except OSError as error:
                return type(error).__name__

        return run

    assert run_confined(attempt(mine.read_text), [mine]) == "mine"
    assert run_confined(attempt(secret.read_bytes), [mine]) == "PermissionError"
    assert run_confined(attempt(lambda: mine.write_text("x")), [mine]) == "PermissionError"
    assert run_confined(attempt(socket.socket), [mine]) == "PermissionError"
    assert run_confined(attempt(lambda: len(os.listdir(tmp_path))), [mine], [tmp_path]) == "2"  # noqa: PTH208
    assert secret.read_bytes() == SECRET  # the caller keeps its rights
    assert mine.read_text() == "mine"


@needs_landlock
def test_confinement_survives_a_symbolic_link(secret: Path, tmp_path: Path) -> None:
    link = tmp_path / "mine.txt"
    link.symlink_to(secret)
    assert run_confined(link.read_bytes, [link]) == SECRET  # the link was given by the user
    other = tmp_path / "other.txt"
    other.write_text("x")
    with pytest.raises(PermissionError):
        run_confined(link.read_bytes, [other])


def test_the_result_and_the_error_come_from_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_confined(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_confined(lambda: 1 // 0)
    monkeypatch.setattr("skypart.confine.landlock_version", lambda: 0)  # an old kernel
    assert confine_thread() is False
    assert run_confined(lambda: 7) == 7


def test_a_giant_block_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    giant = tmp_path / "giant.tif"
    shape: dict[str, Any] = {"width": 32_768, "height": 32_768, "count": 1, "dtype": "uint8"}
    shape |= {"tiled": True, "blockxsize": 32_768, "blockysize": 32_768}
    place = {"crs": "EPSG:32643", "transform": Affine(0.5, 0, 500_000, 0, -0.5, 3_700_000)}
    with rasterio.open(giant, "w", driver="GTiff", compress="deflate", SPARSE_OK=True, **shape, **place):
        pass
    with pytest.raises(SkyPartError, match=r"blocks of .* TILED=YES"):
        open_maps([str(giant)])


def test_the_command_line_forgets_formats_that_refer_to_others() -> None:
    code = (
        "import sys; sys.argv = ['skypart', '--version']\n"
        "from skypart.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import rasterio\n"
        "with rasterio.Env() as env: print(sorted({'VRT', 'WMS', 'GTiff'} & set(env.drivers())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("['GTiff']")


# --- links ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".tif.ovr", ".tif.msk", ".tif.aux.xml", ".tfw", ".prj"])
def test_links_beside_a_map_may_not_leave_its_folder(suffix: str, tmp_path: Path) -> None:
    """A link called town.tif.ovr showed the pixels of another raster as those of the map."""
    town = write_ground(tmp_path / "town.tif")
    (tmp_path / "elsewhere").mkdir()
    private = write_ground(tmp_path / "elsewhere" / "private.tif")
    beside = tmp_path / f"town{suffix}"
    beside.symlink_to(private)
    with pytest.raises(SkyPartError, match=r"town\..*: is a link to a file outside the folder"):
        open_maps([str(town)])


def test_links_beside_a_link_may_lead_to_where_its_target_is(tmp_path: Path) -> None:
    """As in folders of links, and in the cache of Hugging Face."""
    for name in ("blobs", "names"):
        (tmp_path / name).mkdir()
    write_ground(tmp_path / "blobs" / "c0ffee")
    (tmp_path / "blobs" / "beef").write_text("<PAMDataset></PAMDataset>")
    (tmp_path / "names" / "town.tif").symlink_to(tmp_path / "blobs" / "c0ffee")
    (tmp_path / "names" / "town.tif.aux.xml").symlink_to(tmp_path / "blobs" / "beef")
    assert open_maps([str(tmp_path / "names" / "town.tif")])[0].name == "town"


# --- coordinate systems ---------------------------------------------------------------------------------------------

PLANE = "+proj=utm +zone=43 +ellps=WGS84"
OTHER_NOTATIONS: dict[str, Callable[[CRS], str]] = {
    "wkt": lambda crs: str(crs.to_wkt()),
    "old wkt": lambda crs: str(crs.to_wkt("WKT1_GDAL")),
    "json": lambda crs: str(crs.to_json()),
}


def georeferenced(folder: Path, definition: str) -> Path:
    """A PNG with a world file and this coordinate system."""
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(folder / "town.png")
    (folder / "town.pgw").write_text("0.5\n0\n0\n-0.5\n500000\n3700000\n")
    (folder / "town.prj").write_text(definition)
    return folder / "town.png"


@pytest.mark.parametrize("grids", ["nadgrids=@{}", "nadgrids=null,@{}", "geoidgrids=@{}", "nadgrids={}", "init={}:1"])
def test_coordinate_systems_that_name_a_file_are_refused(grids: str, secret: Path, tmp_path: Path) -> None:
    """PROJ opens grids where points are converted: outside of the confined thread, and waiting for a pipe."""
    definition = f"{PLANE} +{grids.format(secret)}" if "init" not in grids else f"+{grids.format(secret)}"
    with pytest.raises(SkyPartError, match=r"town\.prj: .*names the file"):
        open_maps([str(georeferenced(tmp_path, definition))])


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../secret", "~/x", "./x", "http://127.0.0.1:9/x.tif", "C:\\x.gsb", ".x"]
)
def test_names_of_grids_outside_of_projs_folders_are_found(name: str) -> None:
    assert files_elsewhere(f"{PLANE} +nadgrids=@{name}") == [name]
    assert files_elsewhere(f"{PLANE} +nadgrids=ntf_r93.gsb,@{name}") == [name]


@pytest.mark.parametrize("notation", OTHER_NOTATIONS)
def test_every_notation_of_a_grid_is_refused(notation: str, secret: Path, tmp_path: Path) -> None:
    definition = OTHER_NOTATIONS[notation](CRS(f"{PLANE} +nadgrids=@{secret} +type=crs"))
    assert str(secret) in definition
    with pytest.raises(SkyPartError, match="names the file"):
        open_maps([str(georeferenced(tmp_path, definition))])


NTV2 = (
    'BOUNDCRS[SOURCECRS[{crs}],TARGETCRS[{crs}],ABRIDGEDTRANSFORMATION["t",METHOD["NTv2",ID["EPSG",9615]],'
    'PARAMETERFILE["Latitude ""and"" longitude difference file","{file}",ID["EPSG",8656]]]]'
)
MERCATOR = (
    'PROJCS["x",GEOGCS["x",DATUM["x",SPHEROID["x",6378206.4,294.97]],PRIMEM["Greenwich",0],UNIT["degree",0.017453]],'
    'PROJECTION["Mercator_1SP"],PARAMETER["central_meridian",0],PARAMETER["scale_factor",1],UNIT["metre",1],'
    'EXTENSION["PROJ4","+proj=merc +a=6378137 +nadgrids=""{file}"" +wktext"]]'
)


@pytest.mark.parametrize("definition", [NTV2, MERCATOR])
def test_quotes_within_quotes_hide_no_file(definition: str, secret: Path, tmp_path: Path) -> None:
    wkt = definition.format(crs=CRS.from_epsg(4326).to_wkt(), file=secret)
    with pytest.raises(SkyPartError, match="names the file"):
        open_maps([str(georeferenced(tmp_path, wkt))])


def test_heights_whose_coordinate_system_names_a_file_are_refused(secret: Path, tmp_path: Path) -> None:
    path = tmp_path / "dem.tif"
    place = {"transform": Affine(1.0, 0.0, 500_000.0, 0.0, -1.0, 3_700_000.0), "dtype": "float32"}
    with rasterio.open(path, "w", driver="GTiff", width=20, height=20, count=1, **place) as raster:
        raster.write(np.ones((1, 20, 20), np.float32))
    definition = str(CRS(f"{PLANE} +nadgrids=@{secret} +type=crs").to_wkt()).replace('"', "&quot;")
    path.with_name("dem.tif.aux.xml").write_text(f"<PAMDataset><SRS>{definition}</SRS></PAMDataset>")
    with pytest.raises(SkyPartError, match="names the file"):
        Terrain.read(path)


@pytest.mark.parametrize("code", [4326, 3857, 32643, 27700, 2154, 5514, 31466, 28992, 2056, 7405])
def test_coordinate_systems_of_the_registry_name_no_file(code: int) -> None:
    for version in ("WKT2_2019", "WKT1_GDAL"):
        assert files_elsewhere(CRS.from_epsg(code).to_wkt(version)) == []
    assert parameters_elsewhere(CRS.from_epsg(code).to_json_dict()) == []
    assert files_elsewhere("+init=epsg:4326 +nadgrids=@null,ntf_r93.gsb +type=crs") == []
