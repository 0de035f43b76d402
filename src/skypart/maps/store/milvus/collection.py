"""The collection of views in Milvus: how it is made and filled, and what it is asked for."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skypart.geo.footprint import Bounds
from skypart.maps.store.interface import COLUMNS, ViewBatch
from skypart.maps.store.milvus.address import Layout
from skypart.maps.store.milvus.client import Connection
from skypart.maps.store.milvus.regions import meridian, meridian_spans, region, touches

INSERT_BYTES = 16 << 20
"""Size of one insert request; the server's limit is 64 MiB by default."""
_FETCHED = 1_000
"""Views per answer when all views of an area are fetched."""


class ViewTable(NamedTuple):
    """Views as arrays: rows (n,), footprints (n, 4), vectors (n, d)."""

    rows: NDArray[np.int64]
    footprints: NDArray[np.float64]
    vectors: NDArray[np.float16]


class Area(NamedTuple):
    """What part of a collection is asked for: a filter expression, and partitions, where None is all of them."""

    filter: str
    partitions: Sequence[str] | None = None


Found: TypeAlias = tuple[ViewTable, float]
"""Views, and the lowest score of the engine among them."""


class ViewCollection:
    """Views in one collection of Milvus: row number, vector and footprint each."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._name = connection.address.collection
        self._loaded = False

    def exists(self) -> bool:
        """Whether Milvus has it."""
        return self._connection.has(self._name)

    def drop(self) -> None:
        """Delete it with all its views, if it exists."""
        if self.exists():
            self._connection.call("drop_collection", self._name)
        self._loaded = False

    def create(self, dimension: int, layout: Layout) -> None:
        """Create it for vectors of a dimension, with its index."""
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        kind = DataType.FLOAT16_VECTOR if layout.half else DataType.FLOAT_VECTOR
        schema.add_field("vector", kind, dim=dimension)
        for name in (*COLUMNS, "meridian"):
            schema.add_field(name, DataType.DOUBLE)
        index = self._connection.client.prepare_index_params()
        parameters = dict(self._connection.address.build)
        index.add_index("vector", index_type=layout.index, metric_type="IP", params=parameters)
        self._connection.call(
            "create_collection", self._name, schema=schema, index_params=index, consistency_level="Strong"
        )
        self._loaded = False

    def insert(self, batch: ViewBatch, first: int, layout: Layout) -> None:
        """Insert views in requests of bounded size, each into the partition of its region. first: row of the first."""
        regions = np.array([region(place[0], place[1], layout.regions) for place in batch.footprints])
        known = set(self._connection.call("list_partitions", self._name))
        step = max(1, INSERT_BYTES // (4 * batch.vectors.shape[1] + 64))
        for name in map(str, np.unique(regions)):
            if name not in known:
                self._connection.call("create_partition", self._name, name)
            here = np.flatnonzero(regions == name)
            for start in range(0, len(here), step):
                entities = _entities(batch, here[start : start + step], first, layout.half)
                self._connection.call("insert", self._name, entities, partition_name=name)

    def flush(self) -> None:
        """Make all inserted views durable."""
        if self.exists():
            self._connection.call("flush", self._name)

    def delete(self, condition: str) -> None:
        """Delete the views that meet a condition."""
        self._connection.call("delete", self._name, filter=condition)

    def load(self) -> None:
        """Make it searchable; raises if Milvus is still loading it."""
        if not self._loaded and self.exists():
            self._connection.load(self._name)
            self._loaded = True

    def area(self, condition: str, box: Bounds, layout: Layout) -> Area:
        """The views in a box that meet a condition, and the partitions that can hold any."""
        spans = meridian_spans(box.west, box.east)
        east_west = " or ".join(f"(meridian >= {low!r} and meridian <= {high!r})" for low, high in spans)
        partitions = self._connection.call("list_partitions", self._name)
        return Area(
            f"{condition} and latitude >= {box.south!r} and latitude <= {box.north!r} and ({east_west})",
            [name for name in partitions if touches(name, layout.regions, box, spans)],
        )

    def count(self, area: Area) -> int:
        """Number of views."""
        if area.partitions is not None and not area.partitions:  # an empty list would mean all
            return 0
        found = self._query("query", area, output_fields=["count(*)"])
        return int(found[0]["count(*)"])

    def fetch(self, area: Area, dimension: int) -> ViewTable:
        """All views of an area, in any order."""
        iterator = self._query("query_iterator", area, batch_size=_FETCHED, output_fields=["row", *COLUMNS, "vector"])
        entities: list[Any] = []
        try:
            while more := iterator.next():
                entities += more
        finally:
            iterator.close()
        return _table(entities, dimension)

    def nearest(self, query: NDArray[np.float32], count: int, area: Area, layout: Layout) -> Found:
        """The `count` views of an area that the engine finds for a query (d,)."""
        found = self._query(
            "search",
            area,
            data=[query.astype(np.float16) if layout.half else query],
            anns_field="vector",
            limit=count,
            output_fields=["row", *COLUMNS, "vector"],
            search_params={"metric_type": "IP", "params": dict(self._connection.address.search)},
        )[0]
        lowest = min((float(hit["distance"]) for hit in found), default=-np.inf)
        return _table([hit["entity"] for hit in found], len(query)), lowest

    def _query(self, method: str, area: Area, **more: Any) -> Any:
        return self._connection.call(method, self._name, filter=area.filter, partition_names=area.partitions, **more)


def digest(table: ViewTable) -> str:
    """SHA-256 of views in the order of their rows."""
    order = np.argsort(table.rows)
    hashed = hashlib.sha256(np.ascontiguousarray(table.vectors[order], dtype="<f2").tobytes())
    hashed.update(np.ascontiguousarray(table.footprints[order], dtype="<f8").tobytes())
    return hashed.hexdigest()


def _entities(batch: ViewBatch, rows: NDArray[np.int64], first: int, half: bool) -> list[dict[str, Any]]:
    """Views of a batch as Milvus wants them."""
    vectors = batch.vectors[rows] if half else batch.vectors[rows].astype(np.float32)
    return [
        {"row": first + int(row), "vector": vector, "meridian": meridian(footprint[1])}
        | dict(zip(COLUMNS, footprint, strict=True))
        for row, vector, footprint in zip(rows, vectors, batch.footprints[rows].tolist(), strict=True)
    ]


def _table(entities: Sequence[Any], dimension: int) -> ViewTable:
    """Entities as arrays."""
    rows = np.array([entity["row"] for entity in entities], dtype=np.int64)
    footprints = np.array([[entity[name] for name in COLUMNS] for entity in entities], dtype=np.float64)
    vectors = np.zeros((len(entities), dimension), dtype=np.float16)
    for number, entity in enumerate(entities):
        value = entity["vector"]
        value = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], bytes) else value
        vectors[number] = np.frombuffer(value, dtype=np.float16) if isinstance(value, bytes) else value
    return ViewTable(rows, footprints.reshape(-1, 4), vectors)
