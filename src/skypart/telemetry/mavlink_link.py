"""A MAVLink link that says when it is broken, and is opened again behind the scenes.

pymavlink's own links print such errors on standard output, where JSON lines go, hide them, or spin.
"""

import contextlib
import importlib
import os
import socket
import threading
from types import ModuleType
from typing import Any

from skypart.errors import SkyPartError

RETRY_S = 0.5
"""Pause between attempts to open a broken link again."""
WRITE_S = 0.5
"""Seconds after which a serial line that takes nothing counts as broken."""


def load_pymavlink(dialect: str = "common") -> ModuleType:
    """`pymavlink.mavutil` for MAVLink 2; raises with the command that installs it."""
    os.environ["MAVLINK20"] = "1"
    os.environ.setdefault("MAVLINK_DIALECT", dialect)
    try:
        return importlib.import_module("pymavlink.mavutil")
    except ImportError as error:
        raise SkyPartError("MAVLink needs pymavlink; install it with: pip install 'skypart[fly]'") from error


class MavlinkLink:
    """A link for messages in or out. broken: why nothing passes; empty while it works.

    address: as pymavlink writes it, such as udpin:0.0.0.0:14550 or /dev/ttyACM0,57600.
    """

    def __init__(self, address: str, *, system: int = 255, component: int = 0) -> None:
        self.address, self.broken = address, ""
        self._system, self._component = system, component
        self._stop = threading.Event()
        try:
            self._link: Any = self._open()
        except Exception as error:  # pyserial and sockets raise many kinds
            raise SkyPartError(
                f"{address}: cannot open the MAVLink link ({error}); give for example udpin:0.0.0.0:14550, "
                "udpout:127.0.0.1:14551, tcp:127.0.0.1:5760 or /dev/ttyACM0,57600"
            ) from error

    def _open(self) -> Any:
        mavutil = load_pymavlink()
        device, _, baud = self.address.partition(",")
        link = mavutil.mavlink_connection(
            device,
            baud=int(baud or 57600),
            source_system=self._system,
            source_component=self._component,
            dialect="common",
            retries=1,
        )
        if isinstance(link, mavutil.mavtcp):
            link.handle_eof = link.handle_disconnect = _raise_closed
            link.write = lambda data: _send_whole(link.port, bytes(data))
        elif isinstance(link, mavutil.mavserial):
            link.port.write_timeout = WRITE_S
            link.write = lambda data: link.port.write(bytes(data))
        return link

    def receive(self, timeout_s: float) -> Any:
        """The next message; None if none comes in time. Raises OSError while the link is broken."""
        link = self._working()
        try:
            return link.recv_match(blocking=True, timeout=timeout_s)
        except Exception as error:
            raise self._lose(link, error) from error

    def send(self, message: Any) -> None:
        """Send a message. Raises OSError while the link is broken."""
        link = self._working()
        try:
            link.mav.send(message)
        except Exception as error:
            raise self._lose(link, error) from error

    def _working(self) -> Any:
        if self._link is None:
            raise OSError(self.broken)
        return self._link

    def _lose(self, link: Any, error: Exception) -> OSError:
        """Close the link and open it again in a thread, because that may take long."""
        self.broken = str(error) or type(error).__name__
        self._link = None
        with contextlib.suppress(Exception):
            link.close()
        threading.Thread(target=self._reopen, name="mavlink link", daemon=True).start()
        return OSError(self.broken)

    def _reopen(self) -> None:
        while not self._stop.wait(RETRY_S):
            with contextlib.suppress(Exception):
                link = self._open()
                self.broken, self._link = "", link
                return

    def close(self) -> None:
        """Close the link."""
        self._stop.set()
        with contextlib.suppress(Exception):
            self._link.close()


def _send_whole(port: socket.socket, data: bytes) -> None:
    """A part of a message would garble the next one, so it counts as a broken link."""
    if port.send(data) < len(data):
        raise ConnectionError("the other side takes too little")


def _raise_closed() -> None:
    raise ConnectionError("the other side closed it")
