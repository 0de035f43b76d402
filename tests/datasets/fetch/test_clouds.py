"""Point clouds read back, and rasterised as plain loops would."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from skypart.datasets.fetch.clouds import Ept, Points, Potree
from skypart.datasets.fetch.gridding import Grid, rasterise, write_surface
from skypart.errors import SkyPartError
from tests.datasets.fetch.fake_clouds import ept, potree

LOW, EDGE = (5_208_145.64, 3_902_993.55, 847.92), 400.0


def cloud(count: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    xyz = rng.uniform(0, 1, (count, 3)) * [EDGE - 1, EDGE - 1, 40] + LOW
    return np.round(xyz, 2), rng.integers(0, 256, (count, 3), dtype=np.uint8)


def points(xyz: NDArray[np.float64], rgb: NDArray[np.uint8]) -> Points:
    return Points(xyz[:, 0], xyz[:, 1], xyz[:, 2], rgb)


def write(files: dict[str, bytes], folder: Path) -> list[Path]:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return [folder / path for path in files if path.endswith(".bin")]


def joined(parts: list[Points]) -> NDArray[np.float64]:
    table = np.concatenate([np.column_stack([p.x, p.y, p.z, p.rgb]) for p in parts])
    return np.asarray(table[np.lexsort(np.round(table, 2).T)])


@pytest.mark.parametrize("old", [False, True])
def test_potree_points_are_read(old: bool, tmp_path: Path) -> None:
    xyz, rgb = cloud(3000)
    nodes = write(potree(xyz, rgb, LOW, EDGE, old), tmp_path)
    assert len(nodes) > 50 and max(len(node.stem) for node in nodes) > 4
    read = Potree.read(tmp_path / "cloud.js")
    assert read.points == 3000
    found = joined([read.read_points(node) for node in nodes])
    np.testing.assert_allclose(found, joined([points(xyz, rgb)]), atol=6e-4)


@pytest.mark.parametrize("wide", [False, True])
def test_ept_points_are_read(wide: bool, tmp_path: Path) -> None:
    xyz, rgb = cloud(500)
    nodes = write(ept(xyz, rgb, (5_208_300.0, 3_903_100.0, 860.0), wide), tmp_path)
    read = Ept.read(tmp_path / "ept.json")
    np.testing.assert_allclose(joined([read.read_points(n) for n in nodes]), joined([points(xyz, rgb)]), atol=6e-3)


def test_node_names_encode_their_cubes() -> None:
    cube = Potree((0.0, 100.0, 1000.0), 8.0, 0.001, np.dtype("i4"), 0)
    assert cube.node_cube("r") == ((0.0, 100.0, 1000.0), 8.0)
    assert cube.node_cube("r4") == ((4.0, 100.0, 1000.0), 4.0)
    assert cube.node_cube("r2") == ((0.0, 104.0, 1000.0), 4.0)
    assert cube.node_cube("r1") == ((0.0, 100.0, 1004.0), 4.0)
    assert cube.node_cube("r70") == ((4.0, 104.0, 1004.0), 2.0)


def test_unsupported_clouds_raise(tmp_path: Path) -> None:
    file = tmp_path / "header.json"
    for text, said in (
        ("{", "is not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"dataType": "laszip", "schema": []}', "its nodes are laszip"),
        ('{"dataType": "binary", "schema": [], "points": 1}', "have no position or no colour"),
    ):
        file.write_text(text)
        with pytest.raises(SkyPartError, match=said):
            Ept.read(file)
    for attributes, said in (('["POSITION_CARTESIAN"]', "have no position"), ('["LAZ"]', "unknown attribute LAZ")):
        file.write_text(f'{{"boundingBox": {{"lx":0,"ly":0,"lz":0,"ux":1}}, "points": 1, "scale": 1, '
                        f'"pointAttributes": {attributes}}}')  # fmt: skip
        with pytest.raises(SkyPartError, match=said):
            Potree.read(file)
    xyz, rgb = cloud(50)
    nodes = write(potree(xyz, rgb, LOW, EDGE), tmp_path)
    nodes[0].write_bytes(nodes[0].read_bytes()[:-1])
    with pytest.raises(SkyPartError, match="not a whole number of points"):
        Potree.read(tmp_path / "cloud.js").read_points(nodes[0])


def test_rasterising_equals_a_plain_loop() -> None:
    xyz, rgb = cloud(6000)
    xyz[:, 0] += 3 * np.sin(xyz[:, 1])
    foot = 0.3048
    grid = Grid((LOW[0] + 20, LOW[1] + 30), foot, 2.5, 30, 20, 0.0, LOW[2])
    halves = [points(xyz[:2500], rgb[:2500]), points(xyz[2500:], rgb[2500:])]
    surface = rasterise(lambda: halves, grid)
    heights: dict[tuple[int, int], list[tuple[float, NDArray[np.uint8]]]] = {}
    for (x, y, z), colour in zip(xyz, rgb, strict=True):
        column, from_south = int((x - grid.low[0]) * foot // 2.5), int((y - grid.low[1]) * foot // 2.5)
        if 0 <= column < 30 and 0 <= from_south < 20:
            heights.setdefault((19 - from_south, column), []).append(((z - LOW[2]) * foot, colour))
    assert len(heights) > 500
    for (row, column), found in heights.items():
        top = max(height for height, _ in found)
        near = [colour for height, colour in found if height >= top - 1.0]
        assert surface.height[row, column] == pytest.approx(top, abs=1e-4)
        np.testing.assert_allclose(surface.rgb[row, column], np.mean(near, axis=0), atol=0.51)
    assert surface.valid.all()


def test_small_holes_are_filled_and_large_ones_stay() -> None:
    grid = Grid((0.0, 0.0), 1.0, 1.0, 40, 40, 0.0)
    x, y = (np.ravel(each) + 0.5 for each in np.meshgrid(np.arange(40.0), np.arange(40.0)))
    lake = (np.abs(x - 20) < 8) & (np.abs(y - 20) < 8)
    gap = (np.abs(x - 5) < 1.2) & (np.abs(y - 5) < 1.2)
    kept = ~lake & ~gap
    x, y = x[kept], y[kept]
    ground = Points(x, y, 10 + x, np.stack([x, y, np.full_like(x, 7)], axis=1).astype(np.uint8))
    surface = rasterise(lambda: [ground], grid)
    assert surface.valid[34:36, 4:6].all(), "a gap of two cells"
    assert (surface.rgb[34:36, 4:6, 2] == 7).all()
    np.testing.assert_allclose(surface.height[35, 4], 14.5, atol=1.6)
    assert not surface.valid[16:24, 16:24].any() and not surface.rgb[16:24, 16:24].any()
    assert surface.valid[:, :12].all()
    with pytest.raises(SkyPartError, match="no downloaded point is inside"):
        rasterise(lambda: [ground], Grid((5000.0, 0.0), 1.0, 1.0, 40, 40, 0.0))


def test_heights_are_stored_in_steps(tmp_path: Path) -> None:
    grid = Grid((100.0, 200.0), 1.0, 0.5, 64, 48, 3.0)
    x, y = (np.ravel(each) / 2 + 0.25 for each in np.meshgrid(np.arange(64.0), np.arange(48.0)))
    rgb = np.full((len(x), 3), (200, 100, 50), dtype=np.uint8)
    hill = Points(x + 100, y + 200, 3 + y, rgb)

    def nodes() -> Iterator[Points]:
        yield hill

    write_surface(rasterise(nodes, grid), grid, tmp_path, "hill", "hill_meta.json", {"epsg": 32643})
    with Image.open(tmp_path / "hill_dsm.png") as image:
        stored = np.asarray(image)
    assert stored.dtype == np.uint16 and stored.shape == (48, 64)
    np.testing.assert_allclose(3.0 + (stored[::-1, 0].astype(float) - 1) * 0.1, 3 + y.reshape(48, 64)[:, 0], atol=0.051)
    with Image.open(tmp_path / "hill_ortho.jpg") as image:
        assert image.size == (64, 48)
        np.testing.assert_allclose(np.asarray(image).reshape(-1, 3).mean(axis=0), (200, 100, 50), atol=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hill_dsm.png", "hill_meta.json", "hill_ortho.jpg"]
