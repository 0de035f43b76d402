"""MAVLink is checked by a second process with pymavlink's own parser, NMEA by pynmea2."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from skypart.bridge.live_sink import RateLimit
from skypart.bridge.mavlink_out import MavlinkEncoder, MavlinkSink, gps_time
from skypart.bridge.nmea import NmeaSink, PseudoTerminal, TcpServer, open_nmea, sentences
from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from tests.bridge.reports import LOST, STOPPED, TIME, TRACKING

pytest.importorskip("pymavlink", reason="needs pymavlink: pip install 'skypart[fly]'")
pynmea2 = pytest.importorskip("pynmea2", reason="needs pynmea2")

ALL = ("gps_input", "global_position_sensor", "external_estimate", "odometry")
LISTENER = """
import json, math, os, sys
os.environ["MAVLINK20"] = "1"
from pymavlink import mavutil
link = mavutil.mavlink_connection("udpin:127.0.0.1:" + sys.argv[1], dialect="common")
print("ready", flush=True)
found = []
while True:
    message = link.recv_match(blocking=True, timeout=20)
    if message is None:
        break
    values = message.to_dict()
    values["system"], values["component"] = message.get_srcSystem(), message.get_srcComponent()
    found.append({k: (None if isinstance(v, float) and math.isnan(v) else v) for k, v in values.items()})
    if message.get_type() == "GPS_INPUT" and message.fix_type == 1:
        break
