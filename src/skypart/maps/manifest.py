"""The file index.json of a map index: its model, its view options, its maps, its calibration and its store."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.maps.files import read_file
from skypart.maps.store import DEFAULT_ADDRESS, Store, StoreModel, needs_network, open_store
from skypart.maps.view_tokens import verify_tokens
from skypart.maps.views import ViewOptions

FORMAT = 1
INDEX_FILE = "index.json"
STORE_FOLDER = "store"
MAX_BYTES = 256 << 20
"""Of index.json: more than a hundred thousand maps."""


@dataclass(frozen=True)
class MapEntry:
    """One map of an index. paths: where it was when it was indexed. views: number of stored views."""

    name: str
    paths: tuple[str, ...]
    fingerprint: str
    views: int
    bounds: Bounds

    @property
    def stored_name(self) -> str:
        """The map's name in the store."""
        return stored_name(self.name, self.fingerprint)


@dataclass(frozen=True)
class IndexManifest:
    """The content of index.json.

    model: digest, name and input size of the model. calibration: see skypart.position. store: address of the view
    store; the file omits the default, a store inside the index's folder.
    """

    model: dict[str, Any]
    options: ViewOptions
    maps: tuple[MapEntry, ...] = ()
    calibration: dict[str, Any] | None = None
    format: int = field(default=FORMAT)
    store: str = DEFAULT_ADDRESS

    @property
    def maps_digest(self) -> str:
        """A hash of the maps, which changes with their names and pixels."""
        named = sorted(entry.stored_name for entry in self.maps)
        return hashlib.blake2b("\n".join(named).encode(), digest_size=8).hexdigest()

    @property
    def calibration_fits(self) -> bool:
        """Whether there is a calibration, and it was made with these maps."""
        return self.calibration is not None and self.calibration.get("maps", self.maps_digest) == self.maps_digest

    def open_store(self, folder: Path, *, check: bool = True, network: bool = True) -> Store:
        """Open the view store of the index in `folder`. check: report missing data, or another model, at once.

        network: whether a store on object storage or a web server may be read.
        The views must come from the model of this index.
        """
        if needs_network(self.store) and not network:
            raise SkyPartError(f"{folder}: its views are on the network, which is used only with --network; add it")
        store = open_store(self.store, folder / STORE_FOLDER, check=check)
        try:
            if check:
                self._check_store_model(store)
        except BaseException:
            store.close()
            raise
        return store

    @property
    def store_model(self) -> StoreModel:
        """The model of the index, as its store records it."""
        return StoreModel(digest=str(self.model["digest"]), name=str(self.model["name"]))

    def _check_store_model(self, store: Store) -> None:
        """Raise if the views in `store` come from another model. One that recorded none is accepted."""
        found = store.model if store.stats().views else None
        if found is not None and found.digest != self.model["digest"]:
            raise SkyPartError(model_message(store.location, found, self.model["digest"]))

    def write(self, folder: Path) -> None:
        """Replace the index.json of `folder`."""
        content = asdict(self)
        if self.store == DEFAULT_ADDRESS:
            del content["store"]
        content = json.loads(json.dumps(content))  # tuples become lists, as when read
        content["sha256"] = _content_hash(content)
        write_text(folder / INDEX_FILE, json.dumps(content, indent=1) + "\n", durable=True)

    @staticmethod
    def read(folder: Path) -> "IndexManifest":
        """Read the index.json of `folder`."""
        file = folder / INDEX_FILE
        try:
            if not file.is_file():
                raise SkyPartError(_no_index_message(folder))
            content = json.loads(read_file(file, MAX_BYTES).decode("utf-8"))
            if content["format"] != FORMAT:
                raise SkyPartError(
                    f"{file}: has format {content['format']}, this version of SkyPart reads {FORMAT}; index the map "
                    "again"
                )
            if unknown := sorted(set(content) - {"sha256", *(each.name for each in fields(IndexManifest))}):
                raise ValueError(f"unknown key {unknown[0]!r}")
            checksum = content.pop("sha256", None)  # versions before 0.2 wrote none
            if checksum is not None and checksum != _content_hash(content):
                raise ValueError("its SHA-256 does not match")
            options = content["options"]
            maps = tuple(
                MapEntry(m["name"], tuple(m["paths"]), m["fingerprint"], int(m["views"]), Bounds(**m["bounds"]))
                for m in content["maps"]
            )
            views = ViewOptions(tuple(options["sizes_m"]), float(options["overlap"]), int(options["rotations"]))
            model = {key: content["model"][key] for key in ("digest", "name", "size")}
            store = content.get("store", DEFAULT_ADDRESS)
            if not isinstance(store, str):
                raise TypeError("store is not a string")
            manifest = IndexManifest(model, views, maps, content["calibration"], store=store)
            _check_values(manifest)
            return manifest
        except OSError as error:
            raise SkyPartError(f"{file}: cannot be read ({error.strerror or error}); fix its permissions") from error
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise SkyPartError(f"{file}: damaged ({error!r}); index the map again") from error


