"""Places and mosaics."""

import csv
from pathlib import Path

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from PIL import Image
from rasterio.transform import from_origin

from skypart.datasets.fetch.indexed_images import Mosaic, make_mosaics, make_places
from skypart.errors import SkyPartError
from skypart.worlds.rasters import find_sources


def smooth(seed: int, edge: int = 64) -> NDArray[np.uint8]:
    coarse = np.random.default_rng(seed).integers(40, 216, (4, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((edge, edge), Image.Resampling.BICUBIC))


def place(file: Path, seed: int, bands: int = 4, crs: str | None = "EPSG:26911", dtype: str = "uint8") -> Path:
    pixels = np.concatenate([smooth(seed), smooth(seed + 100)[..., :1]], axis=2).transpose(2, 0, 1)[:bands]
    file.parent.mkdir(parents=True, exist_ok=True)
    transform = from_origin(371623.8 + 100 * seed, 4136146.2, 0.6, 0.6)
    with rasterio.open(
        file, "w", driver="GTiff", width=64, height=64, count=bands, dtype=dtype, crs=crs, transform=transform
    ) as raster:
        raster.write(pixels.astype(dtype))
    return file


def test_places_keep_pixels_and_corners(tmp_path: Path) -> None:
    names = ["san_jose_2018_10.tif", "san_jose_2016_10.tif", "bishop_2020_2.tif"]
    files = {name: place(tmp_path / "in" / name, seed) for seed, name in enumerate(names)}
    make_places(files, tmp_path / "out")
    with (tmp_path / "out" / "index.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["file"] for row in rows] == ["bishop_2020_2.jpg", "san_jose_2016_10.jpg", "san_jose_2018_10.jpg"]
    assert rows[1] == {
        "file": "san_jose_2016_10.jpg", "city": "san_jose", "place": "10", "year": "2016", "epsg": "26911",
        "x_ul": "371723.8", "y_ul": "4136146.2", "gsd_m": "0.6", "width": "64", "height": "64",
    }  # fmt: skip
    with Image.open(tmp_path / "out" / "images" / "san_jose_2016_10.jpg") as image:
        np.testing.assert_allclose(np.asarray(image).astype(float), smooth(1), atol=8)
    sources = find_sources(tmp_path / "out")
    assert [source.name for source in sources] == ["bishop_2", "san_jose_10"]
    assert len(sources[1].files) == 2, "two dates of one place"
    assert sources[1].load().epsg == 26911


@pytest.mark.parametrize("fault", ["name", "crs", "dtype", "bands", "no image"])
def test_unsupported_geotiffs_raise(fault: str, tmp_path: Path) -> None:
    name = "odd.tif" if fault == "name" else "odd_2016_1.tif"
    file = place(
        tmp_path / name,
        0,
        bands=2 if fault == "bands" else 4,
        crs=None if fault == "crs" else "EPSG:26911",
        dtype="uint16" if fault == "dtype" else "uint8",
    )
    if fault == "no image":
        file.write_bytes(b"no image")
    with pytest.raises(SkyPartError, match=r"odd.*(the source has changed|delete it and fetch again)"):
        make_places({name: file}, tmp_path / "out")
    assert not (tmp_path / "out" / "index.csv").exists()


def test_mosaics_are_joined_and_downsampled(tmp_path: Path) -> None:
    mosaic = Mosaic("zanzibar_0", 1277168, 1083840, 3, 2)
    whole = smooth(5, 768)[:512]
    tiles = {}
    for x, y in mosaic.tiles:
        row, column = (y - mosaic.y) * 256, (x - mosaic.x) * 256
        tiles[x, y] = tmp_path / f"OAM-{x}-{y}-21.png"
        Image.fromarray(whole[row : row + 256, column : column + 256]).save(tiles[x, y])
    make_mosaics([mosaic], tiles, tmp_path / "out")
    with Image.open(tmp_path / "out" / "zanzibar_0.jpg") as image:
        half = np.asarray(image).astype(float)
    assert half.shape == (256, 384, 3)
    np.testing.assert_allclose(half, whole.reshape(256, 2, 384, 2, 3).mean(axis=(1, 3)), atol=8)
    (source,) = find_sources(tmp_path / "out")
    assert source.extent_m == pytest.approx((384 * 0.1485, 256 * 0.1485))
    assert source.load().epsg == 32737
    Image.fromarray(whole[:100, :100]).save(tiles[mosaic.x, mosaic.y])
    with pytest.raises(SkyPartError, match="256 x 256 pixels"):
        make_mosaics([mosaic], tiles, tmp_path / "again")


def test_corners_follow_the_web_map_grid() -> None:
    assert Mosaic("null", 2**20, 2**20, 1, 1).corner == pytest.approx((0.0, 0.0))
    assert Mosaic("corner", 0, 0, 1, 1).corner == pytest.approx((85.0511287798, -180.0))
