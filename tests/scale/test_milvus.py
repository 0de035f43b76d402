"""What only the Milvus store does: addresses, regions, other index types, bulk load, and failures."""

import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.images.decode import RgbImage
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex, move_store
from skypart.maps.store import Circle, ViewBatch, absolute_address, open_store
from skypart.maps.store.embedded import EmbeddedStore
from skypart.maps.store.milvus import MilvusStore, parse_address
from skypart.maps.store.milvus.address import Layout
from skypart.position.fix import Fix
from skypart.position.locate import Locator
from tests.maps.store.builders import make_batch, rows_of, unit_vectors
from tests.position.stand_in import OPTIONS, SURE, ColourEmbedder, Shot, quilt, write_quilt

pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")
pytestmark = pytest.mark.slow  # Milvus Lite is a process of its own
QUERIES = unit_vectors(10, 99)


def opened(folder: Path, options: str = "") -> MilvusStore:
    return MilvusStore(parse_address(f"milvus:{folder / 'lite.db'}{options}"), folder / "store")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MilvusStore]:
    with opened(tmp_path) as made:
        yield made


def test_address_of_a_server_with_options() -> None:
    address = parse_address(
        "milvus:https://host:19530/maps?collection=town&index=ivf_flat&nlist=128&nprobe=8&regions=30"
    )
    assert (address.uri, address.database, address.collection) == ("https://host:19530", "maps", "town")
    assert (address.index, address.build, address.search) == ("IVF_FLAT", (("nlist", 128),), (("nprobe", 8),))
    assert address.layout == Layout("IVF_FLAT", 30, half=False) and not address.is_file
    assert parse_address("milvus://host:19530/town").collection == "town"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("milvus:", "names no server and no file"),
        ("milvus:host:19530", "has no scheme; write milvus:http://host:19530"),
        ("milvus:town", "is neither a server nor a file"),
        ("milvus:ftp://host", "has an unknown form"),
        ("milvus:http://me:SECRET@host:19530", "contains credentials"),
        ("milvus:a.db?collection=1x", "use letters, digits and underscores"),
        ("milvus:a.db?nlist=many", "must be a whole number"),
        ("milvus:a.db?regions=1", "must be 10 to 180 degrees"),
        ("milvus:a.db?vectors=int8", "must be float32 or float16"),
    ],
)
def test_malformed_addresses_are_clear_errors(address: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=message) as raised:
        open_store(address, tmp_path)
    assert "SECRET" not in str(raised.value)


def test_relative_file_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_address("milvus:a.db?index=FLAT") == f"milvus:{tmp_path / 'a.db'}?index=FLAT"
    assert absolute_address("milvus:http://h:1") == "milvus:http://h:1"


def test_server_that_is_down_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"^milvus:http://127.0.0.1:1: Milvus reports: .*; start Milvus, or correct"):
        open_store("milvus:http://127.0.0.1:1", tmp_path)


