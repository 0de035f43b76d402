import math

import numpy as np
import pytest
from numpy.typing import ArrayLike
from pyproj import Geod

from skypart.errors import SkyPartError
from skypart.evaluation import distance, match_errors, meter_accuracy, sdm
from skypart.geo.geodesy import EARTH_RADIUS_M, haversine_m
from tests.evaluation.plain_loop import plain_sdm


def positions(n: int, seed: int, spread: float = 4e-4) -> np.ndarray:
    return np.array([120.38, 30.32]) + np.random.default_rng(seed).normal(0, spread, (n, 2))


@pytest.mark.parametrize("mode", ["official", "exact"])
def test_sdm_equals_the_plain_loop(mode: str) -> None:
    query, gallery = positions(30, 0), positions(80, 1)
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


def test_metre_accuracy_uses_the_sphere_and_a_strict_threshold() -> None:
    query, gallery = positions(50, 3), positions(50, 4)
    geod = Geod(a=6_378_137.0, b=6_378_137.0)
    ranking = np.arange(50)[:, None]
    expected = geod.inv(query[:, 0], query[:, 1], gallery[:, 0], gallery[:, 1])[2]
    assert match_errors(query, gallery, ranking) == pytest.approx(expected, abs=1e-5)
    got = meter_accuracy(query, gallery, ranking, metres=(20, 50))
    assert got == {"MA@20m": 100 * (expected < 20).mean(), "MA@50m": 100 * (expected < 50).mean()}
    assert meter_accuracy(query, query, ranking, metres=(0, 5)) == {"MA@0m": 0.0, "MA@5m": 100.0}
    assert list(meter_accuracy(query, gallery, ranking)) == ["MA@5m", "MA@10m", "MA@20m", "MA@50m"]


def test_invalid_positions_raise() -> None:
    query, gallery = positions(2, 5), positions(3, 6)
    with pytest.raises(SkyPartError, match="needs 5 ranked"):
        sdm(query, gallery, [[0, 1], [1, 2]], (1, 5))
    with pytest.raises(SkyPartError, match="points outside"):
        sdm(query, gallery, [[0], [3]], (1,))
    with pytest.raises(SkyPartError, match="longitude first"):
        meter_accuracy(query[:, :1], gallery, [[0], [1]])
    with pytest.raises(SkyPartError, match="unknown SDM mode"):
        sdm(query, gallery, [[0], [1]], (1,), mode="fast")  # type: ignore[arg-type]


def test_sdm_weights_by_hand() -> None:
    """Closeness 1/2 at ln 2 / 5000 degrees; rank i of K has the weight K - i + 1."""
    query = np.array([[0.0, 0.0]])
    gallery = np.array([[0.0, 0.0], [math.log(2) / 5000, 0.0], [0.0, 10.0]])
    found = sdm(query, gallery, [[1, 0, 2]], (1, 2, 3), mode="exact")
    assert found == pytest.approx({"SDM@1": 50.0, "SDM@2": 100 * (2 * 0.5 + 1) / 3, "SDM@3": 100 * (3 * 0.5 + 2) / 6})
    assert sdm(query, gallery, [[1, 0, 2]], ()) == {}


def test_sdm_adds_up_over_blocks_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    query, gallery = positions(23, 7), positions(40, 8)
    ranking = np.argsort(np.random.default_rng(9).random((23, 40)), axis=1)
    whole = sdm(query, gallery, ranking, (1, 5))
    monkeypatch.setattr(distance, "_CHUNK", 5)
    assert sdm(query, gallery, ranking, (1, 5)) == pytest.approx(whole, abs=1e-12)


def test_antipodes_are_half_a_circumference_apart() -> None:
    rng = np.random.default_rng(0)
    here = np.column_stack([rng.uniform(-180, 0, 200), rng.uniform(-90, 90, 200)])
    there = np.column_stack([here[:, 0] + 180, -here[:, 1]])
    assert haversine_m(here, there) == pytest.approx(np.full(200, math.pi * EARTH_RADIUS_M), abs=1.0)
    assert haversine_m(here, here).max() == 0.0


@pytest.mark.parametrize("ranking", [[0, 1], [[0], [1], [2]], [[], []]])
def test_rankings_of_a_wrong_shape_raise(ranking: ArrayLike) -> None:
    with pytest.raises(SkyPartError, match=r"the ranking must be \(2 queries, K or more\)"):
        match_errors(positions(2, 5), positions(3, 6), ranking)


@pytest.mark.parametrize("ks", [(0,), (-1, 1), (1, 3)])
def test_sdm_depths_outside_the_ranking_raise(ks: tuple[int, ...]) -> None:
    with pytest.raises(SkyPartError, match=r"SDM@\d+ needs \d+ ranked images per query, the ranking has 2"):
        sdm(positions(1, 5), positions(3, 6), [[0, 1]], ks)


def test_a_negative_index_in_the_ranking_raises() -> None:
    with pytest.raises(SkyPartError, match="points outside the 3 gallery images"):
        match_errors(positions(1, 5), positions(3, 6), [[-1]])
    assert match_errors(positions(1, 5), positions(1, 5), [[0]]).tolist() == [0.0]
