"""Camera metadata is read correctly; damaged metadata is ignored."""

import io
import math
import random
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from PIL.TiffImagePlugin import IFDRational

from skypart.images import xmp as xmp_module
from skypart.images.exif import CameraFacts, read_camera_facts
from skypart.images.xmp import MAX_BYTES, read_pose
from skypart.position.camera import hints_from_facts
from tests.images.photos_with_metadata import degrees, packet, save_photo

DJI = 'drone-dji:GimbalYawDegree="-95.50" drone-dji:GimbalPitchDegree="-89.90" drone-dji:RelativeAltitude="+120.30" '


def test_time_with_fraction_and_zone(tmp_path: Path) -> None:
    shot = {0x9003: "2024:05:06 07:08:09", 0x9291: "25"}
    assert read_camera_facts(save_photo(tmp_path / "a.jpg", shot=shot)).time == datetime(2024, 5, 6, 7, 8, 9, 250_000)
    shot[0x9011] = "+02:00"
    with_zone = read_camera_facts(save_photo(tmp_path / "b.jpg", shot=shot)).time
    assert with_zone == datetime(2024, 5, 6, 5, 8, 9, 250_000, UTC)
    assert with_zone is not None and with_zone.tzinfo == timezone(timedelta(hours=2))
    only_file = save_photo(tmp_path / "c.jpg", main={0x0132: "2024:05:06 07:08:09"})
    assert read_camera_facts(only_file).time == datetime(2024, 5, 6, 7, 8, 9)
    assert read_camera_facts(save_photo(tmp_path / "d.jpg", shot={0x9003: "0000:00:00 00:00:00"})).time is None


def test_field_of_view_from_the_35_mm_equivalent(tmp_path: Path) -> None:
    # A 3:2 photo at 24 mm has the sensor's own 36 mm across.
    facts = read_camera_facts(save_photo(tmp_path / "a.jpg", shot={0xA405: 24, 0x920A: 8.8}, size=(360, 240)))
    assert facts.fov_deg == pytest.approx(2 * math.degrees(math.atan(18 / 24)))
    upright = read_camera_facts(
        save_photo(tmp_path / "b.jpg", main={0x0112: 6}, shot={0xA405: 24, 0x920A: 8.8}, size=(360, 240))
    )
    assert upright.fov_deg == pytest.approx(2 * math.degrees(math.atan(12 / 24)))


def test_field_of_view_prefers_the_sensor_size(tmp_path: Path) -> None:
    shot = {0x920A: 10.0, 0xA405: 18, 0xA20E: 100.0, 0xA20F: 100.0, 0xA210: 4, 0xA002: 2000, 0xA003: 1500}
    facts = read_camera_facts(save_photo(tmp_path / "a.jpg", shot=shot))
    assert facts.fov_deg == pytest.approx(90.0)  # 2000 px at 100 px/mm = 20 mm, at 10 mm focal length
    shot[0xA404] = 2.0
    zoomed = read_camera_facts(save_photo(tmp_path / "b.jpg", shot=shot))
    assert zoomed.fov_deg == pytest.approx(2 * math.degrees(math.atan(0.5)))


def test_field_of_view_of_a_resized_photo_that_kept_its_sensor_tags(tmp_path: Path) -> None:
    # 13.2 mm across at 8.8 mm focal length, which is 24 mm on 36 x 24.
    shot = {0x920A: 8.8, 0xA405: 24, 0xA20E: 6000 / 13.2, 0xA20F: 4000 / 8.8, 0xA210: 4, 0xA002: 6000, 0xA003: 4000}
    truth = pytest.approx(2 * math.degrees(math.atan(18 / 24)), abs=0.1)
    assert read_camera_facts(save_photo(tmp_path / "a.jpg", shot=shot, size=(360, 240))).fov_deg == truth
    shot |= {0xA002: 1500, 0xA003: 1000}
    assert read_camera_facts(save_photo(tmp_path / "b.jpg", shot=shot, size=(360, 240))).fov_deg == truth
    upright = save_photo(tmp_path / "c.jpg", main={0x0112: 6}, shot=shot, size=(360, 240))
    assert read_camera_facts(upright).fov_deg == pytest.approx(2 * math.degrees(math.atan(12 / 24)), abs=0.1)


