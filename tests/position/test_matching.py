"""Matching: mutual matches of keypoints, the position that they give, and patches without their position."""

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.embedding import PatchTokens
from skypart.embedding.keypoints import ImageKeypoints
from skypart.embedding.patches import PatchReader
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.position.homography import Points, transform
from skypart.position.matching import Refinement, evenness, match_keypoints, refine_position
from tests.position.stand_in import ColourEmbedder, quilt
from tests.position.test_homography import similarity

GRID = 16
CENTRES = np.stack(np.meshgrid((np.arange(GRID) + 0.5) / GRID, (np.arange(GRID) + 0.5) / GRID), axis=-1).reshape(-1, 2)


def unique_keypoints(points: Points, seed: int = 0) -> ImageKeypoints:
    """A different descriptor for every point: the n-th keypoints of two images match each other."""
    descriptors = np.random.default_rng(seed).normal(size=(len(points), 64))
    unit = descriptors / np.linalg.norm(descriptors, axis=1, keepdims=True)
    return ImageKeypoints(points, unit.astype(np.float32))


def refine(photo: ImageKeypoints, view: ImageKeypoints, footprint: Footprint) -> Refinement | None:
    match = match_keypoints(photo, view)
    return None if match is None else refine_position(match, footprint)


@pytest.mark.parametrize("rotation", [0.0, 90.0, 215.0])
@pytest.mark.parametrize(
    ("scale", "turn", "centre"), [(0.5, 0.0, (0.5, 0.5)), (0.6, 30.0, (0.6, 0.35)), (0.8, 200.0, (0.4, 0.7))]
)
def test_refined_place_heading_and_width_are_those_of_the_photo(
    rotation: float, scale: float, turn: float, centre: tuple[float, float]
) -> None:
    """The expected values are computed by hand: x is right, y is down, compass degrees run clockwise."""
    footprint = Footprint(latitude=48.1, longitude=11.5, metres=200.0, rotation=rotation)
    matrix = similarity(scale, turn, centre)
    found = refine(unique_keypoints(CENTRES), unique_keypoints(transform(matrix, CENTRES)), footprint)
    assert found is not None
    right, up = 200.0 * (centre[0] - 0.5), 200.0 * (0.5 - centre[1])
    angle = np.radians(rotation)
    east = right * np.cos(angle) + up * np.sin(angle)
    north = up * np.cos(angle) - right * np.sin(angle)
    metres = LocalFrame(latitude=48.1, longitude=11.5).to_metres(latitude=found.latitude, longitude=found.longitude)
    assert (float(metres.x), float(metres.y)) == pytest.approx((east, north), abs=0.2)
    assert (found.heading_deg - (rotation + turn) + 180) % 360 - 180 == pytest.approx(0.0, abs=0.2)
    assert 0 <= found.heading_deg < 360
    assert found.ground_m == pytest.approx(200.0 * scale, rel=0.005)
    assert found.match.inliers == GRID * GRID and found.match.inlier_share == 1.0


def test_the_inlier_share_is_of_all_mutual_matches() -> None:
    """A quarter of the keypoints lies at the wrong place in the view."""
    wrong = transform(similarity(0.8, 90.0), CENTRES)
    view = transform(similarity(0.8), CENTRES)
    view[: GRID * GRID // 4] = wrong[: GRID * GRID // 4]
    match = match_keypoints(unique_keypoints(CENTRES), unique_keypoints(view))
    assert match is not None
    assert match.inlier_share == match.inliers / (GRID * GRID)
    assert 0.74 < match.inlier_share < 0.8


def test_a_mirrored_photo_and_shuffled_are_not_refined() -> None:
    footprint = Footprint(latitude=48.1, longitude=11.5, metres=200.0)
    mirrored = CENTRES * [-1, 1] + [1, 0]
    assert refine(unique_keypoints(CENTRES), unique_keypoints(mirrored), footprint) is None
    shuffled = np.random.default_rng(8).permutation(CENTRES)
    found = refine(unique_keypoints(CENTRES), unique_keypoints(shuffled), footprint)
    assert found is None or found.match.inliers < 40


def test_too_few_keypoints_are_no_match() -> None:
    none, five = unique_keypoints(np.zeros((0, 2))), unique_keypoints(CENTRES[:5])
    assert match_keypoints(none, five) is match_keypoints(five, none) is match_keypoints(five, five) is None


def test_the_evenness_compares_cells_that_have_a_point_with_chance() -> None:
    """A photo has 36 cells; its left half has 18, one corner has one, and points on the border count."""
    assert evenness(CENTRES) == pytest.approx(1.0, abs=0.01)
    assert evenness(CENTRES[CENTRES[:, 0] < 0.5]) == pytest.approx(0.5, abs=0.02)
    expected = 1 + 35 / 36 + (35 / 36) ** 2  # each further point falls into an empty cell less often
    assert evenness(np.array([[0.0, 0.0], [0.1, 0.1], [1.0, 1.0]])) == pytest.approx(2 / expected)
    assert evenness(np.array([[0.3, 0.4]])) == pytest.approx(1.0) and evenness(np.zeros((0, 2))) == 0.0
    random = [evenness(np.random.default_rng(seed).random((60, 2))) for seed in range(200)]
    assert np.mean(random) == pytest.approx(1.0, abs=0.02)
    wrong = transform(similarity(0.8, 90.0), CENTRES)
    view = transform(similarity(0.8), CENTRES)
    right_half = CENTRES[:, 0] > 0.5
    view[right_half] = np.random.default_rng(3).permutation(wrong[right_half])
    match = match_keypoints(unique_keypoints(CENTRES), unique_keypoints(view))
    assert match is not None and match.evenness == pytest.approx(0.5, abs=4 / 36)


class PositionalEmbedder(ColourEmbedder):
    """Tokens that encode their position, as those of a ViT do, ten times as strongly as what they show."""

    def patch_tokens(self, inputs: NDArray[np.float32]) -> PatchTokens:
        patches = super().patch_tokens(inputs)
        loud = 10.0 * np.random.default_rng(4).normal(size=patches.tokens.shape[2:]).astype(np.float32)
        return PatchTokens(patches.tokens + loud, patches.grid)


def test_blank_images_do_not_match_by_the_positions_of_their_patches() -> None:
    plain, positional = (PatchReader(embedder) for embedder in (ColourEmbedder(), PositionalEmbedder()))
    town = quilt(1)[:200, :200]
    np.testing.assert_allclose(positional.read([town])[0].tokens, plain.read([town])[0].tokens, atol=1e-3)
    rng = np.random.default_rng(1)
    mist, haze = (rng.normal(128, 3, (200, 200, 3)).clip(0, 255).astype(np.uint8) for _ in range(2))
    first, second = positional.read([mist])[0], positional.read([haze])[0]
    cosines = first.tokens @ second.tokens.T
    assert np.mean(cosines.argmax(axis=1) == np.arange(len(cosines))) < 0.2


def test_patches_of_a_photo_keep_its_aspect_and_are_unit_rows() -> None:
    reader = PatchReader(ColourEmbedder())
    embedding, patches = reader.read_photo(quilt(1)[:150, :200])
    assert embedding.shape == (36,) and patches.tokens.shape == (196, 9) and patches.aspect == 0.75
    np.testing.assert_allclose(np.linalg.norm(patches.tokens, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(patches.centres[[0, 1, 14]], np.array([[0.5, 0.5], [1.5, 0.5], [0.5, 1.5]]) / 14)
