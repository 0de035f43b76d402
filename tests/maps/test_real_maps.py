"""Real rasters in the shared folder; skipped where there is none."""

import csv
from pathlib import Path

import numpy as np
import pytest
import rasterio

from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import offset
from skypart.images.decode import read_rgb
from skypart.maps.sources import open_maps
from skypart.maps.views import is_empty, plan_views, read_view
from tests.maps.makers import sample, to_degrees


def data(shared: Path, name: str) -> Path:
    path = shared / "data" / name
    if not path.exists():
        pytest.skip(f"no {path}")
    return path


def test_nust_palette_map(shared: Path) -> None:
    """The palette GeoTIFF shows, pixel for pixel, the colours of the RGB image that comes with it."""
    source = open_maps([str(data(shared, "nust_bsd2/orthomosaic_utm43n.tif"))])[0]
    assert source.gsd_m == pytest.approx(0.5, rel=0.001)
    assert (source.frame.latitude, source.frame.longitude) == pytest.approx((33.6437, 72.9896), abs=1e-3)
    reference = read_rgb(data(shared, "nust_bsd2/orthomosaic_rgb.png"))
    column, row = np.meshgrid(np.arange(700, 900) + 0.5, np.arange(800, 1000) + 0.5)
    latitude, longitude = source.grids[0].to_degrees(column, row)
    rgb, valid = sample(source, latitude, longitude)
    assert valid.all()
    assert np.abs(rgb.astype(int) - reference[800:1000, 700:900]).mean() < 1.0
    views = plan_views(source, [150.0], 0.5, [0.0])
    assert len(views) == 12 * 11
    sampled = [read_view(source, view, 64) for view in views[::7]]
    empty = [is_empty(*view) for view in sampled]
    assert 0 < sum(empty) < len(empty) / 2  # the corners are black


def test_nust_frames_resemble_their_views(shared: Path) -> None:
    """Photos of another flight against the map at their registered place, size and heading, and 25 m beside it."""
    source = open_maps([str(data(shared, "nust_bsd2/orthomosaic_utm43n.tif"))])[0]
    folder = data(shared, "nust_bsd2/drone")
    with data(shared, "nust_bsd2/frames.csv").open(encoding="utf-8") as lines:
        frames = list(csv.DictReader(lines))[::10]
    for frame in frames:
        longitude, latitude = to_degrees("EPSG:32643").transform(float(frame["utm43n_E"]), float(frame["utm43n_N"]))
        column, row = source.grids[0].to_pixels(latitude=latitude, longitude=longitude)
        assert (column, row) == pytest.approx((float(frame["map_px_x"]), float(frame["map_px_y"])), abs=0.2)
        photo = read_rgb(folder / frame["file"]).astype(np.float64).mean(axis=2)
        height, width = photo.shape
        square = photo[:, (width - height) // 2 : (width + height) // 2][::5, ::5]
        shape = {"metres": float(frame["m_per_px"]) * height, "rotation": float(frame["rotation_deg"])}
        right = Footprint(latitude=latitude, longitude=longitude, **shape)
        beside = offset(latitude=latitude, longitude=longitude, bearing=right.rotation + 90.0, metres=25.0)
        wrong = Footprint(latitude=float(beside.latitude), longitude=float(beside.longitude), **shape)
        correlation = [
            np.corrcoef(square.ravel(), read_view(source, view, len(square)).rgb.mean(axis=2).ravel())[0, 1]
            for view in (right, wrong)
        ]
        assert correlation[0] > 0.6 > correlation[1] + 0.2


def test_naip_four_bands_and_nodata(shared: Path) -> None:
    """Red, green and blue are the first three of four bands; a folder of two dates is one map, the older on top."""
    folder = data(shared, "naip_geotiff_public_domain")
    files = sorted(folder.glob("*.tif"))
    sources = open_maps([str(path) for path in files])
    assert [source.gsd_m for source in sources] == pytest.approx([5.0, 5.0], rel=0.01)
    for path, source in zip(files, sources, strict=True):
        column, row = np.meshgrid(np.arange(300, 400) + 0.5, np.arange(200, 300) + 0.5)
        latitude, longitude = source.grids[0].to_degrees(column, row)
        rgb, valid = sample(source, latitude, longitude)
        with rasterio.open(path) as raster:
            truth = raster.read([1, 2, 3])[:, 200:300, 300:400].transpose(1, 2, 0)
        assert valid.all() and np.abs(rgb.astype(int) - truth).max() <= 2
    view = Footprint(latitude=47.02, longitude=-99.155, metres=2_000.0)
    both = open_maps([str(folder)])[0]
    assert np.array_equal(read_view(both, view, 128).rgb, read_view(sources[0], view, 128).rgb)