print(json.dumps(found), flush=True)
"""


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_every_field_arrives_in_another_process() -> None:
    port = free_port()
    listener = subprocess.Popen([sys.executable, "-c", LISTENER, str(port)], stdout=subprocess.PIPE, text=True)
    try:
        assert listener.stdout is not None and listener.stdout.readline().strip() == "ready"
        origin = LocalFrame(latitude=-33.85, longitude=151.21)
        sink = MavlinkSink(
            f"udpout:127.0.0.1:{port}", MavlinkEncoder(ALL, origin=origin), armed=True, rate_hz=5.0, say=print
        )
        sink.send(TRACKING)
        time.sleep(0.05)
        sink.send(replace(LOST, time=TIME + timedelta(seconds=1)))
        found = json.loads(listener.stdout.readline())
        sink.close()
    finally:
        listener.kill()
        listener.wait()
    assert sink.sent == 2 and not sink.problem
    by_type = {each["mavpackettype"]: each for each in found if each.get("fix_type") != 1}
    assert {each["system"] for each in found} == {1} and {each["component"] for each in found} == {197}
    assert list(by_type) == ["HEARTBEAT", "GPS_INPUT", "GLOBAL_POSITION_SENSOR", "COMMAND_INT", "ODOMETRY"]
    micro = 1_778_051_289_250_000
    gps = by_type["GPS_INPUT"]
    assert gps["time_usec"] == micro and (gps["time_week"], gps["time_week_ms"]) == gps_time(TIME)
    assert (gps["lat"], gps["lon"], gps["fix_type"], gps["yaw"]) == (-338567844, 1512152967, 3, 0)
    assert (gps["vn"], gps["ve"], gps["horiz_accuracy"]) == (-4.0, 3.0, 12.0)
    assert gps["speed_accuracy"] == 1.0 and gps["satellites_visible"] == 10
    assert gps["ignore_flags"] == 1 | 4 | 16 | 128  # height, VDOP, vertical velocity, vertical accuracy
    sensor = by_type["GLOBAL_POSITION_SENSOR"]
    assert (sensor["time_usec"], sensor["processing_time"], sensor["source"]) == (micro, 350_000, 2)
    assert (sensor["lat"], sensor["lon"], sensor["alt"], sensor["epv"]) == (-338567844, 1512152967, None, None)
    assert sensor["eph"] == pytest.approx(12.0 / 2.4477, rel=1e-3)
    command = by_type["COMMAND_INT"]
    assert (command["command"], command["x"], command["y"], command["z"]) == (43003, -338567844, 1512152967, None)
    assert command["param1"] == pytest.approx(TIME.timestamp() % 36_000, abs=0.01)
    assert command["param2"] == pytest.approx(0.35) and command["param3"] == pytest.approx(12.0 / 2.4477, rel=1e-3)
    odometry = by_type["ODOMETRY"]
    metres = origin.to_metres(latitude=-33.8567844, longitude=151.2152967)
    assert (odometry["x"], odometry["y"]) == (
        pytest.approx(float(metres.y), abs=1e-2),
        pytest.approx(float(metres.x), abs=1e-2),
    )
    assert (odometry["z"], odometry["vx"], odometry["vy"]) == (-80.5, -4.0, 3.0)
    assert (odometry["frame_id"], odometry["child_frame_id"], odometry["quality"]) == (1, 1, 100)
    assert odometry["pose_covariance"][0] == 16.0 and odometry["pose_covariance"][6] == 25.0
    last = found[-1]
    assert (last["mavpackettype"], last["fix_type"], last["lat"], last["horiz_accuracy"]) == ("GPS_INPUT", 1, 0, 0.0)


def test_nothing_is_sent_unless_armed_and_nothing_after_prolonged_loss() -> None:
    said: list[str] = []
    sink = MavlinkSink("udpout:127.0.0.1:9", MavlinkEncoder(("gps_input",)), armed=False, rate_hz=5.0, say=said.append)
    sink.send(TRACKING)
    assert len(said) == 1 and said[0].startswith("would send to udpout:127.0.0.1:9: GPS_INPUT") and sink.sent == 0
    later = [replace(each, time=TIME + timedelta(seconds=2 * i + 2)) for i, each in enumerate((LOST, STOPPED))]
    sink.send(later[0])
    sink.send(later[1])
    assert len(said) == 2 and "fix_type : 1" in said[1]
    silent = MavlinkEncoder(("gps_input",), declare_no_fix=False)
    assert (
        silent.messages(LOST) == []
        and MavlinkEncoder(("odometry",), origin=LocalFrame(latitude=0, longitude=0)).messages(LOST) == []
    )


def test_bad_messages_and_addresses_are_reported() -> None:
    with pytest.raises(SkyPartError, match="unknown MAVLink message 'gps'"):
        MavlinkEncoder(("gps",))
    with pytest.raises(SkyPartError, match="ODOMETRY needs the origin"):
        MavlinkEncoder(("odometry",))
    with pytest.raises(SkyPartError, match="cannot open the MAVLink link"):
        MavlinkSink("/dev/none,57600", MavlinkEncoder(("gps_input",)), armed=True, rate_hz=5.0, say=print)
    with pytest.raises(SkyPartError, match="cannot open the serial line"):
        open_nmea("/dev/none,9600", armed=True, rate_hz=1.0, say=print)
    with pytest.raises(SkyPartError, match="cannot listen there"):
        open_nmea("tcp:here", armed=True, rate_hz=1.0, say=print)


def test_the_rate_is_limited() -> None:
    limit = RateLimit(5.0)
    passed = [limit.allows(TIME + timedelta(seconds=0.05 * i)) for i in range(100)]
    assert 24 <= sum(passed) <= 26
    after_a_pause = [limit.allows(TIME + timedelta(seconds=60 + 0.05 * i)) for i in range(20)]
    assert 4 <= sum(after_a_pause) <= 6  # no burst to catch up


def test_sentences_are_valid_for_another_parser() -> None:
    gga, rmc, gst = (pynmea2.parse(line.strip(), check=True) for line in sentences(TRACKING))
    assert gga.latitude == pytest.approx(-33.8567844, abs=1e-7) and gga.longitude == pytest.approx(
        151.2152967, abs=1e-7
    )
    assert gga.gps_qual == 1 and gga.altitude == 80.5 and gga.timestamp.isoformat().startswith("07:08:09.25")
    assert rmc.status == "A" and rmc.datestamp.isoformat() == "2026-05-06"
    assert rmc.spd_over_grnd == pytest.approx(5.0 * 3600 / 1852, abs=0.01)
    assert rmc.true_course == pytest.approx(143.1, abs=0.05)
    assert (gst.std_dev_latitude, gst.std_dev_longitude) == (4.0, 5.0)
    coasting = replace(TRACKING, point=replace(TRACKING.point, state="coasting"))
    assert pynmea2.parse(sentences(coasting)[0].strip()).gps_qual == 6
    lost = [pynmea2.parse(line.strip(), check=True) for line in sentences(LOST)]
    assert len(lost) == 2 and lost[0].gps_qual == 0 and lost[0].lat == "" and lost[1].status == "V"


@pytest.mark.parametrize(("latitude", "longitude"), [(59.99999999, -0.00000001), (0.0, 179.9999999), (-89.5, -179.5)])
def test_minutes_never_reach_60(latitude: float, longitude: float) -> None:
    point = replace(TRACKING.point, latitude=latitude, longitude=longitude)
    gga = pynmea2.parse(sentences(replace(TRACKING, point=point))[0].strip(), check=True)
    assert gga.latitude == pytest.approx(latitude, abs=1e-7) and gga.longitude == pytest.approx(longitude, abs=1e-7)


def test_sentences_go_over_tcp_and_a_pseudo_terminal() -> None:
    server = TcpServer("127.0.0.1", 0)
    sink = NmeaSink("tcp", server, armed=True, rate_hz=100.0, say=print)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(10.0)
        sink.send(TRACKING)
        assert client.recv(4096).decode() == "".join(sentences(TRACKING))
    for number in range(5):  # the client has gone
        sink.send(replace(TRACKING, time=TIME + timedelta(seconds=1 + number)))
    sink.close()
    terminal = PseudoTerminal()
    sink = NmeaSink(terminal.name, terminal, armed=True, rate_hz=100.0, say=print)
    sink.send(TRACKING)
    reader = os.open(terminal.name, os.O_RDONLY | os.O_NOCTTY)
    assert os.read(reader, 4096).decode() == "".join(sentences(TRACKING))
    for number in range(2_000):  # nobody reads: dropped, not blocked
        sink.send(replace(TRACKING, time=TIME + timedelta(seconds=1 + number)))
    assert not sink.problem
    os.close(reader)
    sink.close()


def test_a_broken_serial_line_is_stated_and_opened_again(tmp_path: Path) -> None:
    serial = pytest.importorskip("serial")
    from skypart.bridge.nmea import SerialLine

    terminal = PseudoTerminal()
    link = tmp_path / "tty"
    link.symlink_to(terminal.name)
    said: list[str] = []
    line = SerialLine(f"{link},9600")
    sink = NmeaSink("tty", line, armed=True, rate_hz=100.0, say=said.append)
    sink.send(TRACKING)
    assert not sink.problem and serial
    line.close()
    link.unlink()
    sink.send(replace(TRACKING, time=TIME + timedelta(seconds=1)))
    sink.send(replace(TRACKING, time=TIME + timedelta(seconds=2)))
    assert "cannot send" in sink.problem and said == [], "the flight says it, once"
    link.symlink_to(terminal.name)
    sink.send(replace(TRACKING, time=TIME + timedelta(seconds=3)))
    assert not sink.problem
    sink.close()
    terminal.close()
