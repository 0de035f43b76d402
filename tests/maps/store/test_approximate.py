"""The cache of large stores: its recall, and that it is only a cache."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.maps.store import EmbeddedStore, Hit, ViewBatch, approximate, segment, snapshot
from tests.maps.store.builders import batch, places, rows_of, unit

VIEWS, DIMENSION = 6_000, 48
CHUNKS = snapshot.Snapshot.chunks


@pytest.fixture(autouse=True)
def small_stores_have_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "FROM_VIEWS", 2_000)


def town(views: int = VIEWS, seed: int = 0) -> NDArray[np.float32]:
    """Rows like those of a map: kinds of ground of unequal share, places of a few views each, in a subspace."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((DIMENSION, 24)))[0].T

    def drawn(count: int) -> NDArray[np.float64]:
        return np.asarray(rng.standard_normal((count, 24)) @ basis)

    kinds, ground = drawn(30), drawn(views // 6)
    ground += 1.5 * kinds[rng.geometric(0.15, views // 6) % 30]
    rows = np.repeat(ground, 6, axis=0) + 0.7 * drawn(views) + 0.2 * rng.standard_normal((views, DIMENSION))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


def photos(rows: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Queries that have a cosine of about 0.7 with their view."""
    noise = unit(len(rows), seed, DIMENSION)
    mixed = rows + noise
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    return mixed


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    with EmbeddedStore(folder) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(approximate, "FROM_VIEWS", 2_000)
        store.add(ViewBatch("town", town().astype(np.float16), places(VIEWS, 0)))
        assert store.build_approximate() is not None
    return folder


@pytest.fixture
def store(tmp_path: Path, built: Path) -> EmbeddedStore:
    """A store of its own for each test, with a cache."""
    shutil.copytree(built, tmp_path / "store")
    return EmbeddedStore(tmp_path / "store")


def few_only(
    self: snapshot.Snapshot, positions: snapshot.Positions | None, in_place: bool
) -> Iterator[tuple[int, segment.Half]]:
    """Refuse to score more than a fifth of the views."""
    assert positions is not None
    assert len(positions) < VIEWS / 5
    yield from CHUNKS(self, positions, in_place)


def recall(found: list[list[Hit]], best: list[list[Hit]]) -> float:
    shares = [len({h.row for h in f} & {h.row for h in b}) / len(b) for f, b in zip(found, best, strict=True)]
    return float(np.mean(shares))


def test_finds_99_of_100_of_the_exact_ten_best_with_less_work(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = store.stats().approximate
    assert tuned is not None
    assert tuned >= 0.99
    monkeypatch.setattr(approximate, "build", None)
    assert store.build_approximate() == tuned  # it is there
    rows = town()[5::23]
    for queries in (rows, photos(rows, 3)):
        best = store.search(queries, 10, exact=True)
        with monkeypatch.context() as patch:
            patch.setattr(snapshot.Snapshot, "chunks", few_only)
            found = store.search(queries, 10)
        assert recall(found, best) >= 0.99
        assert [hits[0] for hits in found] == [hits[0] for hits in best]  # scores are exact ones too


def test_a_small_store_has_no_cache(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(batch(1_999, 0))
    assert store.build_approximate() is None
    assert store.stats().approximate is None
    assert not list(tmp_path.glob("approximate*"))


def test_another_process_uses_it_and_losing_it_only_costs_time(store: EmbeddedStore) -> None:
    queries = photos(town()[::500], 4)
    found = store.search(queries, 10)
    again = EmbeddedStore(store.folder)
    assert again.stats().approximate == store.stats().approximate
    assert again.search(queries, 10) == found
    (store.folder / "approximate.faiss").unlink()
    without = EmbeddedStore(store.folder)
    assert without.stats().approximate is None
    assert without.search(queries, 10) == store.search(queries, 10, exact=True)
    without.verify()


@pytest.mark.parametrize("name", ["approximate.faiss", "approximate.json"])
@pytest.mark.parametrize("damage", ["garbage", "cut", "altered"])
def test_a_damaged_cache_is_not_used(
    store: EmbeddedStore, name: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.folder / name
    content = path.read_bytes()
    altered = bytearray(content)
    altered[len(content) // 2] ^= 0x11
    changed = {"garbage": b"\xff\x00garbage", "cut": content[: len(content) // 2], "altered": bytes(altered)}
    path.write_bytes(changed[damage])
    again = EmbeddedStore(store.folder)
    queries = town()[:3]
    assert again.search(queries, 10) == store.search(queries, 10, exact=True)
    if name == "approximate.json":
        monkeypatch.setattr(approximate, "_SAMPLE", 64)
        assert again.build_approximate() is not None


def test_a_full_disk_is_told(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, real = store.folder / approximate.CODES, faiss.write_index
    codes.unlink()
    monkeypatch.setattr(faiss, "write_index", lambda index, path: real(index, "/dev/full"))
    with EmbeddedStore(store.folder) as again:
        with pytest.raises(
            SkyPartError, match=r"cannot write .*approximate\.faiss: the disk is full .*free it and run"
        ):
            again.build_approximate()
    assert not codes.exists() and not list(store.folder.glob(".approximate*"))


def test_a_change_of_the_store_makes_it_stale(store: EmbeddedStore) -> None:
    new = photos(town()[:50], 8)
    store.add(ViewBatch("port", new.astype(np.float16), places(50, 1)))
    assert store.stats().approximate is None
    assert [hits[0].map_name for hits in store.search(new, 1)] == ["port"] * 50
    assert store.build_approximate(new) is not None
    assert [hits[0].map_name for hits in store.search(new, 1)] == ["port"] * 50
    store.remove("port")
    assert store.stats().approximate is None
    assert {hit.map_name for hits in store.search(new, 5) for hit in hits} == {"town"}


def test_areas_are_searched_exactly(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "_candidates", None)  # not used
    queries = photos(town()[::900], 5)
    box = Bounds(south=-30, west=0, north=30, east=90)
    inside = (np.abs(places(VIEWS, 0)[:, 0]) <= 30) & (np.abs(places(VIEWS, 0)[:, 1] - 45) <= 45)
    scores = town().astype(np.float16).astype(np.float64) @ queries.T.astype(np.float64)
    scores[~inside] = -np.inf
    expected = np.argsort(-scores, axis=0, kind="stable")[:10].T.tolist()
    assert rows_of(store.search(queries, 10, box)) == expected


def test_more_asked_for_than_it_looks_at_is_exact(store: EmbeddedStore) -> None:
    queries = town()[:2]
    assert store.search(queries, VIEWS, exact=True) == store.search(queries, VIEWS)
    assert recall(store.search(queries, 300), store.search(queries, 300, exact=True)) > 0.9


def test_where_no_setting_is_good_enough_searches_stay_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "_WIDTHS", (10,))
    store = EmbeddedStore(tmp_path)
    store.add(batch(3_000, 0, dimension=128))  # no structure at all
    assert store.build_approximate() is None
    assert store.stats().approximate is None
    monkeypatch.setattr(approximate, "build", None)
    assert store.build_approximate() is None  # and this is not tried again
    queries = unit(3, 5, 128)
    assert store.search(queries, 10) == store.search(queries, 10, exact=True)


def test_real_queries_can_tune_it(store: EmbeddedStore) -> None:
    queries = photos(town()[::30], 6)
    tuned = store.build_approximate(queries)
    assert tuned is not None
    assert recall(store.search(queries, 10), store.search(queries, 10, exact=True)) == pytest.approx(tuned)


def test_lengths_that_4_does_not_divide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "_SAMPLE", 64)
    for dimension in (6, 7):
        store = EmbeddedStore(tmp_path / str(dimension))
        store.add(batch(2_500, 0, dimension=dimension))
        assert store.build_approximate() is not None
        queries = unit(20, 1, dimension)
        assert recall(store.search(queries, 10), store.search(queries, 10, exact=True)) > 0.95


def test_scores_are_exact(store: EmbeddedStore) -> None:
    """One view in place of another is the only way the cache may err."""
    queries = photos(town()[::700], 9)
    rows = town().astype(np.float16).astype(np.float64)
    for hits, query in zip(store.search(queries, 10), queries.astype(np.float64), strict=True):
        assert [hit.score for hit in hits] == pytest.approx([float(rows[hit.row] @ query) for hit in hits], abs=1e-12)


def test_ranks_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    found = np.stack([rng.permutation(50)[:20] for _ in range(7)])
    truth = np.stack([rng.permutation(50)[:10] for _ in range(7)])
    ranks = approximate._ranks(truth, found)
    for row in range(7):
        places = found[row].tolist()
        assert ranks[row].tolist() == [places.index(t) if t in places else 1 << 30 for t in truth[row].tolist()]
