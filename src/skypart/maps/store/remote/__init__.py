"""A published store, read where it lies: the folder of an embedded store on object storage or a web server."""

from skypart.maps.store.remote.bucket import Bucket
from skypart.maps.store.remote.cache import BlockCache
from skypart.maps.store.remote.store import RemoteStore, open_remote

__all__ = ["BlockCache", "Bucket", "RemoteStore", "open_remote"]
