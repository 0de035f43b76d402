"""View stores: embeddings and footprints of map views, searched by similarity and position."""

from skypart.maps.store.area import is_inside
from skypart.maps.store.interface import (
    Circle,
    Hit,
    Store,
    StoreBase,
    StoreModel,
    StoreStats,
    ViewBatch,
    Within,
    check_queries,
)
from skypart.maps.store.move import copy_views
from skypart.maps.store.open import (
    DEFAULT_ADDRESS,
    absolute_address,
    check_exists,
    needs_network,
    open_store,
    register_store,
)

__all__ = [
    "DEFAULT_ADDRESS",
    "Circle",
    "Hit",
    "Store",
    "StoreBase",
    "StoreModel",
    "StoreStats",
    "ViewBatch",
    "Within",
    "absolute_address",
    "check_exists",
    "check_queries",
    "copy_views",
    "is_inside",
    "needs_network",
    "open_store",
    "register_store",
]
