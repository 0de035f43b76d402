"""Bounds on what clients can hold: connections in all and per client, time for each step, and lines in the log."""

import asyncio
import logging
import time
from collections.abc import Callable

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from skypart.serve.options import ServeOptions

LINGER_SECONDS = 5.0
"""Time a client has to read an answer that ends the connection."""
LOG_LINES, LOG_SECONDS, LOG_CHARACTERS = 50, 10.0, 4_000
LOGGERS = ("asyncio", "uvicorn", "uvicorn.error", "skypart.serve")
_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Connections:
    """All open connections of a server, the oldest first. Use it from the event loop only."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self._open: dict[BoundedProtocol, str] = {}

    def __len__(self) -> int:
        """Number of open connections."""
        return len(self._open)

    def admit(self, connection: "BoundedProtocol", client: str) -> bool:
        """Count a new connection. At a limit, the oldest idle one makes room for it; False if all are busy."""
        own = [each for each, name in self._open.items() if name == client]
        for group, limit in ((own, self.options.max_client_connections), ([*self._open], self.options.max_connections)):
            if len(group) >= limit:
                idle = next((each for each in group if not each.busy), None)
                if idle is None:
                    return False
                idle.drop()
        self._open[connection] = client
        return True

    def remove(self, connection: "BoundedProtocol") -> None:
        """Forget a connection that has ended."""
        self._open.pop(connection, None)


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with a time limit for the head of a request, for all of it, and for what follows the answer.

    bounds: shared by all connections of a server; set by `bounded_protocol`.
    """

    bounds: Connections
    _head_timer: asyncio.TimerHandle | None = None
    _request_timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def drop(self) -> None:
        """End the connection at once."""
        self.bounds.remove(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit a connection, or refuse it."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        if not self.bounds.admit(self, str(peer[0]) if peer else ""):
            transport.write(_REFUSAL)
            transport.close()
            return
        self._head_timer = self.loop.call_later(self.bounds.options.header_seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; a head that is not complete has a time limit."""
        super().data_received(data)
        if not self.busy and self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.bounds.options.header_seconds, self.transport.close)

    def handle_events(self) -> None:
        """Begin the next request, whether it arrived just now or behind the one before: each has its time limit."""
        before = self.cycle
        super().handle_events()
        if self.busy and self.cycle is not before:
            self._stop_timers()
            self._request_timer = self.loop.call_later(self.bounds.options.request_seconds, self.drop)

    def on_response_complete(self) -> None:
        """End the connection if the client has not sent its whole request: nobody reads the rest."""
        self._stop_timers()
        unfinished = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if unfinished and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.flow.pause_reading()
            self.loop.call_later(LINGER_SECONDS, self.drop)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, also in the middle of a body, where the application must not answer any more."""
        if self.busy:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.drop()
                return
        super().send_400_response(msg)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, whatever state its last request is in."""
        if not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_timers()
        self.bounds.remove(self)
        super().connection_lost(exc)

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._request_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._request_timer = None


def bounded_protocol(options: ServeOptions) -> type[BoundedProtocol]:
    """The protocol of one server, with its own list of connections."""
    return type("ServerProtocol", (BoundedProtocol,), {"bounds": Connections(options)})


class LogLimit(logging.Filter):
    """Drops records beyond LOG_LINES in LOG_SECONDS, says how many, and shortens long ones. clock: for tests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._since = clock()
        self._lines = self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        now = self._clock()
        if now - self._since >= LOG_SECONDS:
            dropped, self._since, self._lines, self._dropped = self._dropped, now, 0, 0
            if dropped:
                record.msg, record.args = f"({dropped} similar lines were left out) {record.getMessage()}", ()
        self._lines += 1
        if self._lines > LOG_LINES:
            self._dropped += 1
            return False
        message = record.getMessage()
        if len(message) > LOG_CHARACTERS:
            record.msg, record.args = message[:LOG_CHARACTERS] + "...", ()
        return True


def limit_logs() -> None:
    """Bound what the server writes to its log, once per process."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, LogLimit) for each in logger.filters):
            logger.addFilter(LogLimit())
