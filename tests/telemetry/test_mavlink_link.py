"""Links to an autopilot: flight data come in, and a broken link is stated and opened again."""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pymavlink")
from skypart.bridge.mavlink_out import MavlinkEncoder, MavlinkSink
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.position.fly import open_tracker
from skypart.position.live import FlyOptions
from skypart.position.locate import Locator
from skypart.telemetry.mavlink import LiveTelemetry, read_tlog
from tests.bridge.reports import TIME, TRACKING


def packed(message: Any) -> bytes:
    from pymavlink.dialects.v20 import common

    data: bytes = message.pack(common.MAVLink(None, srcSystem=1, srcComponent=1))
    return data


def attitude(seconds: float, yaw: float) -> bytes:
    from pymavlink.dialects.v20 import common

    return packed(common.MAVLink_attitude_message(round(1000 * seconds), 0.0, 0.0, yaw, 0.0, 0.0, 0.0))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.01)


@contextmanager
def listening(port: int = 0) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", port), reuse_port=True) as server:
        yield server


def test_a_tcp_link_that_closes_is_stated_and_opened_again(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with listening() as server:
        port = server.getsockname()[1]
        live = LiveTelemetry(f"tcp:127.0.0.1:{port}", lambda: time.monotonic() - began)
        peer, _ = server.accept()
        peer.sendall(attitude(1.0, 0.5))
        wait_for(lambda: live.messages == 1)
        assert live.series["heading_deg"].values[-1] == pytest.approx(math.degrees(0.5)) and live.problem == ""
        peer.close()
        server.close()
        wait_for(lambda: "the link is broken (the other side closed it)" in live.problem)
    with listening(port) as server:
        peer, _ = server.accept()
        peer.sendall(attitude(2.0, 1.0))
        wait_for(lambda: live.messages == 2)
        assert live.series["heading_deg"].values[-1] == pytest.approx(math.degrees(1.0)) and live.problem == ""
        live.close()
        peer.close()
    assert capfd.readouterr().out == "", "JSON lines go there"


def test_whose_position_is_followed_does_not_depend_on_which_message_comes_first() -> None:
    from pymavlink.dialects.v20 import common

    box = Bounds(south=48.0, west=16.0, north=48.01, east=16.01)
    locator = SimpleNamespace(index=SimpleNamespace(bounds=box, manifest=SimpleNamespace(maps=[])))
    with listening() as server:
        live = LiveTelemetry(f"tcp:127.0.0.1:{server.getsockname()[1]}", lambda: 0.0)
        peer, _ = server.accept()
        peer.sendall(attitude(1.0, 0.5))
        wait_for(lambda: live.messages == 1)
        down = [0.7071, 0.0, -0.7071, 0.0]
        gimbal = packed(common.MAVLink_gimbal_device_attitude_status_message(0, 0, 1300, 64, down, 0.0, 0.0, 0.0, 0))
        height = packed(common.MAVLink_global_position_int_message(1400, 0, 0, 0, 99500, 0, 0, 0, 0))
        later = threading.Timer(0.3, lambda: peer.sendall(gimbal + height))
        later.start()
        tracker = open_tracker(cast("Locator", locator), FlyOptions(), telemetry=live)
        assert tracker.filter.options.follow == "drone"
        later.join()
        live.close()
        peer.close()


def test_positions_on_a_broken_serial_line_are_not_swallowed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("serial")
    link = tmp_path / "tty"
    reader, line = os.openpty()
    link.symlink_to(os.ttyname(line))
    sink = MavlinkSink(f"{link},57600", MavlinkEncoder(["gps_input"]), armed=True, rate_hz=1000.0, say=print)
    sink.send(TRACKING)
    assert sink.problem == "" and os.read(reader, 4096).startswith(b"\xfd")
    os.close(line)
    os.close(reader)
    link.unlink()
    sink.send(replace(TRACKING, time=TIME + timedelta(seconds=1)))
    assert "cannot send" in sink.problem
    sink.send(replace(TRACKING, time=TIME + timedelta(seconds=2)))
    assert "cannot send" in sink.problem
    reader, line = os.openpty()
    link.symlink_to(os.ttyname(line))

    def sent() -> bool:
        sink.send(replace(TRACKING, time=TIME + timedelta(seconds=time.monotonic())))
        return sink.problem == ""

    wait_for(sent)
    assert b"\xfd" in os.read(reader, 4096)
    sink.close()
    os.close(line)
    os.close(reader)
    assert capfd.readouterr().out == ""


def test_a_link_that_cannot_be_opened_is_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp:127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(SkyPartError, match=r"tcp:127.0.0.1:\d+: cannot open the MAVLink link"):
            LiveTelemetry(address, time.monotonic)


def test_a_recorded_log_is_read(tmp_path: Path) -> None:
    from pymavlink.dialects.v20 import common

    start, path = 1_715_000_000, tmp_path / "flight.tlog"
    frames = []
    for number in range(20):
        stamp = (1_000_000 * start + 100_000 * number).to_bytes(8, "big")
        height = packed(
            common.MAVLink_global_position_int_message(100 * number, 481250000, 163750000, 0, 99500, 900, 900, 0, 0)
        )
        moved = packed(common.MAVLink_local_position_ned_message(100 * number, 0.0, 0.0, 0.0, 4.0, -3.0, 0.0))
        frames += [stamp + each for each in (attitude(0.1 * number, 0.3), height, moved)]
    path.write_bytes(b"".join(frames) + b"\x00" * 5)
    found = read_tlog(path, fixed_tilt=60.0)
    assert found.start is not None and found.start.timestamp() == start
    sample = found.at(1.0)
    assert sample.heading_deg == pytest.approx(math.degrees(0.3)) and sample.tilt_deg == pytest.approx(60.0)
    assert sample.height_m == pytest.approx(99.5)
    assert (sample.velocity_north, sample.velocity_east) == (4.0, -3.0), "not the velocity with GPS in it"
    assert (sample.latitude, sample.longitude) == (48.125, 16.375)
