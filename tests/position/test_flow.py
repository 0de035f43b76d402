"""Optical flow measures velocity and turns; the heading filter joins compass, images and matches."""

import numpy as np
import pytest

from skypart.position.flow import FlowTracker, HeadingFilter, ground_velocity
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
