"""View stores: embeddings and footprints of map views, searched by similarity and position."""

from skypart.maps.store.area import is_inside
from skypart.maps.store.interface import Circle, Hit, Store, StoreStats, ViewBatch, Within, check_queries
from skypart.maps.store.open import DEFAULT_ADDRESS, open_store, register_store

__all__ = [
    "DEFAULT_ADDRESS",
    "Circle",
    "Hit",
    "Store",
    "StoreStats",
    "ViewBatch",
    "Within",
    "check_queries",
    "is_inside",
    "open_store",
    "register_store",
]
