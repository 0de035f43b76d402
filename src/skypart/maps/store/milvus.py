"""A store in Milvus: a server or cluster by its address, or Milvus Lite in a local file, with the same client code.

Views are entities of one collection; a second, small collection holds the committed state: which ranges of rows belong
to which map. A commit is one entity of that collection, written last. Every search is limited to the rows of one
committed state, so views of unfinished or rolled back work are never found. The next writer deletes them.
"""

import hashlib
import json
import os
import re
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.maps.store.area import area_box, check_area, is_inside
from skypart.maps.store.exact import rounding_error
from skypart.maps.store.interface import Hit, Store, StoreStats, ViewBatch, Within, check_queries
from skypart.maps.store.writer import WriterLock

TOKEN = "SKYPART_MILVUS_TOKEN"
"""Environment variable with the token, or USER:PASSWORD, of the server."""
OWNER_FILE = "milvus.json"
MAX_HITS = 16_384
"""Milvus returns no more than this many hits per query."""
EXACT_AREA = 20_000
"""With an approximate index, areas of up to this many views are still searched exactly, by fetching them."""
INSERT_BYTES = 16 << 20
"""Size of one insert request; the server's limit is 64 MiB by default."""
_TIMEOUT_S = 30.0
_STATE_LIMIT = 60_000
_FIELDS = ("latitude", "longitude", "metres", "rotation", "vector")
_SEARCH_KEYS = {"nprobe", "ef", "search_list", "reorder_k", "itopk_size"}
_OWN_KEYS = {"collection", "index", "regions", "vectors"}


@dataclass(frozen=True)
class MilvusAddress:
    """The parts of `milvus:URI[?collection=NAME&index=TYPE&...]`.

    uri: what the client connects to. database, collection: names in the server. index: Milvus index type. build,
    search: its parameters. regions: degrees per partition. half: whether vectors are float16 in the engine.
    """

    uri: str
    database: str = ""
    collection: str = "skypart"
    index: str = "FLAT"
    build: tuple[tuple[str, int], ...] = ()
    search: tuple[tuple[str, int], ...] = ()
    regions: int = 15
    half: bool = False

    @property
    def is_file(self) -> bool:
        """Whether this is Milvus Lite."""
        return "://" not in self.uri

    @property
    def shown(self) -> str:
        """The address as messages show it."""
        return f"milvus:{self.uri}" + (f" (collection {self.collection})" if self.collection != "skypart" else "")


