from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from skypart.datasets.records import Record
from skypart.datasets.sampler import BalancedSampler, Draw, index_locations
from skypart.errors import SkyPartError

ALTITUDES = (150.0, 200.0, 250.0, 300.0)


def records(locations: int = 7, per_altitude: int = 5, tiles: int = 1) -> list[Record]:
    found = []
    for n in range(locations):
        for altitude in ALTITUDES:
            found += [
                Record(Path(f"{n}/{altitude}/{i}.jpg"), "drone", f"{n:04d}", altitude) for i in range(per_altitude)
            ]
        found += [Record(Path(f"{n}/{i}.png"), "satellite", f"{n:04d}") for i in range(tiles)]
    return found


def sampler(
    items: list[Record], locations: int = 4, drone: int = 4, satellite: int = 1, **more: int
) -> BalancedSampler:
    return BalancedSampler(items, locations, drone, satellite, more.get("steps", 21), more.get("seed", 3))


def places(batch: list[Draw], items: list[Record], each: int) -> list[str]:
    """The location of each group of `each` draws, which must agree within the group."""
    names = [items[draw.record].location for draw in batch]
    groups = [set(names[start : start + each]) for start in range(0, len(names), each)]
    assert all(len(group) == 1 for group in groups), "not in location-major order"
    return [group.pop() for group in groups]


def test_batches_are_a_function_of_seed_and_epoch() -> None:
    items = records()
    assert sampler(items).epoch(2) == sampler(items).epoch(2)
    assert sampler(items).epoch(2) != sampler(items).epoch(3)
    assert sampler(items).epoch(2) != sampler(items, seed=4).epoch(2)


@pytest.mark.parametrize("count", [4, 5, 6, 7, 9])
@pytest.mark.parametrize("steps", [1, 3, 10, 21])
def test_locations_are_distinct_in_a_batch_and_balanced_over_an_epoch(count: int, steps: int) -> None:
    items = records(count, per_altitude=1)
    seen: Counter[str] = Counter({f"{n:04d}": 0 for n in range(count)})
    for batch in sampler(items, steps=steps).epoch(0):
        found = places(batch, items, 5)
        assert len(set(found)) == 4
        seen.update(found)
    assert max(seen.values()) - min(seen.values()) <= 1


def test_each_location_gives_drone_images_first_then_satellites() -> None:
    items = records(tiles=3)
    for batch in sampler(items, drone=3, satellite=2).epoch(0):
        views = [items[draw.record].view for draw in batch]
        assert views == ["drone", "drone", "drone", "satellite", "satellite"] * 4


@pytest.mark.parametrize(("drone", "altitudes"), [(2, 2), (4, 4), (6, 4)])
def test_drone_images_spread_over_altitudes_without_repeats(drone: int, altitudes: int) -> None:
    items = records()
    for batch in sampler(items, drone=drone).epoch(0):
        for start in range(0, len(batch), drone + 1):
            drawn = [draw.record for draw in batch[start : start + drone]]
            assert len(set(drawn)) == drone
            assert len({items[index].altitude for index in drawn}) == altitudes


def test_all_images_are_drawn_and_every_draw_has_its_own_seed() -> None:
    items = records(5, per_altitude=2, tiles=2)
    draws = [draw for batch in sampler(items, steps=60).epoch(0) for draw in batch]
    assert {draw.record for draw in draws} == set(range(len(items)))
    assert len({draw.seed for draw in draws}) == len(draws)


def test_a_location_with_few_images_repeats_them() -> None:
    items = [Record(Path(f"{n}.{view}"), view, f"{n:04d}") for n in range(4) for view in ("drone", "satellite")]
    batch = sampler(items, drone=3, satellite=2, steps=1).epoch(0)[0]
    assert len(batch) == 20 and len({draw.seed for draw in batch}) == 20
    assert places(batch, items, 5) == list(dict.fromkeys(places(batch, items, 5)))


def test_labels_follow_sorted_names_for_any_order_of_records() -> None:
    items = records()
    index = index_locations(items[::-1])
    assert index.names == tuple(sorted(index.names)) and len(index.names) == 7