def test_file_that_another_process_uses_is_one_clear_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = "import sys, pymilvus; held = pymilvus.MilvusClient(sys.argv[1]); print('open', flush=True); input()"
    command = [sys.executable, "-c", program, str(tmp_path / "lite.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        with pytest.raises(SkyPartError, match=r"lite.db: Milvus reports: .* one process at a time: end"):
            opened(tmp_path)
        other.kill()
    assert "".join(capfd.readouterr()) == "", "no traceback of Milvus"


def test_idle_client_sends_no_pings_to_milvus_lite(store: MilvusStore) -> None:
    """Milvus Lite ends the connection of a client that pings it while idle; the next call would fail."""
    options = store._connection.client._get_connection()._grpc_options
    assert options["grpc.keepalive_permit_without_calls"] is False
    assert options["grpc.keepalive_time_ms"] > 3_600_000


def test_views_lie_in_partitions_by_region_and_an_area_uses_only_its_own(
    store: MilvusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(make_batch(200, 0))
    asked: list[Any] = []
    call = store._connection.call

    def spy(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "search":
            asked.append(more["partition_names"])
        return call(name, *arguments, **more)

    monkeypatch.setattr(store._connection, "call", spy)
    hits = store.search(QUERIES[:1], 200, Bounds(south=1, west=1, north=29, east=44))[0]
    assert asked and set(asked[0]) <= {f"region_{row}_{column}" for row in (6, 7) for column in (12, 13, 14)}
    assert all(1 <= hit.footprint.latitude <= 29 and 1 <= hit.footprint.longitude <= 44 for hit in hits)


def test_area_across_the_date_line_at_its_edges(store: MilvusStore) -> None:
    table = np.array([[0.0, x, 100.0, 0.0] for x in (179.999, -179.999, 180.0, -180.0, 181.0, 0.0, 540.0)])
    store.add(ViewBatch("line", unit_vectors(7, 3).astype(np.float16), table))
    found = store.search(QUERIES[:1], 9, Circle(latitude=0.0, longitude=180.0, radius_m=200.0))
    assert sorted(rows_of(found)[0]) == [0, 1, 2, 3, 6]


@pytest.mark.parametrize("index", ["IVF_FLAT&nlist=16&nprobe=2", "HNSW&M=8&efConstruction=64&ef=32"])
def test_other_index_types_measure_their_recall_and_stay_exact_in_areas(tmp_path: Path, index: str) -> None:
    with opened(tmp_path, f"?index={index}") as store, EmbeddedStore(tmp_path / "e") as exact:
        for each in (store, exact):
            each.add(make_batch(600, 0))
        recall = store.optimize(QUERIES)
        assert recall is not None and 0 < recall <= 1
        assert store.search(QUERIES, 9, exact=True) == exact.search(QUERIES, 9)
        area = Circle(latitude=20.0, longitude=30.0, radius_m=4e6)
        assert store.search(QUERIES, 9, area) == exact.search(QUERIES, 9, area) != [[]] * 10


def test_collection_keeps_the_layout_that_it_was_made_with(tmp_path: Path) -> None:
    """The address of another user of the collection may leave the options out, but not contradict them."""
    area = Circle(latitude=20.0, longitude=30.0, radius_m=4e6)
    with opened(tmp_path, "?index=IVF_FLAT&nlist=16&nprobe=1&regions=45") as made:
        made.add(make_batch(600, 0))
        expected = made.search(QUERIES, 9, exact=True), made.search(QUERIES, 9, area)
    with opened(tmp_path) as plain:
        assert (plain.search(QUERIES, 9, exact=True), plain.search(QUERIES, 9, area)) == expected
        plain.add(make_batch(50, 1))
        assert set(plain._connection.call("list_partitions", "skypart")) <= {
            "_default",
            *(f"region_{row}_{column}" for row in range(5) for column in range(8)),
        }
    for option, shown in (
        ("regions=15", "regions=45"),
        ("index=FLAT", "index=IVF_FLAT"),
        ("vectors=float16", "float32"),
    ):
        with pytest.raises(SkyPartError, match=f"the collection was made with .*{shown}; leave .* out of the store"):
            opened(tmp_path, f"?{option}")


def test_discarded_change_keeps_the_views_even_if_all_were_removed_in_it(store: MilvusStore) -> None:
    store.add(make_batch(20, 0))
    expected = store.search(QUERIES, 50)

    def replace_and_fail(dimension: int) -> None:
        with store.transaction():
            store.remove("town")
            store.add(make_batch(20, 1, dimension=dimension))
            raise KeyboardInterrupt

    with pytest.raises(SkyPartError, match="views of dimension 24 until their removal is committed"):
        replace_and_fail(8)
    with pytest.raises(KeyboardInterrupt):
        replace_and_fail(24)
    store.verify()
    assert store.search(QUERIES, 50) == expected
    store.remove("town")
    store.add(make_batch(20, 1, dimension=8))
    assert store.stats().dimension == 8


def test_killed_writer_leaves_nothing_that_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as store:
        store.add(make_batch(20, 0))
        expected = store.search(QUERIES, 50)
        monkeypatch.setattr(store, "_commit", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.add(make_batch(20, 1, "port"))
    with opened(tmp_path) as again:
        milvus = again._connection.client
        assert milvus.query("skypart", filter="row >= 20", output_fields=["row"]), "they are in Milvus"
        assert again.search(QUERIES, 50) == expected, "but in no search"
        again.add(make_batch(5, 2, "village"))
        assert again.stats().maps == {"town": 20, "village": 5}
        assert len(milvus.query("skypart", filter="row >= 20", output_fields=["row"])) == 5
        again.verify()


def test_lost_views_are_found_by_verify(store: MilvusStore) -> None:
    store.add(make_batch(20, 0))
    store._connection.client.delete("skypart", filter="row == 7")
    with pytest.raises(SkyPartError, match=r"views of town are damaged or incomplete \(19 of 20 found\)"):
        store.verify()


def test_collection_that_is_loading_or_released(store: MilvusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add(make_batch(20, 0))
    expected = store.search(QUERIES, 5)
    for name in ("skypart", "skypart_state"):
        store._connection.client.release_collection(name)
    assert not store.refresh(), "the state is read from a released collection too, as in every new process"
    store._views._loaded = False
    assert store.search(QUERIES, 5) == expected, "a released collection is loaded first"
    store._views._loaded = False
    monkeypatch.setattr(store._connection.client, "get_load_state", lambda _: {"state": "Loading"})
    with pytest.raises(SkyPartError, match="still loading the collection; try again"):
        store.search(QUERIES, 5)


def test_collection_of_another_index_or_program_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as one:
        one.add(make_batch(20, 0))
    other = MilvusStore(parse_address(f"milvus:{tmp_path / 'other.db'}"), tmp_path / "other")
    other.add(make_batch(20, 0))
    other.close()
    with pytest.raises(SkyPartError, match="contains the views of another index, perhaps of another model"):
        MilvusStore(parse_address(f"milvus:{tmp_path / 'lite.db'}"), tmp_path / "other")
    with pytest.raises(SkyPartError, match="the collection of this index is gone"):
        MilvusStore(parse_address(f"milvus:{tmp_path / 'new.db'}"), tmp_path / "other")
    from pymilvus import MilvusClient

    client = MilvusClient(str(tmp_path / "foreign.db"))
    client.create_collection("skypart", dimension=8)
    with pytest.raises(SkyPartError, match="SkyPart did not make it; choose another name"):
        MilvusStore(parse_address(f"milvus:{tmp_path / 'foreign.db'}"), tmp_path / "third")
    client.close()


def test_partly_restored_collection_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.add(make_batch(20, 0))
        store._connection.client.delete("skypart", filter="row >= 12")
    with opened(tmp_path) as again, pytest.raises(SkyPartError, match=r"has 12 of its 20 views; wait until it is"):
        again.search(QUERIES, 3)
    with opened(tmp_path) as empty:
        empty._connection.client.drop_collection("skypart")
        with pytest.raises(SkyPartError, match=r"has 0 of its 20 views; wait until it is"):
            empty.search(QUERIES, 3)


def test_copy_of_another_model_is_refused_as_a_local_index_is(tmp_path: Path) -> None:
    town = str(write_quilt(tmp_path / "town.tif", seed=1))
    build_index([town], tmp_path / "a", ColourEmbedder("colours"), "colours", OPTIONS)
    build_index(
        [town], tmp_path / "b", ColourEmbedder("shapes"), "shapes", OPTIONS, store=f"milvus:{tmp_path / 'b.db'}"
    )
    with pytest.raises(SkyPartError) as local:
        MapIndex(tmp_path / "b").check_model("digest of colours")
    with pytest.raises(SkyPartError) as remote:
        MapIndex(tmp_path / "a", store=f"milvus:{tmp_path / 'b.db'}")
    said = str(local.value).removeprefix(str(tmp_path / "b"))
    assert (
        said.startswith(": was made with the model shapes") and str(remote.value) == f"milvus:{tmp_path / 'b.db'}{said}"
    )


@pytest.fixture
def refusing_server() -> Iterator[tuple[str, list[str]]]:
    """A gRPC server that refuses every call, as Milvus does without the right token; and the tokens it was given."""
    grpc = pytest.importorskip("grpc")
    given: list[str] = []

    class Refuse(grpc.GenericRpcHandler):  # type: ignore[misc, name-defined]
        def service(self, call: Any) -> Any:
            given.append(b64decode(dict(call.invocation_metadata).get("authorization", "")).decode())

            def answer(_: bytes, context: Any) -> None:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, f"auth check failure, please check {given[-1]}")

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Refuse(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"milvus:http://127.0.0.1:{port}", given
    server.stop(0)


@pytest.mark.parametrize(
    ("token", "remedy"), [("", "; set the environment variable"), ("me:SECRET", "; correct the environment variable")]
)
def test_refused_credentials_are_a_clear_error_that_does_not_repeat_them(
    token: str,
    remedy: str,
    refusing_server: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address, given = refusing_server
    monkeypatch.setenv("SKYPART_MILVUS_TOKEN", token)
    with pytest.raises(SkyPartError, match=rf"unauthenticated: auth check.*{remedy} SKYPART_MILVUS_TOKEN") as raised:
        open_store(address, tmp_path)
    assert token in given, "the server was given the token of the environment"
    assert "SECRET" not in str(raised.value) + "".join(capfd.readouterr())


def answers(index: MapIndex, photos: list[RgbImage]) -> list[Fix]:
    """The fixes of photos, apart from the time they took."""
    locator = Locator(index, ColourEmbedder())
    locator.calibration, locator.calibrated = SURE, True
    return [replace(locator.locate(photo), seconds=0.0) for photo in photos]


def test_locate_answers_as_with_the_embedded_store_before_and_after_bulk_load(tmp_path: Path) -> None:
    town = write_quilt(tmp_path / "town.tif", seed=1)
    embedder = ColourEmbedder()
    build_index([str(town)], tmp_path / "e", embedder, "colours", OPTIONS)
    build_index([str(town)], tmp_path / "m", embedder, "colours", OPTIONS, store=f"milvus:{tmp_path / 'm.db'}")
    photos = [Shot(east, north, heading).photo(quilt(1)) for east, north, heading in ((30, -40, 20), (-90, 80, 200))]
    expected = answers(MapIndex(tmp_path / "e"), photos)
    assert all(fix.found for fix in expected)
    assert answers(MapIndex(tmp_path / "m"), photos) == expected
    views = MapIndex(tmp_path / "e").store.stats().views
    assert move_store(tmp_path / "e", f"milvus:{tmp_path / 'e.db'}") == views
    moved = MapIndex(tmp_path / "e")
    assert moved.manifest.store == f"milvus:{tmp_path / 'e.db'}"
    assert answers(moved, photos) == expected
    moved.store.verify()


def test_bulk_load_that_is_broken_off_leaves_the_index_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = write_quilt(tmp_path / "town.tif", seed=1)
    build_index([str(town)], tmp_path / "i", ColourEmbedder(), "colours", OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(MilvusStore, "_commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            move_store(tmp_path / "i", f"milvus:{tmp_path / 'i.db'}")
    index = MapIndex(tmp_path / "i")
    assert index.manifest.store == "embedded:" and index.store.stats().views
    index.store.close()
    assert move_store(tmp_path / "i", f"milvus:{tmp_path / 'i.db'}") == index.manifest.maps[0].views
