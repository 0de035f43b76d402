"""The severity axis: clean at 0, less and less similar, and harder than both profiles at 1."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.images.decode import read_rgb
from skypart.images.weather import CONDITIONS, corrupt
from skypart.images.weather.statistics import image_statistics
from tests.images.weather.test_corrupt import sample_image

REFERENCE = Path(__file__).resolve().parents[4] / "shared" / "weather_reference"
SEVERITIES = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)


def mean_ssim(clean: NDArray[np.uint8], condition: str, draws: int, **options: object) -> float:
    corrupted = [corrupt(clean, condition, key=str(draw), **options) for draw in range(draws)]  # type: ignore[arg-type]
    return float(np.mean([image_statistics(clean, image)["ssim"] for image in corrupted]))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_similarity_falls_with_severity(condition: str) -> None:
    clean = sample_image(96, 96)
    similarity = [mean_ssim(clean, condition, 5, severity=severity) for severity in SEVERITIES]
    assert similarity[0] == pytest.approx(1.0, abs=1e-6)
    if condition == "normal":
        assert similarity == pytest.approx([1.0] * len(SEVERITIES), abs=1e-6)
    else:
        assert all(np.diff(similarity) < 0), similarity


def test_zero_is_clean_and_the_profile_is_ignored() -> None:
    clean = sample_image()
    for condition in CONDITIONS:
        assert np.array_equal(corrupt(clean, condition, severity=0.0), clean)
        paper = corrupt(clean, condition, "paper", severity=0.6)
        assert np.array_equal(paper, corrupt(clean, condition, "weatherprompt", severity=0.6))


@pytest.mark.slow
@pytest.mark.skipif(not REFERENCE.exists(), reason="needs the images of ../shared/weather_reference")
@pytest.mark.parametrize("name", ["caliterra", "nust_frame", "nust_map"])
@pytest.mark.parametrize("condition", CONDITIONS[1:])
def test_one_is_harder_than_both_profiles(condition: str, name: str) -> None:
    clean = read_rgb(REFERENCE / f"{name}.png")
    hardest = mean_ssim(clean, condition, 6, severity=1.0)
    for profile in ("paper", "weatherprompt"):
        assert hardest < 0.95 * mean_ssim(clean, condition, 12, profile=profile)
