"""Photos that no single fix comes from are settled together, and nothing is claimed where they do not agree."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.position.fix import Evidence, Fix, Hints, Peak, Place
from skypart.position.hypotheses import MeasuredVelocity
from skypart.position.live import FLYING
from skypart.position.track import TrackOptions, TrackPoint
from skypart.position.track_filter import TrackFilter
from skypart.position.window import Candidates, Window, candidates_of
from tests.position.flights import FRAME, errors, fix_at, no_fix, straight

Floats = NDArray[np.float64]
SPEED = (12.0, 4.0)
AREA_M2 = 4e6
ALONE = TrackOptions(**{**vars(FLYING), "window_s": 0.0})


def ambiguous(
    rng: np.random.Generator, places: Sequence[Floats], confidence: float = 0.33, right: int | None = None
) -> Fix:
    """A photo without a fix that resembles several places equally. right: which is the best guess; by default any."""
    noisy = [place + rng.normal(size=2) * 12.0 for place in places]
    guess = noisy[int(rng.integers(len(noisy))) if right is None else right]

    def degrees(place: Floats) -> Place:
        found = FRAME.to_degrees(place[0], place[1])
        return Place(float(found.latitude), float(found.longitude))

    peaks = tuple(
        Peak(latitude=spot.latitude, longitude=spot.longitude, weight=1.0 / len(noisy), spread_m=20.0)
        for spot in map(degrees, noisy)
    )
    evidence = Evidence(
        similarity=0.6, agreement=0.3, inliers=0.0, inlier_share=0.0, evenness=0.0, scale_m=20.0, ground_m=90.0
    )
    return Fix(
        photo="photo",
        reason="places look alike",
        confidence=confidence,
        peaks=peaks,
        evidence=evidence,
        best_guess=degrees(guess),
    )


def follow(
    fixes: Sequence[Fix | None],
    velocities: Callable[[int], MeasuredVelocity | None],
    options: TrackOptions = FLYING,
    seconds: float = 2.0,
    hints: Hints | None = None,
) -> list[TrackPoint]:
    """The filter's points, with a velocity twice a second between photos."""
    track_filter = TrackFilter(options, FRAME, record=False)
    points = []
    for number, fix in enumerate(fixes):
        for quarter in range(1, 4):
            if number:
                moment = (number - 1 + quarter / 4) * seconds
                track_filter.drive(moment, velocities(number))
        points.append(track_filter.step(number * seconds, fix, velocities(number), hints))
    return points


def odometry(rng: np.random.Generator) -> Callable[[int], MeasuredVelocity]:
    drift = rng.normal(size=2) * 0.3
    return lambda number: MeasuredVelocity(np.array(SPEED) + drift + rng.normal(size=2) * 0.3, 0.3, 0.3)


def flight(count: int = 20) -> Floats:
    return straight(np.asarray(2.0 * np.arange(count), dtype=np.float64), SPEED)


@pytest.mark.parametrize("seed", range(6))
def test_ambiguous_photos_are_settled_by_their_neighbours(seed: int) -> None:
    rng = np.random.default_rng([1, seed])
    truth = flight()
    fixes = [ambiguous(rng, [place, *rng.uniform(-1000, 1000, (2, 2))]) for place in truth]
    assert not any(fix.found for fix in fixes)
    alone = follow(fixes, odometry(rng), ALONE)
    assert {point.state for point in alone} == {"lost"}
    points = follow(fixes, odometry(rng))
    said = [i for i, point in enumerate(points) if point.state != "lost"]
    assert said and said[0] <= 14 and points[said[0]].source == "window" and points[said[0]].state == "tracking"
    far, radius = errors(points, truth)[said], np.array([points[i].radius_m for i in said], dtype=float)
    assert (far <= radius).all() and (radius < 100).all()
    assert (points[said[0]].protection_m or math.inf) > (points[said[0]].radius_m or 0)


