"""The embedded store: files, merging of segments, transactions, and the states that readers see."""

import gc
from pathlib import Path

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.maps.store import Store, ViewBatch, segment, writer
from skypart.maps.store.embedded import EmbeddedStore
from tests.maps.store.builders import DIMENSION, brute_force, footprints, make_batch, rows_of, unit_vectors

QUERIES = unit_vectors(5, 99)
FDS = Path("/proc/self/fd")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "writer.lock"}


def test_is_a_store(tmp_path: Path) -> None:
    store: Store = EmbeddedStore(tmp_path)
    store.add(make_batch(3, 0))
    assert store.stats().maps == {"town": 3}


def test_added_views_are_found_after_reopening(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "new" / "store") as store:
        store.add(make_batch(50, 1))
        store.add(make_batch(20, 2, "port"))
        found = store.search(QUERIES, 7)
    again = EmbeddedStore(tmp_path / "new" / "store")
    assert again.search(QUERIES, 7) == found
    stats = again.stats()
    assert (stats.views, stats.dimension, stats.segments, stats.maps) == (70, DIMENSION, 2, {"town": 50, "port": 20})
    names = [name for name in files(tmp_path / "new" / "store") if name.endswith(".npy")]
    assert stats.bytes == sum((tmp_path / "new" / "store" / name).stat().st_size for name in names)


def test_segments_are_plain_numpy_files(tmp_path: Path) -> None:
    views = make_batch(50, 1)
    EmbeddedStore(tmp_path).add(views)
    stem = "000000000000-50"
    np.testing.assert_array_equal(np.load(tmp_path / f"{stem}.vectors.npy"), views.vectors)
    np.testing.assert_array_equal(np.load(tmp_path / f"{stem}.footprints.npy"), views.footprints)


