"""Distributions are equal to imgaug 0.4.0's, whose statistics `benchmarks/weather_faithful.py --redraw` stored."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp

from skypart.images.decode import read_rgb
from skypart.images.weather import CONDITIONS, PROFILES, corrupt
from skypart.images.weather.statistics import STATISTICS, image_statistics

ORACLE = Path(__file__).resolve().parents[1] / "weather_oracle.json"
REFERENCE = Path(__file__).resolve().parents[4] / "shared" / "weather_reference"
DRAWS = 120


@pytest.fixture(scope="module")
def oracle() -> dict[str, Any]:
    """Profile/condition -> image -> statistic -> its values in imgaug's draws."""
    stored: dict[str, Any] = json.loads(ORACLE.read_text())["draws"]
    return stored


def draw_statistics(image: str, profile: str, condition: str) -> dict[str, list[float]]:
    """Statistic -> its values in our draws, rounded to the digits of the oracle."""
    clean = read_rgb(REFERENCE / f"{image}.png")
    keys = (f"{image}/{draw}" for draw in range(DRAWS))
    rows = [image_statistics(clean, corrupt(clean, condition, profile, 0, key)) for key in keys]
    return {name: [float(f"{row[name]:.5g}") for row in rows] for name in STATISTICS}


def test_oracle_is_complete(oracle: dict[str, Any]) -> None:
    assert set(oracle) == {f"{profile}/{condition}" for profile in PROFILES for condition in CONDITIONS}
    for cell in oracle.values():
        for image in cell.values():
            assert set(image) == set(STATISTICS) and all(len(values) >= 100 for values in image.values())


@pytest.mark.slow
@pytest.mark.skipif(not REFERENCE.exists(), reason="needs the images of ../shared/weather_reference")
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("profile", PROFILES)
def test_distributions_equal_imgaug(oracle: dict[str, Any], profile: str, condition: str) -> None:
    theirs = oracle[f"{profile}/{condition}"]
    ours = {image: draw_statistics(image, profile, condition) for image in theirs}
    for name in STATISTICS:
        expected = np.concatenate([theirs[image][name] for image in theirs])
        found = np.concatenate([ours[image][name] for image in theirs])
        assert ks_2samp(expected, found).pvalue >= 0.01, name
        low, high = np.percentile(expected, [25, 75])
        rounding = 1e-4 * max(abs(high), 1e-3)
        assert low - rounding <= np.median(found) <= high + rounding, name
        # 300 single images are tested, so some p values fall below 0.01 by chance; none may be far below.
        singles = {image: ks_2samp(theirs[image][name], ours[image][name]).pvalue for image in theirs}
        assert min(singles.values()) >= 1e-4, (name, singles)
