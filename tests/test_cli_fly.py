"""`skypart fly` and `skypart track --telemetry` on a synthetic map, with an embedder that needs no training."""

import csv
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest

from skypart.geo.geodesy import distance_m
from skypart.position import photos
from tests.conftest import Run
from tests.position.stand_in import SURE, ColourEmbedder, Shot, make_index, quilt, write_quilt

SPEED = 5.0
CARRIED = ("time", "captured", "source", "anchor_age_s", "fix_age_s", "covariance_m2", "radius_m")
"""What the integrator's specification asks of every position."""


FLYING_PROCESS = """
import sys, time
from skypart import cli
from skypart.position import locate, photos
from tests.position.stand_in import ColourEmbedder

photos.load_fastest = lambda name, device="cpu", size=None: ColourEmbedder()
inner = locate.Locator.locate_next

def slow(*arguments, **options):
    time.sleep(0.5)
    return inner(*arguments, **options)

locate.Locator.locate_next = slow
folder, track = sys.argv[1:]
sys.argv = ["skypart", "fly", folder + "/town.skyindex", "--video", folder + "/flight.avi", "--rate", "2"]
sys.argv += ["--out", "-", "--out", track]
cli.main()
"""


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "load_fastest", lambda name, device="cpu", size=None: ColourEmbedder())


def shot(seconds: float) -> Shot:
    return Shot(SPEED * seconds - 60.0, -40.0, 0.0, 100.0)


