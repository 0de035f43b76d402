"""Optical flow measures velocity and turns; the heading filter joins compass, images and matches."""

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest

from skypart.images.decode import RgbImage
from skypart.position.fix import Hints
from skypart.position.flow import FlowTracker, HeadingFilter, ground_velocity
from skypart.position.live import FLYING, FlyOptions, LiveTracker
from skypart.telemetry.record import Sample, Telemetry
from tests.position.flights import FRAME
from tests.position.stand_in import Shot, quilt

TOWN = quilt(3)


@pytest.mark.parametrize("heading", [0.0, 90.0, 217.0])
def test_flow_measures_the_velocity_over_the_ground(heading: float) -> None:
    flow = FlowTracker()
    assert flow.add(0.0, Shot(0.0, 0.0, heading, 120.0).photo(TOWN)) is None
    motion = flow.add(0.5, Shot(4.0, -2.5, heading, 120.0).photo(TOWN))
    assert motion is not None and abs(motion.turn_deg) < 0.5 and motion.zoom == pytest.approx(1.0, abs=0.01)
    measured = ground_velocity(motion, ground_m=120.0, heading_deg=heading)
    np.testing.assert_allclose(measured.velocity, [8.0, -5.0], atol=0.4)
    assert measured.drift > 0.5


def test_flow_measures_turns_and_gives_up_where_nothing_agrees() -> None:
    flow = FlowTracker()
    flow.add(0.0, Shot(0.0, 0.0, 10.0).photo(TOWN))
    motion = flow.add(0.2, Shot(0.0, 0.0, 16.0).photo(TOWN))
    assert motion is not None and -motion.turn_deg == pytest.approx(
        6.0, abs=0.4
    )  # the camera turns against the content
    assert flow.add(0.4, Shot(150.0, 150.0, 16.0).photo(TOWN)) is None  # another place
    assert flow.add(0.6, np.full((200, 200, 3), 90, np.uint8)) is None
    assert flow.add(5.0, Shot(0.0, 0.0).photo(TOWN)) is None  # too long after the last


def test_matches_correct_a_compass_and_images_carry_the_heading_on() -> None:
    heading = HeadingFilter()
    assert heading.heading_deg is None
    for second in range(20):
        heading.compass(float(second), 350.0 + second)
        heading.match(float(second), 350.0 + second + 15.0)  # the compass is 15 degrees off
    assert heading.heading_deg == pytest.approx((369.0 + 15.0) % 360.0, abs=1.5) and heading.deviation_deg < 3.0
    heading.match(20.0, 200.0)  # a wrong match
    assert heading.heading_deg == pytest.approx(24.0, abs=2.0)
    images = HeadingFilter()
    images.match(0.0, 90.0)
    for second in range(1, 11):
        images.turn(float(second), 5.0)
    assert images.heading_deg == pytest.approx(140.0) and images.deviation_deg > 4.0


def oblique(
    east: float, north: float, heading: float, tilt: float, height: float = 60.0, fov: float = 60.0
) -> RgbImage:
    """A photo (200, 200, 3) of the town from a drone at (east, north), by one ray per pixel."""
    x, y = np.meshgrid((np.arange(200) - 99.5) / 200, (np.arange(200) - 99.5) / 200)
    focal = 0.5 / math.tan(math.radians(fov) / 2)
    down, turn = math.radians(tilt), math.radians(heading)
    ahead = focal * math.cos(down) - y * math.sin(down)
    fall = focal * math.sin(down) + y * math.cos(down)
    ahead, right = height * ahead / fall, height * x / fall
    ground = (
        east + right * math.cos(turn) + ahead * math.sin(turn),
        north - right * math.sin(turn) + ahead * math.cos(turn),
    )
    pixels = TOWN.shape[0] / 500.0
    columns, rows = (ground[0] + 250.0) * pixels - 0.5, (250.0 - ground[1]) * pixels - 0.5
    photo: RgbImage = cv2.remap(TOWN, columns.astype(np.float32), rows.astype(np.float32), cv2.INTER_AREA)
    return photo