def parse_address(address: str) -> MilvusAddress:
    """Parse a store address; raises with the correct form if it cannot be understood."""
    rest = address.removeprefix("milvus:")
    if rest.startswith("//"):  # milvus://host:19530/collection
        rest = f"http:{rest}"
        parts = urlsplit(rest)
        if parts.path.strip("/") and "collection=" not in parts.query:
            query = f"collection={parts.path.strip('/')}" + (f"&{parts.query}" if parts.query else "")
            rest = f"http://{parts.netloc}?{query}"
    shape = "milvus:http://HOST:19530 for a server, or milvus:FILE.db for Milvus Lite"
    location, _, query = rest.partition("?")
    if not location:
        raise SkyPartError(f"the store address milvus: names no server and no file; write {shape}")
    database = ""
    if "://" in location:
        parts = urlsplit(location)
        if parts.username or parts.password:
            raise SkyPartError(
                f"the store address of {parts.hostname} contains credentials, which index.json would keep; leave them "
                f"out and set the environment variable {TOKEN}"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SkyPartError(f"the store address milvus:{location} has an unknown form; write {shape}")
        database = parts.path.strip("/")
        location = f"{parts.scheme}://{parts.netloc}"
    elif re.fullmatch(r"[\w.-]+:\d+(/.*)?", location):
        raise SkyPartError(f"the store address milvus:{location} has no scheme; write milvus:http://{location}")
    elif not location.endswith(".db"):
        raise SkyPartError(f"the store address milvus:{location} is neither a server nor a file; write {shape}")
    options = dict(parse_qsl(query, keep_blank_values=True))
    return _with_options(MilvusAddress(location, database), options)


def _with_options(address: MilvusAddress, options: dict[str, str]) -> MilvusAddress:
    numbers = {key: _number(key, value) for key, value in options.items() if key not in _OWN_KEYS - {"regions"}}
    name = options.get("collection", address.collection)
    if not re.fullmatch(r"[A-Za-z_]\w{0,199}", name):
        raise SkyPartError(f"collection={name}: use letters, digits and underscores, beginning with a letter")
    regions = numbers.pop("regions", address.regions)
    if not 10 <= regions <= 180:
        raise SkyPartError(f"regions={regions}: must be 10 to 180 degrees")
    if options.get("vectors", "float32") not in ("float32", "float16"):
        raise SkyPartError(f"vectors={options['vectors']}: must be float32 or float16")
    return replace(
        address,
        collection=name,
        index=options.get("index", address.index).upper(),
        regions=regions,
        half=options.get("vectors") == "float16",
        build=tuple(sorted((k, v) for k, v in numbers.items() if k not in _SEARCH_KEYS)),
        search=tuple(sorted((k, v) for k, v in numbers.items() if k in _SEARCH_KEYS)),
    )


def _number(key: str, value: str) -> int:
    if not value.isdecimal():
        raise SkyPartError(f"{key}={value} in the store address must be a whole number")
    return int(value)


def absolute_address(address: str) -> str:
    """The address, valid from any folder: the file of Milvus Lite becomes absolute."""
    parsed = parse_address(address)
    if not parsed.is_file:
        return address
    _, _, query = address.partition("?")
    return f"milvus:{Path(parsed.uri).expanduser().absolute()}" + (f"?{query}" if query else "")


@dataclass(frozen=True)
class Batch:
    """Rows that were added to a map together. digest: of their vectors and footprints."""

    map_name: str
    first: int
    count: int
    digest: str


@dataclass(frozen=True)
class State:
    """A committed state. owner: id of the index that the collection belongs to. index: type and parameters."""

    version: int = 0
    owner: str = ""
    dimension: int = 0
    next_row: int = 0
    batches: tuple[Batch, ...] = ()

    @property
    def views(self) -> int:
        """Number of views."""
        return sum(batch.count for batch in self.batches)

    def ranges(self) -> list[tuple[int, int]]:
        """Committed rows as (first, end), adjacent ones joined."""
        joined: list[tuple[int, int]] = []
        for batch in sorted(self.batches, key=lambda each: each.first):
            if joined and joined[-1][1] == batch.first:
                joined[-1] = (joined[-1][0], batch.first + batch.count)
            else:
                joined.append((batch.first, batch.first + batch.count))
        return joined

    def filter(self) -> str:
        """A filter expression for exactly the committed rows."""
        return "(" + " or ".join(f"(row >= {first} and row < {end})" for first, end in self.ranges()) + ")"

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(
            {
                "version": self.version,
                "owner": self.owner,
                "dimension": self.dimension,
                "next_row": self.next_row,
                "batches": [[b.map_name, b.first, b.count, b.digest] for b in self.batches],
            },
            separators=(",", ":"),
        )

    @staticmethod
    def parse(text: str) -> "State":
        """From JSON."""
        content = json.loads(text)
        content["batches"] = tuple(Batch(*batch) for batch in content["batches"])
        return State(**content)


def open_milvus(address: str, folder: Path, check: bool) -> Store:
    """Open the store at `address`. folder: keeps the writer's lock, and the id of the collection."""
    return MilvusStore(parse_address(address), folder, check=check)


class MilvusStore:
    """Views in a Milvus collection; see `Store` for the methods.

    One writer at a time, by a lock in the index folder. Rows of a removed map are deleted by the next writer: a store
    object that still searches the state before must `refresh` by then.
    """

    def __init__(self, address: MilvusAddress, folder: Path, *, check: bool = True) -> None:
        self._address = address
        self._folder = folder
        self._mutex = threading.RLock()
        self._lock: WriterLock | None = None
        self._staged: State | None = None
        self._closed = False
        self._client = _connect(address)
        self._names = (address.collection, f"{address.collection}_state")
        self._ready = False
        self._state = self._read_state()
        if check:
            self._check_owner()

    @property
    def location(self) -> str:
        """The address, without credentials."""
        return self._address.shown

    def add(self, batch: ViewBatch) -> None:
        """Insert views; committed when this returns, or when the enclosing transaction ends."""
        with self.transaction():
            assert self._staged is not None
            count, dimension = batch.vectors.shape
            if not count:
                return
            if self._staged.dimension not in (0, dimension):
                raise SkyPartError(
                    f"views of {batch.map_name} have dimension {dimension} and those in {self.location} "
                    f"{self._staged.dimension}; use one model for all maps of a store"
                )
            if not self._staged.batches:
                self._create(dimension)
            record = Batch(batch.map_name, self._staged.next_row, count, _digest(batch.vectors, batch.footprints))
            self._insert(batch, record.first)
            self._staged = replace(
                self._staged,
                dimension=dimension,
                next_row=record.first + count,
                batches=(*self._staged.batches, record),
            )

    def remove(self, map_name: str) -> int:
        """Take a map out of the state. Returns the number of its views, 0 if there is no map of that name."""
        with self.transaction():
            assert self._staged is not None
            removed = [batch for batch in self._staged.batches if batch.map_name == map_name]
            kept = tuple(batch for batch in self._staged.batches if batch.map_name != map_name)
            self._staged = replace(self._staged, batches=kept, dimension=self._staged.dimension if kept else 0)
        return sum(batch.count for batch in removed)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Changes inside the block are committed together at its end; an exception discards all of them."""
        with self._mutex:
            if self._staged is not None:
                yield
                return
            self._become_writer()
            self._staged = self._state
            try:
                yield
                if self._staged != self._state:
                    self._commit(self._staged)
            finally:
                self._staged = None

    def search(
        self, queries: ArrayLike, k: int, within: Within | None = None, *, exact: bool = False
    ) -> list[list[Hit]]:
        """The best `k` views for each of (q, d) queries, best first; equal scores are ordered by row.

        Exact with the index type FLAT. With others, `exact` and areas of up to EXACT_AREA views fetch the views.
        """
        with self._mutex:
            self._check_open()
            state = self._state
        rows = check_queries(queries, k, state.dimension)
        if within is not None:
            check_area(within)
        if not state.batches:
            return [[] for _ in rows]
        self._load()
        condition, partitions = self._condition(state, within)
        if partitions is not None and not partitions:
            return [[] for _ in rows]
        count = state.views if within is None else self._count(condition, partitions)
        if not count:
            return [[] for _ in rows]
        if self._address.index != "FLAT" and (exact or (within is not None and count <= EXACT_AREA)):
            return self._search_fetched(state, rows, k, within, condition, partitions)
        return [self._search_engine(state, row, k, within, condition, partitions, count) for row in rows]

    def stats(self) -> StoreStats:
        """What the store holds; the size is that of the vectors and footprints."""
        with self._mutex:
            state = self._state
        maps: dict[str, int] = {}
        for batch in state.batches:
            maps[batch.map_name] = maps.get(batch.map_name, 0) + batch.count
        width = (2 if self._address.half else 4) * state.dimension + 32
        return StoreStats(
            views=state.views,
            dimension=state.dimension,
            segments=len(state.batches),
            bytes=state.views * width,
            maps=maps,
            recall=None,
        )

    def optimize(self, sample: NDArray[np.float32] | None = None) -> float | None:
        """Load the collection, whose index Milvus builds by itself. With `sample`, return the measured recall@10."""
        with self._mutex:
            self._check_open()
            if not self._state.batches:
                return None
        self._load()
        if self._address.index == "FLAT" or sample is None:
            return None
        truth = self.search(sample, 10, exact=True)
        found = self.search(sample, 10)
        shared = [len({h.row for h in a} & {h.row for h in b}) for a, b in zip(truth, found, strict=True)]
        return sum(shared) / max(1, sum(len(hits) for hits in truth))

    def verify(self) -> None:
        """Fetch every view and compare it with the digest of its batch; the error names all damaged maps."""
        problems = []
        self._load()
        for batch in self._state.batches:
            rows, footprints, vectors = self._fetch(f"row >= {batch.first} and row < {batch.first + batch.count}", None)
            order = np.argsort(rows)
            same = len(rows) == batch.count and _digest(vectors[order], footprints[order]) == batch.digest
            if not same:
                problems.append(
                    f"{self.location}: the views of {batch.map_name} are damaged or incomplete ({len(rows):,} of "
                    f"{batch.count:,} found); restore the collection from a backup, or remove the map and index it "
                    "again"
                )
        if problems:
            raise SkyPartError("\n".join(problems))

    def refresh(self) -> bool:
        """Switch to the newest committed state. Returns whether there was a newer one."""
        with self._mutex:
            newest = self._read_state()
            changed = newest.version != self._state.version
            self._state = newest
            return changed

    def close(self) -> None:
        """Release the lock and the connection."""
        with self._mutex:
            if not self._closed:
                self._client.close()
            self._closed = True
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def __enter__(self) -> Self:
        """Returns the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    # -- state -------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise SkyPartError(f"the store {self.location} is closed; open it again")

    def _read_state(self) -> State:
        """The newest committed state; an empty one if there is none."""
        if not self._call("has_collection", self._names[1]):
            if self._call("has_collection", self._names[0]):
                raise SkyPartError(
                    f"{self.location}: there is such a collection, but SkyPart did not make it; choose another name "
                    "with ?collection=NAME"
                )
            return State()
        found = self._call("query", self._names[1], filter="version >= 0", output_fields=["version", "part", "text"])
        if not found:
            return State()
        newest = max(int(entity["version"]) for entity in found)
        parts = sorted((int(e["part"]), e["text"]) for e in found if int(e["version"]) == newest)
        try:
            body = json.loads("".join(text for _, text in parts))
            if hashlib.sha256(body["state"].encode()).hexdigest() != body["sha256"]:
                raise ValueError("its SHA-256 does not match")
            return State.parse(body["state"])
        except (ValueError, KeyError, TypeError) as error:
            raise SkyPartError(
                f"{self.location}: its state is damaged ({error}); restore it from a backup or index the maps again"
            ) from error

    def _commit(self, state: State) -> None:
        """Make `state` the newest one."""
        if self._read_state().version != self._state.version:
            raise SkyPartError(f"{self.location}: another process has changed this collection; run the command again")
        owner = self._owner() or uuid.uuid4().hex
        if not self._owner():
            write_text(self._folder / OWNER_FILE, json.dumps({"owner": owner}) + "\n")
        state = replace(state, version=self._state.version + 1, owner=owner)
        if self._call("has_collection", self._names[0]):
            self._call("flush", self._names[0])
        text = state.dump()
        body = json.dumps({"state": text, "sha256": hashlib.sha256(text.encode()).hexdigest()})
        pieces = [body[start : start + _STATE_LIMIT] for start in range(0, len(body), _STATE_LIMIT)]
        entities = [
            {"key": state.version * 1000 + n, "version": state.version, "part": n, "text": piece, "vector": [0.0, 1.0]}
            for n, piece in enumerate(pieces)
        ]
        self._call("insert", self._names[1], entities)
        self._call("flush", self._names[1])
        self._state = state
        self._call("delete", self._names[1], filter=f"version < {state.version}")

    def _make_state_collection(self) -> None:
        from pymilvus import DataType, MilvusClient

        if self._call("has_collection", self._names[1]):
            return
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("version", DataType.INT64)
        schema.add_field("part", DataType.INT64)
        schema.add_field("text", DataType.VARCHAR, max_length=65_535)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)  # Milvus wants one in every collection
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="L2")
        self._call("create_collection", self._names[1], schema=schema, index_params=index, consistency_level="Strong")
        self._call("load_collection", self._names[1])

    def _owner(self) -> str:
        """The id of the collection that belongs to this index; '' if there is none yet."""
        try:
            return str(json.loads((self._folder / OWNER_FILE).read_text(encoding="utf-8"))["owner"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SkyPartError(f"{self._folder / OWNER_FILE}: damaged ({error}); restore it from a backup") from error

    def _check_owner(self) -> None:
        """Raise if the collection belongs to another index, perhaps of another model, or lost its views."""
        owner = self._owner()
        if owner and self._state.owner and owner != self._state.owner:
            raise SkyPartError(
                f"{self.location}: contains the views of another index, perhaps of another model; give the store "
                "address that this index was made with"
            )
        if owner and not self._state.owner:
            raise SkyPartError(
                f"{self.location}: the collection of this index is gone; restore it from a backup, or delete the index "
                "and index the maps again"
            )

    def _become_writer(self) -> None:
        """Take the lock, go to the newest state and delete what it does not name."""
        self._check_open()
        if self._lock is not None:
            return
        lock = WriterLock(self._folder)
        try:
            self._state = self._read_state()
            self._check_owner()
            self._make_state_collection()  # before any view: a collection without a state is not ours
            self._delete_unnamed()
        except BaseException:
            lock.close()
            raise
        self._lock = lock

    def _delete_unnamed(self) -> None:
        """Delete entities that killed writers and removed maps left behind."""
        if not self._call("has_collection", self._names[0]):
            return
        if not self._state.batches:
            self._call("drop_collection", self._names[0])
            self._ready = False
            return
        self._load()
        first = 0
        for begin, end in self._state.ranges():
            if begin > first:
                self._call("delete", self._names[0], filter=f"row >= {first} and row < {begin}")
            first = end
        self._call("delete", self._names[0], filter=f"row >= {first}")

    # -- the collection ----------------------------------------------------------------------------------------

    def _create(self, dimension: int) -> None:
        """Create the collection for vectors of a dimension; one of another dimension, without views, is replaced."""
        from pymilvus import DataType, MilvusClient

        if self._call("has_collection", self._names[0]):
            described = self._call("describe_collection", self._names[0])
            known = next(int(f["params"]["dim"]) for f in described["fields"] if f["name"] == "vector")
            if known == dimension:
                return
            self._call("drop_collection", self._names[0])
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        schema.add_field(
            "vector", DataType.FLOAT16_VECTOR if self._address.half else DataType.FLOAT_VECTOR, dim=dimension
        )
        for name in ("latitude", "longitude", "meridian", "metres", "rotation"):
            schema.add_field(name, DataType.DOUBLE)
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type=self._address.index, metric_type="IP", params=dict(self._address.build))
        self._call("create_collection", self._names[0], schema=schema, index_params=index, consistency_level="Strong")
        self._ready = False

    def _insert(self, batch: ViewBatch, first: int) -> None:
        """Insert views in requests of bounded size, each into the partition of its region."""
        regions = np.array([self._region(*place) for place in batch.footprints[:, :2]])
        known = set(self._call("list_partitions", self._names[0]))
        step = max(1, INSERT_BYTES // (4 * batch.vectors.shape[1] + 64))
        for region in np.unique(regions):
            if region not in known:
                self._call("create_partition", self._names[0], str(region))
            here = np.flatnonzero(regions == region)
            for start in range(0, len(here), step):
                rows = here[start : start + step]
                self._call("insert", self._names[0], self._entities(batch, rows, first), partition_name=str(region))

    def _entities(self, batch: ViewBatch, rows: NDArray[np.int64], first: int) -> list[dict[str, Any]]:
        vectors = batch.vectors[rows] if self._address.half else batch.vectors[rows].astype(np.float32)
        return [
            {
                "row": first + int(row),
                "vector": vector,
                "latitude": latitude,
                "longitude": longitude,
                "meridian": _meridian(longitude),
                "metres": metres,
                "rotation": rotation,
            }
            for row, vector, (latitude, longitude, metres, rotation) in zip(
                rows, vectors, batch.footprints[rows].tolist(), strict=True
            )
        ]

    def _region(self, latitude: float, longitude: float) -> str:
        """The partition of a place, named by its south-west corner."""
        size = self._address.regions
        south, west = int((latitude + 90) // size), int((_meridian(longitude) + 180) // size)
        return f"region_{south}_{west}"

    def _load(self) -> None:
        """Make the collection searchable; raises if it is only partly loaded."""
        if self._ready or not self._call("has_collection", self._names[0]):
            return
        state = str(self._call("get_load_state", self._names[0]).get("state", ""))
        if state.endswith("Loading"):
            raise SkyPartError(
                f"{self.location}: Milvus is still loading the collection; try again when it has finished"
            )
        if not state.endswith("Loaded"):
            self._call("load_collection", self._names[0])
        self._ready = True

    # -- search ------------------------------------------------------------------------------------------------

    def _condition(self, state: State, within: Within | None) -> tuple[str, list[str] | None]:
        """A filter for the committed views in a box around `within`, and the partitions that can hold any."""
        if within is None:
            return state.filter(), None
        box = area_box(within)
        spans = _spans(box.west, box.east)
        east_west = " or ".join(f"(meridian >= {low!r} and meridian <= {high!r})" for low, high in spans)
        condition = f"{state.filter()} and latitude >= {box.south!r} and latitude <= {box.north!r} and ({east_west})"
        return condition, [
            name
            for name in self._call("list_partitions", self._names[0])
            if self._touches(name, box.south, box.north, spans)
        ]

    def _touches(self, partition: str, south: float, north: float, spans: Sequence[tuple[float, float]]) -> bool:
        """Whether a partition can hold views in a box."""
        match = re.fullmatch(r"region_(\d+)_(\d+)", partition)
        if match is None:
            return False
        size = self._address.regions
        low, left = int(match[1]) * size - 90, int(match[2]) * size - 180
        return low <= north and low + size >= south and any(left <= b and left + size >= a for a, b in spans)

    def _count(self, condition: str, partitions: list[str] | None) -> int:
        found = self._call(
            "query", self._names[0], filter=condition, output_fields=["count(*)"], partition_names=partitions
        )
        return int(found[0]["count(*)"])

    def _search_engine(
        self,
        state: State,
        query: NDArray[np.float32],
        k: int,
        within: Within | None,
        condition: str,
        partitions: list[str] | None,
        count: int,
    ) -> list[Hit]:
        """Candidates from the engine, scored again in float64; more of them while the answer is not certain."""
        width = 2 * k + 16
        while True:
            width = min(width, MAX_HITS, count)
            found = self._call(
                "search",
                self._names[0],
                data=[query.astype(np.float16) if self._address.half else query],
                anns_field="vector",
                limit=width,
                filter=condition,
                partition_names=partitions,
                output_fields=["row", *_FIELDS],
                search_params={"metric_type": "IP", "params": dict(self._address.search)},
            )[0]
            rows, footprints, vectors = _tables([hit["entity"] for hit in found], state.dimension)
            hits = _rank(state, query, k, within, rows, footprints, vectors)
            if len(found) < width or width in (count, MAX_HITS):
                return hits
            left_out = min(float(hit["distance"]) for hit in found) + rounding_error(query)
            if len(hits) == k and hits[-1].score > left_out:
                return hits
            width *= 8

    def _search_fetched(
        self,
        state: State,
        queries: NDArray[np.float32],
        k: int,
        within: Within | None,
        condition: str,
        partitions: list[str] | None,
    ) -> list[list[Hit]]:
        """The exact answer of an approximate index: fetch the views and score them here."""
        tables = self._fetch(condition, partitions)
        return [_rank(state, query, k, within, *tables) for query in queries]

    def _fetch(
        self, condition: str, partitions: list[str] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float16]]:
        """Rows, footprints and vectors of all views that meet a condition."""
        if not self._state.batches:
            return _tables([], 0)
        iterator = self._call(
            "query_iterator",
            self._names[0],
            batch_size=1000,
            filter=condition,
            partition_names=partitions,
            output_fields=["row", *_FIELDS],
        )
        entities: list[Any] = []
        try:
            while more := iterator.next():
                entities += more
        finally:
            iterator.close()
        return _tables(entities, self._state.dimension)

    def _call(self, name: str, *arguments: Any, **more: Any) -> Any:
        """Call a method of the client; its errors become SkyPartError."""
        self._check_open()
        return _guarded(self._address, lambda: getattr(self._client, name)(*arguments, **more))


def _tables(
    entities: Sequence[Any], dimension: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float16]]:
    """Rows (n,), footprints (n, 4) and vectors (n, d) of entities."""
    rows = np.array([entity["row"] for entity in entities], dtype=np.int64)
    footprints = np.array([[entity[name] for name in _FIELDS[:4]] for entity in entities], dtype=np.float64)
    vectors = np.zeros((len(entities), dimension), dtype=np.float16)
    for number, entity in enumerate(entities):
        value = entity["vector"]
        value = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], bytes) else value
        vectors[number] = np.frombuffer(value, dtype=np.float16) if isinstance(value, bytes) else value
    return rows, footprints.reshape(-1, 4), vectors