def model_message(place: str | Path, made_with: StoreModel, digest: str) -> str:
    """The error message about views in `place` that come from another model than the one with this digest."""
    return (
        f"{place}: was made with the model {made_with.name} ({made_with.digest[:12]}), not with this one "
        f"({digest[:12]}); pass the model it was made with, or index the map again"
    )


def _no_index_message(folder: Path) -> str:
    """What to do if `folder` is not an index."""
    if folder.is_file():
        index = folder.with_suffix(".skyindex")
        command = f"skypart index {folder} -o {index}"
        return f"{folder}: is a file, not an index; create an index with `{command}`, then give {index}"
    return f"{folder}: no map index; create one with `skypart index MAP -o {folder}`"


def _content_hash(content: dict[str, Any]) -> str:
    """SHA-256 of the content of index.json, independent of whitespace and order."""
    body = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _check_values(manifest: IndexManifest) -> None:
    """Raise ValueError if a value cannot be right; for files without a checksum."""
    for entry in manifest.maps:
        box = entry.bounds
        texts = (entry.name, entry.fingerprint, *entry.paths)
        numbers = (box.south, box.west, box.north, box.east)
        if not all(isinstance(text, str) for text in texts) or entry.views < 1:
            raise ValueError(f"the map {entry.name!r}")
        if not all(isinstance(number, int | float) for number in numbers) or not (
            -90 <= box.south <= box.north <= 90 and all(abs(degrees) <= 360 for degrees in (box.west, box.east))
        ):
            raise ValueError(f"the bounds of the map {entry.name!r}")
    size = manifest.model["size"]
    if not isinstance(manifest.model["digest"], str) or not isinstance(size, int) or not 1 <= size <= 16_384:
        raise ValueError("the model")


def verify_index(folder: Path) -> None:
    """Check an index against its store. Raises if a map has another number of views, or is missing in one of them."""
    manifest = IndexManifest.read(folder)
    with manifest.open_store(folder) as store:
        store.verify()
        stored = store.stats().maps
    listed = {entry.stored_name: entry.views for entry in manifest.maps}
    verify_tokens(folder, list(listed))
    for name in sorted(stored.keys() | listed.keys()):
        if stored.get(name) != listed.get(name):
            raise SkyPartError(
                f"{folder / INDEX_FILE}: lists {listed.get(name, 0):,} views of the map {map_name(name)}, the store "
                f"has {stored.get(name, 0):,}; index the map again"
            )


def stored_name(name: str, fingerprint: str) -> str:
    """The name of a map in the store. It differs for each version of the map, so that a crash cannot mix versions."""
    return f"{name}@{fingerprint}"


def map_name(stored: str) -> str:
    """The name of a map, given its name in the store."""
    return stored.rpartition("@")[0]
