"""Homographies from matches, and from a homography to a place, a heading and a width."""

from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.embedding import PatchTokens
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.position.refine import (
    Refinement,
    TokenReader,
    Tokens,
    aligned,
    apply,
    between,
    fit,
    homography,
    laid,
    match,
    perspective,
    plausible,
    refine,
)
from tests.position.stand_in import ColourEmbedder, quilt

Matrix = NDArray[np.float64]
GRID = 16


def similarity(scale: float = 0.8, turn: float = 0.0, centre: tuple[float, float] = (0.5, 0.5)) -> Matrix:
    """From a photo to a view: photo scaled, turned clockwise in the picture, its middle at `centre`."""
    cos, sin = scale * np.cos(np.radians(turn)), scale * np.sin(np.radians(turn))
    around = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    around[:2, 2] = np.asarray(centre) - around[:2, :2] @ [0.5, 0.5]
    return around


def tilted(amount: float) -> Matrix:
    """A view in perspective: what is above in the photo is farther away."""
    return np.asarray(similarity(0.7) @ np.linalg.inv(np.array([[1, 0, 0], [0, 1, 0], [0, amount, 1.0 - amount / 2]])))


def alike(photo: Tokens, view: Tokens) -> NDArray[np.float32]:
    return photo.patches @ view.patches.T


def alignment(photo: Tokens, view: Tokens, matrix: Matrix) -> float:
    return aligned(photo, view, alike(photo, view), matrix)


def points(count: int, dice: np.random.Generator) -> Matrix:
    return dice.uniform(0.05, 0.95, (count, 2))


PLAUSIBLE = {
    "the same": similarity(1.0),
    "turned by 90": similarity(0.8, 90.0),
    "turned by 180": similarity(0.8, 180.0),
    "smaller and moved": similarity(0.4, 20.0, (0.7, 0.3)),
    "in perspective": tilted(0.5),
    "negative multiple of the same": -2.0 * similarity(0.8, 30.0),
}
IMPLAUSIBLE = {
    "mirrored": np.diag([-0.8, 0.8, 1.0]) + np.array([[0, 0, 0.9], [0, 0, 0.1], [0, 0, 0]]),
    "mirrored and turned": similarity(0.8, 40.0) @ np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1.0]]),
    "collapsed to a line": np.array([[0.8, 0, 0.1], [0.0001, 0.001, 0.5], [0, 0, 1.0]]),
    "far too small": similarity(0.1),
    "far too large": similarity(4.0),
    "middle outside the view": similarity(0.8, 0.0, (1.3, 0.5)),
    "horizon through the middle": np.array([[1, 0, 0], [0, 1, 0], [0, 2.0, -1.0]]),
    "one corner behind the camera": np.array([[1, 0, 0], [0, 1, 0], [-1.0, -1.0, 1.4]]),
    "stretched seven times": np.array([[1.4, 0, -0.2], [0, 0.2, 0.4], [0, 0, 1.0]]),
    "nothing": np.zeros((3, 3)),
}


@pytest.mark.parametrize("kind", PLAUSIBLE)
def test_what_a_camera_above_the_ground_can_see_is_plausible(kind: str) -> None:
    assert plausible(PLAUSIBLE[kind])


@pytest.mark.parametrize("kind", IMPLAUSIBLE)
def test_what_no_camera_can_see_is_not(kind: str) -> None:
    assert not plausible(IMPLAUSIBLE[kind])


@pytest.mark.parametrize("kind", ["turned by 90", "smaller and moved", "in perspective"])
@pytest.mark.parametrize("outliers", [0, 40])
def test_a_homography_is_recovered_from_matches_with_outliers(kind: str, outliers: int) -> None:
    dice = np.random.default_rng(3)
    here = points(60, dice)
    there = apply(PLAUSIBLE[kind], here)
    here = np.concatenate([here, points(outliers, dice)])
    there = np.concatenate([there, points(outliers, dice)])
    found = homography(here, there, 0.02)
    assert found is not None
    matrix, inliers = found
    assert 60 <= inliers <= 66
    corners = np.array([[0.1, 0.1], [0.9, 0.1], [0.5, 0.5], [0.9, 0.9], [0.1, 0.9]])
    np.testing.assert_allclose(apply(matrix, corners), apply(PLAUSIBLE[kind], corners), atol=2e-3)


def test_the_same_matches_give_the_same_homography_whatever_was_drawn_before() -> None:
    dice = np.random.default_rng(5)
    here = points(80, dice)
    there = apply(similarity(0.6, 25.0), here) + dice.normal(0, 0.01, (80, 2))
    there[::2] = points(40, dice)
    first = homography(here, there, 0.03)
    cv2.setRNGSeed(99)
    second = homography(here, there, 0.03)
    assert first is not None and second is not None
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]