def test_no_field_of_view_after_an_unknown_crop_or_zoom(tmp_path: Path) -> None:
    cropped = save_photo(tmp_path / "a.jpg", shot={0xA405: 24, 0xA002: 4000, 0xA003: 3000}, size=(300, 300))
    zoomed = save_photo(tmp_path / "b.jpg", shot={0xA405: 24, 0xA404: 2.0})
    assert read_camera_facts(cropped).fov_deg is None
    assert read_camera_facts(zoomed).fov_deg is None


@pytest.mark.parametrize(
    ("xmp", "heading", "tilt", "height"),
    [
        (packet(DJI), 264.5, 89.9, 120.3),
        (
            packet(
                elements="<drone-dji:GimbalYawDegree>+84.20</drone-dji:GimbalYawDegree><drone-dji:GimbalPitchDegree>"
                "-44.50</drone-dji:GimbalPitchDegree><drone-dji:RelativeAltitude>+46.00</drone-dji:RelativeAltitude>"
            ),
            84.2,
            44.5,
            46.0,
        ),
        (packet('drone-dji:FlightYawDegree="+12" drone-dji:GimbalPitchDegree="-90"'), 12.0, 90.0, None),
        (packet('drone-dji:GimbalYawDegree="+8" drone-dji:FlightYawDegree="+12"'), 8.0, None, None),
        (packet('drone:GimbalYawDegree="7" drone:GimbalPitchDegree="-60"'), 7.0, 60.0, None),
        (
            packet(
                elements="<drone-parrot:CameraYawDegree>176.31</drone-parrot:CameraYawDegree><drone-parrot:"
                "CameraPitchDegree>-78.36</drone-parrot:CameraPitchDegree><Camera:AboveGroundAltitude>53120/1000"
                "</Camera:AboveGroundAltitude>"
            ),
            176.31,
            78.36,
            53.12,
        ),
        (
            packet(elements='<drone-skydio:CameraOrientationNED drone-skydio:Yaw="-10" drone-skydio:Pitch="-84"/>'),
            350.0,
            84.0,
            None,
        ),
        (
            packet(
                elements="<drone-skydio:CameraOrientationNED><rdf:Description><drone-skydio:Yaw>146.5"
                "</drone-skydio:Yaw><drone-skydio:Pitch>-30</drone-skydio:Pitch></rdf:Description>"
                "</drone-skydio:CameraOrientationNED>"
            ),
            146.5,
            30.0,
            None,
        ),
        (packet('drone-dji:GimbalYawDegree="10" drone-dji:GimbalRollDegree="+180.0"'), 190.0, None, None),
        (packet('Camera:Pitch="7.5"'), None, None, None),
    ],
)
def test_pose_from_xmp(
    tmp_path: Path, xmp: bytes, heading: float | None, tilt: float | None, height: float | None
) -> None:
    facts = read_camera_facts(save_photo(tmp_path / "a.jpg", xmp=xmp))
    assert facts.heading_deg == (None if heading is None else pytest.approx(heading))
    assert facts.tilt_deg == (None if tilt is None else pytest.approx(tilt))
    assert facts.relative_altitude_m == (None if height is None else pytest.approx(height))


def gimbal(yaw: float, tilt: float, roll: float) -> bytes:
    return packet(
        f'drone-dji:GimbalYawDegree="{yaw:+.2f}" drone-dji:GimbalPitchDegree="{-tilt:+.2f}" '
        f'drone-dji:GimbalRollDegree="{roll:+.2f}"'
    )


def up_on_the_ground(yaw: float, tilt: float, roll: float) -> float:
    """Compass direction in which the ground passes from the photo's centre upwards, by DJI's rotations of the camera's
    axes (ahead, right, down) into north, east, down: about down by yaw, about right by pitch, about ahead by roll."""
    (cy, cp, cr), (sy, sp, sr) = (f(np.radians([yaw, -max(tilt, 1e-6), roll])) for f in (np.cos, np.sin))
    about_down = np.array([[cy, -sy, 0.0], [sy, cy, 0.0], [0.0, 0.0, 1.0]])
    about_right = np.array([[cp, 0.0, sp], [0.0, 1.0, 0.0], [-sp, 0.0, cp]])
    about_ahead = np.array([[1.0, 0.0, 0.0], [0.0, cr, -sr], [0.0, sr, cr]])
    axes = about_down @ about_right @ about_ahead
    ahead, up = axes[:, 0], -axes[:, 2]
    passed = up - ahead * up[2] / ahead[2]  # along the ground, which the ray ahead meets
    return float(np.degrees(np.arctan2(passed[1], passed[0])) % 360.0)


