"""A flight is followed while it happens: frames are dropped, streams break and come back, reports stay honest."""

import json
import math
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import cv2
import numpy as np
import pytest

from skypart.bridge.formats import TrackFile
from skypart.bridge.sinks import JsonLines, TrackSink, WebSocketLines, open_sink
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.position.clock_check import ClockCheck
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.fly import choose_follow, is_inside
from skypart.position.frames import Frame
from skypart.position.live import FLYING, FlyOptions, LiveTracker, Report, fly
from skypart.position.live_video import LiveVideo, redact_source
from skypart.telemetry.record import Sample, Telemetry
from tests.bridge.reports import LOST, TRACKING
from tests.position.flights import FRAME, fix_at
from tests.position.stand_in import Shot, quilt

START = datetime(2026, 1, 1, tzinfo=UTC)
SPEED = 6.0
"""m/s to the east."""


def place(seconds: float) -> np.ndarray:
    return np.array([SPEED * seconds - 60.0, 10.0])


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 s at 10 frames per second, straight down, 90 m across, flying east; motion JPEG."""
    path = tmp_path_factory.mktemp("film") / "flight.avi"
    town = quilt(5)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (240, 240))
    for number in range(200):
        east, north = place(number / 10)
        writer.write(Shot(east, north, 0.0, 90.0).photo(town, 240)[:, :, ::-1])
    writer.release()
    return path


class Reader:
    """Locates frames of `film` by correlation with the town: slow, and independent of what is tested."""

    def __init__(self, delay: float = 0.0) -> None:
        town = quilt(5)
        self.town = cv2.cvtColor(cv2.resize(town, (250, 250), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
        self.delay = delay
        self.hints: list[Hints] = []
        self.blind = False

    def __call__(self, frame: Frame, hints: Hints, prior: Prior | None) -> Fix:
        began = time.monotonic()
        time.sleep(self.delay)
        self.hints.append(hints)
        if self.blind:
            return Fix(photo=frame.name, reason="nothing seen")
        grey = cv2.cvtColor(cv2.resize(frame.image, (45, 45), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
        scores = cv2.matchTemplate(self.town, grey, cv2.TM_CCOEFF_NORMED)
        _, best, _, corner = cv2.minMaxLoc(scores)
        if best < 0.6:
            return Fix(photo=frame.name, reason="nothing seen")
        spot = np.array([(corner[0] + 22.5) * 2 - 250.0, 250.0 - (corner[1] + 22.5) * 2])
        return replace(
            fix_at(spot, sigma=2.0, confidence=0.95),
            heading_deg=0.0,
            ground_m=90.0,
            peaks=(),
            seconds=time.monotonic() - began,
        )


class Kept:
    """A sink that keeps all reports."""

    def __init__(self) -> None:
        self.problem = ""
        self.reports: list[Report] = []
        self.closed = False

    def send(self, report: Report) -> None:
        self.reports.append(report)

    def close(self) -> None:
        self.closed = True


def tracker(telemetry: Telemetry | None = None, **options: object) -> LiveTracker:
    return LiveTracker(FlyOptions(**options), FLYING, FRAME, None, telemetry)  # type: ignore[arg-type]


def error(report: Report, seconds: float) -> float:
    point = report.point
    if point.latitude is None or point.longitude is None:
        return math.nan
    metres = FRAME.to_metres(latitude=point.latitude, longitude=point.longitude)
    return math.dist((float(metres.x), float(metres.y)), place(seconds))


def test_a_file_is_followed_frame_by_frame(film: Path, tmp_path: Path) -> None:
    kept, live = Kept(), tracker(rate_hz=1.0)
    lines, track = JsonLines(tmp_path / "a.jsonl"), TrackSink(TrackFile(tmp_path / "track.gpx"))
    end = fly(str(film), live, Reader(), [kept, lines, track])
    assert end.seen == 100 and end.located == 20 and end.dropped == 0 and kept.closed
    said = [report for report in kept.reports if report.point.state != "lost"]
    assert len(said) > 75
    errors = [error(report, report.point.time_s) for report in said]
    assert np.mean([far <= (report.point.radius_m or 0) for far, report in zip(errors, said, strict=True)]) > 0.93
    assert max(errors) < 12.0
    assert {report.point.source for report in said} >= {"dead reckoning"}  # optical flow between fixes
    last = said[-1].point
    assert last.velocity_east == pytest.approx(SPEED, abs=0.8) and last.velocity_north == pytest.approx(0, abs=0.8)
    assert last.heading_deg == pytest.approx(0.0, abs=3.0) or last.heading_deg == pytest.approx(360.0, abs=3.0)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(rows) == 100 and rows[-1]["state"] in ("tracking", "coasting") and rows[-1]["fix_age_s"] < 1.1
    assert (tmp_path / "track.gpx").read_text().count("<trkpt") == len(
        [point for point in live.points if point.state != "lost"]
    )


def test_a_slow_locator_drops_frames_and_states_their_age(film: Path) -> None:
    kept, live = Kept(), tracker(rate_hz=10.0, realtime=True)
    end = fly(str(film), live, Reader(delay=0.7), [kept])
    assert end.located < 32 and end.seen > 150  # two hundred frames in 20 s, each taking 0.7 s
    said = [report for report in kept.reports if report.point.state != "lost"]
    assert said, "three fixes agree after some seconds"
    ages = [report.fix_age_s or 0.0 for report in said]
    assert 0.6 < np.median(ages) < 3.0
    errors = [error(report, report.point.time_s) for report in said]
    assert np.mean([far <= (report.point.radius_m or 0) for far, report in zip(errors, said, strict=True)]) > 0.9
    gaps = np.diff([report.point.time_s for report in kept.reports])
    assert np.median(gaps) < 0.35  # about 5 Hz, whatever the locator takes


def test_a_lost_flight_says_so_asks_and_stops(film: Path) -> None:
    reader, kept = Reader(), Kept()
    live = tracker(rate_hz=2.0, stop_after_s=3.0, flow=False)
    original = live.locate_done

    def blinding(time_s: float, fix: Fix) -> object:
        reader.blind = time_s >= 6.0
        return original(time_s, fix)

    live.locate_done = blinding  # type: ignore[method-assign, assignment]
    live.filter = type(live.filter)(replace(FLYING, lost_radius_m=40.0), FRAME, None, record=False)
    fly(str(film), live, reader, [kept])
    states = [report.point.state for report in kept.reports]
    assert "tracking" in states and states[-1] == "lost"
    assert kept.reports[-1].ask_operator and kept.reports[-1].stopped
    first_lost = len(states) - states[::-1].index("coasting")
    assert not kept.reports[first_lost].stopped
    assert all(report.point.latitude is None for report in kept.reports[first_lost:])


def test_an_operator_is_asked_after_three_lost_frames() -> None:
    live = tracker(flow=False)
    asked = []
    for second in range(5):
        live.locate_done(float(second), Fix(photo="a", reason="nothing seen"))
        asked.append(live.report(float(second), START).ask_operator)
    assert asked == [False, False, True, True, True]


def test_flight_data_become_hints_and_velocity(film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        Sample(time_s=t, heading_deg=12.0, tilt_deg=90.0, height_m=80.0, velocity_east=SPEED, velocity_north=0.0)
        for t in np.arange(0.0, 21.0, 0.1).tolist()
    ]
    reader, kept = Reader(), Kept()
    monkeypatch.setattr(ClockCheck, "confirmed", True)  # a film straight ahead cannot
    live = tracker(Telemetry(samples), rate_hz=1.0, flow=False, hints=Hints(fov_deg=60.0))
    fly(str(film), live, reader, [kept])
    assert reader.hints[0].tilt_deg == 90.0 and reader.hints[0].altitude_m == 80.0 and reader.hints[0].fov_deg == 60.0
    assert reader.hints[0].heading_deg == pytest.approx(12.0)
    assert (reader.hints[-1].heading_deg or 0.0) < 4.0 or (reader.hints[-1].heading_deg or 0.0) > 356.0  # matches say 0
    last = kept.reports[-1]
    assert last.point.source in ("dead reckoning", "matched") and last.height_m == 80.0


def test_gps_is_an_input_only_if_asked_for(film: Path) -> None:
    for asked in (False, True):
        live = tracker(Telemetry([Sample(time_s=0.0, latitude=48.0, longitude=16.0)]), near_gps=asked)
        _, prior = live.hints(Frame(0.0, np.zeros((8, 8, 3), np.uint8), "a"))
        assert (prior is not None) == asked


def test_ctrl_c_leaves_whole_files(film: Path, tmp_path: Path) -> None:
    stop, kept = threading.Event(), Kept()
    threading.Timer(4.0, stop.set).start()
    track = TrackSink(TrackFile(tmp_path / "track.csv"))
    fly(str(film), tracker(realtime=True), Reader(), [kept, track], stop=stop)
    assert kept.closed and kept.reports[-1].point.time_s < 10.0
    assert len((tmp_path / "track.csv").read_text().splitlines()) > 3


def test_a_stream_that_never_starts_is_reported(tmp_path: Path) -> None:
    kept = Kept()
    with pytest.raises(SkyPartError, match=r"rtsp://127.0.0.1:9/x: the stream does not start within 2 s"):
        fly("rtsp://user:secret@127.0.0.1:9/x", tracker(start_s=2.0), Reader(), [kept])
    assert kept.closed
    with pytest.raises(SkyPartError, match="no such video"):
        fly(str(tmp_path / "none.mp4"), tracker(realtime=True), Reader(), [])
    assert redact_source("rtsp://user:secret@host/x") == "rtsp://host/x"


def test_an_error_of_the_locator_ends_the_flight(film: Path) -> None:
    def broken(frame: Frame, hints: Hints, prior: Prior | None) -> Fix:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fly(str(film), tracker(realtime=True), broken, [])

    def unreadable(frame: Frame, hints: Hints, prior: Prior | None) -> Fix:
        raise SkyPartError("the map cannot be read")

    live = tracker(rate_hz=1.0, flow=False)
    fly(str(film), live, unreadable, [])
    assert live.last_fix is not None and live.last_fix.reason == "the map cannot be read"


def test_a_full_disk_is_stated_and_the_flight_goes_on() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    sink = JsonLines(None)
    sink.path, sink._stream = Path("/dev/full"), Path("/dev/full").open("w")  # noqa: SIM115
    sink.send(TRACKING)
    assert "cannot write" in sink.problem
    with pytest.raises(OSError):
        sink.close()


def test_reports_go_over_a_websocket() -> None:
    pytest.importorskip("websockets")
    from websockets.sync.client import connect

    sink = WebSocketLines("127.0.0.1", 0)
    with connect(f"ws://127.0.0.1:{sink.port}") as client:
        for _ in range(100):
            sink.send(TRACKING)
            time.sleep(0.02)
            try:
                values = json.loads(client.recv(timeout=0.05))
                break
            except TimeoutError:
                continue
        assert values["latitude"] == TRACKING.point.latitude and values["state"] == "tracking"
    sink.close()
    with pytest.raises(SkyPartError, match="no port"):
        open_sink("ws:here", armed=False, say=print)


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Origin": "http://127.0.0.1:8000"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://127.0.0.1.evil.example"}, False),
        ({"Origin": "http://evil.example@127.0.0.1"}, False),
        ({"Host": "evil.example"}, False),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, False),
    ],
)
def test_a_websocket_refuses_pages_of_other_sites(headers: dict[str, str], allowed: bool) -> None:
    """A browser lets every page connect to it, also under a name that leads here (DNS rebinding)."""
    pytest.importorskip("websockets")
    sink = WebSocketLines("127.0.0.1", 0)
    lines = {"Host": f"127.0.0.1:{sink.port}", "Upgrade": "websocket", "Connection": "Upgrade"} | headers
    lines |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    with socket.create_connection(("127.0.0.1", sink.port), timeout=60) as client:
        client.sendall(("GET / HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n").encode())
        assert client.recv(4096).split(b" ")[1] == (b"101" if allowed else b"403")
    sink.close()


def test_a_websocket_has_a_limit_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("websockets")
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    monkeypatch.setattr("skypart.bridge.sinks.MAX_WEBSOCKETS", 1)
    sink = WebSocketLines("127.0.0.1", 0)
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(0.02):
            sink.send(TRACKING)

    threading.Thread(target=report, daemon=True).start()
    with connect(f"ws://127.0.0.1:{sink.port}") as first:
        assert first.recv(timeout=60)
        with connect(f"ws://127.0.0.1:{sink.port}") as second, pytest.raises(ConnectionClosed, match="too many"):
            second.recv(timeout=60)
    stop.set()
    sink.close()


def test_values_of_a_lost_report_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    open_sink("-", armed=False, say=print).send(LOST)
    values = json.loads(capsys.readouterr().out)
    assert values["latitude"] is None and values["state"] == "lost" and values["ask_operator"] is True


def test_whose_position_is_followed() -> None:
    data = Telemetry([Sample(time_s=0.0, tilt_deg=60.0, height_m=80.0)])
    assert choose_follow("auto", Hints(), None) == "ground"
    assert choose_follow("auto", Hints(), data) == "drone"
    assert choose_follow("auto", Hints(tilt_deg=90.0, fov_deg=60.0), None) == "drone"
    assert choose_follow("ground", Hints(), data) == "ground"
    with pytest.raises(SkyPartError, match="needs the camera's tilt"):
        choose_follow("drone", Hints(), None)
    inside = is_inside([Bounds(south=0.0, west=179.0, north=1.0, east=-179.0)])
    assert inside(0.5, 179.5) and inside(0.5, -179.5) and not inside(0.5, 178.0) and not inside(2.0, 179.5)


def have_rtsp() -> bool:
    if not Path("/usr/bin/python3").exists():
        return False
    check = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    return subprocess.run(["/usr/bin/python3", "-c", check], capture_output=True, check=False).returncode == 0


@contextmanager
def rtsp_server(port: int, video: Path) -> Iterator[None]:
    script = Path(__file__).with_name("rtsp_server.py")
    server = subprocess.Popen(
        ["/usr/bin/python3", str(script), str(port), str(video)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None and server.stdout.readline().strip() == "ready"
        yield
    finally:
        server.kill()
        server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(not have_rtsp(), reason="needs Debian's gir1.2-gst-rtsp-server-1.0, python3-gi, GStreamer plugins")
def test_an_rtsp_stream_that_breaks_off_is_taken_up_again(film: Path) -> None:
    port, kept, live, stop = free_port(), Kept(), tracker(rate_hz=5.0), threading.Event()
    ends: list[object] = []
    flight = threading.Thread(
        target=lambda: ends.append(fly(f"rtsp://127.0.0.1:{port}/flight", live, Reader(), [kept], stop=stop))
    )
    with rtsp_server(port, film):
        flight.start()
        wait_until(lambda: any(report.point.state == "tracking" or report.located > 6 for report in kept.reports))
        wait_until(lambda: any(report.point.state != "lost" for report in kept.reports))
    before = len(kept.reports)
    wait_until(lambda: any("broke off" in report.problem for report in kept.reports[before:]))
    with rtsp_server(port, film):
        located = live.located
        wait_until(lambda: live.located > located + 4)
        wait_until(lambda: any(report.point.state != "lost" for report in kept.reports[-3:]))
        stop.set()
        flight.join(60.0)
    (end,) = ends
    assert getattr(end, "reconnections", 0) >= 1 and kept.closed
    assert kept.reports[-1].problem == ""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_an_mpeg_stream_over_udp_and_http_is_read(film: Path) -> None:
    for scheme in ("udp", "http"):
        port = free_port()
        listen = ["-listen", "1"] if scheme == "http" else []
        target = f"{scheme}://127.0.0.1:{port}" + ("/flight.ts" if scheme == "http" else "?pkt_size=1316")
        command = [
            "ffmpeg",
            "-loglevel",
            "quiet",
            "-re",
            "-stream_loop",
            "-1",
            "-i",
            str(film),
            "-c:v",
            "mpeg4",
            "-q:v",
            "3",
        ]
        sender = subprocess.Popen([*command, "-g", "5", *listen, "-f", "mpegts", target])
        video = LiveVideo(target.split("?")[0] if scheme == "udp" else target, time.monotonic)
        try:
            wait_until(lambda video=video: video.seen > 10)  # type: ignore[misc]
            frame = video.take(5.0)
            assert frame is not None and frame.image.shape == (240, 240, 3) and frame.image.std() > 10
        finally:
            sender.kill()
            sender.wait()
            video.close()
