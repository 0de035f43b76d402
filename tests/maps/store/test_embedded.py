"""The embedded store: files, merging of segments, transactions, and the states that readers see."""

import gc
from pathlib import Path

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.maps.store import Store, ViewBatch, segment, writer
from skypart.maps.store.embedded import EmbeddedStore
from skypart.maps.store.manifest import read_manifest
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


def test_length_of_vectors_has_a_tolerance_of_one_percent() -> None:
    rows = unit_vectors(2, 0)
    for length in (0.991, 1.009):
        ViewBatch("town", (rows * length).astype(np.float16), footprints(2, 0))
    for length in (0.985, 1.015):
        with pytest.raises(SkyPartError, match="does not have length 1"):
            ViewBatch("town", (rows * [[1.0], [length]]).astype(np.float16), footprints(2, 0))


def test_vectors_are_checked_beyond_the_first_block() -> None:
    rows = unit_vectors(8_193, 0, 4).astype(np.float16)
    table = np.repeat(footprints(1, 0), len(rows), axis=0)
    ViewBatch("town", rows, table)
    for bad in (0, 8_191, 8_192):
        wrong = rows.copy()
        wrong[bad] *= 2
        with pytest.raises(SkyPartError, match="does not have length 1"):
            ViewBatch("town", wrong, table)


@pytest.mark.parametrize(("latitude", "metres"), [(90.0, 1e-6), (-90.0, 1.0)])
def test_footprints_at_the_limits_are_valid(latitude: float, metres: float) -> None:
    assert ViewBatch(
        "town", unit_vectors(1, 0).astype(np.float16), np.array([[latitude, 0.0, metres, 0.0]])
    ).footprints.shape == (1, 4)


@pytest.mark.parametrize(
    ("sizes", "segments"),
    [
        ([10, 10], [20]),  # equal: merged
        ([10, 9], [10, 9]),  # smaller than the last segment: not merged
        ([20, 9, 9], [20, 18]),
        ([10, 9, 10], [29]),
        ([10, 5, 5], [20]),  # like a carry: 5 + 5 is as large as the segment before
        ([50, 50], [100]),  # exactly the limit
        ([50, 51], [50, 51]),  # above the limit
        ([100, 100, 1], [100, 100, 1]),
        ([205], [100, 100, 5]),
    ],
)
def test_which_segments_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], segments: list[int]
) -> None:
    monkeypatch.setattr(writer, "SEGMENT_BYTES", 100 * 2 * DIMENSION)
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(3, 99, "port"))  # of another map: never merged
    for seed, size in enumerate(sizes):
        store.add(make_batch(size, seed))
    records = [record for record in read_manifest(tmp_path).segments if record.map_name == "town"]
    assert [record.views for record in records] == segments
    assert store.stats().maps == {"port": 3, "town": sum(sizes)}


def test_merged_segments_keep_rows_vectors_and_footprints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_COPY_ROWS", 7)
    store = EmbeddedStore(tmp_path)
    batches = [make_batch(20, 0), make_batch(4, 1, "port"), make_batch(21, 2), make_batch(41, 3)]
    for batch in batches:
        store.add(batch)
    town = next(record for record in read_manifest(tmp_path).segments if record.map_name == "town")
    assert town.rows == ((0, 20), (24, 62))  # adjacent ranges are joined
    own = [batch for batch in batches if batch.map_name == "town"]
    np.testing.assert_array_equal(np.load(tmp_path / town.vectors.name), np.concatenate([b.vectors for b in own]))
    np.testing.assert_array_equal(np.load(tmp_path / town.footprints.name), np.concatenate([b.footprints for b in own]))
    for row, batch, index in [(0, own[0], 0), (19, own[0], 19), (24, own[1], 0), (45, own[2], 0), (85, own[2], 40)]:
        best = store.search(batch.vectors[index][None], 1)[0][0]
        assert (best.row, best.footprint.latitude) == (row, batch.footprints[index, 0])


def test_vectors_up_to_the_limit_are_read_and_larger_ones_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(40, 0))
    record = read_manifest(tmp_path).segments[0]
    for limit, mapped in ((record.vectors.bytes, False), (record.vectors.bytes - 1, True)):
        monkeypatch.setattr(segment, "SMALL_BYTES", limit)
        assert (segment.open_segment(tmp_path, record, DIMENSION, True).mapped is not None) == mapped


def test_refresh_reuses_open_segments(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as first:
        first.add(make_batch(40, 0))
    reader = EmbeddedStore(tmp_path)
    before = reader._open_state()[0].segments
    with EmbeddedStore(tmp_path) as second:
        second.add(make_batch(5, 1))
    assert reader.refresh()
    after = reader._open_state()[0].segments
    assert after[0] is before[0] and len(after) == 2
