"""Homographies: robust fit, plausibility, warping, and footprints."""

import cv2
import numpy as np
import pytest

from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.position.homography import (
    Homography,
    Points,
    between_footprints,
    fit_homography,
    is_plausible,
    oblique_homography,
    transform,
    turn_homography,
    warp,
)


def similarity(scale: float = 0.8, turn: float = 0.0, centre: tuple[float, float] = (0.5, 0.5)) -> Homography:
    """From a photo to a view: the photo is scaled, rotated clockwise in degrees, and centred at `centre`."""
    cos, sin = scale * np.cos(np.radians(turn)), scale * np.sin(np.radians(turn))
    matrix = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    matrix[:2, 2] = np.asarray(centre) - matrix[:2, :2] @ [0.5, 0.5]
    return matrix


def stretch(x: float, y: float) -> Homography:
    """Scale a photo around its centre by x and y."""
    return np.array([[x, 0, 0.5 - x / 2], [0, y, 0.5 - y / 2], [0, 0, 1.0]])


def tilted(amount: float) -> Homography:
    """A photo in perspective: its top is farther away."""
    return np.asarray(similarity(0.7) @ np.linalg.inv(np.array([[1, 0, 0], [0, 1, 0], [0, amount, 1.0 - amount / 2]])))


def random_points(count: int, rng: np.random.Generator) -> Points:
    return rng.uniform(0.05, 0.95, (count, 2))


PLAUSIBLE = {
    "identity": similarity(1.0),
    "rotated by 90": similarity(0.8, 90.0),
    "rotated by 180": similarity(0.8, 180.0),
    "smaller and shifted": similarity(0.4, 20.0, (0.7, 0.3)),
    "in perspective": tilted(0.5),
    "negative multiple": -2.0 * similarity(0.8, 30.0),
    "just large enough": similarity(0.21),
    "just small enough": similarity(3.15),
    "stretched almost five times": stretch(2.4, 0.5),
    "centre just inside the limit": similarity(0.8, 0.0, (1.09, -0.09)),
}
IMPLAUSIBLE = {
    "mirrored": np.diag([-0.8, 0.8, 1.0]) + np.array([[0, 0, 0.9], [0, 0, 0.1], [0, 0, 0]]),
    "mirrored and rotated": similarity(0.8, 40.0) @ np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1.0]]),
    "collapsed to a line": np.array([[0.8, 0, 0.1], [0.0001, 0.001, 0.5], [0, 0, 1.0]]),
    "slightly too small": similarity(0.19),
    "slightly too large": similarity(3.25),
    "stretched more than five times": stretch(2.6, 0.5),
    "centre too far right": similarity(0.8, 0.0, (1.11, 0.5)),
    "centre too far up": similarity(0.8, 0.0, (0.5, -0.11)),
    "horizon through the centre": np.array([[1, 0, 0], [0, 1, 0], [0, 2.0, -1.0]]),
    "one corner behind the camera": np.array([[1, 0, 0], [0, 1, 0], [-1.0, -1.0, 1.4]]),
    "zero matrix": np.zeros((3, 3)),
}


@pytest.mark.parametrize("kind", PLAUSIBLE)
def test_homographies_of_a_camera_above_the_ground_are_plausible(kind: str) -> None:
    assert is_plausible(PLAUSIBLE[kind])


@pytest.mark.parametrize("kind", IMPLAUSIBLE)
def test_impossible_homographies_are_not_plausible(kind: str) -> None:
    assert not is_plausible(IMPLAUSIBLE[kind])


@pytest.mark.parametrize("kind", ["rotated by 90", "smaller and shifted", "in perspective"])
@pytest.mark.parametrize("outliers", [0, 40])
def test_fit_recovers_the_homography_despite_outliers(kind: str, outliers: int) -> None:
    rng = np.random.default_rng(3)
    photo = random_points(60, rng)
    view = transform(PLAUSIBLE[kind], photo)
    photo = np.concatenate([photo, random_points(outliers, rng)])
    view = np.concatenate([view, random_points(outliers, rng)])
    found = fit_homography(photo, view, 0.02)
    assert found is not None
    matrix, inliers = found
    assert 60 <= inliers <= 66
    corners = np.array([[0.1, 0.1], [0.9, 0.1], [0.5, 0.5], [0.9, 0.9], [0.1, 0.9]])
    np.testing.assert_allclose(transform(matrix, corners), transform(PLAUSIBLE[kind], corners), atol=2e-3)


def test_inliers_are_counted_within_the_tolerance() -> None:
    """Forty exact matches, and ten that are off by 0.03: inliers at a tolerance of 0.05, mostly outliers at 0.02."""
    rng = np.random.default_rng(6)
    photo = random_points(50, rng)
    view = transform(similarity(0.8, 10.0), photo)
    view[40:, 0] += 0.03
    wide, narrow = fit_homography(photo, view, 0.05), fit_homography(photo, view, 0.02)
    assert wide is not None and narrow is not None
    assert wide[1] == 50 and 40 <= narrow[1] <= 43


def test_fit_does_not_depend_on_the_state_of_the_random_generator() -> None:
    rng = np.random.default_rng(5)
    photo = random_points(80, rng)
    view = transform(similarity(0.6, 25.0), photo) + rng.normal(0, 0.01, (80, 2))
    view[::2] = random_points(40, rng)
    first = fit_homography(photo, view, 0.03)
    cv2.setRNGSeed(99)
    second = fit_homography(photo, view, 0.03)
    assert first is not None and second is not None
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]


