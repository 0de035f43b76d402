"""The statistics of a corruption, compared with scikit-image."""

import numpy as np
import pytest
from skimage.metrics import structural_similarity

from skypart.images.weather import corrupt
from skypart.images.weather.statistics import STATISTICS, image_statistics
from tests.images.weather.test_corrupt import sample_image


def test_ssim_equals_scikit_image() -> None:
    clean = sample_image(160, 200)
    corrupted = corrupt(clean, "fog")
    weights = np.array([0.299, 0.587, 0.114], dtype=np.float32)
    wanted = structural_similarity(
        clean @ weights,
        corrupted @ weights,
        data_range=255.0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )
    # scikit-image leaves out the borders.
    assert image_statistics(clean, corrupted)["ssim"] == pytest.approx(wanted, abs=0.01)


def test_statistics_of_equal_images() -> None:
    clean = sample_image()
    values = image_statistics(clean, clean)
    assert tuple(values) == STATISTICS
    assert values["ssim"] == pytest.approx(1.0, abs=1e-6) and values["change"] == 0.0
    assert values["mean"] == pytest.approx(clean.mean()) and values["std"] == pytest.approx(clean.std())
