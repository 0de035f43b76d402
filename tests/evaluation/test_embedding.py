"""Images that several models are evaluated on are prepared once."""

from pathlib import Path

import numpy as np
from PIL import Image

from skypart.evaluation.cache import EmbeddingCache
from skypart.evaluation.embedding import Corruption, ImageSource, PreparedImages
from tests.evaluation.fake_embedder import FakeEmbedder


def test_prepared_images_are_shared_and_bounded() -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    kept = PreparedImages(limit=2 * image.nbytes)
    for number in range(3):
        kept.put(bytes([number]), image + number)
    assert len(kept) == 2 and kept.get(b"\x02") is None
    first = kept.get(b"\x01")
    assert first is not None and (first == 1).all()


def test_a_second_model_does_not_read_the_images_again(tmp_path: Path) -> None:
    photo = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(photo)
    kept = PreparedImages()
    found = []
    for number in range(2):
        with EmbeddingCache(tmp_path / str(number), "fake", FakeEmbedder.dim) as cache:
            source = ImageSource(FakeEmbedder(), cache, prepared=kept)
            found.append([source.embed([photo], weather) for weather in (None, Corruption("fog"))])
    assert len(kept) == 2, "clean and in fog"
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.allclose(found[0][0], found[0][1])
