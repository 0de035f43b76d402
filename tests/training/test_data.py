import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from skypart.datasets import open_dataset
from skypart.datasets.records import Record
from skypart.datasets.sampler import BalancedSampler, Draw
from skypart.errors import SkyPartError
from skypart.images.augment import NO_AUGMENTATION, Augmentation
from skypart.images.decode import read_rgb
from skypart.images.preprocess import Preprocessing, normalise
from skypart.model.storage import load_model, save_model
from skypart.training.data import Batch, TrainingData, TrainingImages, fingerprint
from skypart.training.distributed import Workers
from skypart.training.setup import build_student, prepare
from tests.training.small_runs import ALONE, PREPROCESSING, small_recipe, small_run


def training_data(
    root: Path, loader_workers: int = 0, workers: Workers = ALONE, weather: str = "", plain: bool = False
) -> TrainingData:
    records = list(open_dataset(root).train)
    augmentation = NO_AUGMENTATION if plain else Augmentation(rotation=20.0)
    images = TrainingImages(records, PREPROCESSING, augmentation, weather, 7)
    return TrainingData(images, BalancedSampler(records, 4, 2, 1, 3, 7), loader_workers, workers)


def assert_same(one: list[Batch], other: list[Batch]) -> None:
    assert len(one) == len(other) == 3
    for a, b in zip(one, other, strict=True):
        assert a.records == b.records
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.location, b.location)
        assert torch.equal(a.altitude.nan_to_num(), b.altitude.nan_to_num())


@pytest.mark.parametrize("loader_workers", [1, 2])
def test_the_images_are_bit_identical_for_any_number_of_workers(sues: Path, loader_workers: int) -> None:
    assert_same(list(training_data(sues).epoch(1)), list(training_data(sues, loader_workers).epoch(1)))


def test_loading_works_after_opencv_used_threads_in_the_main_process(sues: Path) -> None:
    """A forked copy of OpenCV's thread pool would hang the loader."""
    cv2.setNumThreads(4)
    cv2.resize(np.zeros((2000, 2000, 3), np.float32), (1500, 1500))
    assert_same(list(training_data(sues).epoch(1)), list(training_data(sues, 1).epoch(1)))


def test_an_epoch_can_start_at_any_step(sues: Path) -> None:
    whole = list(training_data(sues).epoch(1))
    late = list(training_data(sues).epoch(1, 2))
    assert len(late) == 1 and torch.equal(late[0].images, whole[2].images)