def _rank(
    state: State,
    query: NDArray[np.float32],
    k: int,
    within: Within | None,
    rows: NDArray[np.int64],
    footprints: NDArray[np.float64],
    vectors: NDArray[np.float16],
) -> list[Hit]:
    """The best `k` of some views by score in float64, then by row."""
    if within is not None and len(rows):
        inside = is_inside(within, latitude=footprints[:, 0], longitude=footprints[:, 1])
        rows, footprints, vectors = rows[inside], footprints[inside], vectors[inside]
    scores = np.einsum("ij,j->i", vectors.astype(np.float64), query.astype(np.float64))
    firsts = [batch.first for batch in state.batches]
    hits = []
    for place in np.lexsort((rows, -scores))[:k]:
        latitude, longitude, metres, rotation = footprints[place].tolist()
        owner = state.batches[int(np.searchsorted(firsts, rows[place], side="right")) - 1]
        hits.append(
            Hit(
                map_name=owner.map_name,
                footprint=Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation),
                score=float(scores[place]),
                row=int(rows[place]),
            )
        )
    return hits


def _digest(vectors: NDArray[np.float16], footprints: NDArray[np.float64]) -> str:
    """SHA-256 of views in the order of their rows."""
    digest = hashlib.sha256(np.ascontiguousarray(vectors, dtype="<f2").tobytes())
    digest.update(np.ascontiguousarray(footprints, dtype="<f8").tobytes())
    return digest.hexdigest()


