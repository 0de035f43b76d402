"""Addresses of Milvus stores: where the server or the file is, and how its collection is laid out."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from skypart.errors import SkyPartError
from skypart.maps.files import path_exists

TOKEN = "SKYPART_MILVUS_TOKEN"
"""Environment variable with the token, or USER:PASSWORD, of the server."""
_SHAPE = "milvus:http://HOST:19530 for a server, or milvus:FILE.db for Milvus Lite"
_SEARCH_KEYS = {"nprobe", "ef", "search_list", "reorder_k", "itopk_size"}
_TEXT_KEYS = {"collection", "index", "vectors"}


@dataclass(frozen=True)
class Layout:
    """How a collection is made, once and for all; its state records it.

    index: Milvus index type. regions: degrees per partition. half: whether vectors are float16 in the engine.
    """

    index: str = "FLAT"
    regions: int = 15
    half: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the engine finds the best views of all."""
        return self.index == "FLAT"


@dataclass(frozen=True)
class MilvusAddress:
    """The parts of `milvus:URI[?collection=NAME&index=TYPE&...]`.

    uri: what the client connects to. database, collection: names in the server. index, regions, half: the layout to
    make a collection with; None where the address does not say. build, search: parameters of the index.
    """

    uri: str
    database: str = ""
    collection: str = "skypart"
    index: str | None = None
    regions: int | None = None
    half: bool | None = None
    build: tuple[tuple[str, int], ...] = ()
    search: tuple[tuple[str, int], ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether this is Milvus Lite."""
        return "://" not in self.uri

    @property
    def shown(self) -> str:
        """The address as messages show it."""
        return f"milvus:{self.uri}" + (f" (collection {self.collection})" if self.collection != "skypart" else "")

    @property
    def layout(self) -> Layout:
        """The layout of a new collection."""
        chosen = {"index": self.index, "regions": self.regions, "half": self.half}
        return Layout(**{name: value for name, value in chosen.items() if value is not None})  # type: ignore[arg-type]

    def check_layout(self, recorded: Layout) -> None:
        """Raise if the address asks for another layout than that of the collection."""
        for name in ("index", "regions", "half"):
            asked, there = getattr(self, name), getattr(recorded, name)
            if asked is not None and asked != there:
                key, shown = ("vectors", "float16" if there else "float32") if name == "half" else (name, there)
                raise SkyPartError(
                    f"{self.shown}: the collection was made with {key}={shown}; leave {key} out of the store address, "
                    "or choose a new collection with collection=NAME and index the maps again"
                )


def parse_address(address: str) -> MilvusAddress:
    """Parse a store address; raises with the correct form if it cannot be understood."""
    location, _, query = _with_scheme(address.removeprefix("milvus:")).partition("?")
    if not location:
        raise SkyPartError(f"the store address milvus: names no server and no file; write {_SHAPE}")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if "://" in location:
        return _with_options(_parse_server(location), options)
    if re.fullmatch(r"[\w.-]+:\d+(/.*)?", location):
        raise SkyPartError(f"the store address milvus:{location} has no scheme; write milvus:http://{location}")
    if not location.endswith(".db"):
        raise SkyPartError(f"the store address milvus:{location} is neither a server nor a file; write {_SHAPE}")
    return _with_options(MilvusAddress(location), options)


def _with_scheme(rest: str) -> str:
    """The short form `//HOST:PORT/COLLECTION` as a full address; others are returned as they are."""
    if not rest.startswith("//"):
        return rest
    parts = urlsplit(f"http:{rest}")
    if not parts.path.strip("/") or "collection=" in parts.query:
        return f"http:{rest}"
    query = f"collection={parts.path.strip('/')}" + (f"&{parts.query}" if parts.query else "")
    return f"http://{parts.netloc}?{query}"


def _parse_server(location: str) -> MilvusAddress:
    """The address of a server, without options."""
    parts = urlsplit(location)
    if parts.username or parts.password:
        raise SkyPartError(
            f"the store address of {parts.hostname} contains credentials, which index.json would keep; leave them "
            f"out and set the environment variable {TOKEN}"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SkyPartError(f"the store address milvus:{location} has an unknown form; write {_SHAPE}")
    return MilvusAddress(f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"))


def _with_options(address: MilvusAddress, options: dict[str, str]) -> MilvusAddress:
    """The address with the options after its question mark."""
    numbers = {key: _number(key, value) for key, value in options.items() if key not in _TEXT_KEYS}
    name = options.get("collection", address.collection)
    if not re.fullmatch(r"[A-Za-z_]\w{0,199}", name):
        raise SkyPartError(f"collection={name}: use letters, digits and underscores, beginning with a letter")
    regions = numbers.pop("regions", None)
    if regions is not None and not 10 <= regions <= 180:
        raise SkyPartError(f"regions={regions}: must be 10 to 180 degrees")
    vectors = options.get("vectors")
    if vectors not in (None, "float32", "float16"):
        raise SkyPartError(f"vectors={vectors}: must be float32 or float16")
    return replace(
        address,
        collection=name,
        index=options["index"].upper() if "index" in options else None,
        regions=regions,
        half=None if vectors is None else vectors == "float16",
        build=tuple(sorted((k, v) for k, v in numbers.items() if k not in _SEARCH_KEYS)),
        search=tuple(sorted((k, v) for k, v in numbers.items() if k in _SEARCH_KEYS)),
    )


def _number(key: str, value: str) -> int:
    if not value.isdecimal():
        raise SkyPartError(f"{key}={value} in the store address must be a whole number")
    return int(value)


def check_exists(address: str) -> None:
    """Raise if the file of Milvus Lite does not exist: the client would make an empty one."""
    parsed = parse_address(address)
    if parsed.is_file and not path_exists(Path(parsed.uri).expanduser()):
        raise SkyPartError(
            f"{parsed.shown}: there is no such file; correct the store address, or restore the file from a backup"
        )


def absolute_address(address: str) -> str:
    """The address, valid from any folder: the file of Milvus Lite becomes absolute."""
    parsed = parse_address(address)
    if not parsed.is_file:
        return address
    _, _, query = address.partition("?")
    return f"milvus:{Path(parsed.uri).expanduser().absolute()}" + (f"?{query}" if query else "")
