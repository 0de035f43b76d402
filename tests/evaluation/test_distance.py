import math

import numpy as np
import pytest
from pyproj import Geod

from skypart.errors import SkyPartError
from skypart.evaluation import match_errors, meter_accuracy, sdm
from tests.evaluation.plain_loop import plain_sdm


def places(n: int, seed: int, spread: float = 4e-4) -> np.ndarray:
    return np.array([120.38, 30.32]) + np.random.default_rng(seed).normal(0, spread, (n, 2))


@pytest.mark.parametrize("mode", ["official", "exact"])
def test_sdm_equals_the_plain_loop(mode: str) -> None:
    query, gallery = places(30, 0), places(80, 1)
    ranking = np.argsort(np.random.default_rng(2).random((30, 80)), axis=1)
    ours = sdm(query, gallery, ranking, (1, 3, 5, 10), mode=mode)  # type: ignore[arg-type]
    for k in (1, 3, 5, 10):
        assert ours[f"SDM@{k}"] == pytest.approx(plain_sdm(query, gallery, ranking, k, mode == "official"), abs=1e-9)


def test_official_sdm_is_quantised() -> None:
    """2e-6 degrees vanish in float32 at 120 E: the official code calls that a perfect match."""
    query = np.array([[120.0, 30.0]])
    gallery = query + np.array([[2e-6, 0.0]])
    assert sdm(query, gallery, [[0]], (1,))["SDM@1"] == 100.0
    assert sdm(query, gallery, [[0]], (1,), mode="exact")["SDM@1"] == pytest.approx(100 * math.exp(-0.01), abs=1e-6)


def test_metre_accuracy_follows_the_sphere_and_is_strict() -> None:
    query, gallery = places(50, 3), places(50, 4)
    geod = Geod(a=6_378_137.0, b=6_378_137.0)
    ranking = np.arange(50)[:, None]
    expected = geod.inv(query[:, 0], query[:, 1], gallery[:, 0], gallery[:, 1])[2]
    assert match_errors(query, gallery, ranking) == pytest.approx(expected, abs=1e-5)
    got = meter_accuracy(query, gallery, ranking, metres=(20, 50))
    assert got == {"MA@20m": 100 * (expected < 20).mean(), "MA@50m": 100 * (expected < 50).mean()}
    assert meter_accuracy(query, query, ranking, metres=(0, 5)) == {"MA@0m": 0.0, "MA@5m": 100.0}
    assert list(meter_accuracy(query, gallery, ranking)) == ["MA@5m", "MA@10m", "MA@20m", "MA@50m"]


def test_bad_positions_are_named() -> None:
    query, gallery = places(2, 5), places(3, 6)
    with pytest.raises(SkyPartError, match="needs 5 ranked"):
        sdm(query, gallery, [[0, 1], [1, 2]], (1, 5))
    with pytest.raises(SkyPartError, match="points outside"):
        sdm(query, gallery, [[0], [3]], (1,))
    with pytest.raises(SkyPartError, match="longitude first"):
        meter_accuracy(query[:, :1], gallery, [[0], [1]])
    with pytest.raises(SkyPartError, match="unknown SDM mode"):
        sdm(query, gallery, [[0], [1]], (1,), mode="fast")  # type: ignore[arg-type]
