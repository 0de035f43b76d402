"""The two ways of resampling positions, compared with each other and with a plain bicubic filter."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from skypart.model.positions import PositionMode, interpolate_positions, sincos_positions

NATIVE = (5, 5)


def positions(seed: int = 0) -> Tensor:
    return torch.randn(1, 25, 8, generator=torch.Generator().manual_seed(seed))


def cubic(distance: float, a: float = -0.75) -> float:
    """Keys' kernel with torch's coefficient."""
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def filter_matrix(count: int, native: int, scale: float) -> NDArray[np.float64]:
    """(count, native): each row samples at (i + 0.5) / scale - 0.5 with four taps, the border repeated."""
    rows = np.zeros((count, native))
    for i in range(count):
        centre = (i + 0.5) / scale - 0.5
        for tap in range(math.floor(centre) - 1, math.floor(centre) + 3):
            rows[i, min(max(tap, 0), native - 1)] += cubic(centre - tap)
    return rows


@pytest.mark.parametrize(("mode", "offset"), [("original", 0.1), ("huggingface", 0.0)])
@pytest.mark.parametrize("grid", [(7, 7), (3, 9), (2, 2), (32, 32)])
def test_interpolation_equals_a_plain_bicubic_filter(mode: PositionMode, offset: float, grid: tuple[int, int]) -> None:
    stored = positions()
    down = filter_matrix(grid[0], 5, (grid[0] + offset) / 5)
    across = filter_matrix(grid[1], 5, (grid[1] + offset) / 5)
    image = stored.double().numpy().reshape(5, 5, 8)
    expected = np.einsum("ri,cj,ijd->rcd", down, across, image).reshape(1, -1, 8)
    found = interpolate_positions(stored, NATIVE, grid, mode)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


def test_modes_agree_at_the_native_size_and_differ_slightly_elsewhere() -> None:
    stored = positions()
    for mode in ("original", "huggingface"):
        assert interpolate_positions(stored, NATIVE, NATIVE, mode) is stored
    original = interpolate_positions(stored, NATIVE, (8, 8), "original")
    huggingface = interpolate_positions(stored, NATIVE, (8, 8), "huggingface")
    gap = float((original - huggingface).abs().max())
    assert 1e-3 < gap < 0.5
    assert float(torch.cosine_similarity(original, huggingface, dim=-1).min()) > 0.9


def test_register_models_antialias_the_same_way_in_both_modes() -> None:
    stored = positions()
    modes: tuple[PositionMode, ...] = ("original", "huggingface")
    smooth = [interpolate_positions(stored, NATIVE, (3, 2), mode, antialias=True) for mode in modes]
    assert torch.equal(smooth[0], smooth[1])
    assert not torch.allclose(smooth[0], interpolate_positions(stored, NATIVE, (3, 2), "huggingface"), atol=1e-2)


@pytest.mark.parametrize("grid", [(37, 37), (32, 32), (28, 28), (14, 30)])
def test_no_row_is_lost_to_rounding(grid: tuple[int, int]) -> None:
    for native in (14, 16, 37):
        stored = torch.randn(1, native * native, 4)
        assert interpolate_positions(stored, (native, native), grid, "original").shape == (1, grid[0] * grid[1], 4)


def test_half_precision_positions_keep_their_type() -> None:
    stored = positions().half()
    assert interpolate_positions(stored, NATIVE, (6, 6)).dtype == torch.float16


def test_sine_cosine_positions_one_by_one() -> None:
    rows, columns, dim = 3, 4, 16
    found = sincos_positions(dim, (rows, columns))[0]
    for row in range(rows):
        for column in range(columns):
            for channel in range(4):
                angle = 10_000.0 ** (-channel / 4)
                place = found[row * columns + column]
                # in MoCo v3 the first half of the channels encodes the row.
                expected = [
                    math.sin(row * angle),
                    math.cos(row * angle),
                    math.sin(column * angle),
                    math.cos(column * angle),
                ]
                assert place[channel::4].tolist() == pytest.approx(expected, abs=1e-6)
