from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from skypart.datasets import Record, open_dataset
from skypart.datasets.records import Position
from skypart.images.decode import read_rgb
from skypart.training.setup import prepare
from skypart.training.validation import hold_out, ranking_key, validate
from tests.training.fake_data import make_sues
from tests.training.small_runs import ALONE, small_recipe, small_run


@pytest.fixture
def with_test_split(tmp_path: Path) -> Path:
    """Ten locations, six of them for training."""
    root = make_sues(tmp_path / "ten", locations=10, per_altitude=2)
    (root / "train_ids.txt").write_text("1 2 3 4 5 6\n")
    return root


def test_held_out_locations_come_from_the_training_split_and_are_not_trained_on(with_test_split: Path) -> None:
    dataset = open_dataset(with_test_split)
    split = hold_out(dataset.train, 0.34, 4, 42)
    trained, held = {r.location for r in split.train}, {r.location for r in split.drone}
    official = {r.location for r in dataset.train}
    assert len(official) == 6 and len(held) == 2
    assert not trained & held and trained | held == official
    assert {r.location for r in split.satellite} == official  # the others as distractors
    queries = {r.location for test in dataset.tests for r in test.query}
    assert len(queries) == 4 and not queries & (trained | held)
    assert all(r.view == "drone" for r in split.drone) and all(r.view == "satellite" for r in split.satellite)


def test_the_split_depends_on_the_seed_and_samples_all_altitudes(sues: Path) -> None:
    records = open_dataset(sues).train
    one, same = hold_out(records, 0.25, 4, 1), hold_out(list(records)[::-1], 0.25, 4, 1)
    assert {r.location for r in one.drone} == {r.location for r in same.drone}
    assert len({frozenset(r.location for r in hold_out(records, 0.25, 4, seed).drone) for seed in range(8)}) > 1
    for name in {r.location for r in one.drone}:
        chosen = [r for r in one.drone if r.location == name]
        assert len(chosen) == 4 and {r.altitude for r in chosen} == {150.0, 200.0, 250.0, 300.0}


@pytest.mark.parametrize(("share", "held"), [(0.0, 0), (0.01, 2), (0.25, 2), (0.5, 4), (0.99, 6)])
def test_at_least_two_locations_are_left_for_training(sues: Path, share: float, held: int) -> None:
    split = hold_out(open_dataset(sues).train, share, 4, 0)
    assert len({r.location for r in split.drone}) == held
    assert len({r.location for r in split.train}) == 8 - held
    if not held:
        assert not split.satellite


def test_validation_is_deterministic_and_restores_the_mode_of_the_model(sues: Path, tmp_path: Path) -> None:
    run = small_run(sues, tmp_path, teacher=False)
    results = [validate(run.student, run.split, run.data.images, ALONE.device) for _ in range(2)]
    assert results[0] == results[1] and run.student.training
    assert set(results[0]) == {"D2S R@1", "D2S AP", "S2D R@1", "S2D AP", "score"}
    assert results[0]["score"] == pytest.approx((results[0]["D2S R@1"] + results[0]["S2D R@1"]) / 2)


def test_known_positions_add_a_distance_score(sues: Path, tmp_path: Path) -> None:
    run = small_run(sues, tmp_path, teacher=False)
    names = sorted({r.location for r in run.split.satellite})

    def placed(records: list[Record], north: float) -> list[Record]:
        return [replace(r, position=Position(10.0, 50.0 + north + names.index(r.location))) for r in records]

    split = replace(run.split, drone=placed(run.split.drone, 2e-4), satellite=placed(run.split.satellite, 0.0))
    found = validate(run.student, split, run.data.images, ALONE.device)
    share = found["D2S R@1"] / 100  # a tile of another location is a degree away and scores 0
    assert found["D2S SDM@1"] == pytest.approx(100 * share * np.exp(-5000 * 2e-4), rel=0.05)
    assert 0 < found["D2S SDM@1"] < 40


def test_equal_scores_are_ranked_by_average_precision() -> None:
    one, two = ({"score": 50.0, "D2S AP": ap, "S2D AP": 60.0} for ap in (55.0, 56.0))
    assert ranking_key(two) > ranking_key(one) and ranking_key(
        {"score": 51.0, "D2S AP": 0.0, "S2D AP": 0.0}
    ) > ranking_key(two)


def test_validation_equals_a_count_of_nearest_neighbours(sues: Path, tmp_path: Path) -> None:
    run = small_run(sues, tmp_path, teacher=False)
    drone, tiles = run.split.drone, run.split.satellite
    found = validate(run.student, run.split, run.data.images, ALONE.device)
    from skypart.model.embedder import Embedder

    embedder = Embedder(run.student)
    similarity = embedder.embed([r.path for r in drone]) @ embedder.embed([r.path for r in tiles]).T
    d2s = np.mean([tiles[i].location == r.location for i, r in zip(similarity.argmax(1), drone, strict=True)])
    held = {r.location for r in drone}
    queries = [j for j, tile in enumerate(tiles) if tile.location in held]
    s2d = np.mean([drone[int(similarity[:, j].argmax())].location == tiles[j].location for j in queries])
    assert (found["D2S R@1"], found["S2D R@1"]) == pytest.approx((100 * d2s, 100 * s2d))


def test_a_run_with_weather_is_validated_with_weather(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path, teacher=False)
    stormy = replace(recipe.data, weather="both", weather_share=0.5)
    run = prepare(replace(recipe, data=replace(stormy, validation=0.5, validation_drone=8)), ALONE)
    seen = [run.data.images.read_held_out(record) for record in run.split.drone]
    with_weather = [image for image in seen if isinstance(image, np.ndarray)]
    assert 0.2 < len(with_weather) / len(seen) < 0.8
    for record, image in zip(run.split.drone, seen, strict=True):
        again = run.data.images.read_held_out(record)
        assert type(again) is type(image) and np.array_equal(again, image)  # type: ignore[arg-type]
    pairs = [(r, p) for r, p in zip(run.split.drone, seen, strict=True) if isinstance(p, np.ndarray)]
    assert sum(not np.array_equal(image, read_rgb(record.path)) for record, image in pairs) >= len(pairs) / 2
    clear = small_run(sues, tmp_path / "clear", teacher=False)
    assert [clear.data.images.read_held_out(record) for record in clear.split.drone] == [
        r.path for r in clear.split.drone
    ]