def _meridian(longitude: float) -> float:
    """A longitude in -180..180."""
    return (longitude + 180.0) % 360.0 - 180.0


def _spans(west: float, east: float) -> list[tuple[float, float]]:
    """The interval from west to east as one or two intervals in -180..180, a little larger."""
    slack = 1e-9
    if east - west >= 360:
        return [(-180.0, 180.0)]
    low, high = _meridian(west) - slack, _meridian(east) + slack
    if low <= high and (east - west) % 360 <= high - low + 1e-6:
        return [(low, high)]
    return [(low, 180.0), (-180.0, high)]


def _connect(address: MilvusAddress) -> Any:
    """A client; importing Milvus's takes a second, so this is done when a store is opened."""
    try:
        import logging

        from pymilvus import MilvusClient

        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # we report errors ourselves, once
        if address.is_file:
            import milvus_lite  # noqa: F401
    except ImportError as error:
        raise SkyPartError(
            f"{address.shown}: needs the Milvus client; install it with `pip install 'skypart[milvus]'`"
        ) from error
    if address.is_file:
        Path(address.uri).expanduser().parent.mkdir(parents=True, exist_ok=True)
        return _guarded(address, lambda: MilvusClient(str(Path(address.uri).expanduser())))
    token = os.environ.get(TOKEN, "")
    return _guarded(
        address, lambda: MilvusClient(address.uri, token=token, db_name=address.database, timeout=_TIMEOUT_S)
    )


def _guarded(address: MilvusAddress, call: Any) -> Any:
    """The result of `call`; errors of Milvus become one sentence."""
    from grpc import RpcError
    from pymilvus.exceptions import MilvusException

    try:
        return call()
    except (MilvusException, RpcError) as error:
        reason = " ".join(str(getattr(error, "message", "") or error).split())[:300]
        where = address.shown
        lowered = reason.lower()
        if "unauthenticated" in lowered or ("auth" in lowered and "fail" in lowered) or "permission" in lowered:
            remedy = f"set {TOKEN} to a token, or USER:PASSWORD, that may use this database"
        elif "connect" in lowered or "unavailable" in lowered or "deadline" in lowered or "timeout" in lowered:
            remedy = "start Milvus, or correct the address"
        elif "index" in lowered:
            remedy = "correct the index type and its parameters in the store address"
        else:
            remedy = "look into Milvus's log, and run the same command again"
        raise SkyPartError(f"{where}: Milvus reports: {reason}; {remedy}") from error
