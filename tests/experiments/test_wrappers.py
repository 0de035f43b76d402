from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skypart.experiments.wrappers import MultiCropEmbedder, _corner
from skypart.images.decode import ImageLike
from tests.evaluation.fake_embedder import FakeEmbedder


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
