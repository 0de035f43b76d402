import math

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.experiments.statistics import paired_bootstrap, spread


def test_a_constant_difference_has_no_width() -> None:
    found = paired_bootstrap(np.full(40, 3.0), np.full(40, 1.0))
    assert (found.mean, found.low, found.high) == (2.0, 2.0, 2.0)
    assert found.is_real and found.resampled == 40


def test_the_interval_is_that_of_the_normal_approximation_over_queries() -> None:
    rng = np.random.default_rng(1)
    one, two = rng.normal(0.3, 1.0, 900), rng.normal(0.0, 1.0, 900)
    found = paired_bootstrap(one, two, draws=20_000)
    difference = one - two
    half = 1.96 * difference.std() / math.sqrt(900)
    assert found.mean == pytest.approx(difference.mean())
    assert found.low == pytest.approx(difference.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(difference.mean() + half, abs=0.1 * half)


def test_queries_of_one_place_are_resampled_together() -> None:
    rng = np.random.default_rng(2)
    by_place = rng.normal(0.0, 1.0, 30)
    places = np.repeat(np.arange(30), 50)
    one, two = by_place[places], np.zeros(1500)
    queries, clusters = paired_bootstrap(one, two), paired_bootstrap(one, two, places)
    width = clusters.high - clusters.low
    assert clusters.resampled == 30 and queries.resampled == 1500
    assert width == pytest.approx(2 * 1.96 * by_place.std() / math.sqrt(30), rel=0.1)
    assert width > 6 * (queries.high - queries.low), "queries of one place are not independent"


def test_places_of_other_sizes_weigh_by_their_queries() -> None:
    one = np.concatenate([np.ones(90), np.zeros(10)])
    found = paired_bootstrap(one, np.zeros(100), np.repeat([0, 1], [90, 10]))
    assert found.mean == pytest.approx(0.9)
    assert (found.low, found.high) == (0.0, 1.0) and not found.is_real


def test_p_is_two_sided_and_never_zero() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(0.0, 1.0, 200)
    none = paired_bootstrap(noise - noise.mean(), np.zeros(200), draws=4000)
    assert none.p > 0.9 and not none.is_real
    much = paired_bootstrap(noise + 5, np.zeros(200), draws=4000)
    assert much.p == pytest.approx(2 / 4000)
    assert paired_bootstrap(noise - 5, np.zeros(200)).mean < 0 < much.mean


def test_seeds_are_averaged_for_each_query() -> None:
    rng = np.random.default_rng(4)
    one, two = rng.normal(size=(3, 50)), rng.normal(size=(3, 50))
    assert paired_bootstrap(one, two) == paired_bootstrap(one.mean(0), two.mean(0))


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(5)
    one, two = rng.normal(size=60), rng.normal(size=60)
    assert paired_bootstrap(one, two) == paired_bootstrap(one, two)
    assert paired_bootstrap(one, two, seed=1) != paired_bootstrap(one, two)


@pytest.mark.parametrize(
    ("one", "two", "groups"), [(np.zeros(3), np.zeros(4), None), ([], [], None), (np.zeros(3), np.zeros(3), [1, 2])]
)
def test_unpaired_scores_are_refused(one: object, two: object, groups: object) -> None:
    with pytest.raises(SkyPartError):
        paired_bootstrap(one, two, groups)  # type: ignore[arg-type]


def test_spread_over_seeds() -> None:
    found = spread([90.0, 92.0, 94.0])
    assert (found.mean, found.deviation, found.seeds) == (92.0, 2.0, 3) and str(found) == "92.00 ± 2.00"
    assert str(spread([91.234])) == "91.23" and math.isnan(spread([1.0]).deviation)