@pytest.mark.parametrize(
    "matches",
    [
        np.zeros((0, 2)),
        np.random.default_rng(0).uniform(0, 1, (5, 2)),
        np.full((30, 2), 0.4),
        np.stack([np.linspace(0, 1, 30), np.full(30, 0.5)], axis=1),
    ],
    ids=["none", "five", "one point", "one line"],
)
def test_matches_that_say_nothing_give_no_plausible_homography(matches: Matrix) -> None:
    found = homography(matches, matches.copy(), 0.05)
    assert found is None or not plausible(found[0]) or len(matches) > 6
    # never an exception, and never more inliers than matches
    assert found is None or found[1] <= len(matches)


def test_matches_are_mutual() -> None:
    """Photo patch 0 and 1 both like view patch 0 best, which likes 1 best; photo 2 and view 1 like each other."""
    photo = Tokens(
        np.array([[0.8, 0.6, 0], [1, 0, 0], [0, 0, 1]], np.float32), np.array([[0.1, 0], [0.2, 0], [0.3, 0]])
    )
    view = Tokens(np.array([[1, 0, 0], [0, 0.6, 0.8]], np.float32), np.array([[0.7, 0], [0.9, 0]]))
    here, there = match(photo, view, alike(photo, view))
    assert here.tolist() == [[0.2, 0], [0.3, 0]] and there.tolist() == [[0.7, 0], [0.9, 0]]


def tokens(centres: Matrix, seed: int = 0) -> Tokens:
    """A token of its own for every centre: the n-th patches of two pictures are each other's match."""
    patches = np.random.default_rng(seed).normal(size=(len(centres), 64))
    unit = patches / np.linalg.norm(patches, axis=1, keepdims=True)
    return Tokens(unit.astype(np.float32), centres)


def refined(photo: Tokens, view: Tokens, footprint: Footprint) -> Refinement | None:
    fitted = fit(photo, view)
    return None if fitted is None else refine(fitted, footprint)