@pytest.mark.parametrize("view", ["drone", "satellite"])
def test_a_location_without_a_view_raises(view: str) -> None:
    items = [r for r in records() if r.location != "0005" or r.view != view]
    with pytest.raises(SkyPartError, match=r"1 training locations have no.*0005"):
        sampler(items)


def test_no_images_and_too_few_locations_raise() -> None:
    with pytest.raises(SkyPartError, match="no training images"):
        sampler([])
    with pytest.raises(SkyPartError, match=r"batch\.locations"):
        sampler(records(3))


def groups_of(names: list[str], size: int) -> list[set[str]]:
    return [set(names[start : start + size]) for start in range(0, len(names), size)]


def test_neighbours_by_name_are_in_the_same_batch() -> None:
    items = records(12, per_altitude=1)
    ring = [f"{n:04d}" for n in range(12)] * 2
    neighbours = [set(ring[start : start + 3]) for start in range(12)]
    for batch in BalancedSampler(items, 6, 1, 1, 8, 3, group_size=3).epoch(0):
        assert all(run in neighbours for run in groups_of(places(batch, items, 2), 3))


def test_similar_locations_are_in_the_same_batch_and_all_are_drawn_equally_often() -> None:
    items = records(12, per_altitude=1)
    family = np.arange(12) % 4  # 0, 4 and 8 are similar, and so on
    similarity = (family[:, None] == family[None]).astype(np.float32)
    drawn = BalancedSampler(items, 6, 1, 1, 8, 3, group_size=3, similarity=similarity)
    seen: Counter[str] = Counter()
    for batch in drawn.epoch(0):
        found = places(batch, items, 2)
        seen.update(found)
        assert all(len({int(name) % 4 for name in run}) == 1 for run in groups_of(found, 3))
    assert set(seen.values()) == {4}
    assert drawn.epoch(1) == BalancedSampler(items, 6, 1, 1, 8, 3, group_size=3, similarity=similarity).epoch(1)
    assert drawn.epoch(1) != drawn.epoch(0)


def test_the_last_group_takes_the_remaining_locations() -> None:
    items = records(7, per_altitude=1)
    batches = BalancedSampler(items, 7, 1, 1, 3, 3, group_size=3, similarity=np.eye(7, dtype=np.float32)).epoch(0)
    assert all(len(set(places(batch, items, 2))) == 7 for batch in batches)


@pytest.mark.parametrize(("group_size", "by_similarity"), [(1, False), (3, False), (3, True)])
def test_locations_are_drawn_according_to_their_share(group_size: int, by_similarity: bool) -> None:
    items = records(20, per_altitude=1)
    shares = np.where(np.arange(20) < 8, 1.0, 0.25)  # a round of 8 + 3
    similarity = np.eye(20, dtype=np.float32) if by_similarity else None
    drawn = BalancedSampler(items, 5, 1, 1, 220, 3, group_size, similarity, shares)
    seen: Counter[str] = Counter()
    for batch in drawn.epoch(0):
        found = places(batch, items, 2)
        assert len(set(found)) == 5
        seen.update(found)
    often, seldom = ([seen[f"{n:04d}"] for n in group] for group in (range(8), range(8, 20)))
    assert set(often) <= {99, 100, 101}  # 1,100 places drawn in a hundred rounds
    assert 0.2 < np.mean(seldom) / 100 < 0.3 and min(seldom) > 10
    assert drawn.epoch(1) == BalancedSampler(items, 5, 1, 1, 220, 3, group_size, similarity, shares).epoch(1)


def test_a_batch_larger_than_a_round_raises() -> None:
    with pytest.raises(SkyPartError, match="there are 3 per round"):
        BalancedSampler(records(7), 4, 1, 1, 2, 3, shares=np.full(7, 0.5))


def test_ten_shares_of_a_tenth_make_one_location() -> None:
    drawn = BalancedSampler(records(50, per_altitude=1), 5, 1, 1, 30, 3, shares=np.full(50, 0.1))
    assert len(drawn.epoch(0)) == 30
