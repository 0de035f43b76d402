"""Views in Milvus: a server or cluster by its address, or Milvus Lite in a local file, with the same client code."""

from skypart.maps.store.milvus.address import MilvusAddress, absolute_address, check_exists, parse_address
from skypart.maps.store.milvus.store import MilvusStore, open_milvus

__all__ = ["MilvusAddress", "MilvusStore", "absolute_address", "check_exists", "open_milvus", "parse_address"]