def test_six_matches_are_needed_for_a_fit() -> None:
    photo = random_points(6, np.random.default_rng(0))
    assert fit_homography(photo, photo, 0.05) is not None
    assert fit_homography(photo[:5], photo[:5], 0.05) is None
    assert fit_homography(photo[:0], photo[:0], 0.05) is None


@pytest.mark.parametrize(
    "matches",
    [np.full((30, 2), 0.4), np.stack([np.linspace(0, 1, 30), np.full(30, 0.5)], axis=1)],
    ids=["one point", "one line"],
)
def test_degenerate_matches_do_not_raise(matches: Points) -> None:
    found = fit_homography(matches, matches.copy(), 0.05)
    assert found is None or found[1] <= len(matches)


def test_a_point_of_one_footprint_is_mapped_to_another() -> None:
    """By hand: a 100 m square whose top is east, 40 m north of the centre of a 400 m square whose top is north."""
    target = Footprint(latitude=48.1, longitude=11.5, metres=400.0)
    place = LocalFrame(latitude=48.1, longitude=11.5).to_degrees([0.0], [40.0])
    source = Footprint(
        latitude=float(place.latitude[0]), longitude=float(place.longitude[0]), metres=100.0, rotation=90.0
    )
    mapped = transform(between_footprints(source, target), np.array([[0.5, 0.5], [0.5, 0.0], [1.0, 0.5]]))
    np.testing.assert_allclose(mapped, [[0.5, 0.4], [0.625, 0.4], [0.5, 0.525]], atol=1e-4)
    there_and_back = between_footprints(target, source) @ between_footprints(source, target)
    np.testing.assert_allclose(there_and_back, np.eye(3), atol=1e-4)


def test_warp_takes_each_pixel_from_where_the_homography_puts_it() -> None:
    """Colours are coordinates."""
    edge = 400
    y, x = np.mgrid[0:edge, 0:edge]
    view = np.stack([x * 255 / edge, y * 255 / edge, np.full_like(x, 200)], axis=-1).round().astype(np.uint8)
    for matrix in (similarity(0.5, 30.0, (0.6, 0.4)), tilted(0.5), -3.0 * tilted(0.5)):
        image = warp(view, matrix, (64, 64))
        pixels = np.array([[10, 20], [32, 32], [50, 40]])
        expected = transform(matrix, (pixels[:, ::-1] + 0.5) / 64)
        np.testing.assert_allclose(image[pixels[:, 0], pixels[:, 1], :2], 255 * expected, atol=2.0)


def test_warp_is_black_outside_the_view_and_above_the_horizon() -> None:
    view = np.full((100, 100, 3), 200, np.uint8)
    shifted = warp(view, similarity(1.0, 0.0, (1.0, 0.5)), (50, 50))
    assert (shifted[:, :24] == 200).all() and not shifted[:, 26:].any()
    horizon = np.array([[0.3, 0, 0.2], [0, 0.3, 0.2], [0, 2.0, -0.5]])  # at a quarter of the photo's height
    assert not warp(view, horizon, (48, 48))[:12].any() and warp(view, horizon, (48, 48))[30:].all()


def test_from_straight_above_a_photo_is_a_rectangle_of_the_view() -> None:
    matrix = oblique_homography(90.0, 60.0, 0.75, 2.0)
    corners = transform(matrix, np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.5], [1.0, 1.0]]))
    np.testing.assert_allclose(corners, [[0.25, 0.3125], [0.75, 0.3125], [0.5, 0.5], [0.75, 0.6875]], atol=1e-9)


@pytest.mark.parametrize(("tilt", "fov", "aspect"), [(45.0, 50.0, 1.0), (30.0, 40.0, 0.75), (70.0, 80.0, 9 / 16)])
def test_a_tilted_photo_sees_the_ground_where_its_rays_meet_it(tilt: float, fov: float, aspect: float) -> None:
    """Rays by trigonometry: a camera 1 above the ground looks north; the depression of a point gives its distance."""
    down, half = np.radians(tilt), np.tan(np.radians(fov / 2))
    slant = 1 / np.sin(down)  # to the centre
    width, middle = 2 * half * slant, 1 / np.tan(down)
    for v in (0.1, 0.5, 0.9):
        depression = down + np.arctan((2 * v - 1) * half * aspect)  # of the middle of that row
        north = 1 / np.tan(depression)
        depth = 1 / np.sin(depression) * np.cos(depression - down)  # along the optical axis
        for u in (0.0, 0.3, 1.0):
            east = (2 * u - 1) * half * depth
            expected = [0.5 + east / (3 * width), 0.5 - (north - middle) / (3 * width)]
            mapped = transform(oblique_homography(tilt, fov, aspect, 3.0), np.array([[u, v]]))[0]
            np.testing.assert_allclose(mapped, expected, atol=1e-9)


@pytest.mark.parametrize("angle", [0.0, 45.0, 90.0, 180.0, 225.0, 270.0])
def test_a_turned_image_agrees_with_its_homography(angle: float) -> None:
    """A bright spot right of the centre moves clockwise: by 90 degrees, it is below the centre."""
    image = np.zeros((101, 101, 3), np.uint8)
    image[48:53, 78:83] = 255
    turned = warp(image, turn_homography(-angle), (101, 101))
    rows, columns = np.nonzero(turned[..., 0] > 100)
    found = (np.array([columns.mean(), rows.mean()]) + 0.5) / 101
    expected = transform(turn_homography(angle), np.array([[80.5 / 101, 0.5]]))[0]
    np.testing.assert_allclose(found, expected, atol=0.006)
    radians = np.radians(angle)
    direction = np.array([np.cos(radians), np.sin(radians)])  # y points down
    np.testing.assert_allclose(expected - 0.5, 30 / 101 * direction, atol=1e-9)
