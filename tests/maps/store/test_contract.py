"""The contract of `Store`, for every engine. To test a new engine, add it to ENGINES and to the fixture `engine`."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skypart
import skypart.maps.store
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds, Footprint
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex, remove_map
from skypart.maps.manifest import IndexManifest
from skypart.maps.store import Circle, Store, StoreModel, ViewBatch, Within, is_inside, open_store, register_store
from skypart.maps.store.open import STORES
from tests.maps.store.builders import DIMENSION, brute_force, footprints, make_batch, rows_of, unit_vectors
from tests.position.stand_in import ColourEmbedder, write_quilt

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
QUERIES = unit_vectors(20, 99)
_numbers = count()


def damage_files(folder: Path) -> None:
    path = next(folder.glob("*.vectors.npy"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x10
    path.write_bytes(content)


def damage_memory(folder: Path) -> None:
    from memory_store import COMMITTED

    for views in COMMITTED.values():
        for view in views[:1]:
            view.vector[:] = 0


def damage_milvus(folder: Path) -> None:
    from pymilvus import MilvusClient

    client = MilvusClient(str(folder.parent / "lite.db"))
    entity = client.query("skypart", filter="row == 3", output_fields=["*"])[0]
    client.upsert("skypart", [entity | {"vector": unit_vectors(1, 77)[0].tolist()}], partition_name=_region(client))
    client.flush("skypart")
    client.close()


def _region(client: Any) -> str:
    """The partition of row 3."""
    regions: list[str] = [name for name in client.list_partitions("skypart") if name.startswith("region")]
    return next(r for r in regions if client.query("skypart", filter="row == 3", partition_names=[r]))


@dataclass(frozen=True)
class Engine:
    """address: makes a new one, in a folder. damage: alters a stored vector behind the store's back.

    needs: a package that must be installed. files: whether it keeps files in the index.
    """

    address: Callable[[Path], str]
    damage: Callable[[Path], None]
    needs: str = "skypart"
    files: bool = False


ENGINES = {
    "embedded": Engine(lambda _: "embedded:", damage_files, files=True),
    "memory": Engine(lambda _: f"memory:{next(_numbers)}", damage_memory),
    "milvus": Engine(lambda folder: f"milvus:{folder / 'lite.db'}", damage_milvus, needs="milvus_lite", files=True),
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("skypart.maps.store.open.STORES", dict(STORES))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    register_store("memory", "memory_store:open_memory")
    yield
    from memory_store import COMMITTED, MODELS, NEXT_ROW

    COMMITTED.clear()
    MODELS.clear()
    NEXT_ROW.clear()


@pytest.fixture(params=["embedded", "memory", pytest.param("milvus", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Engine:
    engine = ENGINES[request.param]
    pytest.importorskip(engine.needs, reason=f"{engine.needs} is not installed")
    return engine


@pytest.fixture
def address(engine: Engine, tmp_path: Path) -> str:
    return engine.address(tmp_path)


@pytest.fixture
def opened(address: str, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens the same store again and again; all are closed at the end."""
    stores = []

    def open_again(check: bool = True) -> Store:
        stores.append(open_store(address, tmp_path / "store", check=check))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


def test_new_store_is_empty(opened: Callable[..., Store]) -> None:
    store = opened()
    stats = store.stats()
    assert (stats.views, stats.dimension, stats.segments, stats.bytes, stats.maps) == (0, 0, 0, 0, {})
    assert store.search(QUERIES, 3) == [[]] * len(QUERIES)
    assert store.remove("town") == 0
    assert store.location
    store.verify()


def test_model_is_recorded_with_the_views(opened: Callable[..., Store]) -> None:
    with opened() as store:
        assert store.model is None
        with store.transaction():
            store.record_model(StoreModel("a" * 64, "default"))
            store.add(make_batch(3, 0))
        assert store.model == StoreModel("a" * 64, "default")
    assert opened().model == StoreModel("a" * 64, "default")


