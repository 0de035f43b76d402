"""Where a server listens, and its limits."""

from dataclasses import dataclass

from skypart.hosts import LOOPBACK

DISCARD_SECONDS = 5.0
"""Time to read the rest of a body that is not wanted, before its request is answered."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Address, API key and limits of a server.

    host, port: where it listens; port 0 picks a free one. hosts: names accepted in the Host header (default: loopback
    names if `host` is one of them, any name otherwise). api_key: required in X-API-Key except for the page and
    /healthz; None for no key.
    max_bytes: of a request's body. max_pixels: of a photo. upload_seconds: to send a request. header_seconds: to send
    its head. request_seconds: from the head of a request to the end of its answer. max_waiting_bytes: of all uploads
    together that are being read or waiting. max_connections, max_client_connections: open at a time, in all and from
    one address; the oldest idle one makes room for a new one.
    decode_seconds, decode_bytes: time of the processor and memory for decoding a photo, in a process of its own.
    workers: inference threads. queue: photos that may wait for one, fewer if they would not start within
    wait_seconds. map_queue: tiles, views and examples that may wait.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[str, ...] = ()
    api_key: str | None = None
    max_bytes: int = 32 * 1024 * 1024
    max_pixels: int = 64_000_000
    upload_seconds: float = 30.0
    header_seconds: float = 10.0
    request_seconds: float = 300.0
    max_waiting_bytes: int = 256 * 1024 * 1024
    max_connections: int = 512
    max_client_connections: int = 256
    decode_seconds: float = 20.0
    decode_bytes: int = 2 * 1024**3
    workers: int = 1
    queue: int = 16
    wait_seconds: float = 4.0
    map_queue: int = 512

    def accepted_hosts(self) -> frozenset[str] | None:
        """Host names that the server accepts, in lower case; None for any."""
        if self.hosts:
            return frozenset(name.lower() for name in self.hosts)
        return frozenset(LOOPBACK) if self.host in LOOPBACK else None
