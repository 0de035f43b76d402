"""Running the application: a socket, uvicorn, a time limit for slow openers, and a browser if wanted."""

import asyncio
import socket
import threading
import webbrowser
from typing import Any

import uvicorn
from rich.console import Console
from rich.markup import escape
from uvicorn.protocols.http.h11_impl import H11Protocol

from skypart.errors import SkyPartError
from skypart.serve.app import serve_app
from skypart.serve.assets import missing_assets
from skypart.serve.options import LOOPBACK, ServeOptions
from skypart.serve.service import LocateService


def timed_protocol(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol, with connections closed that do not finish the head of a request within `seconds`."""

    class Timed(H11Protocol):
        _limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._limit = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            busy = self.cycle is not None and not self.cycle.response_complete
            if busy and self._limit is not None:
                self._limit.cancel()
                self._limit = None
            elif not busy and self._limit is None and self.conn.trailing_data[0]:
                self._limit = self.loop.call_later(seconds, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._limit is not None:
                self._limit.cancel()
            super().connection_lost(exc)

    return Timed


def listen(options: ServeOptions) -> socket.socket:
    """A socket bound to host and port; an error that names them if that cannot be."""
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((options.host, options.port))
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        raise SkyPartError(
            f"cannot listen on {options.host} port {options.port} ({error}); choose another with --host and --port"
        ) from error
    return bound


def address(options: ServeOptions, bound: socket.socket) -> str:
    """Where the page is, as a browser on this machine asks for it."""
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::", "") else options.host
    return f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/"


def build_server(service: LocateService, options: ServeOptions) -> uvicorn.Server:
    """A uvicorn server over the application, not started."""
    config: dict[str, Any] = {
        "http": timed_protocol(options.header_seconds),
        "ws": "none",
        "loop": "asyncio",
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 5,
    }
    return uvicorn.Server(uvicorn.Config(serve_app(service, options), **config))


def run_server(
    service: LocateService, options: ServeOptions | None = None, *, open_browser: bool = False, hint: str = ""
) -> None:
    """Serve until Ctrl-C. `hint` is printed under the address."""
    options = options or ServeOptions()
    console = Console(stderr=True)
    bound = listen(options)
    where = address(options, bound)
    console.print(f"[bold]SkyPart[/] serves {escape(service.info()['name'])} at [bold]{where}[/] (Ctrl-C ends it)")
    if hint:
        console.print(hint)
    missing = missing_assets()
    if missing:
        console.print(f"[yellow]the page has no map:[/] {missing}")
    if options.host not in LOOPBACK and options.api_key is None:
        console.print("[yellow]anyone who reaches this machine may ask it:[/] set a key with --api-key")
    if open_browser:
        threading.Timer(0.5, webbrowser.open, [where]).start()
    build_server(service, options).run(sockets=[bound])
