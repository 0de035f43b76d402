"""Open a store by its address, `scheme:rest`. The scheme selects the engine; only this module knows which there are."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.maps.store.interface import Store

DEFAULT_ADDRESS = "embedded:"
"""The store without a server, in the folder that belongs to the index."""
STORES = {
    "embedded": "skypart.maps.store.embedded:open_embedded",
    "milvus": "skypart.maps.store.milvus:open_milvus",
    "remote": "skypart.maps.store.remote:open_remote",
}
"""Scheme -> `module:function`, imported when first used. The function takes (address, folder, check)."""


def register_store(scheme: str, opener: str) -> None:
    """Make `scheme:...` addresses open with the function `opener`, given as `module:function`."""
    STORES[scheme] = opener


def open_store(address: str, folder: Path, *, check: bool = True) -> Store:
    """Open the store at `address`, for instance `embedded:` or `milvus:http://host:19530`.

    folder: a folder of this index that the store may keep files in; it need not exist. check: report missing or
    truncated data when opening; without, a damaged store opens too, so that `remove` can repair it.
    """
    opener: Callable[[str, Path, bool], Store] = _engine(address, str(folder))
    return opener(address, folder, check)


def absolute_address(address: str) -> str:
    """An address that is valid from any folder: file paths in it become absolute. Raises if it is malformed."""
    _engine(address, "--store")
    if address.startswith("milvus:"):
        from skypart.maps.store import milvus

        return milvus.absolute_address(address)
    return address


def check_exists(address: str) -> None:
    """Raise if the store is a local file that does not exist, and that opening it would create."""
    if address.startswith("milvus:"):
        from skypart.maps.store import milvus

        milvus.check_exists(address)


def needs_network(address: str) -> bool:
    """Whether the store reads its data over the network in a way that must be allowed first."""
    return address.startswith("remote:")


def _engine(address: str, place: str) -> Callable[[str, Path, bool], Store]:
    """The function that opens `address`. place: what an error message begins with."""
    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in STORES:
        named = f"{scheme}:" if colon else repr(scheme)
        known = ", ".join(f"{name}:" for name in sorted(STORES))
        remedy = f"use one that starts with {known}, or register the store first"
        if scheme in ("http", "https", "s3"):
            remedy = "put milvus: before the address of a server, remote: before that of published views"
        raise SkyPartError(f"{place}: unknown store address {named}; {remedy}")
    module, _, function = STORES[scheme].partition(":")
    opener: Callable[[str, Path, bool], Store] = getattr(import_module(module), function)
    return opener
