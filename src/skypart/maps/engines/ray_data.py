"""Embed on a Ray cluster with Ray Data: blocks of views are a lazy dataset, warm models are a pool of actors.

Workers read the map and load the model themselves, by path or address, so both must be on storage that every node
sees. Vectors come back to this process, which writes the blocks: a lost worker or node loses nothing that was written,
Ray retries what it was doing, and a block has one file, however often it was computed.
"""

import logging
import os
import queue
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.embedding import load
from skypart.embedding.patches import PatchReader
from skypart.errors import SkyPartError
from skypart.maps.engines.interface import Advance, EmbeddedBlock, Engine, MapJob, embed_block, write_block
from skypart.maps.files import absolute_path, is_remote, redact_address
from skypart.maps.sources import open_maps
from skypart.maps.views import ViewPlan

ATTEMPTS = 3
"""How often the rest of a map is started again after a failure that Ray's own retries did not survive."""
STALLED_S = 60.0
"""Seconds without any block and without any node to run on, after which the work ends with an error."""
_POLL_S = 5.0
WAVE = 20_000
"""Blocks per dataset: Ray keeps a record of each from the start."""
WAITING = 64
"""Blocks that may wait for this process to write them; then Ray Data holds the workers back."""
_ADDRESS = re.compile(r"(ray://)?(\[[\da-fA-F:]+\]|[^/:\s]+):\d{1,5}|auto|local")
CONNECT_S = 10.0
"""Seconds to wait for a cluster to accept a connection."""


def open_ray(address: str, wave: int = WAVE) -> Engine:
    """Connect to the cluster at `address`; without one, start Ray on this machine. wave: blocks per dataset."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # we report errors ourselves, once
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # else a thread that ends late would start a new cluster
    if address and not _ADDRESS.fullmatch(address):
        raise SkyPartError(
            f"--address {address}: is not the address of a Ray cluster; write HOST:6379, or auto for the cluster that "
            "this machine belongs to"
        )
    try:
        import ray
    except ImportError as error:
        raise SkyPartError("--engine ray needs Ray; install it with `pip install 'skypart[ray]'`") from error
    started = not ray.is_initialized()
    if started:
        try:
            _check_reachable(address)
            with _muted_stderr():
                where = {"address": address} if address else {"address": "local", "include_dashboard": False}
                ray.init(**where, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray raises plain ones too, for a node that does not start in time
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if not address:
                raise SkyPartError(
                    f"--engine ray: Ray does not start on this machine ({reason}); run the same command again when "
                    "the machine is less busy, or give the --address of a cluster"
                ) from error
            raise SkyPartError(
                f"--address {address}: no Ray cluster answers there ({reason}); start one with "
                "`ray start --head`, or correct the address"
            ) from error
    return RayEngine(ray, started, wave)


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Drop what is written past Python to standard error: Ray announces there which log level it was given."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT. Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()


class BlockEmbedder:
    """An actor: one warm model and one open map. Its calls embed one block each.

    columns: a list with the reference of the views (n, 4) of the map.
    """

    def __init__(self, job: dict[str, Any], columns: Any) -> None:
        import ray

        self._columns: NDArray[np.float64] = ray.get(columns[0])
        self._block_size: int = job["block_size"]
        self._reader = PatchReader(load(job["model"], job["device"], job["size"]))
        self._keep_tokens: bool = job["tokens"]
        if self._reader.embedder.digest != job["digest"]:
            raise SkyPartError(f"{job['model']}: is another model on this node; put the same file on every node")
        self._source = open_maps([job["path"]], network=job["network"])[0]
        if self._source.fingerprint != job["fingerprint"]:
            raise SkyPartError(
                f"{redact_address(job['path'])}: is another map on this node; put the maps on shared storage"
            )

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed the blocks numbered in `batch`."""
        numbers = [int(number) for number in batch["id"]]
        spans = [slice(number * self._block_size, (number + 1) * self._block_size) for number in numbers]
        views = [ViewPlan(self._columns[span]) for span in spans]
        blocks = [embed_block(self._source, plan, self._reader, lambda _: None, self._keep_tokens) for plan in views]
        return {
            "block": np.array(numbers, dtype=np.int64),
            "vectors": _objects([block.vectors.tobytes() for block in blocks]),
            "footprints": _objects([block.footprints.tobytes() for block in blocks]),
            "tokens": _objects([block.tokens.tobytes() for block in blocks]),
            "shape": _objects([np.array(block.tokens.shape[1:], dtype=np.int64).tobytes() for block in blocks]),
        }


