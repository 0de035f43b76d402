"""GeoTIFFs of every kind show the ground they were made of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rasterio.enums import ColorInterp
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.maps.map_source import MapSource
from skypart.maps.sources import open_maps
from skypart.maps.views import ground_at, read_view
from tests.maps.makers import centred_affine, ground, ground_image, sample, write_ground, write_raster

AROUND = (33.64, 72.99)
UTM = "EPSG:32643"


def check_ground(source: MapSource, around: tuple[float, float], metres: float = 60.0, worst: float = 5.0) -> None:
    """A view of the map's centre, north up and rotated, shows the synthetic ground."""
    for rotation in (0.0, 37.0):
        view = Footprint(latitude=around[0], longitude=around[1], metres=metres, rotation=rotation)
        rgb, valid = read_view(source, view, 96)
        middle = (np.arange(96) + 0.5) / 96
        lat, lon = ground_at(view, middle[None, :], middle[:, None])
        truth = ground(lat, lon, around=around)
        assert valid == 1.0
        assert np.abs(rgb - truth).max() < worst


@pytest.mark.parametrize("kind", ["north", "south", "rotated"])
@pytest.mark.parametrize(
    ("crs", "around"),
    [
        (UTM, AROUND),
        ("EPSG:4326", (-80.0, 12.0)),
        ("EPSG:4326", (51.0, 180.0)),
        ("EPSG:3857", (60.0, 179.9999)),
        ("EPSG:32760", (-17.0, 180.0)),
        ("EPSG:3413", (80.0, -45.0)),
        ("EPSG:2263", (40.75, -73.98)),
    ],
)
def test_any_crs_and_geotransform(tmp_path: Path, crs: str, around: tuple[float, float], kind: str) -> None:
    source = open_maps([str(write_ground(tmp_path / "map.tif", crs, around, kind=kind))])[0]
    assert source.name == "map"
    check_ground(source, around, 30.0)
    box = source.bounds
    assert box.south < around[0] < box.north
    assert (around[1] - box.west) % 360 < (box.east - box.west) % 360 < 1


def test_warp_to_any_points(tmp_path: Path) -> None:
    source = open_maps([str(write_ground(tmp_path / "map.tif", "EPSG:3857", (10.0, 180.0)))])[0]
    lat, lon = np.meshgrid(10.0 + np.linspace(3e-4, -3e-4, 50), 180.0 + np.linspace(-4e-4, 4e-4, 70), indexing="ij")
    lon = (lon + 180) % 360 - 180
    rgb, valid = sample(source, lat, lon)
    assert rgb.shape == (50, 70, 3) and valid.all()
    assert np.abs(rgb - ground(lat, lon, around=(10.0, 180.0))).max() < 5
    rgb, valid = sample(source, lat[:1, :1], lon[:1, :1])
    assert valid.all() and np.abs(rgb - ground(lat[:1, :1], lon[:1, :1], around=(10.0, 180.0))).max() < 5
    rgb, valid = sample(source, lat + 1, lon)
    assert not valid.any() and not rgb.any()


def test_coarse_views_are_averages_not_samples(tmp_path: Path) -> None:
    """A fine chessboard is grey from afar, whatever the phase; picking pixels would show black and white."""
    board = (np.indices((600, 600)).sum(axis=0) % 2 * 255).astype(np.uint8)
    path = write_raster(tmp_path / "board.tif", board[None], UTM, centred_affine(UTM, AROUND, 0.5, (600, 600)))
    source = open_maps([str(path)])[0]
    for metres in (110.0, 170.3, 240.0):
        view = Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=metres, rotation=11.0)
        rgb, _ = read_view(source, view, 40)
        assert np.abs(rgb.astype(float) - 127.5).max() < 20
    # Against plain block averages of noise, 8 x 8 pixels each, on the map's own grid.
    noise = np.random.default_rng(0).integers(0, 256, (1, 640, 640), dtype=np.uint8)
    affine = centred_affine(
        UTM, (33.64, 75.0), 0.5, (640, 640)
    )  # 75 E: the zone's meridian, where its north is true north
    source = open_maps([str(write_raster(tmp_path / "noise.tif", noise, UTM, affine))])[0]
    rgb, _ = read_view(source, Footprint(latitude=33.64, longitude=75.0, metres=320.0 / 0.9996), 80)
    blocks = noise[0].reshape(80, 8, 80, 8).mean(axis=(1, 3))
    inner = np.s_[2:-2, 2:-2]
    assert np.corrcoef(rgb[inner][..., 0].ravel(), blocks[inner].ravel())[0, 1] > 0.97