@pytest.mark.slow
def test_nothing_is_claimed_where_no_path_is_consistent() -> None:
    claimed = 0
    for seed in range(40):
        rng = np.random.default_rng([2, seed])
        fixes = [ambiguous(rng, list(rng.uniform(-1000, 1000, (3, 2)))) for _ in range(30)]
        claimed += sum(point.state != "lost" for point in follow(fixes, odometry(rng)))
    assert claimed == 0


def test_nothing_is_claimed_where_two_paths_are_consistent() -> None:
    for seed in range(10):
        rng = np.random.default_rng([3, seed])
        row = np.array([400.0, -300.0])  # the same street again, over there
        fixes = [ambiguous(rng, [place, place + row]) for place in flight(30)]
        assert {point.state for point in follow(fixes, odometry(rng))} == {"lost"}


def test_a_hovering_drone_sees_no_new_ground() -> None:
    rng = np.random.default_rng(4)
    wrong = np.array([200.0, 150.0])
    fixes = [ambiguous(rng, [wrong], 0.6) for _ in range(30)]
    still = follow(fixes, lambda _: MeasuredVelocity(np.zeros(2), 0.3, 0.2))
    assert {point.state for point in still} == {"lost"}


def test_a_wrong_place_that_stays_while_the_drone_flies_is_not_believed() -> None:
    rng = np.random.default_rng(5)
    fixes = [ambiguous(rng, [np.array([200.0, 150.0])], 0.6) for _ in range(30)]
    assert {point.state for point in follow(fixes, odometry(rng))} == {"lost"}


def test_photos_are_aligned_only_over_measured_motion() -> None:
    rng = np.random.default_rng(6)
    fixes = [ambiguous(rng, [place], 0.6) for place in flight()]
    assert {point.state for point in follow(fixes, lambda _: None)} == {"lost"}
    gap = odometry(rng)
    points = follow(fixes, lambda number: gap(number) if number % 3 else None)
    assert {point.state for point in points} == {"lost"}  # 2 s without motion, again and again


def test_photos_of_a_window_are_used_once() -> None:
    rng = np.random.default_rng(7)
    track_filter = TrackFilter(FLYING, FRAME, record=False)
    move, times = odometry(rng), []
    for number, place in enumerate(flight(24)):
        if track_filter.step(2.0 * number, ambiguous(rng, [place], 0.6), move(number)).source == "window":
            times.append(number)
        track_filter.drive(2.0 * number + 1.0, move(number))
    assert len(times) >= 2 and min(np.diff(times)) >= 4


def test_a_window_that_contradicts_the_track_is_held_until_others_confirm() -> None:
    rng = np.random.default_rng(8)
    truth = flight(40)
    fixes: list[Fix | None] = [fix_at(place, 5.0, 0.95) for place in truth[:14]]
    away = np.array([0.0, 600.0])
    fixes += [ambiguous(rng, [place + away], 0.6) for place in truth[14:22]]
    points = follow(fixes, odometry(rng))
    assert errors(points[14:], truth[14:22])[[-1]] < 60.0, "one window does not move a track of fourteen fixes"
    assert all(point.state == "coasting" for point in points[16:])
    agreeing = [*fixes[:14], *(ambiguous(rng, [place], 0.6) for place in truth[14:24])]
    points = follow(agreeing, odometry(rng))
    assert "window" in {point.source for point in points[16:]}
    assert (errors(points[14:], truth[14:24]) < 40).all()


def candidates(*places: tuple[float, float], share: float = 0.5, deviation: float = 10.0) -> Candidates:
    count = len(places)
    return Candidates(np.array(places), np.full(count, deviation**2), np.full(count, share / count), 50.0)


