"""Where the reports of a live flight go: track files, JSON lines, WebSocket, MAVLink, NMEA. `open_sink` opens them."""

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

from skypart.atomic import check_writable
from skypart.bridge.formats import TrackFile
from skypart.bridge.live_sink import report_values
from skypart.bridge.mavlink_out import MavlinkEncoder, MavlinkSink
from skypart.bridge.nmea import open_nmea
from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.hosts import LOOPBACK, is_foreign_page
from skypart.position.live import Report, Sink
from skypart.position.track import TrackPoint

AUTOPILOT = ("mavlink:", "nmea:")
"""Beginnings of the sinks that need `--arm-output`, and the drone's own position."""
SAVE_EVERY = 50
"""Points after which a track file is written anew, so that a crash loses little."""


def report_line(report: Report) -> str:
    """A report as one line of JSON."""
    return json.dumps(report_values(report), allow_nan=False, ensure_ascii=False)


class JsonLines:
    """One line of JSON per report, to standard output or a file. A full disk is stated and does not end the flight."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.problem = path, ""
        self._stream: IO[str] = sys.stdout
        if path is not None:
            check_writable(path)
            self._stream = path.open("w", encoding="utf-8")

    def send(self, report: Report) -> None:
        """Write a line."""
        try:
            self._stream.write(report_line(report) + "\n")
            self._stream.flush()
            self.problem = ""
        except (OSError, ValueError) as error:
            self.problem = f"{self.path or 'standard output'}: cannot write ({error}); free disk space"

    def close(self) -> None:
        """Close the file."""
        if self.path is not None:
            self._stream.close()


class TrackSink:
    """A track file, written whole again and again while the flight goes on, and at its end.

    One point per located frame: the report is kept whenever a new frame was located.
    """

    def __init__(self, file: TrackFile) -> None:
        self.file, self.problem = file, ""
        self._points: list[TrackPoint] = []
        self._located, self._saved = 0, 0
        self._start: datetime | None = None

    def send(self, report: Report) -> None:
        """Keep the point of a newly located frame."""
        if report.located == self._located:
            return
        self._located = report.located
        self._start = self._start or report.time - timedelta(seconds=report.point.time_s)
        self._points.append(report.point)
        if len(self._points) >= self._saved + SAVE_EVERY:
            self._write()

    def _write(self) -> None:
        self._saved = len(self._points)
        try:
            self.file.write(self._points, self._start)
            self.problem = ""
        except SkyPartError as error:
            self.problem = str(error)

    def close(self) -> None:
        """Write the whole track."""
        self._write()


MAX_WEBSOCKETS = 32
"""Clients of a WebSocket; each has a thread."""


class WebSocketLines:
    """JSON lines to everyone who connects to a WebSocket. Slow clients miss reports.

    Pages of other sites are refused: a browser lets every page connect, and would show it where the drone is.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            from websockets.exceptions import ConnectionClosed
            from websockets.sync.server import serve
        except ImportError as error:
            raise SkyPartError("WebSocket needs websockets; install it with: pip install 'skypart[fly]'") from error
        self.problem = ""
        self._newest, self._number = "", 0
        self._changed, self._closed = threading.Condition(), False

        accepted = frozenset(LOOPBACK) if host in LOOPBACK else None
        places = threading.BoundedSemaphore(MAX_WEBSOCKETS)

        def refuse(connection: Any, request: Any) -> Any:
            hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
            own = len(hosts) == 1 and len(origins) <= 1
            if not own or is_foreign_page(origins[0] if origins else None, hosts[0], accepted):
                return connection.respond(403, "pages of other sites are not allowed\n")
            return None

        def handle(connection: Any) -> None:
            if not places.acquire(blocking=False):
                connection.close(1013, "too many clients")
                return
            try:
                follow(connection)
            finally:
                places.release()

        def follow(connection: Any) -> None:
            number = self._number
            while True:
                with self._changed:
                    while self._number == number and not self._closed:
                        self._changed.wait()
                    if self._closed:
                        return
                    number, line = self._number, self._newest
                try:
                    connection.send(line)
                except ConnectionClosed:
                    return

        try:
            self._server = serve(handle, host, port, process_request=refuse)
        except OSError as error:
            raise SkyPartError(f"ws:{host}:{port}: cannot listen there ({error}); choose another port") from error
        self.port = int(self._server.socket.getsockname()[1])
        threading.Thread(target=self._server.serve_forever, name="websocket", daemon=True).start()

    def send(self, report: Report) -> None:
        """Hand the newest line to all connections."""
        with self._changed:
            self._newest, self._number = report_line(report), self._number + 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all connections."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()


def open_sink(
    name: str,
    *,
    armed: bool,
    say: Callable[[str], None],
    rate_hz: float = 5.0,
    messages: Sequence[str] = ("gps_input",),
    origin: LocalFrame | None = None,
    declare_no_fix: bool = True,
) -> Sink:
    """A sink by its name.

    `-`: JSON lines on standard output. FILE.jsonl. ws:[HOST:]PORT. mavlink:ADDRESS. nmea:pty, nmea:tcp:[HOST:]PORT,
    nmea:DEVICE[,BAUD]. Else a track file: .gpx, .csv, .geojson, .kml. Sinks of AUTOPILOT print what they would send
    unless `armed`.
    """
    if name == "-":
        return JsonLines(None)
    if name.startswith("ws:"):
        host, _, port = name.removeprefix("ws:").rpartition(":")
        if not port.isdecimal():
            raise SkyPartError(f"{name}: no port; give ws:8765 or ws:HOST:PORT")
        return WebSocketLines(host or "127.0.0.1", int(port))
    if name.startswith("mavlink:"):
        encoder = MavlinkEncoder(messages, origin=origin, declare_no_fix=declare_no_fix)
        return MavlinkSink(name.removeprefix("mavlink:"), encoder, armed=armed, rate_hz=rate_hz, say=say)
    if name.startswith("nmea:"):
        return open_nmea(name.removeprefix("nmea:"), armed=armed, rate_hz=rate_hz, say=say)
    path = Path(os.fspath(name))
    return JsonLines(path) if path.suffix.lower() == ".jsonl" else TrackSink(TrackFile(path))
