"""Coarse alignment: the right turn, scale and shift has the best score."""

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.position.homography import oblique_homography, transform, turn_homography
from skypart.position.layouts import LayoutRange, find_layout, pool_tokens, turns_near

EDGE, CHANNELS = 16, 12
Field = NDArray[np.float32]


def field(seed: int = 0, waves: int = 6) -> Field:
    """(waves, 2 + channels): directions and phases of a smooth random picture of vectors."""
    return np.random.default_rng(seed).normal(size=(waves * 3, 2 + CHANNELS)).astype(np.float32)


def tokens_at(points: NDArray[np.float64], seed: int = 0) -> Field:
    """(n, c) unit vectors that vary smoothly over the plane, sampled at points (n, 2)."""
    waves = field(seed)
    values = np.cos(4.0 * points @ waves[:, :2].T + np.arange(len(waves))) @ waves[:, 2:]
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), dtype=np.float32)


def centres(edge: int) -> NDArray[np.float64]:
    steps = (np.arange(edge) + 0.5) / edge
    y, x = np.meshgrid(steps, steps, indexing="ij")
    return np.stack([x.ravel(), y.ravel()], axis=1)


def test_pooling_averages_patches_of_a_grid() -> None:
    tokens = np.arange(256, dtype=np.float32)[:, None]
    pooled = pool_tokens(tokens)
    assert pooled.shape == (64, 1)
    assert pooled[0, 0] == np.mean([0, 1, 16, 17]) and pooled[-1, 0] == np.mean([238, 239, 254, 255])
    assert pool_tokens(tokens[:9]).shape == (9, 1), "a coarse grid stays as it is"
    odd = pool_tokens(np.ones((196, 2), np.float32))
    assert odd.shape == (64, 2) and np.allclose(odd, 1.0), "uneven cells are averaged, too"


@pytest.mark.parametrize(
    ("turn", "scale", "tilt", "aspect", "shift"),
    [
        (0.0, 1.0, 90.0, 1.0, (0.0, 0.0)),
        (90.0, 0.75, 90.0, 1.0, (0.125, -0.0625)),
        (195.0, 0.55, 90.0, 0.75, (-0.1875, 0.0625)),
        (330.0, 0.75, 50.0, 0.5625, (0.0625, 0.125)),
    ],
)
def test_the_layout_that_made_a_photo_is_found(
    turn: float, scale: float, tilt: float, aspect: float, shift: tuple[float, float]
) -> None:
    view = tokens_at(centres(EDGE))
    made = turn_homography(turn) @ oblique_homography(tilt, 55.0, aspect, 1.0 / scale)
    onto = transform(made, centres(EDGE)) + np.array(shift)
    found = find_layout(pool_tokens(tokens_at(onto)), view, aspect, LayoutRange())
    assert found is not None and found.score > 3.0
    middle = np.array([[0.5, 0.5], [0.5, 0.25], [0.25, 0.5]])
    expected = transform(made, middle) + np.array(shift)
    np.testing.assert_allclose(transform(found.homography, middle), expected, atol=0.75 / EDGE)


def test_another_picture_scores_lower() -> None:
    view = tokens_at(centres(EDGE))
    here = find_layout(pool_tokens(tokens_at(centres(EDGE))), view, 1.0, LayoutRange())
    there = find_layout(pool_tokens(tokens_at(centres(EDGE), seed=5)), view, 1.0, LayoutRange())
    assert here is not None and there is not None and here.score > 1.3 * there.score


def test_nothing_is_found_where_all_layouts_are_alike() -> None:
    blank = np.zeros((64, 4), np.float32)
    assert find_layout(blank, np.zeros((256, 4), np.float32), 1.0, LayoutRange()) is None


def test_only_the_given_layouts_are_tried() -> None:
    photo, view = pool_tokens(tokens_at(centres(EDGE))), tokens_at(centres(EDGE))
    found = find_layout(photo, view, 1.0, LayoutRange(turns=(90.0,), scales=(0.5,), tilts=(90.0,)))
    assert found is not None
    right = transform(found.homography, np.array([[0.5, 0.5], [1.0, 0.5]]))
    np.testing.assert_allclose(right[1] - right[0], [0.0, 0.25], atol=1e-9)


def test_turns_around_a_known_heading() -> None:
    assert turns_near(5.0, 0.0) == (355.0, 5.0, 15.0) and turns_near(90.0, 90.0) == (350.0, 0.0, 10.0)