@pytest.mark.parametrize("tilt", [50.0, 65.0, 90.0])
def test_a_tilted_camera_turns_more_than_its_image(tilt: float) -> None:
    flow = FlowTracker()
    flow.add(0.0, oblique(0.0, 0.0, 30.0, tilt))
    motion = flow.add(0.2, oblique(0.0, 0.0, 36.0, tilt))
    assert motion is not None and motion.camera_turn(tilt) == pytest.approx(6.0, abs=0.5)


def test_a_shaking_camera_gives_velocities_that_say_so() -> None:
    rng = np.random.default_rng(3)
    still, shaken = FlowTracker(), FlowTracker()
    calm = rough = None
    for number in range(14):
        east, (right, up) = 2.0 * number - 14.0, (rng.normal(size=2) * 1.5).tolist()
        calm = still.add(0.4 * number, Shot(east, 0.0, 0.0, 120.0).photo(TOWN))
        rough = shaken.add(0.4 * number, Shot(east + right, up, 0.0, 120.0).photo(TOWN))
    assert calm is not None and rough is not None
    steady, jumpy = (ground_velocity(each, ground_m=120.0, heading_deg=0.0) for each in (calm, rough))
    assert steady.deviation < 0.6 and 2.0 < jumpy.deviation < 12.0  # 1.5 m at either end of 0.4 s are 5.3 m/s


def turning_tracker(telemetry: Telemetry) -> LiveTracker:
    track = replace(FLYING, follow="drone")
    return LiveTracker(FlyOptions(hints=Hints(fov_deg=60.0)), track, FRAME, None, telemetry)


def test_a_turn_of_a_tilted_camera_is_no_velocity_of_the_drone() -> None:
    rng = np.random.default_rng(4)
    times = np.arange(0.0, 5.0, 0.2)
    headings = 20.0 * times
    samples = [
        Sample(time_s=now, heading_deg=heading + rng.normal() * 1.5, tilt_deg=60.0, height_m=60.0)
        for now, heading in zip(times.tolist(), headings.tolist(), strict=True)
    ]
    live = turning_tracker(Telemetry(samples))
    for now, heading in zip(times.tolist(), headings.tolist(), strict=True):
        live.look(now, oblique(0.0, 0.0, heading, 60.0))
    found = [velocity for _, velocity in live._velocities]
    assert len(found) > 15, "height and lens give the scale before there is a fix"
    speeds = np.array([np.linalg.norm(each.velocity) for each in found])
    assert np.median(speeds) < 1.5, "the ground at the photo's centre moves at 12 m/s"
    assert (speeds < 3.5 * np.array([math.hypot(each.deviation, each.drift) for each in found])).all()


def test_a_camera_that_nods_tells_no_velocity_of_the_drone() -> None:
    samples = [Sample(time_s=0.2 * n, heading_deg=0.0, tilt_deg=40.0 + 5.0 * n, height_m=60.0) for n in range(8)]
    live = turning_tracker(Telemetry(samples))
    for number in range(8):
        live.look(0.2 * number, oblique(0.0, 0.0, 0.0, 40.0 + 5.0 * number))
    assert not live._velocities


def test_the_scale_follows_the_height_since_the_last_match() -> None:
    samples = [
        Sample(time_s=0.2 * n, heading_deg=0.0, tilt_deg=90.0, height_m=60.0 if n < 10 else 120.0) for n in range(30)
    ]
    live = LiveTracker(FlyOptions(), FLYING, FRAME, None, Telemetry(samples))
    live._ground_m, live._ground_height_m = 70.0, 60.0
    for now, height in ((0.4, 60.0), (5.0, 120.0)):
        assert live._ground_width(live._hints_at(now)) == pytest.approx(70.0 * height / 60.0)
