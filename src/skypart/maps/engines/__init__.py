"""Engines that embed the views of a map: in this process, or on a cluster."""

from skypart.maps.engines.interface import Engine, MapJob, embed_block, write_block
from skypart.maps.engines.open import open_engine, register_engine
from skypart.maps.engines.progress import ViewProgress

__all__ = ["Engine", "MapJob", "ViewProgress", "embed_block", "open_engine", "register_engine", "write_block"]