def test_index_refuses_views_of_another_model(address: str, tmp_path: Path) -> None:
    town = write_quilt(tmp_path / "town.tif", edge=300)
    build_index([str(town)], tmp_path / "i", ColourEmbedder(), "colours", store=address)
    manifest = IndexManifest.read(tmp_path / "i")
    with manifest.open_store(tmp_path / "i") as store, store.transaction():
        store.record_model(StoreModel("b" * 64, "shapes"))
    message = r": was made with the model shapes \(bbbbbbbbbbbb\), not with this one \(digest of co\); pass the model"
    with pytest.raises(SkyPartError, match=message):
        MapIndex(tmp_path / "i")


def test_added_views_are_found_by_every_store_object(opened: Callable[..., Store]) -> None:
    with opened() as store:
        store.add(make_batch(30, 0))
        store.add(make_batch(20, 1, "port"))
        found = store.search(QUERIES, 7)
    again = opened()
    assert again.search(QUERIES, 7) == found
    stats = again.stats()
    assert (stats.views, stats.dimension, stats.maps) == (50, DIMENSION, {"town": 30, "port": 20})
    assert stats.segments >= 1 and stats.bytes >= 50 * (2 * DIMENSION + 32)


def test_hit_describes_its_view(opened: Callable[..., Store]) -> None:
    store = opened()
    store.add(make_batch(30, 0))
    batch = make_batch(20, 1, "port")
    store.add(batch)
    query = batch.vectors[4].astype(np.float32)
    best = store.search(query[None], 1)[0][0]
    latitude, longitude, metres, rotation = batch.footprints[4]
    assert (best.map_name, best.row) == ("port", 34)
    assert best.footprint == Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation)
    assert best.score == pytest.approx(float(query.astype(np.float64) @ query.astype(np.float64)), abs=1e-12)


@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("exact", [True, False])
def test_results_are_the_best_in_order(opened: Callable[..., Store], queries: int, exact: bool) -> None:
    store = opened()
    batches = [make_batch(size, size) for size in (40, 3, 25)]
    for batch in batches:
        store.add(batch)
    vectors = np.concatenate([batch.vectors for batch in batches])
    for k in (1, 10, 68, 500):
        assert rows_of(store.search(QUERIES[:queries], k, exact=exact)) == brute_force(vectors, QUERIES[:queries], k)


def test_equal_scores_are_ordered_by_row(opened: Callable[..., Store]) -> None:
    store = opened()
    water = unit_vectors(1, 7).astype(np.float16)
    for number, name in enumerate(["b", "a", "b"]):
        store.add(ViewBatch(name, np.repeat(water, 5, axis=0), footprints(5, number)))
    assert rows_of(store.search(water, 12)) == [list(range(12))]


@pytest.mark.parametrize(
    "area",
    [
        Bounds(south=-60, west=150, north=60, east=-150),
        Bounds(south=-90, west=-180, north=90, east=180),
        Circle(latitude=0.0, longitude=180.0, radius_m=5_000_000.0),
        Circle(latitude=0.0, longitude=0.0, radius_m=0.5),
    ],
)
def test_within_selects_views_by_their_centres(opened: Callable[..., Store], area: Within) -> None:
    store = opened()
    batches = [make_batch(80, 0), make_batch(50, 1, "port")]
    for batch in batches:
        store.add(batch)
    vectors = np.concatenate([batch.vectors for batch in batches])
    table = np.concatenate([batch.footprints for batch in batches])
    allowed = is_inside(area, latitude=table[:, 0], longitude=table[:, 1])
    assert rows_of(store.search(QUERIES, 9, area)) == brute_force(vectors, QUERIES, 9, allowed)


def test_removed_map_is_gone_and_its_rows_are_not_reused(opened: Callable[..., Store]) -> None:
    store = opened()
    store.add(make_batch(10, 0))
    store.add(make_batch(5, 1, "port"))
    store.add(make_batch(10, 2))
    assert store.remove("town") == 20
    assert store.remove("town") == 0
    assert store.stats().maps == {"port": 5}
    store.add(make_batch(3, 3))
    assert sorted(rows_of(store.search(QUERIES[:1], 99))[0]) == [*range(10, 15), *range(25, 28)]


def test_emptied_store_accepts_another_dimension(opened: Callable[..., Store]) -> None:
    store = opened()
    store.add(make_batch(4, 0))
    with pytest.raises(SkyPartError, match="use one model"):
        store.add(make_batch(4, 0, dimension=8))
    assert store.stats().views == 4
    store.remove("town")
    assert store.stats().dimension == 0
    store.add(make_batch(4, 0, dimension=8))
    assert store.stats().dimension == 8


