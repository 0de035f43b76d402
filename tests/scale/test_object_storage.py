"""Maps and views on a real S3 server on loopback, and on a web server."""

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.store import Circle, Store, ViewBatch, open_store
from skypart.maps.store.embedded import EmbeddedStore
from skypart.maps.store.remote import BlockCache, Bucket
from tests.maps.store.builders import footprints, make_batch, unit_vectors
from tests.position.stand_in import OPTIONS, SURE, ColourEmbedder, Shot, quilt, write_quilt
from tests.scale.s3_server import KEYS, Server, running_server

pytestmark = pytest.mark.slow  # they need an S3 server
QUERIES = unit_vectors(20, 99)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("moto")) as started:
        yield started


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKYPART_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def s3(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, with the environment that points GDAL and Arrow at it."""
    pytest.importorskip("pyarrow", reason="the extra `s3` is not installed")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_S3_ENDPOINT", server.host)
    monkeypatch.setenv("AWS_HTTPS", "NO")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTING", "FALSE")
    return server


def fill(folder: Path) -> EmbeddedStore:
    """A store with three maps, in which a row takes 48 bytes."""
    store = EmbeddedStore(folder)
    for number, name in enumerate(["town", "port", "town"]):
        store.add(make_batch(300, number, name))
    return store


@pytest.fixture
def published(s3: Server, tmp_path: Path) -> tuple[EmbeddedStore, Store]:
    local = fill(tmp_path / "store")
    s3.upload(tmp_path / "store", f"b{abs(hash(tmp_path)) % 10**9}", "town/")
    return local, open_store(f"remote:s3://b{abs(hash(tmp_path)) % 10**9}/town", tmp_path / "unused")


def test_remote_search_equals_the_local_one(published: tuple[EmbeddedStore, Store], tmp_path: Path) -> None:
    local, remote = published
    assert remote.search(QUERIES, 7) == local.search(QUERIES, 7)
    assert remote.search(QUERIES[:1], 900) == local.search(QUERIES[:1], 900)
    area = Circle(latitude=10.0, longitude=20.0, radius_m=3e6)
    assert remote.search(QUERIES, 5, area) == local.search(QUERIES, 5, area) != [[]] * 20
    assert remote.stats() == local.stats()
    remote.verify()
    assert not (tmp_path / "unused").exists()


def test_blocks_are_read_once_and_only_where_needed(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("remote.rows", "segment"):
        monkeypatch.setattr(f"skypart.maps.store.{module}.BLOCK_BYTES", 4096)
    table = footprints(4000, 0)
    table[:, 0], table[:, 1] = np.arange(4000) * 0.01, 5.0
    with EmbeddedStore(tmp_path / "store") as store:
        store.add(ViewBatch("town", unit_vectors(4000, 1).astype(np.float16), table))
        expected = store.search(QUERIES[:2], 5, Circle(latitude=20.0, longitude=5.0, radius_m=30_000.0))
    s3.upload(tmp_path / "store", "ranges")
    remote = open_store("remote:s3://ranges", tmp_path)
    asked: list[tuple[object, ...]] = []
    read = Bucket.read

    def spy(bucket: Bucket, *arguments: Any) -> bytes:
        asked.append(arguments)
        return read(bucket, *arguments)

    monkeypatch.setattr(Bucket, "read", spy)
    assert remote.search(QUERIES[:2], 5, Circle(latitude=20.0, longitude=5.0, radius_m=30_000.0)) == expected
    ranges = [each for each in asked if str(each[0]).endswith(".vectors.npy")]
    assert 0 < len(ranges) <= 4, "the header and the few blocks of the area, of 47"
    asked.clear()
    assert remote.search(QUERIES[:2], 5, Circle(latitude=20.0, longitude=5.0, radius_m=30_000.0)) == expected
    assert not asked, "the second search is answered from the cache"


def test_cache_stays_within_its_size(tmp_path: Path) -> None:
    kept = BlockCache(tmp_path, limit=10_000)
    for number in range(40):
        kept.put(f"aa/{number}.block", bytes([number]) * 1000)
        assert sum(file.stat().st_size for file in tmp_path.rglob("*.block")) <= 10_000
    assert kept.get("aa/39.block") == bytes([39]) * 1000
    assert kept.get("aa/0.block") is None
    kept.put("aa/large.block", bytes(20_000))
    assert kept.get("aa/large.block") is None


def test_damaged_cache_is_read_again(published: tuple[EmbeddedStore, Store], cache: Path) -> None:
    local, remote = published
    remote.search(QUERIES, 3)
    for file in cache.rglob("*.block"):
        file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    assert remote.search(QUERIES, 3) == local.search(QUERIES, 3)


def test_vectors_of_another_state_are_never_searched(s3: Server, tmp_path: Path, cache: Path) -> None:
    """Half published: the manifest is new, and the vectors are those of another model, with the same name and size."""
    table = footprints(300, 0)
    for name, seed in (("old", 1), ("new", 2)):
        with EmbeddedStore(tmp_path / name) as store:
            store.add(ViewBatch("town", unit_vectors(300, seed).astype(np.float16), table))
    (file,) = (tmp_path / "new").glob("*.vectors.npy")
    content = file.read_bytes()
    file.write_bytes((tmp_path / "old" / file.name).read_bytes())
    s3.upload(tmp_path / "new", "half")
    with pytest.raises(SkyPartError, match=r"^s3://half/\S+npy: damaged \(.*block 0 has changed\); publish the folder"):
        open_store("remote:s3://half", tmp_path).search(QUERIES, 3)
    file.write_bytes(content)
    s3.upload(tmp_path / "new", "half")
    with EmbeddedStore(tmp_path / "new") as local:
        assert open_store("remote:s3://half", tmp_path).search(QUERIES, 3) == local.search(QUERIES, 3)


def test_approximate_index_is_cached_within_the_size_of_the_cache(
    s3: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skypart.maps.store.approximate.MIN_VIEWS", 500)
    with fill(tmp_path / "store") as local:
        assert local.optimize() is not None
        expected = local.search(QUERIES, 7)
    s3.upload(tmp_path / "store", "codes")
    sizes = []
    for limit in (1 << 30, 20_000):
        monkeypatch.setenv("SKYPART_CACHE", str(cache / str(limit)))
        monkeypatch.setenv("SKYPART_CACHE_BYTES", str(limit))
        remote = open_store("remote:s3://codes", tmp_path)
        assert remote.search(QUERIES, 7) == expected
        assert remote.stats().recall is not None
        sizes.append(sum(file.stat().st_size for file in (cache / str(limit)).rglob("*") if file.is_file()))
    assert sizes[0] > 20_000 >= sizes[1]


def test_published_store_is_read_only_and_refreshes(published: tuple[EmbeddedStore, Store], s3: Server) -> None:
    local, remote = published
    with pytest.raises(SkyPartError, match="is read-only; change the index"):
        remote.add(make_batch(3, 0))
    assert not remote.refresh()
    local.add(make_batch(5, 9, "village"))
    bucket = remote.location.removeprefix("remote:s3://").split("/")[0]
    s3.upload(local.folder, bucket, "town/")
    assert remote.refresh()
    assert remote.search(QUERIES, 7) == local.search(QUERIES, 7)


def test_missing_and_truncated_files_are_clear_errors(s3: Server, tmp_path: Path) -> None:
    fill(tmp_path / "store").close()
    with pytest.raises(SkyPartError, match=r"s3://nothing/here/manifest.json: there is no store"):
        open_store("remote:s3://nothing/here", tmp_path)
    vectors = next((tmp_path / "store").glob("*.vectors.npy"))
    vectors.write_bytes(vectors.read_bytes()[:-200])
    s3.upload(tmp_path / "store", "truncated")
    with pytest.raises(SkyPartError, match=r"damaged \(.* bytes instead of"):
        open_store("remote:s3://truncated", tmp_path).search(QUERIES, 3)


def test_server_that_is_down_is_a_clear_error(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(SkyPartError, match=r"s3://b/manifest.json: cannot be read .* check the address"):
        open_store("remote:s3://b", tmp_path)


def test_address_without_a_scheme(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"remote:bucket/store has no known scheme; write remote:s3://"):
        open_store("remote:bucket/store", tmp_path)


@pytest.fixture
def website(tmp_path: Path) -> Iterator[str]:
    """A plain web server over tmp_path; it knows no ranges and sends whole files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_store_on_a_web_server(website: str, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="the extra `s3` is not installed")
    local = fill(tmp_path / "store")
    remote = open_store(f"remote:{website}/store", tmp_path)
    assert remote.search(QUERIES, 7) == local.search(QUERIES, 7)


def test_map_on_s3_is_indexed_and_refined_only_with_network(s3: Server, tmp_path: Path) -> None:
    from skypart.position.locate import Locator

    town = write_quilt(tmp_path / "town.tif", seed=1)
    s3.upload(town, "maps")
    address = "s3://maps/town.tif"
    with pytest.raises(SkyPartError, match="--network"):
        build_index([address], tmp_path / "i", ColourEmbedder(), "colours")
    build_index([address], tmp_path / "i", ColourEmbedder(), "colours", network=True)
    build_index([str(town)], tmp_path / "local", ColourEmbedder(), "colours")
    photo = Shot(30.0, -40.0, 20.0).photo(quilt(1))
    located = []
    for index in (MapIndex(tmp_path / "i", network=True), MapIndex(tmp_path / "local")):
        locator = Locator(index, ColourEmbedder())
        locator.calibration, locator.calibrated = SURE, True
        located.append(locator.locate(photo))
    found, expected = located
    assert found.found and (found.latitude, found.longitude) == (expected.latitude, expected.longitude)
    assert MapIndex(tmp_path / "i").missing == ["town"], "without --network nothing is read"


def test_index_reads_its_views_from_s3_only_with_network(s3: Server, tmp_path: Path) -> None:
    town = write_quilt(tmp_path / "town.tif", seed=1)
    build_index([str(town)], tmp_path / "i", ColourEmbedder(), "colours")
    s3.upload(tmp_path / "i" / "store", "views")
    vectors = unit_vectors(3, 0, ColourEmbedder().dim)
    expected = MapIndex(tmp_path / "i").search(vectors, 9)
    with pytest.raises(SkyPartError, match="used only with --network"):
        MapIndex(tmp_path / "i", store="remote:s3://views")
    copy = MapIndex(tmp_path / "i", store="remote:s3://views", network=True)
    shutil.rmtree(tmp_path / "i" / "store")
    assert copy.search(vectors, 9) == expected
    other = write_quilt(tmp_path / "other.tif", seed=2)
    build_index([str(other)], tmp_path / "j", ColourEmbedder(), "colours")
    with pytest.raises(SkyPartError, match=r"has 0 of the .* views of other; it was not filled completely"):
        MapIndex(tmp_path / "j", store="remote:s3://views", network=True)


def test_published_views_of_another_model_are_refused_as_a_local_index_is(website: str, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="the extra `s3` is not installed")
    town = str(write_quilt(tmp_path / "town.tif", seed=1))
    for name in ("colours", "shapes"):
        build_index([town], tmp_path / name, ColourEmbedder(name), name, OPTIONS)
    store = f"remote:{website}/shapes/store"
    with pytest.raises(SkyPartError) as local:
        MapIndex(tmp_path / "shapes").check_model("digest of colours")
    with pytest.raises(SkyPartError) as remote:
        MapIndex(tmp_path / "colours", store=store, network=True)
    said = str(local.value).removeprefix(str(tmp_path / "shapes"))
    assert said.startswith(": was made with the model shapes") and str(remote.value) == f"{store}{said}"
    (tmp_path / "shapes/store/model.json").unlink()  # published by an older version: nothing is known
    assert MapIndex(tmp_path / "colours", store=store, network=True).store.model is None


def test_missing_credentials_are_a_clear_error(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(SkyPartError, match=r"s3://maps/nothing.tif: cannot be read .*AWS_ACCESS_KEY_ID"):
        build_index(["s3://maps/nothing.tif"], tmp_path / "i", ColourEmbedder(), "colours", network=True)


@pytest.mark.parametrize("keys", [{}, {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "WORDS"}])
def test_refused_credentials_for_views_are_a_clear_error(
    keys: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="the extra `s3` is not installed")

    class Refuse(SimpleHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(403)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    for name, value in (keys | {"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
    with pytest.raises(SkyPartError, match=r"^s3://b/manifest.json: cannot be read .*AWS_ACCESS_KEY_ID") as raised:
        open_store("remote:s3://b", tmp_path)
    assert "WORDS" not in str(raised.value)
    server.shutdown()
    server.server_close()