def test_overviews_give_the_same_colours(tmp_path: Path) -> None:
    import rasterio

    path = write_ground(tmp_path / "map.tif", pixels=(1024, 1024), tiled=True, blockxsize=256, blockysize=256)
    view = Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=400.0)
    plain = read_view(open_maps([str(path)])[0], view, 50).rgb
    with rasterio.open(path, "r+") as raster:
        raster.build_overviews([2, 4, 8], rasterio.enums.Resampling.average)
    with_overviews = read_view(open_maps([str(path)])[0], view, 50).rgb
    assert np.abs(plain.astype(int) - with_overviews).max() <= 12


def test_cloud_optimized_geotiff(tmp_path: Path) -> None:
    path = write_ground(tmp_path / "map.tif", pixels=(700, 600), driver="COG", blocksize=256)
    check_ground(open_maps([str(path)])[0], AROUND)


def test_palette(tmp_path: Path) -> None:
    affine = centred_affine(UTM, AROUND, 0.5, (400, 300))
    rgb = ground_image(UTM, affine, 400, 300, AROUND)
    grey = rgb[..., 0]
    colormap = {value: (value, 255 - value, 7, 255) for value in range(256)}
    path = write_raster(tmp_path / "map.tif", grey[None], UTM, affine, colormap=colormap)
    seen, valid = read_view(
        open_maps([str(path)])[0], Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=60), 96
    )
    truth = ground(*ground_at_grid(60.0, 96), around=AROUND)[..., 0]
    assert valid == 1.0
    assert np.abs(seen[..., 0] - truth).max() < 5
    assert np.abs(seen[..., 1] - (255 - truth)).max() < 5
    assert (seen[..., 2] == 7).all()


def ground_at_grid(metres: float, size: int) -> tuple[Any, Any]:
    middle = (np.arange(size) + 0.5) / size
    view = Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=metres)
    return ground_at(view, middle[None, :], middle[:, None])


def half_invalid_map(tmp_path: Path, kind: str) -> MapSource:
    """A map whose western half is marked as invalid in one of several ways."""
    affine = centred_affine(UTM, AROUND, 0.5, (400, 300))
    bands = np.ascontiguousarray(ground_image(UTM, affine, 400, 300, AROUND).transpose(2, 0, 1))
    alpha = np.full((300, 400), 255, np.uint8)
    alpha[:, :200] = 0
    path = tmp_path / f"{kind}.tif"
    if kind == "alpha":
        write_raster(path, np.concatenate([bands, alpha[None]]), UTM, affine, photometric="rgb", alpha="yes")
    elif kind == "nodata":
        bands[:, :, :200] = 1
        bands[:, :, 200:] = np.maximum(bands[:, :, 200:], 2)
        write_raster(path, bands, UTM, affine, nodata=1)
    elif kind == "black border":
        bands[:, :, :200] = 0
        write_raster(path, bands, UTM, affine)
    elif kind == "float":
        wide = bands.astype(np.float32) / 100
        wide[:, :, :200] = np.nan
        write_raster(path, wide, UTM, affine)
    elif kind == "mask":
        import rasterio

        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
            write_raster(path, bands, UTM, affine)
            with rasterio.open(path, "r+") as raster:
                raster.write_mask(alpha)
    return open_maps([str(path)])[0]


@pytest.mark.parametrize("size", [32, 300])
@pytest.mark.parametrize("kind", ["alpha", "nodata", "mask", "float", "black border"])
def test_invalid_pixels_are_masked_and_do_not_darken_their_neighbours(tmp_path: Path, kind: str, size: int) -> None:
    source = half_invalid_map(tmp_path, kind)
    lat, lon = ground_at_grid(100.0, size)
    rgb, valid = sample(source, lat, lon)
    column, _ = source.grids[0].to_pixels(latitude=lat, longitude=lon)
    pixel = 100.0 / size / 0.5
    assert not valid[column < 200 - pixel].any()
    assert valid[column > 200 + pixel].all()
    assert not rgb[~valid].any()
    truth = ground(lat, lon, around=AROUND)
    if kind == "float":
        seen = truth[valid].reshape(-1, 3)
        assert np.corrcoef(seen.ravel(), rgb[valid].ravel())[0, 1] > 0.995
    else:
        assert np.abs(rgb[valid] - truth[valid]).max() < (25 if size == 32 else 8)


