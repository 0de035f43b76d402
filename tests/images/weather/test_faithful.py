"""Distributions equal to imgaug 0.4.0's: stored statistics of its draws (benchmarks/weather_faithful.py made them)."""

import json
from typing import Any

import pytest
from benchmarks.weather_environment import SHARED
from benchmarks.weather_faithful import ORACLE, compare, draw_ours, within_quartiles

from skypart.images.weather import CONDITIONS, PROFILES
from skypart.images.weather.statistics import STATISTICS

DRAWS = 120


@pytest.fixture(scope="module")
def oracle() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(ORACLE.read_text())["draws"]
    return stored


def test_oracle_is_complete(oracle: dict[str, Any]) -> None:
    assert set(oracle) == {f"{profile}/{condition}" for profile in PROFILES for condition in CONDITIONS}
    for cell in oracle.values():
        for image in cell.values():
            assert set(image) == set(STATISTICS) and all(len(values) >= 100 for values in image.values())


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="needs the images of ../shared/weather_reference")
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("profile", PROFILES)
def test_distributions_equal_imgaug(oracle: dict[str, Any], profile: str, condition: str) -> None:
    theirs = oracle[f"{profile}/{condition}"]
    ours = draw_ours(profile, condition, DRAWS)
    for key, result in compare(theirs, ours).items():
        assert result["p"] >= 0.01, (key, result)
        pooled = [value for image in theirs for value in theirs[image][key]]
        assert within_quartiles(pooled, [value for image in theirs for value in ours[image][key]]), (key, result)
        # Image by image 5 x 60 tests are made, so single ones fall below 0.01 by chance; none may fall far below.
        assert result["p_min"] >= 1e-4, (key, result)