def test_empty_batch_changes_nothing(opened: Callable[..., Store]) -> None:
    store = opened()
    store.add(make_batch(4, 0))
    before = store.stats()
    store.add(make_batch(0, 1, "port"))
    assert store.stats() == before


def test_transaction_commits_all_changes_together(opened: Callable[..., Store]) -> None:
    store, reader = opened(), opened()
    store.add(make_batch(10, 0))
    reader.refresh()
    with store.transaction():
        assert store.remove("town") == 10
        with store.transaction():  # nested: committed by the outer one
            store.add(make_batch(4, 1))
        store.add(make_batch(3, 2))
        assert len(store.search(QUERIES[:1], 99)[0]) == 10, "searches still see the state before"
        assert not reader.refresh()
    assert store.stats().maps == {"town": 7}
    assert reader.stats().maps == {"town": 10}
    assert reader.refresh()
    assert reader.stats().maps == {"town": 7}


def test_exception_rolls_a_transaction_back(opened: Callable[..., Store]) -> None:
    store = opened()
    store.add(make_batch(10, 0))
    before = store.search(QUERIES, 99)

    def fail() -> None:
        with store.transaction():
            store.remove("town")
            store.add(make_batch(4, 1, "port"))
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail()
    assert store.search(QUERIES, 99) == before
    assert store.stats().maps == {"town": 10}
    store.add(make_batch(2, 2, "port"))  # the store still works
    assert opened().stats().maps == {"town": 10, "port": 2}


def test_writer_starts_from_the_newest_state(opened: Callable[..., Store]) -> None:
    early = opened()
    with opened() as other:
        other.add(make_batch(5, 0))
    early.add(make_batch(7, 1))
    assert early.stats().views == 12


def test_refresh_reports_whether_the_state_changed(opened: Callable[..., Store]) -> None:
    reader = opened()
    assert not reader.refresh()
    assert reader.search(QUERIES, 9) == [[]] * len(QUERIES)
    with opened() as writer:
        writer.add(make_batch(5, 0))
        assert not writer.refresh(), "its own change is not news"
    assert reader.search(QUERIES, 9) == [[]] * len(QUERIES)
    assert reader.refresh()
    assert not reader.refresh()
    assert len(reader.search(QUERIES, 9)[0]) == 5


def test_verify_finds_an_altered_vector(opened: Callable[..., Store], engine: Engine, tmp_path: Path) -> None:
    with opened() as store:
        store.add(make_batch(10, 0))
        store.add(make_batch(5, 1, "port"))
        store.verify()
    engine.damage(tmp_path / "store")
    damaged = opened(check=False)
    with pytest.raises(SkyPartError, match=r"town|port"):
        damaged.verify()
    damaged.remove("town")
    damaged.remove("port")
    damaged.verify()


def test_optimize_leaves_small_stores_exact(opened: Callable[..., Store]) -> None:
    store = opened()
    store.add(make_batch(50, 0))
    before = store.search(QUERIES, 9)
    assert store.optimize() is None
    assert store.optimize(QUERIES) is None
    assert store.stats().recall is None
    assert store.search(QUERIES, 9) == before


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (np.zeros((2, 25)), 3, "queries have dimension 25 and the stored views 24"),
        (np.zeros(24), 3, r"queries must have the shape \(queries, 24\)"),
        (np.full((1, 24), np.nan), 3, "query 0 contains a value that is not finite"),
        (np.zeros((1, 24)), 0, "ask for 1 or more"),
    ],
)
def test_invalid_queries_are_rejected(opened: Callable[..., Store], queries: np.ndarray, k: int, message: str) -> None:
    store = opened()
    store.add(make_batch(3, 0))
    with pytest.raises(SkyPartError, match=message):
        store.search(queries, k)


def test_closed_store_cannot_be_used(opened: Callable[..., Store]) -> None:
    with opened() as store:
        store.add(make_batch(3, 0))
    for use in (lambda: store.search(QUERIES, 1), lambda: store.add(make_batch(3, 0)), lambda: store.remove("town")):
        with pytest.raises(SkyPartError, match="is closed; open it again"):
            use()
    opened().add(make_batch(3, 1))  # its lock is released