def windowed(offsets: Sequence[float], deviation: float = 10.0) -> Window:
    """A flight east at 10 m/s, a photo each 3 s whose candidate is this far north of its path."""
    window = Window(AREA_M2, 100.0)
    for number, offset in enumerate(offsets):
        window.move(3.0 * number, MeasuredVelocity(np.array([10.0, 0.0]), 0.1, 0.01))
        for part in (1.0, 2.0):
            if number < len(offsets) - 1:
                window.add(
                    3.0 * number, candidates((30.0 * number, offset), deviation=deviation)
                ) if part == 1.0 else None
                window.move(3.0 * number + part, MeasuredVelocity(np.array([10.0, 0.0]), 0.1, 0.01))
    window.add(3.0 * (len(offsets) - 1), candidates((30.0 * (len(offsets) - 1), offsets[-1]), deviation=deviation))
    return window


def test_the_agreement_passes_a_chi_square_test() -> None:
    rng = np.random.default_rng(9)
    fair = windowed((rng.normal(size=12) * 10.0).tolist()).align()
    assert fair is not None and fair.photos >= 11
    assert math.dist(fair.position, (330.0, 0.0)) < 15.0
    # Each is within its own gate, but together they scatter far more than they say.
    assert windowed([24.0, -24.0] * 6).align() is None
    assert windowed([4.0, -4.0] * 6).align() is not None


def test_the_position_is_no_better_than_what_all_photos_share() -> None:
    many = windowed([0.0] * 20).align()
    few = windowed([0.0] * 8).align()
    assert many is not None and few is not None
    assert many.total_variance < few.total_variance and many.total_variance >= 0.5 * 10.0**2
    assert many.votes >= few.votes and 1.0 < few.votes <= 3.0


def test_a_window_on_most_of_whose_photos_nothing_agrees_is_not_believed() -> None:
    rng = np.random.default_rng(10)
    offsets = [0.0 if number % 3 == 0 else float(rng.uniform(200, 1500)) for number in range(18)]
    assert windowed(offsets).align() is None
    assert windowed([0.0] * 3).align() is None


def test_candidates_are_those_of_photos_without_a_fix() -> None:
    assert candidates_of(None, FRAME, drone=False) is None
    assert candidates_of(no_fix(), FRAME, drone=False) is None
    assert candidates_of(fix_at(np.zeros(2)), FRAME, drone=False) is None
    rng = np.random.default_rng(11)
    photo = ambiguous(rng, [np.zeros(2), np.array([500.0, 0.0])], 0.4, right=0)
    found = candidates_of(photo, FRAME, drone=False)
    assert found is not None and len(found.share) == 2 and found.share[0] == pytest.approx(0.4)
    assert found.share.sum() < 1.0 and found.ground_m == 90.0
    assert candidates_of(photo, FRAME, drone=True) is None, "the tilt is not known"
    camera = Hints(tilt_deg=45.0, heading_deg=0.0, altitude_m=100.0)
    drone = candidates_of(photo, FRAME, camera, drone=True)
    assert drone is not None
    assert found.places[0] - drone.places[0] == pytest.approx([0.0, 100.0], abs=0.5)
    assert drone.variance[0] == pytest.approx(found.variance[0] + 10.0**2, rel=0.02)


def test_the_drones_own_track_is_settled_too() -> None:
    rng = np.random.default_rng(12)
    truth = flight()
    camera = Hints(tilt_deg=45.0, heading_deg=0.0, altitude_m=100.0)
    fixes = [ambiguous(rng, [place + np.array([0.0, 100.0])], 0.5) for place in truth]
    options = TrackOptions(**{**vars(FLYING), "follow": "drone"})
    points = follow(fixes, odometry(rng), options, hints=camera)
    said = [i for i, point in enumerate(points) if point.state != "lost"]
    assert said and (errors(points, truth)[said] < 60).all()
    assert {point.state for point in follow(fixes, odometry(rng), options)} == {"lost"}


def test_a_window_has_a_length_in_seconds() -> None:
    with pytest.raises(SkyPartError, match="window_s"):
        TrackOptions(window_s=-1.0)
    window = Window(AREA_M2, 10.0)
    velocity = MeasuredVelocity(np.array([10.0, 0.0]), 0.1, 0.01)
    for number in range(30):
        window.move(number, velocity)
        window.add(number, candidates((10.0 * number, 0.0)))
    assert len(window) == 11
