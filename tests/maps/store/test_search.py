"""Exact search, compared with brute force, on every code path."""

from pathlib import Path

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds, Footprint
from skypart.maps.store import Circle, ViewBatch, exact, segment, snapshot
from skypart.maps.store.area import is_inside
from skypart.maps.store.embedded import EmbeddedStore
from skypart.maps.store.interface import Within, row_norms
from tests.maps.store.builders import DIMENSION, brute_force, footprints, make_batch, rows_of, unit_vectors

QUERIES = unit_vectors(40, 99)


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    """Three maps in several segments, some of which are mapped and some read, 1,730 views."""
    store = EmbeddedStore(tmp_path / "store")
    for number, (count, name) in enumerate([(900, "town"), (30, "port"), (400, "town"), (100, "port"), (300, "isle")]):
        store.add(make_batch(count, number, name))
    return store


@pytest.fixture(autouse=True)
def mapped_when_larger_than_200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SMALL_BYTES", 200 * 2 * DIMENSION)


VECTORS = np.concatenate([make_batch(n, i).vectors for i, n in enumerate([900, 30, 400, 100, 300])])
PLACES = np.concatenate([make_batch(n, i).footprints for i, n in enumerate([900, 30, 400, 100, 300])])


@pytest.mark.parametrize("queries", [1, 2, exact.FEW_QUERIES, exact.FEW_QUERIES + 1, 40])
@pytest.mark.parametrize("k", [1, 10, 200])
def test_search_matches_brute_force(store: EmbeddedStore, queries: int, k: int) -> None:
    assert rows_of(store.search(QUERIES[:queries], k)) == brute_force(VECTORS, QUERIES[:queries], k)


