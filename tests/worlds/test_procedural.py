"""Procedural regions: from the seed alone, of every style, with changes between dates."""

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.worlds import STYLES, Region, World, random_pose
from skypart.worlds.polygons import area, inner_rectangle, inset, rectangle, split
from skypart.worlds.sites import find_sites
from tests.worlds.conftest import flat_world


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    return {style: Region(3, i, style, extent=260.0, gsd=1.0).load() for i, style in enumerate(STYLES)}


def test_a_region_is_determined_by_its_seed(worlds: dict[str, World]) -> None:
    again = Region(3, 0, next(iter(STYLES)), extent=260.0, gsd=1.0).load()
    first = worlds[next(iter(STYLES))]
    assert (again.drone.rgb == first.drone.rgb).all() and (again.drone.heights == first.drone.heights).all()
    other = Region(4, 0, next(iter(STYLES)), extent=260.0, gsd=1.0).load()
    assert (other.drone.rgb != first.drone.rgb).mean() > 0.5


@pytest.mark.parametrize("style", list(STYLES))
def test_every_style_has_ground_and_objects(worlds: dict[str, World], style: str) -> None:
    ground = worlds[style].drone
    above = ground.heights - ground.terrain
    assert ground.rgb.std() > 10 and np.isfinite(ground.heights).all()
    assert 0.01 < (above > 2).mean() < 0.9 and above.min() > -0.01 and above.max() < 90


def test_dates_differ_slightly(worlds: dict[str, World]) -> None:
    for style, world in worlds.items():
        differs = (world.satellite.rgb != world.drone.rgb).any(axis=2).mean()
        assert 0.0 < differs < (0.99 if style == "farmland" else 0.5), style
        assert (world.satellite.heights != world.drone.heights).mean() < 0.25


def test_without_changes_all_dates_have_the_same_buildings() -> None:
    world = Region(3, 1, "suburb", extent=200.0, gsd=1.0, changes=0.0).load()
    tall = np.abs(world.satellite.heights - world.drone.heights)
    assert tall.max() < 1.6  # cars only


def test_regions_of_one_seed_do_not_overlap_on_earth() -> None:
    corners = set()
    for number in (0, 1, 33):
        world = Region(1, number, "farmland", extent=120.0, gsd=2.0).load()
        corners.add((round(world.origin[0] / 240), round(world.origin[1] / 240)))
    assert len(corners) == 3


def test_random_poses_look_at_valid_ground(worlds: dict[str, World]) -> None:
    coast = worlds["coast"]
    rng = np.random.default_rng(0)
    for _ in range(50):
        pose = random_pose(coast, rng, margin=20.0)
        x, y = pose.target
        assert coast.valid is None or coast.valid[int(-y), int(x)]
        assert 30 <= pose.tilt <= 90 and 0 < x < 260 and -260 < y < 0


def test_sites_keep_their_distance() -> None:
    sites = find_sites(flat_world(np.zeros((260, 260, 3), np.uint8), gsd=1.0), 50.0, 100.0, [2])
    gaps = np.hypot(*(sites[:, None] - sites[None]).transpose(2, 0, 1)) + 1e9 * np.eye(len(sites))
    assert len(sites) >= 9 and gaps.min() > 0.7 * 50.0


def test_sites_can_be_neighbours() -> None:
    world = flat_world(np.zeros((600, 600, 3), np.uint8), gsd=1.0)
    near, scattered = (find_sites(world, 30.0, 100.0, [2], together)[:9] for together in (True, False))
    assert np.ptp(near, axis=0).max() < 130 < np.ptp(scattered, axis=0).max()


def test_splitting_polygons_preserves_their_area() -> None:
    rng = np.random.default_rng(1)
    square = rectangle((50.0, 50.0), 100.0, 80.0, 0.4)
    pieces = split(square, rng, 500.0)
    assert len(pieces) > 8 and sum(area(piece) for piece in pieces) == pytest.approx(8000.0)
    assert area(inset(square, 5.0)) == pytest.approx(90 * 70)
    found = inner_rectangle(square)
    assert found is not None and found[1] * found[2] > 0.9 * 8000


def test_an_unknown_style_raises() -> None:
    with pytest.raises(SkyPartError, match="choose from town"):
        Region(1, 0, "jungle")
