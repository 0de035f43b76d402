"""Flight data is read from every variant of caption, table and message, and impossible values are left out."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from skypart.errors import SkyPartError
from skypart.telemetry.clocks import estimate_offset, turn_rate
from skypart.telemetry.mavlink import BootClock, MessageReader, euler_angles, rotate_to_ned
from skypart.telemetry.record import HOLD_S, Sample, Telemetry
from skypart.telemetry.source import captions_beside, is_live, read_telemetry
from tests.images.photos_with_metadata import packet

CAPTION = "1\n00:00:01,000 --> 00:00:01,033\n{}\n\n"
VARIANTS: dict[str, tuple[str, dict[str, float | None]]] = {
    "mini": (
        '<font size="28">FrameCnt: 1, DiffTime: 33ms\n2023-05-01 12:34:56.789\n[iso: 100] [fnum: 2.8] '
        "[focal_len: 24.00] [latitude: 48.125] [longitude: 16.375] [rel_alt: 99.500 abs_alt: 301.000] "
        "[gb_yaw: -90.0 gb_pitch: -80.0 gb_roll: 0.5] </font>",
        {
            "latitude": 48.125,
            "longitude": 16.375,
            "height_m": 99.5,
            "heading_deg": 270.0,
            "tilt_deg": 80.0,
            "roll_deg": 0.5,
        },
    ),
    "mavic 2": (
        '<font size="36">SrtCnt : 1, DiffTime : 33ms\n2019-09-25 01:22:35,117,359\n[iso : 100] [shutter : 1/640.0] '
        "[fnum : 280] [ev : 0] [ct : 5500] [color_md : default] [focal_len : 280] [latitude : 48.125] "
        "[longtitude : 16.375] [altitude: 274.2] </font>",  # above the sea in some files: no height
        {"latitude": 48.125, "longitude": 16.375, "height_m": None, "heading_deg": None, "tilt_deg": None},
    ),
    "mavic 2 enterprise": (
        '<font size="36">FrameCnt : 4, DiffTime : 114ms\n2022-09-08 06:26:55,549,370\n[color_md : default] '
        "[latitude: 48.125] [longtitude: 16.375] [altitude: 28.7] [Drone: Yaw:-90.0, Pitch:-0.6, Roll:1.3] </font>",
        {"latitude": 48.125, "longitude": 16.375, "height_m": None, "heading_deg": 270.0, "tilt_deg": None},
    ),
    "with a gimbal group": (
        "[latitude: 48.125] [longitude: 16.375] [rel_alt: 99.5 abs_alt: 300] [Drone: Yaw:1.9, Pitch:-3.1, Roll:1.5] "
        "[Gimbal: Yaw:-90.0, Pitch:-80.0, Roll:0.5] [weird] [unknown: ???]",
        {"height_m": 99.5, "heading_deg": 270.0, "tilt_deg": 80.0, "roll_deg": 0.5},
    ),
    "matrice 300": (
        '< font size="28" >FrameCnt: 1, DiffTime: 33ms\n2024-02-27 22:30:45.395\n[fnum: 1.0] [focal_len: 58.00] '
        "[dzoom: 1.00] \n[latitude: 48.125] [longitude: 16.375] [rel_alt: 99.5 abs_alt: 197.829] \n"
        "[drone_speedx: 3.0 drone_speedy: -4.0 drone_speedz: 0.0] \n"
        "[drone_yaw: -20.4 drone_pitch: 2.4 drone_roll: "
        "-2.1] \n[gb_yaw: -90.0 gb_pitch: -80.0 gb_roll: 0.5] \n\n0\n"
        "[dzoom_ratio: 10000, delta:0] [color_md : default] "
        "\n< /font >",
        {"latitude": 48.125, "height_m": 99.5, "heading_deg": 270.0, "tilt_deg": 80.0, "speed": 5.0},
    ),
    "air 2s": (
        '<font size="28">SrtCnt : 1, DiffTime : 33ms\n2024-01-18 10:23:26.397\n[iso : 150] [shutter : 1/5000.0] '
        "[fnum : 170] [dzoom_ratio: 10000, delta:0],[latitude: -22.5] [longitude: -47.5] "
        "[rel_alt: 0.300 abs_alt: 549.6] </font>",
        {"latitude": -22.5, "longitude": -47.5, "height_m": 0.3, "heading_deg": None},
    ),
    "debugging": (
        "No:1, F/2.8, SS 155.55, ISO 100, EV 0, Index (Ev:10085,Nf:0), Awb Gain(R:8206, G:4096, B:7058), Isp Info "
        "(PIPE 1,ADJ 0,De 0) GPS (-2.5, 52.0, 15), D 0.61m, H 1.50m, H.S 0.00m/s, V.S 0.00m/s",
        {"latitude": 52.0, "longitude": -2.5, "height_m": 1.5, "speed": 0.0},
    ),
    "without a receiver's fix": (
        "F/2.8, SS 206.14, ISO 150, EV 0, GPS (n/a, n/a, 0), D n/a, H 12.50m, H.S 0.50m/s, V.S 0.00m/s",
        {"latitude": None, "longitude": None, "height_m": 12.5, "speed": 0.5},
    ),
    "phantom 4": (
        "HOME(16.3701,48.1201) 2017.08.05 14:11:51\nGPS(16.375,48.125,16) BAROMETER:99.5\nISO:100 Shutter:60 EV:",
        {"latitude": 48.125, "longitude": 16.375, "height_m": 99.5},
    ),
    "inspire": (
        "HOME(16.3701,48.1201) 2017.08.05 14:11:51\nGPS(16.375,48.125,0.0M) BAROMETER:99.5M\nISO:100",
        {"latitude": 48.125, "longitude": 16.375, "height_m": 99.5},
    ),
    "mavic air": (
        "F/2.8, SS 206.14, ISO 150, EV 0, GPS (16.375, 48.125, 22), D 92.16m, H 99.50m, H.S 3.50m/s, V.S 0.00m/s",
        {"latitude": 48.125, "longitude": 16.375, "height_m": 99.5, "speed": 3.5},
    ),
    "phantom 4 rtk": (
        "F/5.6, SS 320, ISO 100, EV 0, RTK (16.375, 48.125, 22), HOME (16.370, 48.120, 19.00m), D 92.16m, H 99.50m, "
        "H.S 3.50m/s, V.S 0.00m/s, F.PRY (1.0°, -2.0°, 30.0°), G.PRY (-80.0°, 0.5°, -90.0°)",
        {
            "latitude": 48.125,
            "longitude": 16.375,
            "height_m": 99.5,
            "heading_deg": 270.0,
            "tilt_deg": 80.0,
            "roll_deg": 0.5,
        },
    ),
    "far west": ("GPS(-122.375,37.5,16) BAROMETER:-1.5", {"latitude": 37.5, "longitude": -122.375, "height_m": -1.5}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_of_captions_is_read(name: str, tmp_path: Path) -> None:
    text, expected = VARIANTS[name]
    path = tmp_path / "DJI_0001.SRT"
    path.write_text(CAPTION.format(text), encoding="utf-8")
    found = read_telemetry(path).at(1.0)
    for key, value in expected.items():
        assert getattr(found, key) == (None if value is None else pytest.approx(value)), key
    assert captions_beside(tmp_path / "DJI_0001.MP4") == path


def test_captions_tell_when_the_video_began(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    path.write_text(CAPTION.format(VARIANTS["mini"][0]), encoding="utf-8")
    start = read_telemetry(path).start
    assert start is not None and start.isoformat() == "2023-05-01T12:34:55.789000"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.srt", "no captions at all", "no captions in it"),
        ("a.srt", CAPTION.format("[iso: 100] only"), "no flight data in it"),
        ("a.csv", "latitude,longitude\n1,2\n", "no column of time"),
        ("a.csv", "time_s,heading\nnoon,3\n", "line 2: 'noon' is not a time"),
        ("a.csv", "time_s,colour\n1,red\n", "no flight data in it"),
        ("a.csv", "time_s,heading\n,3\n", "lists no row with a time"),
        ("a.bin", "x", "dataflash log"),
        ("a.txt", "x", "not a format of flight data"),
    ],
)
def test_bad_files_are_reported(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SkyPartError, match=message):
        read_telemetry(tmp_path / name)
    with pytest.raises(SkyPartError, match="no such file"):
        read_telemetry(tmp_path / "none.srt")


def test_a_table_is_read_with_unix_iso_and_millisecond_clocks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for header, first, second in (
        ("time_s", "5", "6"),
        ("time", "1700000000", "1700000001"),
        ("time", "2024-05-06T07:08:09Z", "2024-05-06T07:08:10Z"),
        ("time(millisecond)", "5000", "6000"),
    ):
        path.write_text(f"{header},Yaw,gimbal_pitch,height,ve,vn\n{first},350,-90,100,1,2\n{second},10,-80,,3,nan\n")
        record = read_telemetry(path)
        begin = 5.0 if float(first.split("T")[0].split("-")[0]) in (5.0, 5000.0) else 0.0
        middle = record.at(begin + 0.5)
        assert middle.heading_deg == pytest.approx(0.0, abs=1e-6) or middle.heading_deg == pytest.approx(360.0)
        assert middle.tilt_deg == 85.0 and middle.velocity_east == 2.0 and middle.velocity_north == 2.0
        assert record.rejected == 1 and (record.start is None) == (begin == 5.0)


def test_gaps_nan_jumps_and_zeros_are_not_interpolated() -> None:
    record = Telemetry([Sample(time_s=t, height_m=100.0 + t, velocity_east=1.0) for t in (0.0, 1.0, 2.0)])
    record.add(Sample(time_s=3.0, height_m=math.nan, velocity_east=math.inf, latitude=0.0, longitude=0.0))
    record.add(Sample(time_s=3.1, height_m=900.0))  # a jump that nothing confirms
    record.add(Sample(time_s=3.2, height_m=103.2))
    assert record.at(2.6).height_m == pytest.approx(102.6) and record.rejected == 3
    assert record.at(2.0 + HOLD_S + 0.1).velocity_east is None and record.at(3.0).latitude is None
    record.add(Sample(time_s=9.0, height_m=100.0))
    assert record.at(6.0).height_m is None  # inside a gap
    record.add(Sample(time_s=9.2, height_m=600.0))
    record.add(Sample(time_s=9.4, height_m=601.0))  # confirms the jump
    assert record.at(9.4).height_m == 601.0
    record.offset_s = 2.0
    assert record.at(7.4).height_m == 601.0


def test_photos_give_attitude_and_their_gps_as_truth(tmp_path: Path) -> None:
    for second in (0, 2):
        exif = Image.Exif()
        exif.get_ifd(0x8769)[0x9003] = f"2024:05:06 07:08:{second:02}"
        exif.get_ifd(0x8825).update({1: "S", 2: (33.0, 30.0, 0.0), 3: "E", 4: (151.0, 15.0, 0.0)})
        xmp = packet(
            'drone-dji:GimbalYawDegree="+45.0" drone-dji:GimbalPitchDegree="-60" drone-dji:RelativeAltitude="+80"'
        )
        Image.new("RGB", (8, 8)).save(tmp_path / f"{second}.jpg", exif=exif, xmp=xmp)
    found = read_telemetry(tmp_path).at(1.0)
    assert (found.heading_deg, found.tilt_deg, found.height_m) == (45.0, 60.0, 80.0)
    assert (found.latitude, found.longitude) == (-33.5, 151.25)


def message(kind: str, **values: Any) -> Any:
    return SimpleNamespace(get_type=lambda: kind, **values)


def test_messages_become_heading_tilt_height_and_velocity() -> None:
    reader = MessageReader(fixed_tilt=90.0)
    found = reader.read(message("ATTITUDE", roll=0.0, pitch=math.radians(5), yaw=math.radians(-90)), 1.0)
    assert found is not None and found.heading_deg == pytest.approx(270.0) and found.tilt_deg == pytest.approx(85.0)
    half = math.radians(-60) / 2
    gimbal = message("GIMBAL_DEVICE_ATTITUDE_STATUS", q=(math.cos(half), 0.0, math.sin(half), 0.0), flags=32)
    found = reader.read(gimbal, 1.0)
    assert found is not None and found.tilt_deg == pytest.approx(60.0) and found.heading_deg == pytest.approx(270.0)
    gimbal.flags = 64
    found = reader.read(gimbal, 1.0)
    assert found is not None and found.heading_deg == pytest.approx(0.0)
    found = reader.read(message("ATTITUDE", roll=0.0, pitch=0.0, yaw=1.0), 1.0)
    assert found is not None and found.heading_deg is None  # the gimbal's own is better
    found = reader.read(message("GLOBAL_POSITION_INT", relative_alt=81_000, lat=481250000, lon=163750000, vx=100), 1.0)
    assert found == Sample(time_s=1.0, height_m=81.0, latitude=48.125, longitude=16.375)
    found = reader.read(message("LOCAL_POSITION_NED", vx=3.0, vy=-1.0), 1.0)
    assert found == Sample(time_s=1.0, velocity_north=3.0, velocity_east=-1.0)
    east = (math.cos(math.pi / 4), 0.0, 0.0, math.sin(math.pi / 4))  # nose to the east
    found = reader.read(message("ODOMETRY", vx=5.0, vy=1.0, vz=0.0, q=east, child_frame_id=12), 1.0)
    assert found is not None
    assert found.velocity_east == pytest.approx(5.0) and found.velocity_north == pytest.approx(-1.0)
    assert reader.read(message("GPS_RAW_INT", fix_type=1, lat=1, lon=1), 1.0) is None
    assert reader.read(message("HEARTBEAT"), 1.0) is None


def test_unknown_attitudes_and_frames_are_left_out() -> None:
    """NaN or zeros of a gimbal say that it does not know; then the airframe's heading goes on."""
    for unknown in ((math.nan,) * 4, (0.0,) * 4):
        reader = MessageReader()
        gimbal = message("GIMBAL_DEVICE_ATTITUDE_STATUS", q=unknown, flags=64)
        assert reader.read(gimbal, 1.0) is None
        mount = message("MOUNT_ORIENTATION", roll=0.0, pitch=-60.0, yaw_absolute=math.nan)
        found = reader.read(mount, 1.0)
        assert found is not None and found.heading_deg is None and found.tilt_deg == 60.0
        found = reader.read(message("ATTITUDE", roll=0.0, pitch=0.0, yaw=1.0), 1.0)
        assert found is not None and found.heading_deg == pytest.approx(math.degrees(1.0))
        odometry = message("ODOMETRY", vx=5.0, vy=1.0, vz=0.0, q=unknown, frame_id=1, child_frame_id=12)
        assert reader.read(odometry, 1.0) is None
    level, reader = (1.0, 0.0, 0.0, 0.0), MessageReader()
    for frame, child in ((20, 12), (20, 20), (21, 21)):  # MAV_FRAME_LOCAL_FRD and FLU: x points anywhere
        odometry = message("ODOMETRY", vx=5.0, vy=1.0, vz=0.0, q=level, frame_id=frame, child_frame_id=child)
        assert reader.read(odometry, 1.0) is None
    odometry = message("ODOMETRY", vx=5.0, vy=1.0, vz=0.0, q=level, frame_id=4, child_frame_id=4)
    found = reader.read(odometry, 1.0)
    assert found is not None and (found.velocity_east, found.velocity_north) == (5.0, 1.0)