def test_loading_does_not_change_the_global_random_state(sues: Path) -> None:
    before = torch.get_rng_state()
    list(training_data(sues).epoch(0))
    list(training_data(sues, 1).epoch(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_ranks_share_a_batch_in_slices(sues: Path) -> None:
    whole = list(training_data(sues).epoch(0))
    ranks = [list(training_data(sues, workers=Workers(r, 2, torch.device("cpu"))).epoch(0)) for r in range(2)]
    for joined, left, right in zip(whole, *ranks, strict=True):
        assert joined.records == left.records + right.records
        assert torch.equal(joined.images, torch.cat([left.images, right.images]))
        assert not set(left.location.tolist()) & set(right.location.tolist())


def test_slices_partition_and_an_uneven_batch_is_refused() -> None:
    shares = [Workers(r, 4, torch.device("cpu")).slice(12) for r in range(4)]
    assert [i for share in shares for i in range(12)[share]] == list(range(12))
    with pytest.raises(SkyPartError, match=r"batch\.locations"):
        Workers(0, 3, torch.device("cpu")).slice(16)


def test_a_batch_has_labels_views_and_altitudes(sues: Path) -> None:
    data = training_data(sues)
    batch = next(data.epoch(0))
    assert batch.images.shape == (12, 3, 28, 28) and batch.images.dtype == torch.float32
    for place, index in enumerate(batch.records):
        record = data.images.records[index]
        assert data.sampler.index.names[int(batch.location[place])] == record.location
        assert bool(batch.is_drone[place]) == (record.view == "drone")
        if record.view == "drone":
            assert float(batch.altitude[place]) == record.altitude
        else:
            assert bool(batch.altitude[place].isnan())


def test_the_altitude_of_a_satellite_image_is_ignored(sues: Path, tmp_path: Path) -> None:
    data = training_data(sues)
    records = [replace(r, altitude=80.0) if r.view == "satellite" else r for r in data.images.records]
    data.images.records = records
    batch = next(data.epoch(0))
    assert torch.equal(batch.altitude.isnan(), ~batch.is_drone)


def test_without_augmentation_training_images_equal_evaluation_images(sues: Path) -> None:
    data = training_data(sues, plain=True)
    for batch in data.epoch(0):
        for place, index in enumerate(batch.records):
            expected = PREPROCESSING(data.images.records[index].path)
            np.testing.assert_array_equal(batch.images[place].numpy(), expected)


def test_contrast_stretch_is_used_in_training_and_by_the_trained_model(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path / "a", teacher=False)
    recipe = replace(recipe, augment=NO_AUGMENTATION, backbone=replace(recipe.backbone, level=True))
    run = prepare(recipe, ALONE)
    batch = next(run.data.epoch(0))
    lifted = [Preprocessing(28, level=True)(run.split.train[index].path) for index in batch.records]
    plain = [Preprocessing(28)(run.split.train[index].path) for index in batch.records]
    np.testing.assert_array_equal(batch.images.numpy(), np.stack(lifted))
    assert not np.array_equal(lifted, plain)
    save_model(run.student, tmp_path / "start.safetensors")
    assert load_model(tmp_path / "start.safetensors").preprocessing == Preprocessing(28, level=True)
    later = replace(recipe.backbone, start=str(tmp_path / "start.safetensors"), level=False)
    assert build_student(replace(recipe, backbone=later)).preprocessing.level


@pytest.mark.parametrize("profile", ["paper", "weatherprompt"])
def test_weather_affects_only_drone_images_and_differs_between_draws(sues: Path, profile: str) -> None:
    clear, stormy = training_data(sues, plain=True).images, training_data(sues, weather=profile, plain=True).images
    tiles = [i for i, r in enumerate(clear.records) if r.view == "satellite"]
    drone = next(i for i, r in enumerate(clear.records) if r.view == "drone")
    for tile in tiles:
        assert torch.equal(stormy[Draw(tile, 5)][0], clear[Draw(tile, 5)][0])
    seen = [stormy[Draw(drone, seed)][0] for seed in range(20)]
    changed = [not torch.equal(image, clear[Draw(drone, 0)][0]) for image in seen]
    assert 10 <= sum(changed) <= 20  # one of ten conditions is clear
    assert len({image.numpy().tobytes() for image in seen}) > 8
    assert torch.equal(stormy[Draw(drone, 3)][0], seen[3])


def test_weather_is_applied_to_the_cropped_image_at_full_resolution(sues: Path) -> None:
    images = training_data(sues, weather="paper").images
    drone = next(i for i, r in enumerate(images.records) if r.view == "drone")
    tile = next(i for i, r in enumerate(images.records) if r.view == "satellite")
    assert images.weather_for(Draw(tile, 1)) is None
    for seed in range(5):
        found = images.weather_for(Draw(drone, seed))
        assert found is not None
        rng = np.random.default_rng(seed)
        framed = images.augmentation.frame(read_rgb(images.records[drone].path), rng)
        by_area = replace(PREPROCESSING, interpolation="area")  # as evaluation resizes corrupted images
        expected = images.augmentation.finish(found[0](framed, found[1], seed), by_area, rng)
        np.testing.assert_array_equal(images[Draw(drone, seed)][0].numpy(), normalise(expected))


def test_weather_is_the_same_for_any_number_of_workers(sues: Path) -> None:
    one = list(training_data(sues, 0, weather="paper").epoch(0))
    assert_same(one, list(training_data(sues, 2, weather="paper").epoch(0)))


def test_the_fingerprint_depends_on_images_but_not_on_order_or_folder(sues: Path, tmp_path: Path) -> None:
    records = list(open_dataset(sues).train)
    same = fingerprint(records)
    assert fingerprint(records[::-1]) == same
    assert fingerprint(records[1:]) != same
    moved = tmp_path / records[0].path.name
    moved.write_bytes(records[0].path.read_bytes())
    assert fingerprint([replace(records[0], path=moved), *records[1:]]) == same
    moved.write_bytes(records[0].path.read_bytes() + b"\0")
    assert fingerprint([replace(records[0], path=moved), *records[1:]]) != same
    assert fingerprint([replace(records[0], location="9999"), *records[1:]]) != same
    assert isinstance(records[0], Record)


def test_all_images_of_a_place_are_mirrored_together_and_only_tiles_are_rotated(sues: Path) -> None:
    """All images of a place are mirrored or none is; tiles are also rotated by multiples of 90 degrees."""
    records = list(open_dataset(sues).train)
    augmentation = replace(NO_AUGMENTATION, mirror=0.5, quarter_turns=True)
    images = TrainingImages(records, PREPROCESSING, augmentation, "", 7)
    plain = TrainingImages(records, PREPROCESSING, NO_AUGMENTATION, "", 7)
    turns, mirrored = set(), set()
    for batch in BalancedSampler(records, 4, 2, 1, 12, 7).epoch(0):
        flips: dict[str, set[bool]] = {}
        for draw in batch:
            shown, own = images[draw][0], plain[draw][0]
            quarters = range(4) if records[draw.record].view == "satellite" else range(1)
            fits = [
                (flip, quarter)
                for flip in (False, True)
                for quarter in quarters
                if (torch.rot90(own.flip(2) if flip else own, quarter, (1, 2)) - shown).abs().mean() < 0.02
            ]
            assert len(fits) == 1
            flips.setdefault(records[draw.record].location, set()).add(fits[0][0])
            turns.add(fits[0][1])
        assert all(len(found) == 1 for found in flips.values())
        mirrored |= {flip for found in flips.values() for flip in found}
    assert turns == {0, 1, 2, 3} and mirrored == {False, True}


def test_each_folder_contributes_its_share_of_locations(sues: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path, teacher=False)
    data = replace(recipe.data, also=(str(sues),), shares=(1.0, 0.25), validation=0.0)
    sampler = small_run(sues, tmp_path, teacher=False, data=data).data.sampler
    assert sampler.shares is not None
    shares = dict(zip(sampler.index.names, sampler.shares.tolist(), strict=True))
    assert {share for name, share in shares.items() if name.startswith("2/")} == {0.25}
    assert {share for name, share in shares.items() if not name.startswith("2/")} == {1.0}
    assert small_run(sues, tmp_path, teacher=False).data.sampler.shares is None


@pytest.mark.parametrize("loader_workers", [0, 1])
def test_a_damaged_image_is_a_clear_error_from_any_process(sues: Path, tmp_path: Path, loader_workers: int) -> None:
    shutil.copytree(sues, tmp_path / "sues")
    data = training_data(tmp_path / "sues", loader_workers)
    for record in data.images.records:
        record.path.write_bytes(record.path.read_bytes()[:200])
    with pytest.raises(SkyPartError) as error:
        list(data.epoch(0))
    assert "Traceback" not in str(error.value) and str(tmp_path) in str(error.value)