def test_index_is_built_searched_and_changed_in_any_store(address: str, engine: Engine, tmp_path: Path) -> None:
    town = write_quilt(tmp_path / "town.tif", seed=1, edge=300)
    village = write_quilt(tmp_path / "village.tif", seed=3, edge=300, east=2000.0)
    folder = tmp_path / "i"
    added = build_index([str(town)], folder, ColourEmbedder(), "colours", store=address)
    added |= build_index([str(village)], folder, ColourEmbedder(), "colours")  # the index knows its store
    index = MapIndex(folder)
    assert index.manifest.store == address
    assert ("store" in (folder / "index.json").read_text()) == (address != "embedded:")
    assert (folder / "store").exists() == engine.files
    vectors = unit_vectors(3, 0, ColourEmbedder().dim)
    assert {hit.map_name for hit in index.search(vectors, 99)[0]} == {"town", "village"}
    index.store.close()
    assert remove_map(folder, "town") == added["town"]
    assert {hit.map_name for hit in MapIndex(folder).search(vectors, 99)[0]} == {"village"}
    with pytest.raises(SkyPartError, match="has its views in another store; leave the address out"):
        build_index([str(town)], folder, ColourEmbedder(), "colours", store="memory:other")


def test_two_indexes_cannot_share_a_store(tmp_path: Path) -> None:
    town = write_quilt(tmp_path / "town.tif", seed=1, edge=300)
    build_index([str(town)], tmp_path / "one", ColourEmbedder(), "colours", store="memory:shared")
    with pytest.raises(SkyPartError, match="memory:shared: contains the views of another index; give another"):
        build_index([str(town)], tmp_path / "two", ColourEmbedder(), "colours", store="memory:shared")
    assert MapIndex(tmp_path / "one").store.stats().views
    assert not (tmp_path / "two").exists()


def test_abandoned_attempt_is_removed_from_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    town = write_quilt(tmp_path / "town.tif", seed=1, edge=300)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("skypart.maps.build.MapEntry", crash)  # the views are stored, the map is not in index.json yet
        with pytest.raises(KeyboardInterrupt):
            build_index([str(town)], tmp_path / "i", ColourEmbedder(), "colours", store="memory:a")
    left = open_store("memory:a", tmp_path)
    assert left.stats().views
    build_index([str(town)], tmp_path / "i", ColourEmbedder("other"), "best", store="memory:b")
    assert left.refresh() and left.stats().views == 0
    assert MapIndex(tmp_path / "i").manifest.store == "memory:b"


@pytest.mark.parametrize(
    ("address", "shown"),
    [("qdrant://me:SECRET@host/town", "qdrant:"), ("nowhere", "'nowhere'"), ("", "''"), (":x", ":")],
)
def test_unknown_address_lists_the_known_schemes(address: str, shown: str, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="embedded:, memory:, milvus:, remote:, or register") as raised:
        open_store(address, tmp_path / "store")
    assert str(raised.value).startswith(f"{tmp_path / 'store'}: unknown store address {shown};")
    assert "SECRET" not in str(raised.value)


def test_embedded_address_has_no_further_parts(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="must be just 'embedded:'"):
        open_store("embedded:elsewhere", tmp_path / "store")


def test_engines_are_imported_only_when_opened(tmp_path: Path) -> None:
    register_store("lazy", "no_such_module:open")
    open_store("memory:x", tmp_path).close()
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        open_store("lazy:x", tmp_path)


def test_only_the_store_package_knows_its_engines() -> None:
    """All other modules import `skypart.maps.store` alone, and name neither an engine nor its approximate cache."""
    package = Path(skypart.__file__).parent
    wrong = []
    for file in sorted(package.rglob("*.py")):
        if file.is_relative_to(package / "maps" / "store"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: set[str] = set()
            if isinstance(node, ast.ImportFrom):
                names = {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.Name | ast.Attribute):
                names = {node.id if isinstance(node, ast.Name) else node.attr}
            public = {f"skypart.maps.store.{name}" for name in skypart.maps.store.__all__}
            inner = {name for name in names if name.startswith("skypart.maps.store.")} - public
            if inner or names & {"EmbeddedStore", "approximate"}:
                wrong.append((str(file.relative_to(package)), ast.unparse(node)))
    assert not wrong