def test_quaternions_agree_with_rotation_matrices() -> None:
    roll, pitch, yaw = 0.2, -0.4, 2.0

    def turn(axis: int, angle: float) -> Any:
        matrix = np.eye(3)
        i, j = [(1, 2), (2, 0), (0, 1)][axis]
        matrix[[i, j, i, j], [i, j, j, i]] = math.cos(angle), math.cos(angle), -math.sin(angle), math.sin(angle)
        return matrix

    def multiply(a: Any, b: Any) -> Any:
        w, v, u, x = a[0], np.array(a[1:]), b[0], np.array(b[1:])
        return (w * u - v @ x, *(w * x + u * v + np.cross(v, x)))

    def axis_quaternion(axis: int, angle: float) -> Any:
        q = [math.cos(angle / 2), 0.0, 0.0, 0.0]
        q[1 + axis] = math.sin(angle / 2)
        return q

    q = multiply(multiply(axis_quaternion(2, yaw), axis_quaternion(1, pitch)), axis_quaternion(0, roll))
    assert euler_angles(q) == pytest.approx((roll, pitch, yaw))
    expected = turn(2, yaw) @ turn(1, pitch) @ turn(0, roll) @ [3.0, -1.0, 0.5]
    assert rotate_to_ned(q, (3.0, -1.0, 0.5)) == pytest.approx(tuple(expected[:2]))