@pytest.mark.parametrize("dtype", ["uint16", "int16", "float32"])
def test_wide_bands_get_one_contrast_stretch_for_the_whole_map(tmp_path: Path, dtype: str) -> None:
    affine = centred_affine(UTM, AROUND, 0.5, (400, 300))
    rgb = ground_image(UTM, affine, 400, 300, AROUND).transpose(2, 0, 1)
    wide = (rgb.astype(np.float64) * 11 + 500).astype(dtype)
    low, high = np.percentile(wide, (1, 99))
    source = open_maps([str(write_raster(tmp_path / "map.tif", wide, UTM, affine))])[0]
    lat, lon = ground_at_grid(60.0, 96)
    truth = np.clip((ground(lat, lon, around=AROUND) * 11 + 500 - low) * 255 / (high - low), 0, 255)
    seen = sample(source, lat, lon).rgb
    assert np.abs(seen - truth).max() < 8
    part = sample(source, lat[:20, :20], lon[:20, :20]).rgb
    assert np.abs(part.astype(int) - seen[:20, :20]).max() <= 2


def test_bands_are_mapped_to_rgb(tmp_path: Path) -> None:
    affine = centred_affine(UTM, AROUND, 0.5, (64, 64))
    flat = np.stack([np.full((64, 64), value, np.uint8) for value in (10, 20, 30, 40)])
    places = ground_at_grid(20.0, 8)

    def colour(name: str, bands: Any, **options: Any) -> list[int]:
        source = open_maps([str(write_raster(tmp_path / name, bands, UTM, affine, **options))])[0]
        rgb, valid = sample(source, places[0], places[1])
        assert valid.all()
        found: list[int] = rgb[4, 4].tolist()
        return found

    assert colour("four.tif", flat, photometric="minisblack") == [10, 20, 30]
    meaning = [ColorInterp.undefined, ColorInterp.blue, ColorInterp.green, ColorInterp.red]
    assert colour("named.tif", flat, photometric="minisblack", meaning=meaning) == [40, 30, 20]
    assert colour("grey.tif", flat[1:2]) == [20, 20, 20]
    assert colour("two.tif", flat[1:3]) == [20, 20, 20]


@pytest.mark.parametrize(("suffix", "world"), [(".jpg", ".jgw"), (".png", ".pgw"), (".png", ".wld"), (".tif", ".tfw")])
def test_world_files(tmp_path: Path, suffix: str, world: str) -> None:
    affine = centred_affine(UTM, AROUND, 0.5, (400, 300))
    Image.fromarray(ground_image(UTM, affine, 400, 300, AROUND)).save(tmp_path / f"map{suffix}", quality=97)
    with pytest.raises(SkyPartError, match=r"map\.\w+: is not georeferenced; georeference it with .*world file"):
        open_maps([str(tmp_path / f"map{suffix}")])
    middle = (affine.c + affine.a / 2, affine.f + affine.e / 2)
    numbers = (affine.a, affine.d, affine.b, affine.e, *middle)
    (tmp_path / f"map{world}").write_text("\n".join(f"{number:.10f}" for number in numbers))
    with pytest.raises(SkyPartError, match=r"has no coordinate system; write it into map.prj .* EPSG:32643"):
        open_maps([str(tmp_path / f"map{suffix}")])
    (tmp_path / "map.prj").write_text("EPSG:32643\n")
    source = open_maps([str(tmp_path / f"map{suffix}")])[0]
    check_ground(source, AROUND, worst=10)
    from pyproj import CRS

    (tmp_path / "map.prj").write_text(CRS.from_epsg(32643).to_wkt("WKT1_ESRI"))
    assert open_maps([str(tmp_path / f"map{suffix}")])[0].bounds == source.bounds
    (tmp_path / "map.prj").write_text("somewhere near the river")
    with pytest.raises(SkyPartError, match=r"map.prj: its coordinate system cannot be used"):
        open_maps([str(tmp_path / f"map{suffix}")])


def assert_rejected(path: Path, match: str) -> None:
    with pytest.raises(SkyPartError, match=match) as raised:
        open_maps([str(path)])
    assert path.name in str(raised.value) and "\n" not in str(raised.value)


