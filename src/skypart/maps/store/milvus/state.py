"""The committed state of a store in Milvus: which rows belong to which map, in a small collection of its own."""

import hashlib
import json
from dataclasses import asdict, dataclass

from skypart.errors import SkyPartError
from skypart.maps.store.interface import StoreModel
from skypart.maps.store.milvus.address import Layout
from skypart.maps.store.milvus.client import Connection

_PIECE = 60_000
"""Characters per entity; Milvus takes 65,535."""


@dataclass(frozen=True)
class Batch:
    """Rows that were added to a map together. digest: of their vectors and footprints."""

    map_name: str
    first: int
    count: int
    digest: str

    @property
    def filter(self) -> str:
        """A filter expression for exactly these rows."""
        return f"(row >= {self.first} and row < {self.first + self.count})"


@dataclass(frozen=True)
class State:
    """A committed state.

    owner: id of the index that the collection belongs to. model: that the views come from. layout: how the collection
    was made. The last two are None if a version of SkyPart before 0.3 wrote the state, or there is none yet.
    """

    version: int = 0
    owner: str = ""
    dimension: int = 0
    next_row: int = 0
    batches: tuple[Batch, ...] = ()
    model: StoreModel | None = None
    layout: Layout | None = None

    @property
    def views(self) -> int:
        """Number of views."""
        return sum(batch.count for batch in self.batches)

    @property
    def maps(self) -> dict[str, int]:
        """Number of views of each map."""
        maps: dict[str, int] = {}
        for batch in self.batches:
            maps[batch.map_name] = maps.get(batch.map_name, 0) + batch.count
        return maps

    def ranges(self) -> list[tuple[int, int]]:
        """Committed rows as (first, end), adjacent ones joined."""
        joined: list[tuple[int, int]] = []
        for batch in sorted(self.batches, key=lambda each: each.first):
            if joined and joined[-1][1] == batch.first:
                joined[-1] = (joined[-1][0], batch.first + batch.count)
            else:
                joined.append((batch.first, batch.first + batch.count))
        return joined

    def gaps(self) -> list[str]:
        """Filter expressions for all rows that do not belong to the state."""
        ends = [0, *(end for _, end in self.ranges())]
        firsts = [first for first, _ in self.ranges()]
        between = [f"row >= {end} and row < {first}" for end, first in zip(ends, firsts, strict=False) if end < first]
        return [*between, f"row >= {ends[-1]}"]

    def filter(self) -> str:
        """A filter expression for exactly the committed rows."""
        return "(" + " or ".join(f"(row >= {first} and row < {end})" for first, end in self.ranges()) + ")"

    def dump(self) -> str:
        """As JSON."""
        body = asdict(self) | {
            "batches": [[b.map_name, b.first, b.count, b.digest] for b in self.batches],
            "model": None if self.model is None else [self.model.digest, self.model.name],
        }
        return json.dumps(body, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> "State":
        """From JSON."""
        content = json.loads(text)
        content["batches"] = tuple(Batch(*batch) for batch in content["batches"])
        content["model"] = StoreModel(*content["model"]) if content.get("model") else None
        content["layout"] = Layout(**content["layout"]) if content.get("layout") else None
        return State(**content)


class StateCollection:
    """The collection that holds the newest state; one entity per piece of its JSON."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._views = connection.address.collection
        self._name = f"{self._views}_state"

    def read(self) -> State:
        """The newest committed state; an empty one if there is none."""
        connection = self._connection
        place = connection.address.shown
        if not connection.has(self._name):
            if connection.has(self._views):
                raise SkyPartError(
                    f"{place}: there is such a collection, but SkyPart did not make it; choose another name with "
                    "?collection=NAME"
                )
            return State()
        connection.load(self._name)  # Milvus Lite releases all when it is closed
        found = connection.call("query", self._name, filter="version >= 0", output_fields=["version", "part", "text"])
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
                f"{place}: its state is damaged ({error}); restore it from a backup or index the maps again"
            ) from error

    def write(self, state: State) -> None:
        """Make `state` the newest one."""
        text = state.dump()
        body = json.dumps({"state": text, "sha256": hashlib.sha256(text.encode()).hexdigest()})
        pieces = [body[start : start + _PIECE] for start in range(0, len(body), _PIECE)]
        entities = [
            {"key": state.version * 1000 + n, "version": state.version, "part": n, "text": piece, "vector": [0.0, 1.0]}
            for n, piece in enumerate(pieces)
        ]
        self._connection.call("insert", self._name, entities)
        self._connection.call("flush", self._name)

    def delete_before(self, version: int) -> None:
        """Delete the states before a version."""
        self._connection.call("delete", self._name, filter=f"version < {version}")

    def create(self) -> None:
        """Create the collection if there is none."""
        from pymilvus import DataType, MilvusClient

        if self._connection.has(self._name):
            return
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("version", DataType.INT64)
        schema.add_field("part", DataType.INT64)
        schema.add_field("text", DataType.VARCHAR, max_length=65_535)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)  # Milvus wants one in every collection
        index = self._connection.client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="L2")
        self._connection.call(
            "create_collection", self._name, schema=schema, index_params=index, consistency_level="Strong"
        )
        self._connection.call("load_collection", self._name)