def test_the_boot_clock_follows_the_fastest_message_and_a_reboot() -> None:
    clock = BootClock()
    assert clock.to_ours(message("A", time_boot_ms=10_000), 110.3) == pytest.approx(110.3)
    assert clock.to_ours(message("A", time_boot_ms=11_000), 111.0) == pytest.approx(111.0)
    assert clock.to_ours(message("A", time_boot_ms=12_000), 112.9) == pytest.approx(112.0, abs=1e-3)
    assert clock.to_ours(message("A", time_boot_ms=500), 130.0) == pytest.approx(130.0)
    assert clock.to_ours(message("A"), 140.0) == 140.0
    assert clock.to_ours(message("A", time_usec=1_700_000_000_000_000), 141.0) == 141.0


@pytest.mark.parametrize("true_offset", [-12.3, 0.0, 7.45])
def test_clocks_are_joined_by_turns_seen_in_both(true_offset: float) -> None:
    rng = np.random.default_rng(3)
    data = np.arange(0.0, 120.0, 0.1)
    turns = np.convolve(rng.normal(0, 1, len(data)), np.hanning(30), mode="same")
    heading = np.cumsum(turns)
    video = np.arange(20.0, 80.0, 0.2)
    seen = np.interp(video + true_offset, data, heading) + rng.normal(0, 0.5, len(video))
    one, other = turn_rate(video, seen % 360.0), turn_rate(data, heading % 360.0)
    found = estimate_offset(*one, *other, max_offset_s=30.0)
    assert found == pytest.approx(true_offset, abs=0.1)


def test_a_straight_flight_does_not_tell_the_offset() -> None:
    rng = np.random.default_rng(4)
    times = np.arange(0.0, 60.0, 0.2)
    assert estimate_offset(times, rng.normal(0, 1, 300), times, rng.normal(0, 1, 300)) is None
    assert estimate_offset(times, np.zeros(300), times, np.zeros(300)) is None
    periodic = np.sin(times)  # fits at every period
    assert estimate_offset(times, periodic, times, periodic) is None


def test_addresses_are_told_from_files() -> None:
    assert all(is_live(name) for name in ("udpin:0.0.0.0:14550", "tcp:127.0.0.1:5760", "/dev/ttyACM0,57600", "COM3"))
    assert not any(is_live(name) for name in ("flight.srt", "udp.csv", "data/dev/x.tlog"))