def _objects(values: list[bytes]) -> NDArray[np.object_]:
    """(n,) byte strings; without this, NumPy would cut trailing zeros off."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class RayEngine:
    """Embeds on all nodes of a cluster. started: whether to shut Ray down at the end. wave: blocks per dataset."""

    def __init__(self, ray: Any, started: bool, wave: int = WAVE) -> None:
        self._ray = ray
        self._started = started
        self._wave = wave

    def embed_map(self, job: MapJob, advance: Advance) -> None:
        """Write all missing blocks of `job`."""
        missing = job.missing(advance)
        for first in range(0, len(missing), self._wave):
            self._embed_wave(job, missing[first : first + self._wave], advance)

    def _embed_wave(self, job: MapJob, missing: list[int], advance: Advance) -> None:
        """Write the `missing` blocks of `job`."""
        for attempt in range(ATTEMPTS):
            if not missing:
                return
            try:
                for number, block in self._stream(job, missing):
                    if not job.files[number].is_file():
                        write_block(job.files[number], block)
                        advance(len(job.block(number)))
            except self._ray.exceptions.RayError as error:
                cause = _own_error(error)
                if cause is not None:
                    raise cause from error
                if attempt + 1 == ATTEMPTS:
                    raise SkyPartError(
                        f"the Ray cluster failed {ATTEMPTS} times ({_first_line(error)}); check its nodes and run the "
                        "same command again: finished blocks are kept"
                    ) from error
            missing = [number for number in missing if not job.files[number].is_file()]
        if missing:
            raise SkyPartError(f"{len(missing)} blocks came back from no worker; run the same command again")

    def close(self) -> None:
        """Disconnect, if `open_ray` connected."""
        if self._started:
            self._ray.shutdown()

    def _stream(self, job: MapJob, missing: list[int]) -> Iterator[tuple[int, EmbeddedBlock]]:
        """Blocks as they are finished, in any order."""
        results: queue.Queue[Any] = queue.Queue(maxsize=WAITING)
        stop = threading.Event()
        thread = threading.Thread(target=self._produce, args=(job, missing, results, stop), daemon=True)
        thread.start()
        idle = 0.0
        try:
            while True:
                try:
                    item = results.get(timeout=_POLL_S)
                except queue.Empty:
                    idle = 0.0 if self._has_workers(job.device) else idle + _POLL_S
                    if idle >= STALLED_S:
                        raise SkyPartError(
                            "the Ray cluster has no node left that can embed; add nodes and run the same command "
                            "again: finished blocks are kept"
                        ) from None
                    continue
                idle = 0.0
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stop.set()
            thread.join(timeout=STALLED_S)

    def _produce(self, job: MapJob, missing: list[int], results: "queue.Queue[Any]", stop: threading.Event) -> None:
        """Run the dataset and put its rows into the queue; at the end None, or what went wrong."""

        def put(item: object) -> None:
            while not stop.is_set():
                with suppress(queue.Full):
                    results.put(item, timeout=1.0)
                    return

        try:
            for rows in self._dataset(job, missing).iter_batches(batch_size=None, prefetch_batches=1):
                columns = ("block", "vectors", "footprints", "tokens", "shape")
                for number, vectors, footprints, tokens, shape in zip(*(rows[each] for each in columns), strict=True):
                    found = np.frombuffer(vectors, dtype=np.float16).reshape(-1, job.embedder.dim)
                    table = np.frombuffer(footprints, dtype=np.float64).reshape(-1, 4)
                    kept = np.frombuffer(tokens, dtype=np.int8)
                    kept = kept.reshape(len(found), *np.frombuffer(shape, dtype=np.int64))
                    put((int(number), EmbeddedBlock(found, table, kept)))
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    def _dataset(self, job: MapJob, missing: list[int]) -> Any:
        """The lazy dataset: one row per missing block, embedded by a pool of actors."""
        data = self._ray.data
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.actor_task_retry_on_errors = False  # errors of ours are final; lost workers are retried anyway
        path = job.source.paths[0]
        described = {
            "model": job.model,
            "device": job.device,
            "size": job.embedder.size,
            "digest": job.embedder.digest,
            "path": path if is_remote(path) else absolute_path(path),
            "fingerprint": job.source.fingerprint,
            "network": job.network,
            "tokens": job.tokens,
            "block_size": job.block_size,
        }
        columns = self._ray.put(np.ascontiguousarray(job.views.columns))
        kind = "GPU" if job.device.startswith("cuda") else "CPU"
        # Not data.range: its reading tasks want a processor each, which a cluster of one processor does not have.
        numbers = data.from_items([{"id": number} for number in missing], override_num_blocks=len(missing))
        return numbers.map_batches(
            BlockEmbedder,
            batch_size=1,
            fn_constructor_args=(described, [columns]),
            compute=data.ActorPoolStrategy(min_size=1, max_size=len(missing)),  # grows with the cluster
            num_cpus=1 if kind == "CPU" else 0,
            num_gpus=1 if kind == "GPU" else 0,
        )

    def _has_workers(self, device: str) -> bool:
        """Whether any node of the cluster could run an actor."""
        kind = "GPU" if device.startswith("cuda") else "CPU"
        return float(self._ray.cluster_resources().get(kind, 0)) >= 1


def _own_error(error: BaseException) -> SkyPartError | None:
    """The error of ours that a worker raised; Ray quotes it in the text of its own."""
    found = re.findall(r"^skypart\.\S*Error: (.+)$", str(error), flags=re.MULTILINE)
    return SkyPartError(found[-1]) if found else None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
