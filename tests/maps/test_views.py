"""Which views are cut, and which are skipped."""

from pathlib import Path

import numpy as np
import pytest
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame, distance_m
from skypart.maps import warp
from skypart.maps.sources import open_maps
from skypart.maps.views import ground_at, is_empty, plan_views, read_view
from tests.maps.makers import write_ground, write_raster, write_tile_folder

AROUND = (33.64, 72.99)


@pytest.mark.parametrize(
    ("crs", "around"), [("EPSG:32643", AROUND), ("EPSG:4326", (-70.0, 180.0)), ("EPSG:3857", (62.0, -179.9999))]
)
@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.5])
def test_views_cover_the_map_and_stay_inside(
    tmp_path: Path, crs: str, around: tuple[float, float], overlap: float
) -> None:
    source = open_maps([str(write_ground(tmp_path / "map.tif", crs, around, (430, 310), 1.0))])[0]
    views = plan_views(source, [90.0, 150.0], overlap, [0.0])
    grid = source.grids[0]
    for size in (90.0, 150.0):
        chosen = [view for view in views if view.metres == size]
        lat, lon = np.array([(view.latitude, view.longitude) for view in chosen]).T
        column, row = grid.to_pixels(latitude=lat, longitude=lon)
        metres = grid.pixel_metres(215, 155)
        half = size / 2 / float(metres.x[0]), size / 2 / float(metres.y[0])
        assert column.min() == pytest.approx(half[0], rel=0.01) and column.max() == pytest.approx(
            430 - half[0], rel=0.01
        )
        assert row.min() == pytest.approx(half[1], rel=0.01) and row.max() == pytest.approx(310 - half[1], rel=0.01)
        # Neighbours share at least the overlap asked for, and not much more than one more view would give.
        across = np.diff(np.unique(column.round(2)))
        assert across.max() <= half[0] * 2 * (1 - overlap) * 1.002
    assert min(read_view(source, view, 24).valid_share for view in views) > 0.95
    assert list(views) == list(plan_views(source, [90.0, 150.0], overlap, [0.0]))


def test_rotations_multiply_the_views(tmp_path: Path) -> None:
    source = open_maps([str(write_ground(tmp_path / "map.tif", pixels=(430, 310)))])[0]
    straight = plan_views(source, [80.0], 0.5, [0.0])
    turned = plan_views(source, [80.0], 0.5, [0.0, 90.0, 180.0, -90.0])
    assert len(turned) == 4 * len(straight)
    assert [view.rotation for view in turned[:4]] == [0.0, 90.0, 180.0, 270.0]
    assert turned[4].latitude == straight[1].latitude
    assert isinstance(turned[:4], type(turned)) and turned[-1] == turned[len(turned) - 1]
    assert turned.columns.shape == (len(turned), 4)


def test_rotation_is_the_compass_direction_of_up() -> None:
    frame = LocalFrame(latitude=AROUND[0], longitude=AROUND[1])
    for rotation, (x, y) in {0.0: (0, 50), 90.0: (50, 0), 180.0: (0, -50), 45.0: (35.355, 35.355)}.items():
        view = Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=100.0, rotation=rotation)
        lat, lon = ground_at(view, 0.5, 0.0)
        east, north = frame.to_metres(latitude=lat, longitude=lon)
        assert (float(east), float(north)) == pytest.approx((x, y), abs=0.01)
    left, right = ground_at(view, 0.0, 0.5), ground_at(view, 1.0, 0.5)
    across = distance_m(
        latitude=left.latitude, longitude=left.longitude, to_latitude=right.latitude, to_longitude=right.longitude
    )
    assert float(across) == pytest.approx(100.0, abs=1e-6)


def test_rotated_view_is_the_rotated_image(tmp_path: Path) -> None:
    source = open_maps([str(write_ground(tmp_path / "map.tif"))])[0]
    views = [Footprint(latitude=AROUND[0], longitude=AROUND[1], metres=80.0, rotation=turn) for turn in (0.0, 90.0)]
    north_up, east_up = (read_view(source, view, 64).rgb for view in views)
    assert np.abs(np.rot90(north_up, 1).astype(int) - east_up).max() <= 3


