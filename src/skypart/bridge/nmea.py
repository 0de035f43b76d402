"""NMEA 0183 (GGA, RMC, GST) over a serial line, a TCP port or a pseudo-terminal."""

import contextlib
import math
import os
import socket
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from skypart.bridge.live_sink import GuardedSink
from skypart.errors import SkyPartError
from skypart.position.hypotheses import RADIUS_95
from skypart.position.live import Report

ESTIMATED = 6
"""GGA's quality of an estimated position, dead reckoning."""
FIXED = 1
SATELLITES = 8
"""Receivers of NMEA ignore a position with none; there are none here."""
KNOTS = 3600.0 / 1852.0


def sentences(report: Report) -> list[str]:
    """GGA, RMC and GST of a report, with checksum and line end. While lost, GGA and RMC declare no fix."""
    point = report.point
    clock = _clock(report.time)
    date = report.time.strftime("%d%m%y")
    if point.latitude is None or point.longitude is None or point.radius_m is None:
        return [
            _sentence(f"GPGGA,{clock},,,,,0,00,,,M,,M,,"),
            _sentence(f"GPRMC,{clock},V,,,,,,,{date},,,N"),
        ]
    latitude, longitude = _degrees(point.latitude, "NS", 2), _degrees(point.longitude, "EW", 3)
    quality, mode = (FIXED, "A") if point.state == "tracking" else (ESTIMATED, "E")
    height = "" if report.height_m is None else f"{report.height_m:.1f}"
    dilution = min(99.9, max(0.5, point.radius_m / RADIUS_95 / 5.0))
    east, north = point.velocity_east or 0.0, point.velocity_north or 0.0
    course = math.degrees(math.atan2(east, north)) % 360.0
    one_sigma = point.radius_m / RADIUS_95
    east_sigma = north_sigma = one_sigma
    if point.covariance is not None:
        east_sigma, north_sigma = math.sqrt(point.covariance[0]), math.sqrt(point.covariance[2])
    return [
        _sentence(f"GPGGA,{clock},{latitude},{longitude},{quality},{SATELLITES:02d},{dilution:.1f},{height},M,,M,,"),
        _sentence(
            f"GPRMC,{clock},A,{latitude},{longitude},{math.hypot(east, north) * KNOTS:.2f},{course:.1f},{date},,,{mode}"
        ),
        _sentence(f"GPGST,{clock},{one_sigma:.1f},,,,{north_sigma:.1f},{east_sigma:.1f},"),
    ]


def _sentence(body: str) -> str:
    checksum = 0
    for byte in body.encode("ascii"):
        checksum ^= byte
    return f"${body}*{checksum:02X}\r\n"


def _clock(moment: datetime) -> str:
    return f"{moment:%H%M%S}.{moment.microsecond // 10_000:02d}"


def _degrees(value: float, letters: str, digits: int) -> str:
    """`ddmm.mmmmm,N`: minutes never round up to 60."""
    hundred_thousandths = round(abs(value) * 60 * 100_000)
    degrees, minutes = divmod(hundred_thousandths, 6_000_000)
    return f"{degrees:0{digits}d}{minutes / 100_000:08.5f},{letters[0] if value >= 0 else letters[1]}"


class Line(Protocol):
    """Where sentences are written."""

    def write(self, data: bytes) -> Any:
        """Write, or raise OSError."""

    def close(self) -> None:
        """Close."""


class PseudoTerminal:
    """A pseudo-terminal; other programs open `name` as if it were a serial port. What nobody reads is dropped."""

    def __init__(self) -> None:
        import tty

        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        os.set_blocking(self._ours, False)
        self.name = os.ttyname(self._theirs)

    def write(self, data: bytes) -> None:
        """Write as much as fits."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._ours, data)

    def close(self) -> None:
        """Close both ends."""
        os.close(self._ours)
        os.close(self._theirs)


class TcpServer:
    """Listens on a port and writes to all who connect. Those who do not read are dropped."""

    def __init__(self, host: str, port: int) -> None:
        self._server = socket.create_server((host, port))
        self._server.setblocking(False)
        self.port = int(self._server.getsockname()[1])
        self._clients: list[socket.socket] = []

    def write(self, data: bytes) -> None:
        """Accept who waits, then write to all."""
        with contextlib.suppress(BlockingIOError):
            while True:
                client, _ = self._server.accept()
                client.setblocking(False)
                self._clients.append(client)
        kept = []
        for client in self._clients:
            try:
                client.sendall(data)
                kept.append(client)
            except OSError:
                client.close()
        self._clients = kept

    def close(self) -> None:
        """Close all connections."""
        for each in (*self._clients, self._server):
            each.close()


class SerialLine:
    """A serial port that is opened again after it broke. address: DEVICE[,BAUD]."""

    def __init__(self, address: str) -> None:
        try:
            import serial
        except ImportError as error:
            raise SkyPartError("a serial line needs pyserial; install it with: pip install 'skypart[fly]'") from error
        device, _, baud = address.partition(",")
        self._open: Callable[[], Any] = lambda: serial.Serial(device, int(baud or 9600), write_timeout=0.5)
        self._port: Any = None
        try:
            self._port = self._open()
        except (OSError, ValueError) as error:
            raise SkyPartError(
                f"{device}: cannot open the serial line ({error}); check the cable and its name"
            ) from error

    def write(self, data: bytes) -> None:
        """Write, or raise; the next call opens the port again."""
        try:
            if self._port is None:
                self._port = self._open()
            self._port.write(data)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Close the port."""
        port, self._port = self._port, None
        if port is not None:
            with contextlib.suppress(Exception):
                port.close()


class NmeaSink(GuardedSink):
    """Writes sentences to a line. line: None in a dry run."""

    def __init__(
        self, name: str, line: Line | None, *, armed: bool, rate_hz: float, say: Callable[[str], None]
    ) -> None:
        super().__init__(name, armed=armed, rate_hz=rate_hz, say=say)
        self._line = line

    def describe(self, report: Report) -> list[str]:
        """The sentences."""
        return [line.strip() for line in sentences(report)]

    def transmit(self, report: Report) -> None:
        """Write the sentences."""
        assert self._line is not None
        self._line.write("".join(sentences(report)).encode("ascii"))

    def close(self) -> None:
        """Close the line."""
        if self._line is not None:
            self._line.close()


def open_nmea(address: str, *, armed: bool, rate_hz: float, say: Callable[[str], None]) -> NmeaSink:
    """A sink by its address: pty, tcp:[HOST:]PORT, or DEVICE[,BAUD]."""
    line: Line | None = None
    name = address
    if armed and address == "pty":
        line = terminal = PseudoTerminal()
        name = terminal.name
        say(f"NMEA on {name}")
    elif armed and address.startswith("tcp:"):
        host, _, port = address.removeprefix("tcp:").rpartition(":")
        try:
            line = server = TcpServer(host or "127.0.0.1", int(port))
        except (OSError, ValueError, OverflowError) as error:
            raise SkyPartError(f"{address}: cannot listen there ({error}); give tcp:127.0.0.1:10110") from error
        name = f"tcp:{host or '127.0.0.1'}:{server.port}"
    elif armed:
        line = SerialLine(address)
    return NmeaSink(name, line, armed=armed, rate_hz=rate_hz, say=say)
