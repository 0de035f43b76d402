"""The real sets' facts against the developers' copy, where there is one; the sources themselves need a network."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from skypart.datasets.fetch.gridding import meta_text
from skypart.datasets.fetch.indexed_images import write_index
from skypart.datasets.fetch.parts import EptMap, Mosaics, PotreeMap
from skypart.datasets.fetch.reference import compare, hashes, load_reference, summarise_maps, summary_distance
from skypart.datasets.fetch.run import fetch_set
from skypart.datasets.fetch.sets import SETS
from skypart.errors import SkyPartError
from skypart.images.decode import open_image, read_rgb
from tests.datasets.fetch.fake_clouds import ept
from tests.datasets.fetch.fake_github import FAST_RETRIES, FakeGitHub

MAPS = [(each.folder, part) for each in SETS.values() for part in each.parts if isinstance(part, PotreeMap | EptMap)]


def test_every_set_is_pinned_to_a_commit_and_hashes() -> None:
    for dataset in SETS.values():
        for part in dataset.parts:
            assert len(part.snapshot.commit) == 40, "a commit, not a branch that moves"
            assert part.snapshot.address.startswith("https://github.com/")
        reference = load_reference(dataset.name)
        assert all(len(digest) == 64 for digest in reference["sha256"].values())
        stems = {part.stem for part in dataset.parts if isinstance(part, PotreeMap | EptMap)}
        assert stems <= set(reference["likeness"])


@pytest.mark.parametrize(("folder", "part"), MAPS, ids=[part.stem for _, part in MAPS])
def test_grids_equal_those_of_the_developers_copy(folder: str, part: PotreeMap | EptMap, shared: Path) -> None:
    name = "meta.json" if isinstance(part, EptMap) else f"{part.stem}_meta.json"
    text = (shared / "data" / folder / name).read_text()
    grid, meta = part.grid, json.loads(text)
    assert meta_text(grid, dict(part.facts)) == text
    origin = meta.get("origin_ll_m") or meta["origin_lower_left_ft_ky_single_zone"]
    scale = grid.unit_m if "origin_ll_m" in meta else 1.0
    assert (grid.low[0] * scale, grid.low[1] * scale) == pytest.approx(tuple(origin), rel=1e-12)


def test_corners_of_mosaics_equal_those_of_the_developers_copy(shared: Path, tmp_path: Path) -> None:
    (part,) = SETS["oam-mosaics"].parts
    assert isinstance(part, Mosaics)
    write_index(tmp_path / "index.csv", [mosaic.facts() for mosaic in part.mosaics])
    copy = shared / "data" / SETS["oam-mosaics"].folder / "index.csv"
    assert (tmp_path / "index.csv").read_bytes() == copy.read_bytes()
    with copy.open(newline="") as lines:
        assert len(list(csv.DictReader(lines))) == 10


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_the_reference_matches_the_developers_copy(name: str, shared: Path) -> None:
    folder = shared / "data" / SETS[name].folder
    expected = load_reference(name)
    assert hashes(folder) == expected["sha256"]
    comparison = compare(folder, expected)
    assert comparison.identical == comparison.total
    colour, height = summary_distance(summarise_maps(folder), expected["likeness"], folder)
    assert colour < 0.2 and height < 0.1


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(SkyPartError, match=r"autzen_dsm\.png is missing; delete the folder"):
        compare(tmp_path, load_reference("autzen"))


@pytest.mark.slow
def test_a_real_set_is_reproduced_from_a_cloud_made_from_the_copy(
    github: FakeGitHub, shared: Path, tmp_path: Path
) -> None:
    """A point in every other cell, at feet and heights worked out here: the maps made of them show the same ground."""
    dataset = SETS["autzen"]
    copy = shared / "data" / dataset.folder
    rgb = read_rgb(copy / "autzen_ortho.jpg")
    with open_image(copy / "autzen_dsm.png") as surface:
        steps = np.asarray(surface)
    row, column = np.nonzero(steps * (np.indices(steps.shape).sum(axis=0) % 2))
    metres = [193724.11039 + (column + 0.5) * 0.5, 258739.27932 + (2837 - row - 0.5) * 0.5]
    heights = 123.0 + (steps[row, column].astype(float) - 1) * 0.1
    xyz = np.column_stack([*metres, heights]) / 0.3048
    (part,) = dataset.parts
    files = ept(xyz, rgb[row, column], (637291.0, 851210.0, 511.0), False)
    snapshot = part.snapshot
    github.repositories[f"{snapshot.repository}@{snapshot.commit}"] = {
        f"{snapshot.folder}/{path}": content for path, content in files.items()
    }
    made = fetch_set(dataset, tmp_path, load_reference("autzen"), print, github.hosts, FAST_RETRIES)
    comparison = compare(made, load_reference("autzen"))
    assert (comparison.identical, comparison.total) == (1, 3), "the meta file is the same to the byte"
    assert comparison.colour < 1.5 and comparison.height < 0.3, comparison
    with open_image(made / "autzen_dsm.png") as surface:
        same = np.abs(np.asarray(surface)[row, column].astype(int) - steps[row, column]) <= 1
    assert same.mean() > 0.999