def test_many_small_batches_leave_few_segments(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    batches = [make_batch(5, seed, "town" if seed % 3 else "port") for seed in range(61)]
    for views in batches:
        store.add(views)
    assert store.stats().segments <= 10
    assert len(files(tmp_path)) == 2 * store.stats().segments + 2  # and the manifest and the lock
    vectors = np.concatenate([views.vectors for views in batches])
    expected = brute_force(vectors, QUERIES, 30)
    assert rows_of(store.search(QUERIES, 30)) == expected
    assert rows_of(EmbeddedStore(tmp_path).search(QUERIES, 30)) == expected
    hits = store.search(QUERIES, 305)[0]
    assert all(hit.map_name == ("town" if (hit.row // 5) % 3 else "port") for hit in hits)


def test_segments_stay_below_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SEGMENT_BYTES", 100 * 2 * DIMENSION)
    store = EmbeddedStore(tmp_path)
    batches = [make_batch(count, count) for count in (250, 30, 30, 30, 90, 101)]
    for views in batches:
        store.add(views)
    shapes = [np.load(path).shape[0] for path in tmp_path.glob("*.vectors.npy")]
    assert max(shapes) <= 100
    assert sum(shapes) == 531
    vectors = np.concatenate([views.vectors for views in batches])
    assert rows_of(store.search(QUERIES, 9)) == brute_force(vectors, QUERIES, 9)


def test_removing_a_map_leaves_the_others(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(40, 0, "town"))
    store.add(make_batch(30, 1, "port"))
    store.add(make_batch(60, 2, "town"))
    assert store.remove("town") == 100
    assert store.remove("town") == 0
    assert {hit.map_name for hit in store.search(QUERIES, 100)[0]} == {"port"}
    assert len(list(tmp_path.glob("*.npy"))) == 2
    store.add(make_batch(10, 3, "town"))
    assert {hit.row for hit in store.search(QUERIES, 100)[0]} == {*range(40, 70), *range(130, 140)}  # numbers stay


def test_the_same_changes_make_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        store = EmbeddedStore(tmp_path / name)
        for seed in range(7):
            store.add(make_batch(20 + seed, seed, "town" if seed % 2 else "port"))
            if name == "two":
                store.close()
                store = EmbeddedStore(tmp_path / name)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_transaction_commits_all_or_nothing(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(40, 0, "town"))
    reader = EmbeddedStore(tmp_path)
    before = contents(tmp_path)

    def replace_half() -> None:
        with store.transaction():
            store.remove("town")
            store.add(make_batch(10, 1, "town"))
            raise SkyPartError("the map cannot be read")

    with pytest.raises(SkyPartError, match="cannot be read"):
        replace_half()
    assert contents(tmp_path) == before
    assert store.stats().maps == {"town": 40}
    with store.transaction():
        assert store.remove("town") == 40
        for seed in (1, 2, 3):
            store.add(make_batch(10, seed, "town"))
        assert not reader.refresh()
        assert len(store.search(QUERIES, 100)[0]) == 40
    assert store.stats().maps == {"town": 30}
    assert reader.refresh()
    assert reader.stats().maps == {"town": 30}
    assert len(list(tmp_path.glob("*.npy"))) == 2 * store.stats().segments


def test_reader_keeps_its_state_until_refresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SMALL_BYTES", 0)  # mapped files that are then deleted
    writer = EmbeddedStore(tmp_path)
    writer.add(make_batch(40, 0))
    reader = EmbeddedStore(tmp_path)
    before = reader.search(QUERIES, 5)
    writer.add(make_batch(200, 1))
    writer.remove("town")
    assert reader.search(QUERIES, 5) == before
    assert reader.refresh()
    assert reader.search(QUERIES, 5) == [[]] * 5


def test_late_reader_moves_on_to_the_newest_state(tmp_path: Path) -> None:
    writer = EmbeddedStore(tmp_path)
    writer.add(make_batch(40, 0))
    reader = EmbeddedStore(tmp_path)  # knows files which the next line replaces
    writer.add(make_batch(60, 1))
    assert len(reader.search(QUERIES, 100)[0]) == 100
    assert reader.stats().views == 100


def test_close_releases_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SMALL_BYTES", 0)

    def used() -> list[str]:
        gc.collect()
        opened = [str(fd.readlink()) for fd in FDS.iterdir() if fd.is_symlink()]
        mapped = Path("/proc/self/maps").read_text().splitlines()
        return [line for line in opened + mapped if str(tmp_path) in line]

    store = EmbeddedStore(tmp_path)
    store.add(make_batch(40, 0))
    store.add(make_batch(90, 1))
    store.search(QUERIES, 3)
    assert any("vectors.npy" in line for line in used())
    assert any("writer.lock" in line for line in used())
    store.close()
    assert used() == []
    with pytest.raises(SkyPartError, match="is closed"):
        store.search(QUERIES, 3)
    with pytest.raises(SkyPartError, match="is closed"):
        store.add(make_batch(1, 0))


def test_many_maps_need_few_open_files(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    with store.transaction():
        for number in range(150):
            store.add(make_batch(2, number, f"map {number}"))
    before = len(list(FDS.iterdir()))
    assert len(store.search(QUERIES, 1_000)[0]) == 300
    assert len(list(FDS.iterdir())) <= before + 1
    assert store.remove("map 77") == 2


@pytest.mark.parametrize(
    ("vectors", "footprints", "message"),
    [
        (unit_vectors(3, 0) * 2, footprints(3, 0), "does not have length 1"),
        (np.full((3, 8), np.nan), footprints(3, 0), "does not have length 1"),
        (unit_vectors(3, 0), footprints(2, 0), r"vectors \(3, 24\) and footprints \(2, 4\)"),
        (unit_vectors(3, 0)[0], footprints(1, 0), r"vectors \(24,\)"),
        (unit_vectors(3, 0), footprints(3, 0) * [2, 1, 1, 1] + [90, 0, 0, 0], "a footprint is invalid"),
        (unit_vectors(3, 0), footprints(3, 0) * [1, 1, 0, 1], "a footprint is invalid"),
        (unit_vectors(3, 0), footprints(3, 0) * [1, np.nan, 1, 1], "a footprint is invalid"),
    ],
)
def test_invalid_views_are_rejected(vectors: np.ndarray, footprints: np.ndarray, message: str) -> None:
    with pytest.raises(SkyPartError, match=message):
        ViewBatch("town", vectors, footprints)


def test_a_map_needs_a_name() -> None:
    with pytest.raises(SkyPartError, match="needs a name"):
        make_batch(1, 0, "")


def test_map_names_are_not_paths(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    store.add(make_batch(2, 0, "../../Ünïcode \n name"))
    assert EmbeddedStore(tmp_path / "store").stats().maps == {"../../Ünïcode \n name": 2}
    assert files(tmp_path) == ["store"]


def test_views_of_another_dimension_are_rejected(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(3, 0))
    with pytest.raises(SkyPartError, match=r"have dimension 8 and those in .* 24; use one model"):
        store.add(make_batch(3, 1, dimension=8))
    assert store.stats().views == 3


def test_emptied_store_accepts_views_of_another_model(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(3, 0))
    with store.transaction():
        store.remove("town")
        store.add(make_batch(4, 1, dimension=8))
    assert store.stats().dimension == 8
    store.remove("town")
    assert store.search(QUERIES, 3) == [[]] * 5


def test_an_empty_batch_changes_nothing(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(3, 0))
    before = contents(tmp_path)
    store.add(make_batch(0, 1))
    assert contents(tmp_path) == before
