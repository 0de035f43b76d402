"""Open a store by its address, `scheme:rest`. The scheme selects the engine; only this module knows which there are."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.maps.store.interface import Store

DEFAULT_ADDRESS = "embedded:"
"""The store without a server, in the folder that belongs to the index."""
STORES = {"embedded": "skypart.maps.store.embedded:open_embedded"}
"""Scheme -> `module:function`, imported when first used. The function takes (address, folder, check)."""


def register_store(scheme: str, opener: str) -> None:
    """Make `scheme:...` addresses open with the function `opener`, given as `module:function`."""
    STORES[scheme] = opener


def open_store(address: str, folder: Path, *, check: bool = True) -> Store:
    """Open the store at `address`, for instance `embedded:` or `milvus://host:19530/town`.

    folder: a folder of this index that the store may keep files in; it need not exist. check: report missing or
    truncated data when opening; without, a damaged store opens too, so that `remove` can repair it.
    """
    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in STORES:
        named = f"{scheme}:" if colon else repr(scheme)
        known = ", ".join(f"{name}:" for name in sorted(STORES))
        raise SkyPartError(
            f"{folder}: unknown store address {named}; use one that starts with {known}, or register the store first"
        )
    module, _, function = STORES[scheme].partition(":")
    opener: Callable[[str, Path, bool], Store] = getattr(import_module(module), function)
    return opener(address, folder, check)
