"""How a server is to behave: where it listens and what it takes."""

from dataclasses import dataclass

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Address, key and limits of a server.

    host, port: where it listens; port 0 takes a free one. hosts: names it answers to in the Host header; by default
    those of this machine alone when it listens there alone, and any otherwise. api_key: wanted in X-API-Key by all
    but the page and /healthz; None for none.
    max_bytes: of a request's body. max_pixels: of a photo. upload_seconds: for sending a request; header_seconds: for
    its first lines. max_waiting_bytes: of all uploads together that are being read or wait.
    workers: inference threads. queue: photos that may wait for one; fewer where they would not be begun within
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
    max_waiting_bytes: int = 256 * 1024 * 1024
    workers: int = 1
    queue: int = 16
    wait_seconds: float = 20.0
    map_queue: int = 512

    def answers_to(self) -> frozenset[str] | None:
        """Host names the server answers to, in lower case; None for any."""
        if self.hosts:
            return frozenset(name.lower() for name in self.hosts)
        return frozenset(LOOPBACK) if self.host in LOOPBACK else None
