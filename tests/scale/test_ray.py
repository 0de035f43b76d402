"""Embedding on a Ray cluster of two nodes on this machine, with the same result as the local engine."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest

import skypart
from skypart.embedding import Embedder, load
from skypart.errors import SkyPartError
from skypart.maps.build import build_index
from skypart.maps.engines import Engine, MapJob, open_engine, ray_data
from skypart.maps.engines.ray_data import WAVE, BlockEmbedder, RayEngine, open_ray
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.model import SkyPart, VisionTransformer
from tests.conftest import Run
from tests.model.builders import TINY_HEAD, TINY_VIT, scramble
from tests.position.stand_in import write_quilt

os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # as `open_ray` does before its import
os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: never finished on a busy machine
ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
OPTIONS = ViewOptions(sizes_m=(40.0,), overlap=0.6)
BLOCK = 16
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]


def start_head() -> Any:
    """A cluster of a head only. Ray grants it 30 seconds to start, which a busy machine may need more than once."""
    from ray.cluster_utils import Cluster as LocalCluster

    for attempts_left in (4, 3, 2, 1, 0):
        try:
            return LocalCluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20})
        except Exception as error:
            if "timed out during startup" not in str(error) or not attempts_left:
                raise
    raise AssertionError


class Cluster:
    """A head that only coordinates, and worker nodes of one processor each."""

    def __init__(self) -> None:
        self.cluster: Any = start_head()
        self.nodes: list[Any] = []
        for _ in range(2):
            self.add_node()

    def add_node(self) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=1, object_store_memory=100 << 20))

    def remove_node(self) -> None:
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)

    def close(self) -> None:
        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    opened = Cluster()
    yield opened
    opened.close()


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skypart.maps.build.BLOCK", BLOCK)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = SkyPart(VisionTransformer(TINY_VIT), TINY_HEAD)
    scramble(tiny, 1)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    skypart.save(tiny.eval(), path)
    return path


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_quilt(tmp_path_factory.mktemp("maps") / "town.tif", edge=300)


@pytest.fixture(scope="module")
def expected(model: Path, town: Path, tmp_path_factory: pytest.TempPathFactory) -> MapIndex:
    folder = tmp_path_factory.mktemp("local") / "i"
    build_index([str(town)], folder, load(model), str(model), OPTIONS)
    return MapIndex(folder)


class Disturbed:
    """The Ray engine, with something done to the cluster once `after` views are finished."""

    def __init__(self, engine: Engine, after: int, disturb: Callable[[], None]) -> None:
        self.engine, self.after, self.disturb = engine, after, disturb
        self.done, self.fired = 0, False

    def embed_map(self, job: MapJob, advance: Callable[[int], None]) -> None:
        def watch(views: int) -> None:
            advance(views)
            self.done += views
            if self.done >= self.after and not self.fired:
                self.fired = True
                self.disturb()

        self.engine.embed_map(job, watch)

    def close(self) -> None:
        self.engine.close()


def contents(index: MapIndex) -> tuple[list[list[float]], np.ndarray[Any, Any]]:
    """Footprints and vectors in the order of the store."""
    folder = index.folder / "store"
    segments = json.loads((folder / "manifest.json").read_text())["segments"]
    footprints = np.concatenate([np.load(folder / s["footprints"]["name"]) for s in segments])
    vectors = np.concatenate([np.load(folder / s["vectors"]["name"]) for s in segments])
    return footprints.tolist(), vectors.astype(np.float32)


def assert_same(folder: Path, expected: MapIndex) -> None:
    footprints, vectors = contents(MapIndex(folder))
    wanted, reference = contents(expected)
    assert footprints == wanted, "the same views, none lost, none twice, in the same order"
    assert np.abs(vectors - reference).max() <= 1e-5


def build(
    cluster: Cluster,
    model: Path,
    town: Path,
    folder: Path,
    wrap: Callable[[Engine], Engine] = lambda engine: engine,
    wave: int = WAVE,
) -> Embedder:
    embedder = load(model)
    engine = wrap(open_ray(cluster.cluster.address, wave))
    try:
        build_index([str(town)], folder, embedder, str(model), OPTIONS, engine=engine)
    finally:
        engine.close()
    return embedder


def test_result_equals_that_of_the_local_engine(
    cluster: Cluster, model: Path, town: Path, expected: MapIndex, tmp_path: Path
) -> None:
    build(cluster, model, town, tmp_path / "i")
    assert_same(tmp_path / "i", expected)
    assert not (tmp_path / "i" / "work").exists()


def kill_a_worker() -> None:
    """Kill one actor that embeds, as the kernel does when memory runs out."""
    actors = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any("BlockEmbedder" in part for part in process.info["cmdline"] or []) and is_descendant(process)
    ]
    assert actors, "no worker is running"
    actors[0].kill()


def is_descendant(process: psutil.Process) -> bool:
    return psutil.Process().pid in [parent.pid for parent in process.parents()]


def test_killed_worker_loses_and_duplicates_nothing(
    cluster: Cluster, model: Path, town: Path, expected: MapIndex, tmp_path: Path
) -> None:
    build(cluster, model, town, tmp_path / "i", lambda engine: Disturbed(engine, 3 * BLOCK, kill_a_worker))
    assert_same(tmp_path / "i", expected)


def test_lost_node_loses_and_duplicates_nothing(
    cluster: Cluster, model: Path, town: Path, expected: MapIndex, tmp_path: Path
) -> None:
    build(cluster, model, town, tmp_path / "i", lambda engine: Disturbed(engine, 3 * BLOCK, cluster.remove_node))
    assert len(cluster.nodes) == 1
    cluster.add_node()
    assert_same(tmp_path / "i", expected)


class PatientEmbedder(BlockEmbedder):
    """Leaves a file named after its node beside the model, and after 4 blocks waits for that of a second node."""

    def __init__(self, job: dict[str, Any], columns: Any) -> None:
        super().__init__(job, columns)
        self.nodes, self.blocks = Path(job["model"]).parent / "nodes", 0

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        (self.nodes / ray.get_runtime_context().get_node_id()).touch()
        end = time.monotonic() + 600
        while self.blocks >= 4 and len(list(self.nodes.iterdir())) < 2:
            assert time.monotonic() < end, "no second node took part"
            time.sleep(0.1)
        self.blocks += 1
        return super().__call__(batch)


def test_node_that_joins_later_takes_part(
    cluster: Cluster, model: Path, town: Path, expected: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(shutil.copy(model, tmp_path))
    (tmp_path / "nodes").mkdir()
    monkeypatch.setattr(ray_data, "BlockEmbedder", PatientEmbedder)
    while len(cluster.nodes) > 1:
        cluster.remove_node()
    build(cluster, own, town, tmp_path / "i", lambda engine: Disturbed(engine, BLOCK, cluster.add_node))
    assert len(list((tmp_path / "nodes").iterdir())) == 2
    assert_same(tmp_path / "i", expected)


def test_more_than_one_wave_of_blocks_gives_the_same_result(
    cluster: Cluster, model: Path, town: Path, expected: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waves: list[int] = []
    embed_wave = RayEngine._embed_wave

    def count(engine: RayEngine, job: MapJob, missing: list[int], advance: Callable[[int], None]) -> None:
        waves.append(len(missing))
        embed_wave(engine, job, missing, advance)

    monkeypatch.setattr(RayEngine, "_embed_wave", count)
    blocks = -(-expected.manifest.maps[0].views // BLOCK)
    wave = blocks // 2 - 1
    build(cluster, model, town, tmp_path / "i", wave=wave)
    assert waves == [wave, wave, blocks - 2 * wave], "two whole waves and the rest"
    assert_same(tmp_path / "i", expected)


def test_interrupted_work_resumes_with_the_missing_blocks(
    cluster: Cluster, model: Path, town: Path, expected: MapIndex, tmp_path: Path
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(cluster, model, town, tmp_path / "i", lambda engine: Disturbed(engine, 4 * BLOCK, interrupt))
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "i" / "work").rglob("*.npz")}
    assert len(kept) >= 2
    seen: list[dict[Path, int]] = []

    def look() -> None:
        seen.append({file: file.stat().st_mtime_ns for file in kept})

    build(cluster, model, town, tmp_path / "i", lambda engine: Disturbed(engine, 8 * BLOCK, look))
    assert seen == [kept], "finished blocks are not computed again"
    assert_same(tmp_path / "i", expected)


def test_another_model_on_the_nodes_is_a_clear_error(cluster: Cluster, model: Path, town: Path, tmp_path: Path) -> None:
    other = SkyPart(VisionTransformer(TINY_VIT), TINY_HEAD)
    scramble(other, 2)
    skypart.save(other.eval(), tmp_path / "other.safetensors")
    engine = open_engine("ray", cluster.cluster.address)
    name = str(tmp_path / "other.safetensors")
    try:
        with pytest.raises(SkyPartError, match=r"^\S*other.safetensors: is another model on this node; put the same"):
            build_index([str(town)], tmp_path / "i", load(model), name, OPTIONS, engine=engine)
    finally:
        engine.close()


# Threads of Ray end with SystemExit when we leave what is left of the cluster; Python says nothing about that.
@pytest.mark.filterwarnings(
    "ignore:Exception in thread (StreamingExecutor|ray-):pytest.PytestUnhandledThreadExceptionWarning"
)
def test_cluster_that_lost_all_its_nodes_is_a_clear_error(
    cluster: Cluster, model: Path, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skypart.maps.engines.ray_data.STALLED_S", 2.0)
    monkeypatch.setattr("skypart.maps.engines.ray_data._POLL_S", 1.0)

    def shrink() -> None:
        while cluster.nodes:
            cluster.remove_node()

    with pytest.raises(SkyPartError, match=r"no node left that can embed|cluster failed"):
        build(cluster, model, town, tmp_path / "i", lambda engine: Disturbed(engine, 3 * BLOCK, shrink))
    assert not json.loads((tmp_path / "i" / "index.json").read_text())["maps"]
    for thread in threading.enumerate():
        if thread.name.startswith(("StreamingExecutor", "ray-data")):
            thread.join(5)
    cluster.add_node()


def test_address_without_a_cluster_is_a_clear_error() -> None:
    with pytest.raises(SkyPartError, match="no Ray cluster answers there"):
        open_engine("ray", "127.0.0.1:1")


def test_ray_that_does_not_start_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(**_: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", start)
    with pytest.raises(
        SkyPartError, match=r"^--engine ray: Ray does not start on this machine \(The current node timed"
    ):
        open_engine("ray")


def test_index_command_on_a_cluster_of_one_processor_gives_the_local_result(
    cluster: Cluster, model: Path, town: Path, expected: MapIndex, tmp_path: Path, run: Run
) -> None:
    while len(cluster.nodes) > 1:
        cluster.remove_node()
    words = ("--engine", "ray", "--address", cluster.cluster.address, "--sizes", 40, "--overlap", 0.6)
    code, out, err = run("index", town, "-o", tmp_path / "i", "--model", model, *words)
    assert code == 0, err
    assert f"indexed town: {expected.manifest.maps[0].views} views\n" in out
    assert_same(tmp_path / "i", expected)


def test_unknown_engine_and_misplaced_address() -> None:
    with pytest.raises(SkyPartError, match="choose one of local, ray"):
        open_engine("spark")
    with pytest.raises(SkyPartError, match="the local engine has no address"):
        open_engine("local", "head:6379")