@pytest.mark.parametrize("metres", [30.0, 80.0, 160.0])
def test_an_affine_warp_gives_the_pixels_of_the_mesh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metres: float
) -> None:
    """Finer and coarser than the map's pixels, and where the view reaches over the map's edge."""
    source = open_maps([str(write_ground(tmp_path / "map.tif"))])[0]
    views = [
        Footprint(latitude=AROUND[0] + north, longitude=AROUND[1], metres=metres, rotation=turn)
        for north, turn in ((0.0, 0.0), (0.0001, 33.0), (0.001, 200.0))
    ]
    direct = [read_view(source, view, 96) for view in views]
    fits = []
    fit = warp._fit_affine
    monkeypatch.setattr(warp, "_fit_affine", lambda mesh: fits.append(fit(mesh)))
    for view, found in zip(views, direct, strict=True):
        wanted = read_view(source, view, 96)
        assert found.valid_share == pytest.approx(wanted.valid_share, abs=0.01)
        assert np.abs(found.rgb.astype(int) - wanted.rgb).max() <= 3
    assert all(each is not None for each in fits), "so that the first images were warped by it"


def test_map_smaller_than_a_view_is_rejected(tmp_path: Path) -> None:
    source = open_maps([str(write_ground(tmp_path / "small.tif", pixels=(200, 160)))])[0]
    with pytest.raises(
        SkyPartError, match=r"small.tif: the map is 100 x 80 m, smaller than one view of 150 m; give smaller"
    ):
        plan_views(source, [150.0, 300.0], 0.5, [0.0])
    assert {view.metres for view in plan_views(source, [60.0, 300.0], 0.5, [0.0])} == {60.0}
    assert len(plan_views(source, [82.0], 0.0, [0.0])) == 2  # a little wider than the map
    for sizes, overlap, rotations in (([], 0.5, [0.0]), ([-1.0], 0.5, [0.0]), ([50.0], 1.0, [0.0]), ([50.0], 0.5, [])):
        with pytest.raises(SkyPartError, match="cannot be cut"):
            plan_views(source, sizes, overlap, rotations)


@pytest.mark.parametrize("top", [90.0, -89.5])
def test_map_at_a_pole_can_be_planned(tmp_path: Path, top: float) -> None:
    affine = Affine(0.001, 0.0, 10.0, 0.0, -0.001, top)
    rgb = np.random.default_rng(0).integers(0, 255, (3, 500, 500), dtype=np.uint8)
    source = open_maps([str(write_raster(tmp_path / "pole.tif", rgb, "EPSG:4326", affine))])[0]
    views = plan_views(source, [460.0], 0.5, [0.0])
    assert len(views) > 20 and np.isfinite(views.columns).all()
    assert all(abs(view.latitude) < 90 and 10.0 < view.longitude < 10.5 for view in views)


def test_map_too_coarse_for_its_views_is_rejected(tmp_path: Path) -> None:
    source = open_maps([str(write_ground(tmp_path / "coarse.tif", pixels=(400, 300), metres=30.0))])[0]
    with pytest.raises(
        SkyPartError, match=r"coarse\.tif: pixels of 30 m are too coarse for views of 100 m; give larger --sizes or a"
    ):
        plan_views(source, [250.0, 100.0], 0.5, [0.0])
    assert len(plan_views(source, [250.0], 0.5, [0.0]))
    world = write_tile_folder(tmp_path / "world", {(0, 0, 0): np.zeros((256, 256, 3), np.uint8)})
    with pytest.raises(SkyPartError, match=r"world: pixels of 15\d km are too coarse for views of 2 km"):
        plan_views(open_maps([str(world)])[0], [2_000.0], 0.5, [0.0])


def test_planning_reads_no_pixels(tmp_path: Path) -> None:
    import rasterio

    path = tmp_path / "large.tif"
    affine = rasterio.transform.from_origin(313_000, 3_724_000, 0.5, 0.5)
    profile = {"driver": "GTiff", "width": 40_000, "height": 40_000, "count": 3, "dtype": "uint8", "crs": "EPSG:32643"}
    with rasterio.open(path, "w", transform=affine, tiled=True, sparse_ok=True, **profile):
        pass
    source = open_maps([str(path)])[0]
    source.images[0].reader.read = None  # type: ignore[method-assign, assignment]
    views = plan_views(source, [150.0, 300.0], 0.5, [0.0])
    assert len(views) == 266**2 + 133**2


def test_empty_views() -> None:
    rng = np.random.default_rng(0)
    town = rng.integers(30, 220, (64, 64, 3), dtype=np.uint8)
    assert not is_empty(town, 1.0)
    assert not is_empty(town, 0.6)
    assert is_empty(town, 0.4)
    assert is_empty(np.full((64, 64, 3), 90, np.uint8), 1.0)
    assert is_empty(np.clip(rng.normal(90, 1, (64, 64, 3)), 0, 255).astype(np.uint8), 1.0)
    for border in (0, 255):
        half = town.copy()
        half[:40] = border
        assert is_empty(half, 1.0)