CENTRES = np.stack(np.meshgrid((np.arange(GRID) + 0.5) / GRID, (np.arange(GRID) + 0.5) / GRID), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("rotation", [0.0, 90.0, 215.0])
@pytest.mark.parametrize(
    ("scale", "turn", "centre"), [(0.5, 0.0, (0.5, 0.5)), (0.6, 30.0, (0.6, 0.35)), (0.8, 200.0, (0.4, 0.7))]
)
def test_place_heading_and_width_are_those_of_the_photo(
    rotation: float, scale: float, turn: float, centre: tuple[float, float]
) -> None:
    """The expected numbers are written out by hand: x is right, y is down, compass degrees run clockwise."""
    footprint = Footprint(latitude=48.1, longitude=11.5, metres=200.0, rotation=rotation)
    matrix = similarity(scale, turn, centre)
    found = refined(tokens(CENTRES), tokens(apply(matrix, CENTRES)), footprint)
    assert found is not None
    right, up = 200.0 * (centre[0] - 0.5), 200.0 * (0.5 - centre[1])
    angle = np.radians(rotation)
    east = right * np.cos(angle) + up * np.sin(angle)
    north = up * np.cos(angle) - right * np.sin(angle)
    spot = LocalFrame(latitude=48.1, longitude=11.5).to_metres(latitude=found.latitude, longitude=found.longitude)
    assert (float(spot.x), float(spot.y)) == pytest.approx((east, north), abs=0.2)
    assert (found.heading_deg - (rotation + turn) + 180) % 360 - 180 == pytest.approx(0.0, abs=0.2)
    assert 0 <= found.heading_deg < 360
    assert found.ground_m == pytest.approx(200.0 * scale, rel=0.005)
    assert found.fit.inliers == GRID * GRID and found.fit.share == 1.0


def test_a_mirrored_photo_and_one_without_matches_are_not_refined() -> None:
    footprint = Footprint(latitude=48.1, longitude=11.5, metres=200.0)
    mirrored = CENTRES * [-1, 1] + [1, 0]
    assert refined(tokens(CENTRES), tokens(mirrored), footprint) is None
    dice: Any = np.random.default_rng(8)
    shuffled = refined(tokens(CENTRES), tokens(dice.permutation(CENTRES)), footprint)
    assert shuffled is None or shuffled.fit.inliers < 40


def test_alignment_is_high_only_where_like_lies_on_like() -> None:
    """Random tokens of 64 numbers, 256 pairs of 65,536 equal: cosines deviate by (1/64 + 1/256) ** 0.5."""
    photo = tokens(CENTRES)
    right = alignment(photo, tokens(CENTRES), np.eye(3))
    assert right == pytest.approx((1 / 64 + 1 / 256) ** -0.5, abs=0.1)
    assert abs(alignment(photo, tokens(CENTRES), similarity(1.0, 90.0))) < 0.5
    half = alignment(photo, tokens(CENTRES), similarity(1.0, 0.0, (1.0, 0.5)))
    assert abs(half) < 0.5
    shown = np.roll(photo.patches.reshape(GRID, GRID, 64), GRID // 2, axis=1).reshape(-1, 64)
    view = Tokens(shown, CENTRES)
    assert alignment(photo, view, similarity(1.0, 0.0, (1.0, 0.5))) == pytest.approx(right * np.sqrt(0.5), abs=0.4)
    assert alignment(photo, tokens(CENTRES), similarity(1.0, 0.0, (9.0, 9.0))) == 0.0


class Placed(ColourEmbedder):
    """Tokens that say where in the picture they lie, as those of a ViT do, ten times as loud as what they show."""

    def patch_tokens(self, inputs: NDArray[np.float32]) -> PatchTokens:
        patches = super().patch_tokens(inputs)
        loud = 10.0 * np.random.default_rng(4).normal(size=patches.tokens.shape[2:]).astype(np.float32)
        return PatchTokens(patches.tokens + loud, patches.grid)


def test_blank_pictures_do_not_match_by_the_positions_of_their_patches() -> None:
    plain, placed = (TokenReader(embedder) for embedder in (ColourEmbedder(), Placed()))
    town = quilt(1)[:200, :200]
    np.testing.assert_allclose(placed([town])[0].patches, plain([town])[0].patches, atol=1e-3)
    dice = np.random.default_rng(1)
    mist, haze = (dice.normal(128, 3, (200, 200, 3)).clip(0, 255).astype(np.uint8) for _ in range(2))
    first, second = placed([mist])[0], placed([haze])[0]
    here, there = match(first, second, alike(first, second))
    assert np.mean(np.all(here == there, axis=1)) < 0.2


def test_a_point_of_one_footprint_is_found_in_another() -> None:
    """By hand: 100 m square, up is east, 40 m north of a 400 m square whose up is north."""
    there = Footprint(latitude=48.1, longitude=11.5, metres=400.0)
    place = LocalFrame(latitude=48.1, longitude=11.5).to_degrees([0.0], [40.0])
    here = Footprint(
        latitude=float(place.latitude[0]), longitude=float(place.longitude[0]), metres=100.0, rotation=90.0
    )
    seen = apply(between(here, there), np.array([[0.5, 0.5], [0.5, 0.0], [1.0, 0.5]]))
    np.testing.assert_allclose(seen, [[0.5, 0.4], [0.625, 0.4], [0.5, 0.525]], atol=1e-4)
    np.testing.assert_allclose(between(there, here) @ between(here, there), np.eye(3), atol=1e-4)


def test_a_view_is_laid_into_the_perspective_of_a_photo() -> None:
    """Each pixel shows what lies where the homography puts it; colours are coordinates."""
    edge = 400
    y, x = np.mgrid[0:edge, 0:edge]
    view = np.stack([x * 255 / edge, y * 255 / edge, np.full_like(x, 200)], axis=-1).round().astype(np.uint8)
    for matrix in (similarity(0.5, 30.0, (0.6, 0.4)), tilted(0.5), -3.0 * tilted(0.5)):
        picture = laid(view, matrix, 64)
        spots = np.array([[10, 20], [32, 32], [50, 40]])
        expected = apply(matrix, (spots[:, ::-1] + 0.5) / 64)
        np.testing.assert_allclose(picture[spots[:, 0], spots[:, 1], :2], 255 * expected, atol=2.0)


def test_what_a_photo_shows_beyond_the_view_and_the_horizon_is_black() -> None:
    view = np.full((100, 100, 3), 200, np.uint8)
    beyond = laid(view, similarity(1.0, 0.0, (1.0, 0.5)), 50)
    assert (beyond[:, :24] == 200).all() and not beyond[:, 26:].any()
    horizon = np.array([[0.3, 0, 0.2], [0, 0.3, 0.2], [0, 2.0, -0.5]])  # at a quarter of the photo's height
    assert not laid(view, horizon, 48)[:12].any() and laid(view, horizon, 48)[30:].all()


def test_from_straight_above_a_photo_is_a_part_of_the_view() -> None:
    corners = apply(perspective(90.0, 60.0, 0.75, 2.0), np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.5], [1.0, 1.0]]))
    np.testing.assert_allclose(corners, [[0.25, 0.3125], [0.75, 0.3125], [0.5, 0.5], [0.75, 0.6875]], atol=1e-9)


@pytest.mark.parametrize(("tilt", "fov", "shape"), [(45.0, 50.0, 1.0), (30.0, 40.0, 0.75), (70.0, 80.0, 9 / 16)])
def test_a_tilted_photo_sees_the_ground_where_its_rays_meet_it(tilt: float, fov: float, shape: float) -> None:
    """Rays by trigonometry: a camera 1 above the ground looks north; a point's depression gives its distance."""
    down, half = np.radians(tilt), np.tan(np.radians(fov / 2))
    slant = 1 / np.sin(down)  # to the middle
    width, middle = 2 * half * slant, 1 / np.tan(down)
    for v in (0.1, 0.5, 0.9):
        lower = down + np.arctan((2 * v - 1) * half * shape)  # depression of the middle of that row
        north = 1 / np.tan(lower)
        away = 1 / np.sin(lower) * np.cos(lower - down)  # along the optical axis
        for u in (0.0, 0.3, 1.0):
            east = (2 * u - 1) * half * away
            expected = [0.5 + east / (3 * width), 0.5 - (north - middle) / (3 * width)]
            seen = apply(perspective(tilt, fov, shape, 3.0), np.array([[u, v]]))[0]
            np.testing.assert_allclose(seen, expected, atol=1e-9)
