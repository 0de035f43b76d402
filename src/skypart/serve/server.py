"""Run the application: socket, uvicorn, and optionally a browser."""

import socket
import threading
import webbrowser
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import uvicorn
from rich.console import Console
from rich.markup import escape

from skypart.errors import SkyPartError
from skypart.hosts import LOOPBACK
from skypart.serve.app import create_app
from skypart.serve.assets import missing_assets
from skypart.serve.connections import bounded_protocol, limit_logs
from skypart.serve.fly_board import FlyBoard
from skypart.serve.options import ServeOptions
from skypart.serve.service import LocateService

KEEP_ALIVE_SECONDS = 20
"""Time that an idle connection stays open: longer than clients such as httpx (5 s) keep theirs. If both ends close at
the same time, a request on its way is lost."""


def listen(options: ServeOptions) -> socket.socket:
    """A socket bound to host and port."""
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


def page_url(options: ServeOptions, bound: socket.socket) -> str:
    """URL of the page for a browser on this machine."""
    host = options.host or "127.0.0.1"
    with suppress(ValueError):  # a name
        if ip_address(host).is_unspecified:
            host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/"


def build_server(service: LocateService, options: ServeOptions, board: FlyBoard | None = None) -> uvicorn.Server:
    """A uvicorn server for the application, not started. board: of a live flight."""
    limit_logs()
    config: dict[str, Any] = {
        "http": bounded_protocol(options),
        "ws": "none",
        "loop": "asyncio",
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": 5,
    }
    return uvicorn.Server(uvicorn.Config(create_app(service, options, board), **config))


def run_server(
    service: LocateService, options: ServeOptions | None = None, *, open_browser: bool = False, hint: str = ""
) -> None:
    """Serve until Ctrl-C. `hint` is printed below the URL."""
    options = options or ServeOptions()
    console = Console(stderr=True)
    bound = listen(options)
    url = page_url(options, bound)
    console.print(f"[bold]SkyPart[/] serves {escape(service.info()['name'])} at [bold]{url}[/] (Ctrl-C to stop)")
    if hint:
        console.print(hint)
    missing = missing_assets()
    if missing:
        console.print(f"[yellow]the page has no map:[/] {missing}")
    if options.host not in LOOPBACK and options.api_key is None:
        console.print("[yellow]anyone who can reach this machine can use it:[/] set a key with --api-key")
    if open_browser:
        threading.Timer(0.5, webbrowser.open, [url]).start()
    build_server(service, options).run(sockets=[bound])


def serve_board(board: FlyBoard, service: LocateService, port: int) -> str:
    """Serve a live flight in a thread of this process, on loopback; returns the address of its page."""
    options = ServeOptions(port=port)
    bound = listen(options)
    server = build_server(service, options, board)
    threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="page", daemon=True).start()
    return f"{page_url(options, bound)}fly"
