"""The polar warp of satellite tiles against a plain loop, and that training and evaluation apply the same one."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from skypart.datasets.records import Record
from skypart.datasets.sampler import Draw
from skypart.errors import SkyPartError
from skypart.evaluation.cache import EmbeddingCache
from skypart.evaluation.embedding import ImageSource
from skypart.images.augment import NO_AUGMENTATION
from skypart.images.polar import polar_warp
from skypart.images.preprocess import Preprocessing
from skypart.model import SkyPart
from skypart.model.embedder import TorchEmbedder
from skypart.model.storage import load_model, read_header, save_model
from skypart.training.data import TrainingImages
from tests.model.builders import TINY_HEAD, TINY_VIT, scrambled_vit


def noise(size: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (size, size, 3), dtype=np.uint8)


def test_polar_warp_pixel_by_pixel() -> None:
    image, size = noise(12), 12
    found = polar_warp(image)
    assert found.shape == image.shape and found.dtype == np.uint8
    for i in range(size):
        for j in range(size):
            bearing, distance = 2 * math.pi * (j + 0.5) / size, (size - i - 0.5) / 2
            x = size / 2 + distance * math.sin(bearing) - 0.5
            y = size / 2 - distance * math.cos(bearing) - 0.5
            left, top = math.floor(x), math.floor(y)
            expected = np.zeros(3)
            for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
                weight = (1 - abs(y - row)) * (1 - abs(x - column))
                expected += weight * image[min(max(row, 0), size - 1), min(max(column, 0), size - 1)]
            assert np.abs(found[i, j] - expected).max() < 6  # cv2 interpolates in steps of 1/32 pixel


def test_directions_become_columns() -> None:
    tile = np.zeros((40, 40, 3), np.uint8)
    tile[:10, 18:22] = 255  # something to the north
    assert polar_warp(tile)[:15].mean(axis=(0, 2)).argmax() in (0, 39)
    tile = np.zeros((40, 40, 3), np.uint8)
    tile[18:22, 30:] = 255  # to the east: a quarter of the way around
    assert polar_warp(tile)[:15].mean(axis=(0, 2)).argmax() in (9, 10)


def test_only_satellite_tiles_are_warped_and_training_agrees_with_evaluation(tmp_path: Path) -> None:
    Image.fromarray(noise(28)).save(tmp_path / "a.png")
    records = [Record(tmp_path / "a.png", "drone", "a"), Record(tmp_path / "a.png", "satellite", "a")]
    preprocessing = Preprocessing(size=28, polar=True)
    images = TrainingImages(records, preprocessing, NO_AUGMENTATION, "", 0)
    drone, satellite = (images[Draw(number, 0, 0)][0].numpy() for number in range(2))
    plain = Preprocessing(size=28)
    np.testing.assert_array_equal(drone, plain(noise(28)))
    np.testing.assert_array_equal(satellite, plain(polar_warp(noise(28))))

    model = SkyPart(scrambled_vit(TINY_VIT), TINY_HEAD).eval()
    model.preprocessing = preprocessing
    embedder = TorchEmbedder(model)
    with EmbeddingCache(tmp_path / "cache", embedder.digest, embedder.dim) as cache:
        source = ImageSource(embedder, cache)
        for _ in range(2):  # the second time from the cache, which keeps the two apart
            np.testing.assert_array_equal(source.embed([tmp_path / "a.png"])[0], embedder.embed_inputs(drone[None])[0])
            warped = source.embed([tmp_path / "a.png"], satellite=True)
            np.testing.assert_array_equal(warped[0], embedder.embed_inputs(satellite[None])[0])


def test_the_model_file_carries_the_warp_and_others_are_unchanged(tmp_path: Path) -> None:
    model = SkyPart(scrambled_vit(TINY_VIT), TINY_HEAD)
    model.preprocessing = Preprocessing(size=28)
    save_model(model, tmp_path / "plain.safetensors")
    assert "polar" not in read_header(tmp_path / "plain.safetensors")["preprocessing"], "older versions read it"
    plain = TorchEmbedder(load_model(tmp_path / "plain.safetensors"))
    model.preprocessing = Preprocessing(size=28, polar=True)
    save_model(model, tmp_path / "polar.safetensors")
    polar = TorchEmbedder(load_model(tmp_path / "polar.safetensors"))
    assert polar.preprocessing.polar and not plain.preprocessing.polar
    assert polar.digest != plain.digest
    with torch.no_grad(), pytest.raises(SkyPartError, match=r"polar coordinates.*backbone\.polar"):
        polar.preprocessing.check_unwarped("index")