@pytest.mark.parametrize("roll", [0.0, 60.0, 120.0, 180.0, -60.0])
@pytest.mark.parametrize("tilt", [90.0, 45.0, 0.0])
def test_gimbal_roll_turns_the_heading(tmp_path: Path, tilt: float, roll: float) -> None:
    facts = read_camera_facts(save_photo(tmp_path / "a.jpg", xmp=gimbal(20.0, tilt, roll)))
    assert facts.heading_deg == pytest.approx(up_on_the_ground(20.0, tilt, roll), abs=1e-3)
    if tilt == 90.0:
        assert facts.heading_deg == pytest.approx((20.0 + roll) % 360.0)


@pytest.mark.parametrize(("orientation", "heading"), [(0, 200.0), (1, 200.0), (3, 20.0), (6, 20.0), (8, 20.0)])
def test_a_roll_that_exif_orientation_undoes_is_ignored(tmp_path: Path, orientation: int, heading: float) -> None:
    photo = save_photo(tmp_path / "a.jpg", main={0x0112: orientation}, xmp=gimbal(20.0, 90.0, 180.0))
    assert read_camera_facts(photo).heading_deg == pytest.approx(heading)


@pytest.mark.parametrize(
    ("gps", "heading"),
    [
        ({16: "T", 17: IFDRational(12345, 100)}, 123.45),
        ({16: "T", 17: 360.0}, 0.0),
        ({16: "T", 17: 0.0}, 0.0),
        ({16: "M", 17: 123.0}, None),
        ({17: 123.0}, None),
        ({16: "T", 17: 400.0}, None),
        ({16: "T", 17: IFDRational(0, 0)}, None),
        ({16: "T"}, None),
    ],
)
def test_heading_from_exif_direction(tmp_path: Path, gps: dict[int, object], heading: float | None) -> None:
    expected = None if heading is None else pytest.approx(heading)
    for orientation in (1, 6):
        photo = save_photo(tmp_path / "a.jpg", main={0x0112: orientation}, gps=gps)
        assert read_camera_facts(photo).heading_deg == expected


def test_heading_prefers_the_gimbal_over_exif(tmp_path: Path) -> None:
    gps = {16: "T", 17: 123.0}
    assert read_camera_facts(save_photo(tmp_path / "a.jpg", gps=gps, xmp=packet(DJI))).heading_deg == 264.5
    tilted = packet('drone-dji:GimbalPitchDegree="-60"')
    facts = read_camera_facts(save_photo(tmp_path / "b.jpg", gps=gps, xmp=tilted))
    assert (facts.heading_deg, facts.tilt_deg) == (123.0, 60.0)


def test_a_deeply_nested_packet_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = 2000
    collected = []
    monkeypatch.setattr(xmp_module, "_collect", lambda parent, *_: collected.append(parent))
    read_pose(b"<x>" + b"<CameraOrientationNED>" * deep + b"</CameraOrientationNED>" * deep + b"</x>")
    assert deep < len(collected) <= 2 * deep


def test_packets_in_other_formats_and_uploads(tmp_path: Path) -> None:
    image = Image.new("RGB", (30, 20))
    text = PngImagePlugin.PngInfo()
    text.add_itxt("XML:com.adobe.xmp", packet(DJI).decode())
    image.save(tmp_path / "a.png", pnginfo=text)
    image.save(tmp_path / "a.tif", tiffinfo={700: packet(DJI)})
    image.save(tmp_path / "a.webp", xmp=packet(DJI))
    for name in ("a.png", "a.tif", "a.webp"):
        assert read_camera_facts(tmp_path / name).heading_deg == pytest.approx(264.5), name
        assert read_camera_facts(io.BytesIO((tmp_path / name).read_bytes())).tilt_deg == pytest.approx(89.9)