@pytest.fixture(scope="module")
def flight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, a video of 12 s at 5 frames per second flown east, and its flight data."""
    folder = tmp_path_factory.mktemp("flight")
    index = make_index(folder / "town.skyindex", [write_quilt(folder / "town.tif")])
    replace(index.manifest, calibration=SURE.to_dict()).write(index.folder)
    town = quilt(1)
    writer = cv2.VideoWriter(str(folder / "flight.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 5.0, (200, 200))
    for number in range(60):
        writer.write(shot(number / 5).photo(town, 200)[:, :, ::-1])
    writer.release()
    rows = ["time_s,heading,tilt,height,velocity_east,velocity_north,latitude,longitude"]
    for number in range(60):
        latitude, longitude = shot(number / 5).place
        rows.append(f"{number / 5 + 3.0},0,90,86.6,{SPEED},0,{latitude},{longitude}")
    (folder / "flight.csv").write_text("\n".join(rows) + "\n")
    return folder


def off(latitude: float, longitude: float, seconds: float) -> float:
    north, east = shot(seconds).place
    return float(distance_m(latitude=latitude, longitude=longitude, to_latitude=north, to_longitude=east))


def test_fly_writes_json_lines_and_a_track(run: Run, flight: Path, tmp_path: Path) -> None:
    lines, track = tmp_path / "a.jsonl", tmp_path / "track.csv"
    options = ("--telemetry", flight / "flight.csv", "--offset", "3", "--fov", "60", "--rate", "1")
    code, _, err = run(
        "fly", flight / "town.skyindex", "--video", flight / "flight.avi", *options, "--out", lines, "--out", track
    )
    assert code == 0, err
    assert "following the drone" in err and "12 located" in err
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    said = [row for row in rows if row["latitude"] is not None]
    assert len(rows) == 60 and len(said) > 35 and {row["of"] for row in said} == {"drone"}
    assert all(row[name] is not None for row in said for name in CARRIED), "every position carries these"
    assert {row["source"] for row in said} <= {"matched", "dead reckoning", "carried on", "window"}
    errors = [off(row["latitude"], row["longitude"], row["time_s"]) for row in said]
    assert max(errors) < 15.0
    assert np.mean([far <= row["radius_m"] for far, row in zip(errors, said, strict=True)]) > 0.9
    assert said[-1]["velocity_east"] == pytest.approx(SPEED, abs=0.6) and said[-1]["height_m"] == pytest.approx(86.6)
    with track.open() as stream:
        points = list(csv.DictReader(stream))
    assert len(points) == 12 and {"source", "anchor_age_s", "covariance_ee", "protection_m"} <= set(points[0])
    assert points[-1]["source"] == "matched"


def test_an_autopilot_gets_nothing_without_arming_and_never_the_ground(run: Run, flight: Path) -> None:
    pytest.importorskip("pymavlink")
    base = ("fly", flight / "town.skyindex", "--video", flight / "flight.avi", "--rate", "1")
    code, out, err = run(*base, "--tilt", "90", "--fov", "60", "--out", "mavlink:udpout:127.0.0.1:9")
    assert code == 0 and re.search(r"would send to udpout:127.0.0.1:9: GPS_INPUT .*fix_type : 3", err + out)
    code, _, err = run(*base, "--out", "nmea:pty")
    assert code == 2 and "an autopilot needs the drone's own position" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--video", "none.mp4"), "no such file"),
        (("--video", "none.mp4", "--realtime"), "no such video"),
        (("--video", "{}", "--telemetry", "none.srt"), "no such file"),
        (("--video", "{}", "--follow", "me"), "choose auto, ground or drone"),
        (("--video", "{}", "--follow", "drone"), "needs the camera's tilt"),
        (("--video", "{}", "--takeoff", "1,2"), "--takeoff needs --dem"),
        (("--video", "{}", "--dem", "none.tif"), "give heights of the ground"),
        (("--video", "{}", "--near-gps"), "--near-gps needs flight data"),
        (("--video", "{}", "--rate", "0"), "must be a positive number"),
        (("--video", "{}", "--latency", "nan"), "latency_s must be 0 or more seconds"),
        (("--video", "{}", "--out", "track.xyz"), "is not a track format"),
        (("--video", "{}", "--telemetry", "{csv}", "--offset", "soon"), "give seconds, or auto"),
        (("--video", "{}", "--telemetry", "{csv}", "--offset", "auto"), "do not tell how their clocks differ"),
    ],
)
def test_bad_options_are_reported(run: Run, flight: Path, options: tuple[str, ...], message: str) -> None:
    given = [
        str(flight / "flight.avi") if o == "{}" else str(flight / "flight.csv") if o == "{csv}" else o for o in options
    ]
    code, _, err = run("fly", flight / "town.skyindex", *given)
    assert code == 2 and message in err.replace("\n", " ")


def test_track_takes_the_same_flight_data(run: Run, flight: Path, tmp_path: Path) -> None:
    command = ("track", flight / "town.skyindex", flight / "flight.avi", "-o", tmp_path / "track.csv")
    code, out, err = run(*command, "--telemetry", flight / "flight.csv", "--offset", 3, "--fov", 60)
    assert code == 0, err
    assert "clock +3.00 s" in out
    with (tmp_path / "track.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 12
    errors = [
        off(float(row["latitude"]), float(row["longitude"]), float(row["time_s"])) for row in rows if row["latitude"]
    ]
    assert len(errors) >= 11 and max(errors) < 10.0


@pytest.mark.parametrize("offset", ["soon", "nan", "auto"])
def test_a_bad_offset_of_a_stream_is_reported(run: Run, flight: Path, offset: str) -> None:
    options = ("--video", "rtsp://127.0.0.1:9/x", "--telemetry", str(flight / "flight.csv"), "--offset", offset)
    code, _, err = run("fly", flight / "town.skyindex", *options)
    assert code == 2 and "give seconds" in err


@pytest.mark.parametrize("name", ["a.jsonl", "track.gpx"])
def test_a_full_disk_is_told_in_flight_and_at_its_end(run: Run, flight: Path, name: str, tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk; the other output goes on."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, hard))
        base = ("fly", flight / "town.skyindex", "--video", flight / "flight.avi", "--rate", "1")
        code, out, err = run(*base, "--out", tmp_path / name, "--out", "-")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert len(rows) == 60, "the flight goes on"
    said = err.replace("\n", " ")
    assert name in said and ("cannot write" in said or "cannot be written" in said or "File too large" in said)
    if name == "a.jsonl":
        assert name in rows[-1]["problem"]


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_leaves_a_whole_track(flight: Path, tmp_path: Path) -> None:
    """A process of its own gets SIGINT after its first line."""
    track = tmp_path / "track.gpx"
    command = [sys.executable, "-c", FLYING_PROCESS, str(flight), str(track)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for _ in range(12):  # four located frames
            assert process.stdout.readline().startswith("{")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and "frames" in err, err
    root = ElementTree.parse(track).getroot()
    assert root.tag.endswith("gpx") and len(root.findall(".//{*}trk")) == 1
