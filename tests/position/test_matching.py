"""Patch matching: tokens without their position, mutual matches, and the position that a match gives."""

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.embedding import PatchTokens
from skypart.embedding.patches import ImagePatches, PatchReader
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.position.homography import Homography, Points, transform
from skypart.position.matching import (
    Refinement,
    alignment_score,
    match_patches,
    mutual_matches,
    refine_position,
)
from tests.position.stand_in import ColourEmbedder, quilt
from tests.position.test_homography import similarity

GRID = 16
CENTRES = np.stack(np.meshgrid((np.arange(GRID) + 0.5) / GRID, (np.arange(GRID) + 0.5) / GRID), axis=-1).reshape(-1, 2)


def cosines(photo: ImagePatches, view: ImagePatches) -> NDArray[np.float32]:
    return photo.tokens @ view.tokens.T


def alignment(photo: ImagePatches, view: ImagePatches, matrix: Homography) -> float:
    return alignment_score(photo, view, cosines(photo, view), matrix)


def unique_patches(centres: Points, seed: int = 0) -> ImagePatches:
    """A different token for every centre: the n-th patches of two images match each other."""
    tokens = np.random.default_rng(seed).normal(size=(len(centres), 64))
    unit = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    return ImagePatches(unit.astype(np.float32), centres)


def refine(photo: ImagePatches, view: ImagePatches, footprint: Footprint) -> Refinement | None:
    match = match_patches(photo, view)
    return None if match is None else refine_position(match, footprint)


def test_only_mutual_nearest_neighbours_match() -> None:
    """Photo patches 0 and 1 are nearest to view patch 0, which is nearest to 1; photo 2 and view 1 are mutual."""
    photo = ImagePatches(
        np.array([[0.8, 0.6, 0], [1, 0, 0], [0, 0, 1]], np.float32), np.array([[0.1, 0], [0.2, 0], [0.3, 0]])
    )
    view = ImagePatches(np.array([[1, 0, 0], [0, 0.6, 0.8]], np.float32), np.array([[0.7, 0], [0.9, 0]]))
    in_photo, in_view = mutual_matches(photo, view, cosines(photo, view))
    assert in_photo.tolist() == [[0.2, 0], [0.3, 0]] and in_view.tolist() == [[0.7, 0], [0.9, 0]]


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
    found = refine(unique_patches(CENTRES), unique_patches(transform(matrix, CENTRES)), footprint)
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
    """A quarter of the patches lies at the wrong place in the view."""
    wrong = transform(similarity(0.8, 90.0), CENTRES)
    view = transform(similarity(0.8), CENTRES)
    view[: GRID * GRID // 4] = wrong[: GRID * GRID // 4]
    match = match_patches(unique_patches(CENTRES), unique_patches(view))
    assert match is not None
    assert match.inlier_share == match.inliers / (GRID * GRID)
    assert 0.74 < match.inlier_share < 0.8


def test_a_mirrored_photo_and_shuffled_patches_are_not_refined() -> None:
    footprint = Footprint(latitude=48.1, longitude=11.5, metres=200.0)
    mirrored = CENTRES * [-1, 1] + [1, 0]
    assert refine(unique_patches(CENTRES), unique_patches(mirrored), footprint) is None
    shuffled = np.random.default_rng(8).permutation(CENTRES)
    found = refine(unique_patches(CENTRES), unique_patches(shuffled), footprint)
    assert found is None or found.match.inliers < 40


def test_alignment_is_high_only_if_similar_patches_overlap() -> None:
    """Random tokens with 64 channels, 256 of 65,536 pairs equal: cosines deviate by (1/64 + 1/256) ** 0.5."""
    photo = unique_patches(CENTRES)
    right = alignment(photo, unique_patches(CENTRES), np.eye(3))
    assert right == pytest.approx((1 / 64 + 1 / 256) ** -0.5, abs=0.1)
    assert abs(alignment(photo, unique_patches(CENTRES), similarity(1.0, 90.0))) < 0.5
    half = alignment(photo, unique_patches(CENTRES), similarity(1.0, 0.0, (1.0, 0.5)))
    assert abs(half) < 0.5
    rolled = np.roll(photo.tokens.reshape(GRID, GRID, 64), GRID // 2, axis=1).reshape(-1, 64)
    view = ImagePatches(rolled, CENTRES)
    assert alignment(photo, view, similarity(1.0, 0.0, (1.0, 0.5))) == pytest.approx(right * np.sqrt(0.5), abs=0.4)
    assert alignment(photo, unique_patches(CENTRES), similarity(1.0, 0.0, (9.0, 9.0))) == 0.0


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
    in_photo, in_view = mutual_matches(first, second, cosines(first, second))
    assert np.mean(np.all(in_photo == in_view, axis=1)) < 0.2


def test_patches_of_a_photo_keep_its_aspect_and_are_unit_rows() -> None:
    reader = PatchReader(ColourEmbedder())
    embedding, patches = reader.read_photo(quilt(1)[:150, :200])
    assert embedding.shape == (36,) and patches.tokens.shape == (196, 9) and patches.aspect == 0.75
    np.testing.assert_allclose(np.linalg.norm(patches.tokens, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(patches.centres[[0, 1, 14]], np.array([[0.5, 0.5], [1.5, 0.5], [0.5, 1.5]]) / 14)
