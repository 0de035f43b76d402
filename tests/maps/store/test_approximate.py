"""The approximate cache: its recall, and that losing it costs only time."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.maps.store import Hit, ViewBatch, approximate, segment, snapshot
from skypart.maps.store.embedded import EmbeddedStore
from tests.maps.store.builders import footprints, make_batch, rows_of, unit_vectors

VIEWS, DIMENSION = 6_000, 48
CHUNKS = snapshot.StoreSnapshot.chunks


@pytest.fixture(autouse=True)
def small_stores_get_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "MIN_VIEWS", 2_000)


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
    noise = unit_vectors(len(rows), seed, DIMENSION)
    mixed = rows + noise
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    return mixed


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    with EmbeddedStore(folder) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(approximate, "MIN_VIEWS", 2_000)
        store.add(ViewBatch("town", town().astype(np.float16), footprints(VIEWS, 0)))
        assert store.optimize() is not None
    return folder


@pytest.fixture
def store(tmp_path: Path, built: Path) -> EmbeddedStore:
    """A store of its own for each test, with a cache."""
    shutil.copytree(built, tmp_path / "store")
    return EmbeddedStore(tmp_path / "store")


def few_only(
    self: snapshot.StoreSnapshot, positions: snapshot.Positions | None, in_place: bool
) -> Iterator[tuple[int, segment.Vectors]]:
    """Refuse to score more than a fifth of the views."""
    assert positions is not None
    assert len(positions) < VIEWS / 5
    yield from CHUNKS(self, positions, in_place)


def recall(found: list[list[Hit]], best: list[list[Hit]]) -> float:
    shares = [len({h.row for h in f} & {h.row for h in b}) / len(b) for f, b in zip(found, best, strict=True)]
    return float(np.mean(shares))


def test_recall_is_99_percent_with_less_work(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = store.stats().recall
    assert tuned is not None
    assert tuned >= 0.99 + approximate._MARGIN
    monkeypatch.setattr(approximate, "build_cache", None)
    assert store.optimize() == tuned  # it exists already
    rows = town()[5::23]
    for queries in (rows, photos(rows, 3)):
        best = store.search(queries, 10, exact=True)
        with monkeypatch.context() as patch:
            patch.setattr(snapshot.StoreSnapshot, "chunks", few_only)
            found = store.search(queries, 10)
        assert recall(found, best) >= 0.99
        assert [hits[0] for hits in found] == [hits[0] for hits in best]  # scores are exact ones too


def test_small_store_has_no_cache(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(1_999, 0))
    assert store.optimize() is None
    assert store.stats().recall is None
    assert not list(tmp_path.glob("approximate*"))


def test_cache_is_shared_and_losing_it_costs_only_time(store: EmbeddedStore) -> None:
    queries = photos(town()[::500], 4)
    found = store.search(queries, 10)
    again = EmbeddedStore(store.folder)
    assert again.stats().recall == store.stats().recall
    assert again.search(queries, 10) == found
    (store.folder / "approximate.faiss").unlink()
    without = EmbeddedStore(store.folder)
    assert without.stats().recall is None
    assert without.search(queries, 10) == store.search(queries, 10, exact=True)
    without.verify()


@pytest.mark.parametrize("name", ["approximate.faiss", "approximate.json"])
@pytest.mark.parametrize("damage", ["garbage", "cut", "altered"])
def test_damaged_cache_is_ignored(
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
        assert again.optimize() is not None


def test_full_disk_raises_a_clear_error(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, real = store.folder / approximate.CODES, faiss.write_index
    codes.unlink()
    monkeypatch.setattr(faiss, "write_index", lambda index, path: real(index, "/dev/full"))
    with EmbeddedStore(store.folder) as again:
        with pytest.raises(
            SkyPartError, match=r"cannot write .*approximate\.faiss: the disk is full .*free disk space and run"
        ):
            again.optimize()
    assert not codes.exists() and not list(store.folder.glob(".approximate*"))


def test_any_change_makes_the_cache_stale(store: EmbeddedStore) -> None:
    new = photos(town()[:50], 8)
    store.add(ViewBatch("port", new.astype(np.float16), footprints(50, 1)))
    assert store.stats().recall is None
    assert [hits[0].map_name for hits in store.search(new, 1)] == ["port"] * 50
    assert store.optimize(new) is not None
    assert [hits[0].map_name for hits in store.search(new, 1)] == ["port"] * 50
    store.remove("port")
    assert store.stats().recall is None
    assert {hit.map_name for hits in store.search(new, 5) for hit in hits} == {"town"}


def test_areas_are_searched_exactly(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "_candidates", None)  # not used
    queries = photos(town()[::900], 5)
    box = Bounds(south=-30, west=0, north=30, east=90)
    inside = (np.abs(footprints(VIEWS, 0)[:, 0]) <= 30) & (np.abs(footprints(VIEWS, 0)[:, 1] - 45) <= 45)
    scores = town().astype(np.float16).astype(np.float64) @ queries.T.astype(np.float64)
    scores[~inside] = -np.inf
    expected = np.argsort(-scores, axis=0, kind="stable")[:10].T.tolist()
    assert rows_of(store.search(queries, 10, box)) == expected


def test_search_for_more_than_the_candidates_is_exact(store: EmbeddedStore) -> None:
    queries = town()[:2]
    assert store.search(queries, VIEWS, exact=True) == store.search(queries, VIEWS)
    assert recall(store.search(queries, 300), store.search(queries, 300, exact=True)) > 0.9


def test_searches_stay_exact_if_no_setting_reaches_the_recall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "_WIDTHS", (10,))
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(3_000, 0, dimension=128))  # no structure at all
    assert store.optimize() is None
    assert store.stats().recall is None
    monkeypatch.setattr(approximate, "build_cache", None)
    assert store.optimize() is None  # and this is not tried again
    queries = unit_vectors(3, 5, 128)
    assert store.search(queries, 10) == store.search(queries, 10, exact=True)


def test_real_queries_tune_the_cache(store: EmbeddedStore) -> None:
    queries = photos(town()[::30], 6)
    tuned = store.optimize(queries)
    assert tuned is not None
    assert recall(store.search(queries, 10), store.search(queries, 10, exact=True)) == pytest.approx(tuned)


def test_dimensions_that_4_does_not_divide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "_SAMPLE", 64)
    for dimension in (6, 7):
        store = EmbeddedStore(tmp_path / str(dimension))
        store.add(make_batch(2_500, 0, dimension=dimension))
        assert store.optimize() is not None
        queries = unit_vectors(20, 1, dimension)
        assert recall(store.search(queries, 10), store.search(queries, 10, exact=True)) > 0.95


def test_scores_are_exact(store: EmbeddedStore) -> None:
    """The cache may miss a view, but never changes a score."""
    queries = photos(town()[::700], 9)
    rows = town().astype(np.float16).astype(np.float64)
    for hits, query in zip(store.search(queries, 10), queries.astype(np.float64), strict=True):
        assert [hit.score for hit in hits] == pytest.approx([float(rows[hit.row] @ query) for hit in hits], abs=1e-12)


def test_ranks_match_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    found = np.stack([rng.permutation(50)[:20] for _ in range(7)])
    truth = np.stack([rng.permutation(50)[:10] for _ in range(7)])
    ranks = approximate._ranks(truth, found)
    for row in range(7):
        places = found[row].tolist()
        assert ranks[row].tolist() == [places.index(t) if t in places else 1 << 30 for t in truth[row].tolist()]


def test_cache_is_built_from_the_threshold_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    monkeypatch.setattr(approximate, "build_cache", lambda folder, snapshot, *_: built.append(len(snapshot)))
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(1_999, 0))
    store.optimize()
    assert built == []
    store.add(make_batch(1, 1))
    store.optimize()
    assert built == [2_000]


def test_optimize_leaves_a_small_store_unlocked(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as writer:
        writer.add(make_batch(10, 0))
    (tmp_path / "writer.lock").unlink()
    EmbeddedStore(tmp_path).optimize()
    assert not (tmp_path / "writer.lock").exists()


def test_number_of_candidates_grows_with_k(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    real = approximate._candidates

    def recorded(codes: object, queries: NDArray[np.float32], probes: int, width: int) -> NDArray[np.int64]:
        widths.append(width)
        return real(codes, queries, probes, width)

    monkeypatch.setattr(approximate, "_candidates", recorded)
    for k in (1, 10, 11, 25):
        store.search(town()[:1], k)
    tuned = widths[0]
    assert tuned in approximate._WIDTHS
    assert widths == [tuned, tuned, -(-tuned * 11 // 10), -(-tuned * 25 // 10)]


def test_doubling_ends_with_the_last() -> None:
    assert list(approximate._doubling(1)) == [1]
    assert list(approximate._doubling(8)) == [1, 2, 4, 8]
    assert list(approximate._doubling(9)) == [1, 2, 4, 8, 9]


def test_synthetic_queries_have_the_chosen_similarity(store: EmbeddedStore) -> None:
    snapshot_, _ = store._open_state()
    plain, mixed = approximate._synthetic_queries(snapshot_, np.random.default_rng(0))
    assert plain.shape == mixed.shape == (512, DIMENSION)
    assert np.einsum("ij,ij->i", plain, mixed) == pytest.approx(np.full(512, approximate._SIMILARITY), abs=2e-3)
    assert np.linalg.norm(mixed, axis=1) == pytest.approx(np.ones(512), abs=2e-3)


def test_optimize_needs_the_lock_of_the_writer(store: EmbeddedStore) -> None:
    with EmbeddedStore(store.folder) as writer:
        writer.remove("no such map")  # becomes the writer
        with pytest.raises(SkyPartError, match="is being written by process"):
            store.optimize()
    assert store.optimize() is not None
