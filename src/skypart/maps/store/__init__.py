"""The views of maps: their embeddings and footprints, kept in one folder and searched by likeness and place."""

from skypart.maps.store.embedded import EmbeddedStore
from skypart.maps.store.interface import Circle, Hit, Store, StoreStats, ViewBatch

__all__ = ["Circle", "EmbeddedStore", "Hit", "Store", "StoreStats", "ViewBatch"]
