"""Departures from the single-pass protocol at inference."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from skypart.datasets.records import Record, TestSplit
from skypart.errors import SkyPartError
from skypart.evaluation.cache import EmbeddingCache
from skypart.evaluation.embedding import Corruption, ImageSource
from skypart.experiments.measure import adapt_queries
from skypart.experiments.wrappers import MultiCropEmbedder, _corner
from skypart.images.decode import ImageLike
from skypart.images.preprocess import Preprocessing
from skypart.model import SkyPart
from skypart.model.embedder import TorchEmbedder
from skypart.model.tent import Tent
from tests.evaluation.fake_embedder import FakeEmbedder
from tests.model.builders import TINY_HEAD, TINY_VIT, scrambled_vit


class Counting(FakeEmbedder):
    """Embeds the mean colour of an image of any size."""

    dim = 3

    def embed(self, images: ImageLike | Sequence[ImageLike], batch_size: int = 16) -> NDArray[np.float32]:
        assert isinstance(images, list)
        self.embedded += len(images)
        means = np.stack([np.asarray(image, np.float32).mean(axis=(0, 1)) for image in images])
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))


def test_corners_cover_the_image() -> None:
    image = np.arange(100).reshape(10, 10, 1).repeat(3, axis=2).astype(np.uint8)
    corners = [_corner(image, number) for number in range(4)]
    assert [corner.shape for corner in corners] == [(8, 8, 3)] * 4
    assert [int(corner[0, 0, 0]) for corner in corners] == [0, 2, 20, 22]


def test_multi_crop_is_the_normalised_mean_of_five() -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (20, 30, 3)).astype(np.uint8) for _ in range(3)]
    inner = Counting()
    wrapped = MultiCropEmbedder(inner)
    found = wrapped.embed(images)
    assert inner.embedded == 15 and wrapped.digest == "fake-multi-crop" and wrapped.dim == 3
    for image, vector in zip(images, found, strict=True):
        crops = [image, *(_corner(image, number) for number in range(4))]
        total = np.sum([Counting().embed([crop])[0] for crop in crops], axis=0)
        np.testing.assert_allclose(vector, total / np.linalg.norm(total), atol=1e-6)


def test_tent_adapts_to_shuffled_batches_of_queries_and_starts_anew_for_each_split(tmp_path: Path) -> None:
    records = []
    for number in range(7):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 30, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        records.append(Record(tmp_path / f"{number}.png", "drone", f"{number // 2}"))
    model = SkyPart(scrambled_vit(TINY_VIT), TINY_HEAD).eval()
    model.preprocessing = Preprocessing(size=28)
    embedder = TorchEmbedder(model)
    split = TestSplit("D2S", None, records, records)
    gallery = embedder.embed([record.path for record in records])
    for corruption in (None, Corruption("fog")):
        with EmbeddingCache(tmp_path / "cache", embedder.digest, embedder.dim) as cache:
            source = ImageSource(embedder, cache, batch_size=3)
            found = adapt_queries(split, source, gallery, corruption)
            images = [source.prepare(record.path, corruption) for record in records]
            again = adapt_queries(split, source, gallery, corruption)
        tent, order = Tent(embedder, gallery), np.random.default_rng(0).permutation(7)
        expected = np.empty_like(found)
        for start in (0, 3, 6):
            batch = order[start : start + 3]
            expected[batch] = tent.embed_inputs(embedder.preprocess([images[index] for index in batch]))
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(again, found)
        plain = embedder.embed(images)
        np.testing.assert_allclose(found[order[:3]], plain[order[:3]], atol=1e-5)
        assert np.abs(found[order[6]] - plain[order[6]]).max() > 1e-6, "later batches meet an adapted model"
    with pytest.raises(SkyPartError, match="change the model itself"):
        adapt_queries(split, ImageSource(FakeEmbedder(), cache), gallery, None)