def entities() -> bytes:
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "ha"}">' for i in range(10))
    return (
        f"<!DOCTYPE x [{laughs}]>"
        + packet(elements="<drone-dji:GimbalYawDegree>&l9;</drone-dji:GimbalYawDegree>").decode()
    ).encode()


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\xff\xfe\x00junk",
        packet(DJI)[:300],
        packet(DJI).replace(b"xmlns:drone-dji", b"xmlns:other"),
        packet(DJI).decode().encode("utf-16"),
        entities(),
        packet(DJI) + b" " * MAX_BYTES,
        b"<a>" * 50_000,
        packet('drone-dji:GimbalYawDegree="nan" drone-dji:GimbalPitchDegree="1e999" drone-dji:RelativeAltitude="1/0"'),
        packet('drone-dji:GimbalYawDegree="4000" drone-dji:GimbalPitchDegree="-900"'),
    ],
)
def test_a_broken_packet_is_ignored(broken: bytes) -> None:
    pose = read_pose(broken)
    assert (pose.yaw, pose.tilt, pose.roll, pose.relative_altitude_m) == (None, None, None, None)


def test_damaged_files_never_raise(tmp_path: Path) -> None:
    whole = save_photo(
        tmp_path / "a.jpg",
        main={0x0112: 1, 0x0132: "2024:05:06 07:08:09"},
        shot={0x920A: 8.8, 0xA405: 24, 0x9003: "2024:05:06 07:08:09"},
        gps={1: "N", 2: degrees(48), 16: "T", 17: 20.0},
        xmp=packet('drone-dji:GimbalPitchDegree="-89.90" drone-dji:GimbalRollDegree="+1.00"'),
    ).read_bytes()
    dice = random.Random(4)
    for _ in range(1_500):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 12)):
            damaged[dice.randrange(2, 1_000)] = dice.randrange(256)
        facts = read_camera_facts(io.BytesIO(bytes(damaged[: dice.choice((len(damaged), 400, 900))])))
        for value in (facts.fov_deg, facts.heading_deg, facts.tilt_deg):
            assert value is None or math.isfinite(value)


def test_files_that_are_not_images_have_no_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("not an image")
    assert read_camera_facts(tmp_path / "a.jpg") == CameraFacts()
    assert read_camera_facts(tmp_path / "missing.jpg") == CameraFacts()
    Image.new("RGB", (20, 20)).save(tmp_path / "plain.png")
    assert read_camera_facts(tmp_path / "plain.png") == CameraFacts()


def test_hints_drop_unusable_values() -> None:
    hints = hints_from_facts(CameraFacts(heading_deg=10.0, tilt_deg=60.0, fov_deg=70.0, relative_altitude_m=99.0))
    assert (hints.heading_deg, hints.tilt_deg, hints.fov_deg, hints.altitude_m) == (10.0, 60.0, 70.0, 99.0)
    useless = hints_from_facts(CameraFacts(tilt_deg=-10.0, relative_altitude_m=-3.0))
    assert (useless.tilt_deg, useless.altitude_m) == (None, None)


@pytest.mark.parametrize(("read", "taken"), [(89.9, 89.9), (90.1, 90.0), (95.0, 90.0), (95.1, None), (180.0, None)])
def test_a_tilt_slightly_beyond_straight_down_is_clipped(read: float, taken: float | None) -> None:
    assert hints_from_facts(CameraFacts(tilt_deg=read)).tilt_deg == taken


def test_real_photos(shared: Path) -> None:
    photos = sorted((shared / "data" / "caliterra_cc0").glob("*.jpg"))
    if not photos:
        pytest.skip("no caliterra_cc0")
    facts = [read_camera_facts(photo) for photo in photos]
    times = [fact.time for fact in facts if fact.time]
    assert len(times) == len(photos) and times == sorted(times)
    for fact in facts:
        # Canon gives 25 mm as the SX260's 35-mm equivalent at its widest: 4.5 mm on a 6.17 mm wide sensor.
        assert fact.fov_deg == pytest.approx(2 * math.degrees(math.atan(6.17 / 9.0)), abs=1.0)
        assert fact.heading_deg is None
