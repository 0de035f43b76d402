"""Rendering Web Mercator tiles."""

import math
from pathlib import Path

import numpy as np
import pytest

from skypart.maps.render import mercator_latitude, mercator_y, render_tile
from skypart.maps.sources import open_maps
from tests.maps.makers import centred_affine, tile_image, tile_of, write_ground, write_raster

AROUND = (33.64, 72.99)


def test_mercator_latitude_and_y_are_inverse() -> None:
    assert float(mercator_latitude(0.0)) == pytest.approx(85.0511287798)
    assert float(mercator_latitude(0.5)) == 0.0
    values = np.linspace(-85, 85, 101)
    assert np.allclose(mercator_latitude(mercator_y(values)), values)


@pytest.mark.parametrize("place", [AROUND, (-16.5, 180.0)])
@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:3857"])
def test_tile_shows_the_ground(tmp_path: Path, place: tuple[float, float], crs: str) -> None:
    path = write_ground(tmp_path / "map.tif", crs, place, (500, 400), 0.5)
    source = open_maps([str(path)])[0]
    x, y = tile_of(place[0], min(place[1], 179.99999), 19)
    for column in (x, (x + 1) % 2**19):
        tile = render_tile([source], 19, column, y)
        truth = tile_image(19, column, y, place)
        assert tile.shape == (256, 256, 4) and tile.dtype == np.uint8
        seen = tile[..., 3] == 255
        assert seen.mean() > 0.5
        assert np.abs(tile[seen, :3].astype(int) - truth[seen]).max() < 6
        assert not tile[~seen].any()


def test_map_area_is_the_same_at_every_zoom(tmp_path: Path) -> None:
    """At every zoom level, the map covers the same area in tiles as on the ground."""
    place = (33.64, 72.99)
    bands, affine = np.full((1, 1500, 2000), 99, np.uint8), centred_affine("EPSG:3857", place, 0.5, (2000, 1500))
    source = open_maps([str(write_raster(tmp_path / "map.tif", bands, "EPSG:3857", affine))])[0]
    for zoom in (13, 16):
        x, y = tile_of(*place, zoom)
        pixels = sum(
            (render_tile([source], zoom, x + dx, y + dy)[..., 3] > 0).sum() for dx in (-1, 0, 1) for dy in (-1, 0, 1)
        )
        pixel = 40_075_016.68 * math.cos(math.radians(place[0])) / 256 / 2**zoom
        assert pixels * pixel**2 == pytest.approx(1000 * 750, rel=0.05)
    assert (render_tile([source], 0, 0, 0)[..., 3] > 0).sum() <= 1


def test_map_across_the_antimeridian_appears_at_both_ends_of_the_world(tmp_path: Path) -> None:
    bands = np.full((3, 40, 400), 200, np.uint8)
    affine = centred_affine("EPSG:4326", (0.0, 180.0), 9_000.0, (400, 40))
    source = open_maps([str(write_raster(tmp_path / "map.tif", bands, "EPSG:4326", affine))])[0]
    shown = render_tile([source], 0, 0, 0)[128, :, 3] > 0
    assert shown[:5].all() and shown[-5:].all() and not shown[20:-20].any()


def test_first_map_is_on_top_and_others_fill_gaps(tmp_path: Path) -> None:
    affine = centred_affine("EPSG:3857", AROUND, 0.5, (200, 200))
    wide = centred_affine("EPSG:3857", AROUND, 0.5, (800, 800))
    small = write_raster(tmp_path / "small.tif", np.full((3, 200, 200), 50, np.uint8), "EPSG:3857", affine)
    large = write_raster(tmp_path / "large.tif", np.full((3, 800, 800), 150, np.uint8), "EPSG:3857", wide)
    x, y = tile_of(*AROUND, 18)
    tile = render_tile(open_maps([str(small), str(large)]), 18, x, y)
    assert set(np.unique(tile[tile[..., 3] > 0][:, 0])) == {50, 150}
    under = render_tile(open_maps([str(large), str(small)]), 18, x, y)
    assert set(np.unique(under[under[..., 3] > 0][:, 0])) == {150}


def test_nonexistent_tiles_are_transparent(tmp_path: Path) -> None:
    source = open_maps([str(write_ground(tmp_path / "map.tif"))])[0]
    for z, x, y in ((3, 0, 8), (3, 0, -1), (-1, 0, 0), (40, 0, 0), (5, 0, 0)):
        assert not render_tile([source], z, x, y).any()
    assert not render_tile([], 5, 3, 3).any()
    x, y = tile_of(*AROUND, 17)
    assert np.array_equal(render_tile([source], 17, x + 2**17, y), render_tile([source], 17, x, y))


def test_large_map_without_overviews_is_read_once_for_coarse_tiles(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1, 400, 410), dtype=np.uint8)
    affine = centred_affine("EPSG:3857", AROUND, 0.5, (4100, 4000))
    path = write_raster(tmp_path / "map.tif", np.tile(noise, (1, 10, 10)), "EPSG:3857", affine)
    source = open_maps([str(path)])[0]
    x, y = tile_of(*AROUND, 12)
    first = render_tile([source], 12, x, y)
    inner = source.images[0].reader._reader  # type: ignore[attr-defined]
    inner.read = None
    again = render_tile([source], 12, x, y)
    assert np.array_equal(first, again) and first[..., 3].any()
    seen = first[first[..., 3] > 0][:, :3]
    assert np.abs(seen.mean(axis=0) - 127.5).max() < 6  # the noise is finer than a pixel and averages to grey
    assert seen.std() < 20