@pytest.mark.parametrize("queries", [1, 40])
def test_block_sizes_do_not_change_the_result(
    store: EmbeddedStore, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = store.search(QUERIES[:queries], 10)
    monkeypatch.setattr(exact, "BLOCK_ROWS", 7)
    monkeypatch.setattr(exact, "BLOCK_QUERIES", 17)
    monkeypatch.setattr(snapshot, "GATHER_ROWS", 13)
    assert store.search(QUERIES[:queries], 10) == expected


def test_single_and_batched_queries_give_identical_scores(store: EmbeddedStore) -> None:
    together = store.search(QUERIES, 10)
    assert [store.search(query[None], 10)[0] for query in QUERIES] == together
    expected = VECTORS[together[3][0].row].astype(np.float64) @ QUERIES[3].astype(np.float64)
    assert together[3][0].score == pytest.approx(expected, abs=1e-12)


def test_hit_has_map_name_and_footprint(store: EmbeddedStore) -> None:
    for row, name in [(0, "town"), (905, "port"), (1000, "town"), (1350, "port"), (1729, "isle")]:
        best = store.search(VECTORS[row][None], 1)[0][0]
        latitude, longitude, metres, rotation = PLACES[row]
        assert best.row == row
        assert best.map_name == name
        assert best.footprint == Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation)


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize(
    "area",
    [
        Bounds(south=-90, west=-180, north=90, east=180),
        Bounds(south=-60, west=150, north=60, east=-150),
        Bounds(south=0, west=0, north=5, east=5),
        Circle(latitude=89.0, longitude=10.0, radius_m=2_000_000.0),
        Circle(latitude=0.0, longitude=180.0, radius_m=5_000_000.0),
    ],
)
def test_views_outside_the_area_are_not_scored(
    store: EmbeddedStore, area: Within, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = is_inside(area, latitude=PLACES[:, 0], longitude=PLACES[:, 1])
    assert allowed.any()
    scored = []
    chunks = snapshot.StoreSnapshot.chunks

    def counted(*arguments: object, **options: object) -> object:
        for before, vectors in chunks(*arguments, **options):  # type: ignore[arg-type]
            scored.append(len(vectors))
            yield before, vectors

    monkeypatch.setattr(snapshot.StoreSnapshot, "chunks", counted)
    assert rows_of(store.search(QUERIES[:queries], 10, area)) == brute_force(VECTORS, QUERIES[:queries], 10, allowed)
    assert sum(scored) == allowed.sum()


def test_area_with_long_runs_is_scanned_in_place(tmp_path: Path) -> None:
    """Views in the order of a raster: a box keeps runs of neighbours."""
    store = EmbeddedStore(tmp_path)
    grid = footprints(3_000, 0)
    grid[:, 0], grid[:, 1] = np.repeat(np.arange(30) / 100, 100), np.tile(np.arange(100) / 100, 30)
    vectors = unit_vectors(3_000, 0).astype(np.float16)
    store.add(ViewBatch("town", vectors, grid))
    box = Bounds(south=0.05, west=0.2, north=0.15, east=0.7)
    allowed = is_inside(box, latitude=grid[:, 0], longitude=grid[:, 1])
    assert rows_of(store.search(QUERIES[:3], 10, box)) == brute_force(vectors, QUERIES[:3], 10, allowed)


def test_area_without_views_finds_nothing(store: EmbeddedStore) -> None:
    nowhere = Circle(latitude=0, longitude=0, radius_m=0.5)
    assert store.search(QUERIES, 10, nowhere) == [[]] * 40


def test_k_above_the_number_of_views_finds_all(store: EmbeddedStore) -> None:
    for queries in (QUERIES[:1], QUERIES):
        found = rows_of(store.search(queries, 100_000))
        assert [sorted(rows) for rows in found] == [list(range(1_730))] * len(queries)


def test_empty_store_finds_nothing(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "none")
    assert store.search(QUERIES, 10) == [[]] * 40
    assert store.search(np.zeros((0, DIMENSION)), 10) == []
    assert store.search(QUERIES, 10, Circle(latitude=0, longitude=0, radius_m=5)) == [[]] * 40
    assert store.stats().views == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("copies", [25, 5_000])  # the second: more than the candidates of any pass
def test_equal_scores_are_ordered_by_row(tmp_path: Path, queries: int, copies: int) -> None:
    store = EmbeddedStore(tmp_path)
    water = unit_vectors(1, 7).astype(np.float16)
    for number, name in enumerate(["b", "a", "b", "a"]):
        few = make_batch(copies // 4 + 3, number, name)
        few.vectors[3:] = water
        store.add(few)
    found = store.search(np.repeat(water.astype(np.float32), queries, axis=0), 20)
    rows = [row for row in range(4 * (copies // 4 + 3)) if row % (copies // 4 + 3) >= 3][:20]
    assert rows_of(found) == [rows] * queries
    assert len({hit.score for hit in found[0]}) == 1


def test_near_ties_are_ranked_by_their_exact_scores(tmp_path: Path) -> None:
    """Rows that differ in their smallest entries by one float16 step, with a query along these."""
    rng = np.random.default_rng(5)
    vectors = np.repeat(unit_vectors(1, 3, 512).astype(np.float16), 3_000, axis=0)
    bits = vectors.view(np.uint16)
    bits[:, :64] ^= rng.integers(0, 2, (3_000, 64), dtype=np.uint16)
    store = EmbeddedStore(tmp_path)
    store.add(ViewBatch("town", vectors, footprints(3_000, 0)))
    queries = np.concatenate([vectors[:1].astype(np.float32), unit_vectors(1, 9, 512)])
    expected = brute_force(vectors, queries, 15)
    assert rows_of(store.search(queries, 15)) == expected
    assert rows_of(store.search(np.repeat(queries, 20, axis=0), 15)) == [e for e in expected for _ in range(20)]


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (np.zeros((2, 25)), "queries have dimension 25 and the stored views 24"),
        (np.zeros(24), r"queries must have the shape \(queries, 24\), not \(24,\)"),
        (np.full((1, 24), np.nan), "query 0 contains a value that is not finite"),
        (np.stack([np.zeros(24), np.full(24, np.inf)]), "query 1 contains a value"),
    ],
)
def test_invalid_queries_are_rejected(store: EmbeddedStore, queries: np.ndarray, message: str) -> None:
    with pytest.raises(SkyPartError, match=message):
        store.search(queries, 10)


def test_k_below_1_is_rejected(store: EmbeddedStore) -> None:
    with pytest.raises(SkyPartError, match="ask for 1 or more"):
        store.search(QUERIES, 0)


@pytest.mark.parametrize("queries", [1, 40])
def test_zero_query_ties_with_all_views(store: EmbeddedStore, queries: int) -> None:
    assert rows_of(store.search(np.zeros((queries, DIMENSION)), 5)) == [[0, 1, 2, 3, 4]] * queries


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 100])
def test_runs_of_any_length_are_searched_completely(tmp_path: Path, length: int) -> None:
    """Runs of LONG_RUN views or more are scanned in place, shorter ones gathered."""
    store = EmbeddedStore(tmp_path)
    vectors, table = unit_vectors(600, 0).astype(np.float16), np.zeros((600, 4))
    table[:, 2] = 100.0
    outside = np.arange(600) % (length + 1) == length
    table[outside, 0] = 50.0
    store.add(ViewBatch("town", vectors, table))
    near = Circle(latitude=0, longitude=0, radius_m=1.0)
    for queries in (QUERIES[:2], QUERIES):
        assert rows_of(store.search(queries, 600, near)) == brute_force(vectors, queries, 600, ~outside)


def test_rounding_of_the_first_pass_stays_below_its_bound() -> None:
    """Otherwise a view could be left out that belongs to the best."""
    rng = np.random.default_rng(3)
    largest = 0.0
    for dimension in (3, 64, 768):
        for scale in (1e-3, 1.0, 300.0):
            vectors = unit_vectors(400, dimension, dimension).astype(np.float16)
            queries = (scale * rng.standard_normal((20, dimension))).astype(np.float32)
            coarse = queries @ vectors.T.astype(np.float32)
            true = queries.astype(np.float64) @ vectors.T.astype(np.float64)
            bounds = np.array([exact.rounding_error(query) for query in queries])
            shares = np.abs(coarse - true).max(axis=1) / bounds
            assert shares.max() <= 1
            largest = max(largest, shares.max())
    assert largest > 0.01, "a bound that is far too large costs repeated passes"


@pytest.mark.parametrize("queries", [1, 20])
def test_best_view_is_found_among_many_within_rounding_error(tmp_path: Path, queries: int) -> None:
    """5,000 views differ by less than float32 resolves; only the exact scores tell the best one."""
    rng = np.random.default_rng(8)
    base = unit_vectors(1, 3, 256).astype(np.float16)
    vectors = np.repeat(base, 5_000, axis=0)
    vectors[:, 200:] = (2.0**-14 * rng.integers(1, 9, (5_000, 56))).astype(np.float16)
    query = unit_vectors(1, 4, 256)
    query[:, 200:] *= 1e-3
    store = EmbeddedStore(tmp_path)
    store.add(ViewBatch("town", (vectors / row_norms(vectors)[:, None]).astype(np.float16), footprints(5_000, 0)))
    stored = np.concatenate([np.load(path) for path in sorted(tmp_path.glob("*.vectors.npy"))])
    many = np.repeat(query, queries, axis=0)
    assert rows_of(store.search(many, 3)) == brute_force(stored, query, 3) * queries