def test_wrong_coordinate_systems_are_rejected(tmp_path: Path) -> None:
    bands = np.zeros((3, 50, 50), np.uint8)
    metres = centred_affine(UTM, AROUND, 0.5, (50, 50))
    degrees = centred_affine("EPSG:4326", AROUND, 0.5, (50, 50))
    assert_rejected(
        write_raster(tmp_path / "a.tif", bands, "EPSG:4326", metres), "are not on the Earth; .*wrong, set the right"
    )
    assert_rejected(write_raster(tmp_path / "b.tif", bands, UTM, degrees), "its pixels would be .* m wide; .*wrong")
    assert_rejected(
        write_raster(tmp_path / "c.tif", bands, "EPSG:27700", metres), "far outside the area of OSGB|outside the range"
    )
    assert_rejected(write_raster(tmp_path / "d.tif", bands, None, metres), "has no coordinate system")
    assert_rejected(write_raster(tmp_path / "e.tif", bands, UTM, Affine.identity()), "is not georeferenced")
    local = 'LOCAL_CS["site",UNIT["metre",1]]'
    assert_rejected(
        write_raster(tmp_path / "f.tif", bands, local, metres),
        "(coordinate system cannot be used|has no coordinate system)",
    )


@pytest.mark.parametrize("suffix", [".tif", ".jpg", ".png", ".jp2"])
def test_truncated_files_are_rejected(tmp_path: Path, suffix: str) -> None:
    affine = centred_affine(UTM, AROUND, 0.5, (300, 300))
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    path = tmp_path / f"map{suffix}"
    if suffix == ".tif":
        write_raster(
            path, noise.transpose(2, 0, 1), UTM, affine, compress="deflate", tiled=True, blockxsize=64, blockysize=64
        )
    else:
        Image.fromarray(noise).save(path)
        numbers = (affine.a, affine.d, affine.b, affine.e, affine.c, affine.f)
        path.with_suffix(".wld").write_text("\n".join(f"{number:.10f}" for number in numbers))
        path.with_suffix(".prj").write_text(UTM)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    view = Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=140.0)
    with pytest.raises(SkyPartError, match=r"map.*copy it again"):
        read_view(open_maps([str(path)])[0], view, 64)


def test_unsupported_drivers_are_rejected(tmp_path: Path) -> None:
    inner = write_ground(tmp_path / "inner.tif")
    vrt = tmp_path / "map.vrt"
    vrt.write_text(
        f'<VRTDataset rasterXSize="400" rasterYSize="300"><SRS>{UTM}</SRS>'
        "<GeoTransform>313101, 0.5, 0, 3724912, 0, -0.5</GeoTransform>"
        f'<VRTRasterBand dataType="Byte" band="1"><SimpleSource><SourceFilename>{inner}</SourceFilename>'
        "<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>"
    )
    assert_rejected(vrt, "is not a supported map; give GeoTIFF")
    disguised = tmp_path / "disguised.tif"
    disguised.write_bytes(vrt.read_bytes())
    assert_rejected(disguised, "is not a supported map")
    inner.with_name("inner.tif.ovr").write_bytes(vrt.read_bytes())
    with pytest.raises(SkyPartError, match=r"inner\.tif\.ovr: is not a TIFF"):
        open_maps([str(inner)])
    empty = tmp_path / "empty.tif"
    empty.touch()
    assert_rejected(empty, r"the file is empty \(0 bytes\)")
    assert_rejected(tmp_path / "nowhere.tif", "no such file")


@pytest.mark.parametrize("address", ["https://example.org/a.tif", "s3://bucket/a.tif", "/vsicurl/http://a/b.tif"])
def test_remote_addresses_need_network_permission(address: str) -> None:
    with pytest.raises(SkyPartError, match="is not a local file; download it first, or allow network access"):
        open_maps([address])


def test_fingerprint_depends_on_content_and_georeference(tmp_path: Path) -> None:
    path = write_ground(tmp_path / "map.tif")
    first = open_maps([str(path)])[0].fingerprint
    copy = tmp_path / "copy.tif"
    copy.write_bytes(path.read_bytes())
    assert open_maps([str(copy)])[0].fingerprint == first
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    assert open_maps([str(copy)])[0].fingerprint != first
    write_ground(copy, around=(33.65, 72.99))
    assert open_maps([str(copy)])[0].fingerprint != first
