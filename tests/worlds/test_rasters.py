"""Real rasters: georeference there and back, masks, folders that are recognised, several dates."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from PIL import Image
from pyproj import Transformer
from rasterio.transform import from_origin

from skypart.datasets.registry import find_rendering
from skypart.errors import SkyPartError
from skypart.worlds import World, find_sources, make_world, render_map, render_satellite
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.make import plan_jobs
from skypart.worlds.relief import bare_earth, spread
from skypart.worlds.request import build_request
from skypart.worlds.sites import find_sites
from tests.worlds.conftest import flat_world

SHARED = Path(__file__).parents[3] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the aerial data of ../shared/data")


def _checks(cells: int = 30, edge: int = 10, seed: int = 0) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(30, 220, (cells, cells, 3)).astype(np.uint8)
    return coarse.repeat(edge, 0).repeat(edge, 1)


def _write_tiff(path: Path, bands: np.ndarray, crs: str, transform: object, **more: object) -> None:
    profile = {"driver": "GTiff", "count": len(bands), "height": bands.shape[1], "width": bands.shape[2]}
    with rasterio.open(path, "w", dtype=bands.dtype, crs=crs, transform=transform, **profile, **more) as raster:
        raster.write(bands)


def test_a_written_map_is_read_at_the_same_position(tmp_path: Path) -> None:
    world = flat_world(_checks()[:, :, :1].repeat(3, 2))
    write_geotiff(tmp_path / "map.tif", render_map(world), world)
    back = find_sources(tmp_path / "map.tif")[0].load()
    assert back.epsg == world.epsg and back.origin == pytest.approx(world.origin) and back.gsd == pytest.approx(0.5)
    assert np.abs(back.satellite.rgb.astype(int) - world.satellite.rgb).mean() < 4
    assert back.lonlat(40.0, -60.0) == pytest.approx(world.lonlat(40.0, -60.0), abs=1e-9)
    assert back.local(*back.lonlat(40.0, -60.0)) == pytest.approx((40.0, -60.0), abs=1e-3)


def test_positions_agree_with_the_projection_library() -> None:
    world = flat_world(_checks())
    expected = Transformer.from_crs("EPSG:32632", "EPSG:4326", always_xy=True).transform(500_012.5, 4_999_970.0)
    assert world.lonlat(12.5, -30.0) == pytest.approx(expected, abs=1e-10)


def test_feet_are_converted_to_metres(tmp_path: Path) -> None:
    transform = from_origin(5_000_000.0, 3_900_000.0, 2.0, 2.0)
    _write_tiff(tmp_path / "feet.tif", _checks().transpose(2, 0, 1), "EPSG:3089", transform)
    source = find_sources(tmp_path / "feet.tif")[0]
    world = source.load()
    assert world.gsd == pytest.approx(2 * 0.3048006096) and source.extent_m == pytest.approx(world.extent_m)
    expected = Transformer.from_crs("EPSG:3089", "EPSG:4326", always_xy=True).transform(5_000_600.0, 3_899_400.0)
    assert world.lonlat(world.extent_m[0], -world.extent_m[1]) == pytest.approx(expected, abs=1e-9)


def test_degrees_are_resampled_to_metres(tmp_path: Path) -> None:
    _write_tiff(tmp_path / "deg.tif", _checks().transpose(2, 0, 1), "EPSG:4326", from_origin(9.0, 48.0, 1e-5, 1e-5))
    world = find_sources(tmp_path / "deg.tif")[0].load()
    assert world.epsg == 32632
    x, y = world.local(9.0 + 150e-5, 48.0 - 150e-5)
    assert abs(x - world.extent_m[0] / 2) < 2 and abs(-y - world.extent_m[1] / 2) < 2
    assert 0.7 < world.gsd < 1.2


def test_a_surface_model_beside_the_orthophoto_is_used(tmp_path: Path) -> None:
    grid = from_origin(500_000.0, 5_000_000.0, 0.5, 0.5)
    heights = np.full((1, 300, 300), 100.0, dtype=np.float32)
    heights[0, 100:140, 100:160] = 112.0
    heights[0, :20, :20] = -9999.0
    _write_tiff(tmp_path / "site.tif", _checks().transpose(2, 0, 1), "EPSG:32632", grid)
    _write_tiff(tmp_path / "site_dsm.tif", heights, "EPSG:32632", grid, nodata=-9999.0)
    sources = find_sources(tmp_path)
    assert [source.name for source in sources] == ["site"]
    world = sources[0].load()
    assert world.drone.heights[120, 130] == pytest.approx(112.0) and world.drone.heights[250, 250] == pytest.approx(
        100.0
    )
    assert world.height_at(65.0, -60.0) == pytest.approx(100.0, abs=1.0)
    assert world.valid is not None and not world.valid[:19, :19].any() and world.valid[30:, 30:].all()
    assert world.drone.heights[5, 5] == pytest.approx(100.0, abs=0.5)


def test_no_location_is_in_a_hole() -> None:
    valid = np.ones((1200, 1200), dtype=bool)
    valid[:, 500:700] = False
    world = flat_world(np.full((1200, 1200, 3), 90, np.uint8), valid=valid)
    sites = find_sites(world, 60.0, 100.0, [1])
    everywhere = find_sites(flat_world(np.full((1200, 1200, 3), 90, np.uint8)), 60.0, 100.0, [1])
    assert 0 < len(sites) < len(everywhere)
    for x, y in sites:
        tile = valid[int((-y - 50) / 0.5) : int((-y + 50) / 0.5), int((x - 50) / 0.5) : int((x + 50) / 0.5)]
        assert valid[int(-y / 0.5), int(x / 0.5)] and tile.mean() > 0.88


def test_sites_without_contrast_are_excluded() -> None:
    rgb = np.full((1200, 1200, 3), 90, np.uint8)
    rgb[:, 600:] = _checks(20, 60)[:, 600:]
    world = flat_world(rgb)
    sites = find_sites(world, 100.0, 120.0, [1], contrast=12.0)
    assert len(sites) > 4 and sites[:, 0].min() > 240 and len(sites) < len(find_sites(world, 100.0, 120.0, [1]))


def test_holes_are_filled_from_their_surroundings() -> None:
    layer = np.full((64, 64), 7.0, dtype=np.float32)
    valid = np.ones((64, 64), dtype=bool)
    valid[20:50, 10:60] = False
    layer[~valid] = -100.0
    assert np.abs(spread(layer, valid) - 7.0).max() < 1e-3


def test_bare_earth_excludes_buildings() -> None:
    slope = np.linspace(0, 10, 400, dtype=np.float32)[None].repeat(400, 0)
    surface = slope.copy()
    surface[180:220, 180:240] += 15
    earth = bare_earth(surface, 0.5)
    assert np.abs(earth - slope)[190:210, 190:230].max() < 2.0 and (earth <= surface).all()


def _indexed(folder: Path, places: int = 3) -> None:
    (folder / "images").mkdir(parents=True)
    with (folder / "index.csv").open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["file", "city", "place", "year", "epsg", "x_ul", "y_ul", "gsd_m", "width", "height"])
        for place in range(places):
            for year in (2016, 2018):
                name = f"town_{year}_{place}.jpg"
                Image.fromarray(_checks(16, 16, place * 10 + year)).save(folder / "images" / name, quality=95)
                writer.writerow([name, "town", place, year, 26911, 400_000 + 500 * place, 4_000_000, 0.6, 256, 256])


def test_dates_of_one_place_become_one_world(tmp_path: Path) -> None:
    _indexed(tmp_path)
    sources = find_sources(tmp_path, seed=3)
    assert len(sources) == 3 and all(len(source.files) == 2 for source in sources)
    world = sources[0].load()
    assert world.satellite is not world.drone
    years = {(tuple(source.files), source.name) for seed in range(8) for source in find_sources(tmp_path, seed)}
    assert len(years) == 6  # both orders of dates occur


def test_a_benchmark_from_flat_rasters_of_two_dates(tmp_path: Path) -> None:
    _indexed(tmp_path / "in")
    request = build_request([str(tmp_path / "in")], locations=3, image_size=48, views=1)
    make_world(tmp_path / "out", request)
    assert len(list((tmp_path / "out").glob("drone_view_512/*/*/*.jpg"))) == 12
    with (tmp_path / "out" / "poses.csv").open() as text:
        tilts = [float(row["tilt_deg"]) for row in csv.DictReader(text)]
    assert min(tilts) > 50
    with pytest.raises(SkyPartError, match="room for 3 locations"):
        make_world(tmp_path / "more", build_request([str(tmp_path / "in")], locations=9, image_size=48))


def test_surroundings_are_other_maps_of_the_city_without_locations(tmp_path: Path) -> None:
    _indexed(tmp_path / "in", 4)
    source = find_sources(tmp_path / "in", seed=3, surround=True)[1]
    plain = next(each for each in find_sources(tmp_path / "in", seed=3) if each.name == source.name)
    assert source.files == plain.files and len(source.around) == 8
    assert not set(source.files) & {file for files in source.around for file in files}
    assert source == find_sources(tmp_path / "in", seed=3, surround=True)[1]
    world, alone = source.load(), plain.load()
    assert world.extent_m == pytest.approx((460.8, 460.8)) and source.extent_m == pytest.approx((460.8, 460.8))
    assert np.array_equal(world.drone.rgb[256:512, 256:512], alone.drone.rgb)
    assert world.lonlat(153.6 + 40, -153.6 - 60) == pytest.approx(alone.lonlat(40, -60), abs=1e-9)
    for tile in (60.0, 150.0):
        sites = find_sites(world, 50.0, tile, [1])
        assert len(sites) and (np.abs(sites - (230.4, -230.4)) <= 76.8 - tile / 2 + 1e-6).all()


def test_small_maps_with_surroundings_get_oblique_views(tmp_path: Path) -> None:
    _indexed(tmp_path / "in", 4)
    request = build_request(
        [str(tmp_path / "in")], like="free", locations=4, image_size=48, views=6, surround=True, guess_heights=True
    )
    make_world(tmp_path / "out", request)
    with (tmp_path / "out" / "poses.csv").open() as text:
        rows = list(csv.DictReader(text))
    tilts = [float(row["tilt_deg"]) for row in rows]
    assert len(rows) == 24 and min(tilts) < 45 and max(tilts) > 70
    places = {row["location"] for row in rows}
    assert places == {"0001", "0002", "0003", "0004"}
    make_world(tmp_path / "out", request)  # known again
    with pytest.raises(SkyPartError, match="other options"):
        make_world(tmp_path / "out", replace(request, guess_heights=False))


def test_worlds_of_older_versions_are_recognised(tmp_path: Path) -> None:
    _indexed(tmp_path / "in")
    request = build_request([str(tmp_path / "in")], locations=3, image_size=48, views=1)
    make_world(tmp_path / "out", request)
    note = tmp_path / "out" / "world.json"
    content = json.loads(note.read_text())
    del content["request"]["surround"], content["request"]["guess_heights"]
    note.write_text(json.dumps(content))
    make_world(tmp_path / "out", request)
    with pytest.raises(SkyPartError, match="other options"):
        make_world(tmp_path / "out", replace(request, surround=True))


def test_surroundings_of_a_wrong_size_raise(tmp_path: Path) -> None:
    _indexed(tmp_path / "in", 2)
    for file in (tmp_path / "in" / "images").glob("town_*_1.jpg"):
        Image.new("RGB", (100, 100)).save(file)
    with pytest.raises(SkyPartError, match="100 x 100 pixels"):
        find_sources(tmp_path / "in", surround=True)[0].load()


def test_large_maps_and_maps_without_a_city_are_not_surrounded(tmp_path: Path) -> None:
    _indexed(tmp_path, 2)
    listing = tmp_path / "index.csv"
    text = listing.read_text()
    assert all(source.around for source in find_sources(tmp_path, surround=True))
    listing.write_text(text.replace(",0.6,256", ",2.0,256"))
    assert not any(source.around for source in find_sources(tmp_path, surround=True))
    listing.write_text(text.replace("city,place", "town,number"))
    assert not any(source.around for source in find_sources(tmp_path, surround=True))


def test_surround_is_refused_for_procedural_worlds() -> None:
    with pytest.raises(SkyPartError, match="for real maps"):
        build_request(None, surround=True)
    with pytest.raises(SkyPartError, match="for real maps"):
        build_request(None, guess_heights=True)


def test_a_folder_without_maps_raises(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="no map found"):
        find_sources(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps({"gsd_m": 1}))
    with pytest.raises(SkyPartError, match="needs exactly one"):
        find_sources(tmp_path)
    Image.new("RGB", (8, 8)).save(tmp_path / "plain.tif")
    with pytest.raises(SkyPartError, match="no georeference"):
        find_sources(tmp_path / "plain.tif")


def _corner_error(world: World, lat: float, lon: float) -> float:
    middle = world.lonlat(world.extent_m[0] / 2, -world.extent_m[1] / 2)
    return max(abs(middle[0] - lon), abs(middle[1] - lat))


@needs_shared
@pytest.mark.slow
def test_lidar_maps_are_where_their_meta_files_say() -> None:
    folder = SHARED / "kentucky_lidar_public_domain"
    for source in find_sources(folder):
        world = source.load()
        centre = json.loads((folder / f"{source.name}_meta.json").read_text())["centre_lat_lon"]
        assert _corner_error(world, *centre) < 1e-4, source.name
        assert world.valid is not None and 0.5 < world.valid.mean() <= 1.0
    autzen = find_sources(SHARED / "autzen_lidar_cc_by")[0].load()
    lon, lat = autzen.lonlat(autzen.extent_m[0] / 2, -autzen.extent_m[1] / 2)
    assert abs(lon + 123.07) < 0.01 and abs(lat - 44.056) < 0.01
    assert render_satellite(autzen, (500.0, -700.0), 200.0, 64).std() > 5


@needs_shared
def test_every_shared_raster_folder_is_recognised() -> None:
    assert len(find_sources(SHARED / "naip_california_cc_by")) == 604
    assert len(find_sources(SHARED / "oam_drone_mosaics_cc_by")) == 10
    assert len(find_sources(SHARED / "naip_geotiff_public_domain")) == 2
    assert [s.name for s in find_sources(SHARED / "nust_bsd2")] == ["orthomosaic_utm43n"]


def _lidar(folder: Path, stem: str) -> None:
    Image.fromarray(_checks()).save(folder / f"{stem}_ortho.png")
    Image.fromarray(np.full((300, 300), 7, dtype=np.uint16)).save(folder / f"{stem}_dsm.png")
    meta = {
        "gsd_m": 0.5,
        "width": 300,
        "height": 300,
        "zmin_m": 1,
        "step_m": 0.1,
        "origin_ll_m": [5e5, 5e6],
        "epsg": 32632,
    }
    (folder / f"{stem}_meta.json").write_text(json.dumps(meta))


def test_maps_with_a_common_name_prefix_and_sidecar_files_are_distinguished(tmp_path: Path) -> None:
    for stem in ("site1", "site10"):
        _lidar(tmp_path, stem)
        (tmp_path / f"{stem}_ortho.png.aux.xml").write_text("<PAMDataset/>")
    assert {source.name for source in find_sources(tmp_path)} == {"site1", "site10"}


@pytest.mark.parametrize(
    "harm",
    [
        lambda text: text.replace("gsd_m", "resolution"),
        lambda text: text.replace("file", "image"),
        lambda text: text.replace("0.6", "fine"),
        lambda text: text.replace("x_ul", "left"),
    ],
)
def test_an_incomplete_index_raises(tmp_path: Path, harm: Callable[[str], str]) -> None:
    _indexed(tmp_path)
    text = (tmp_path / "index.csv").read_text()
    (tmp_path / "index.csv").write_text(text, encoding="utf-8-sig")
    assert len(find_sources(tmp_path)) == 3  # as a spreadsheet saves it
    (tmp_path / "index.csv").write_text(harm(text))
    with pytest.raises(SkyPartError, match=r"index\.csv: .* needs the columns"):
        find_sources(tmp_path)


def test_dates_of_different_size_raise(tmp_path: Path) -> None:
    _indexed(tmp_path, 1)
    Image.fromarray(_checks(8, 16)).save(tmp_path / "images" / "town_2018_0.jpg")
    with pytest.raises(SkyPartError, match=r"128 x 128 pixels.*crop all dates"):
        find_sources(tmp_path)[0].load()


def test_a_damaged_geotiff_raises_and_undeclared_nodata_is_unknown(tmp_path: Path) -> None:
    grid = from_origin(500_000.0, 5_000_000.0, 0.5, 0.5)
    heights = np.full((1, 300, 300), 100.0, dtype=np.float32)
    heights[0, :20, :20] = -9999.0
    _write_tiff(tmp_path / "site.tif", _checks().transpose(2, 0, 1), "EPSG:32632", grid)
    _write_tiff(tmp_path / "site_dsm.tif", heights, "EPSG:32632", grid)
    world = find_sources(tmp_path)[0].load()
    assert world.drone.heights.min() > 99.0 and world.valid is not None and not world.valid[:19, :19].any()
    whole = (tmp_path / "site.tif").read_bytes()
    (tmp_path / "site.tif").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SkyPartError, match=r"site\.tif.*copy the damaged file again"):
        find_sources(tmp_path / "site.tif")[0].load()


def test_two_maps_with_the_same_name_raise(tmp_path: Path) -> None:
    grid = from_origin(500_000.0, 5_000_000.0, 0.5, 0.5)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        _write_tiff(tmp_path / folder / "ortho.tif", _checks().transpose(2, 0, 1), "EPSG:32632", grid)
    request = build_request([str(tmp_path / folder / "ortho.tif") for folder in "ab"], locations=2, image_size=48)
    with pytest.raises(SkyPartError, match="two maps have the name ortho"):
        make_world(tmp_path / "out", request)


def test_a_changed_raster_is_detected(tmp_path: Path) -> None:
    _indexed(tmp_path / "in")
    request = build_request([str(tmp_path / "in")], locations=3, image_size=48, views=1)
    make_world(tmp_path / "out", request)
    make_world(tmp_path / "out", request)
    image = next((tmp_path / "in" / "images").iterdir())
    Image.fromarray(255 - np.asarray(Image.open(image))).save(image)
    with pytest.raises(SkyPartError, match="from other versions of the rasters; choose another folder"):
        make_world(tmp_path / "out", request)


def test_a_narrow_map_has_sites_along_its_length(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 255, (40, 300, 3)).astype(np.uint8).repeat(10, 0).repeat(10, 1)
    _write_tiff(tmp_path / "strip.tif", colours.transpose(2, 0, 1), "EPSG:32632", from_origin(5e5, 5e6, 1.0, 1.0))
    request = build_request([str(tmp_path / "strip.tif")], locations=6, image_size=48, views=1)
    assert sum(len(job.sites) for job in plan_jobs(tmp_path / "out", request, find_rendering("sues200"))) == 6


def test_a_fractional_epsg_code_and_a_surface_without_overlap(tmp_path: Path) -> None:
    _indexed(tmp_path / "a", 1)
    text = (tmp_path / "a" / "index.csv").read_text()
    (tmp_path / "a" / "index.csv").write_text(text.replace("26911", "26911.0"))
    assert "26911.0" in (tmp_path / "a" / "index.csv").read_text()
    assert find_sources(tmp_path / "a")[0].load().epsg == 26911
    (tmp_path / "b").mkdir()
    _lidar(tmp_path / "b", "site")
    meta = next((tmp_path / "b").glob("*meta.json"))
    meta.write_text(meta.read_text().replace("step_m", "steps"))
    with pytest.raises(SkyPartError, match="'step_m' is missing or not a number"):
        find_sources(tmp_path / "b")
