"""Streaks by doubling sums, and planes coarser than the picture, against OpenCV's dense filter."""

import tracemalloc

import cv2
import numpy as np
import pytest

from skypart.images.weather.canvas import Canvas
from skypart.images.weather.fall import (
    BytePlane,
    Pitch,
    coarse_size,
    fall,
    longest_line,
    refine,
    rows_apart,
    sideways_variance,
    smooth,
)
from skypart.images.weather.grains import cut_gain, enlarge_grains, enlarged_variance, reduced, scatter
from skypart.images.weather.particles import _length
from skypart.images.weather.streaks import line_kernel


def drops(seed: int, share: float = 0.08) -> BytePlane:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((401, 512)) < share, rng.integers(128, 256, (401, 512)), 0).astype(np.uint8)


@pytest.mark.parametrize("length", [2, 3, 4, 7, 12, 31, 100])
def test_doubling_sums_equal_the_weights_of_a_vertical_line(length: int) -> None:
    plane = drops(length)
    count = length - 1
    weights = np.arange(count, 0, -1, dtype=np.float32)[:, None]
    anchor = (0, count // 2)
    wanted = cv2.filter2D(plane.astype(np.float32), -1, weights / weights.sum(), anchor=anchor)
    assert np.abs(fall(plane, length, 0.0) - wanted).max() <= 0.51


@pytest.mark.parametrize(
    ("length", "angle"), [(25, -12.0), (51, 3.0), (51, 10.0), (101, -14.0), (151, 7.0), (151, 0.2)]
)
def test_falling_drops_look_like_the_exact_ones(length: int, angle: float) -> None:
    plane = drops(length)
    pitch = (rows_apart(length, angle), 1)
    assert pitch[0] > 1
    whole = np.pad(plane, ((0, -len(plane) % pitch[0]), (0, 0)), "reflect")
    joined = np.round(whole.reshape(-1, pitch[0], 512).mean(axis=1)).astype(np.uint8)
    fallen = fall(joined, length, angle, pitch)
    assert fallen.shape == coarse_size(401, 512, pitch)
    smoothed = np.asarray(smooth(fallen, sideways_variance(length, angle, pitch), 0.0), dtype=np.uint8)
    assert_alike(refine(smoothed, 401, 512, pitch), cv2.filter2D(plane, -1, line_kernel(length, angle)))


@pytest.mark.parametrize("pitch", [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize(("length", "angle"), [(5, -10.0), (7, 24.0), (15, 12.0)])
def test_falling_flakes_look_like_the_exact_ones(length: int, angle: float, pitch: Pitch) -> None:
    few = drops(length)[:100, :128]
    size = coarse_size(401, 512, pitch)
    flakes = smooth(enlarge_grains(few, size), sideways_variance(length, angle, pitch), 0.0, cv2.CV_16S)
    fallen = fall(np.asarray(flakes, dtype=np.int16), length, angle, pitch)
    exact = cv2.filter2D(enlarge_grains(few, (401, 512)), -1, line_kernel(length, angle))
    assert_alike(refine(fallen, 401, 512, pitch), exact)


@pytest.mark.parametrize("join", [2, 3, 6])
@pytest.mark.parametrize("density", [0.03, 0.14])
def test_grains_of_joined_rows_are_as_bright_and_as_spread_as_single_ones(join: int, density: float) -> None:
    single = scatter(600, 500, density, (1.0, 1.0), np.random.default_rng(1))
    joined = scatter(600 // join, 500, density, (1.0, 1.0), np.random.default_rng(2), join)
    assert joined.shape == (600 // join, 500)
    wanted = single.reshape(-1, join, 500).mean(axis=1)
    assert joined.mean() == pytest.approx(wanted.mean(), rel=0.03)
    assert joined.std() == pytest.approx(wanted.std(), rel=0.03)
    assert (joined > 0).mean() == pytest.approx((wanted > 0).mean(), rel=0.03)


@pytest.mark.parametrize("size", [0.01, 0.05, 0.1, 0.2])
def test_drops_drawn_at_full_size_fall_like_enlarged_ones(size: float) -> None:
    length, angle, density, pitch = 25, 8.0, 0.08, (2, 1)
    small = reduced(401, 512, size)
    fewer = small[0] * small[1] / (401 * 512)
    drawn = scatter(*small, density, (1.0, 1.0), np.random.default_rng(1))
    exact = cv2.filter2D(enlarge_grains(drawn, (401, 512)), -1, line_kernel(length, angle))
    drops = scatter(*coarse_size(401, 512, pitch), density, (1.0, 1.0), np.random.default_rng(2), pitch[0], fewer)
    fallen = fall(drops, length, angle, pitch, cut_gain(density) / fewer)
    variance = sideways_variance(length, angle, pitch) + enlarged_variance(size)
    found = refine(np.asarray(smooth(fallen, variance, 0.0), dtype=np.uint8), 401, 512, pitch)
    assert found.mean() == pytest.approx(exact.mean(), rel=0.05)
    assert found.std() == pytest.approx(exact.std(), rel=0.1)
    sharp, exact_sharp = (cv2.Laplacian(plane, cv2.CV_32F).std() for plane in (found, exact))
    assert sharp == pytest.approx(exact_sharp, rel=0.15)


def test_no_grain_and_a_single_pixel_are_planes_too() -> None:
    assert not scatter(30, 40, 0.0, (0.5, 0.5), np.random.default_rng(1), 3).any()
    assert scatter(1, 1, 0.5, (1.0, 1.0), np.random.default_rng(1)).shape == (1, 1)


def test_flakes_gathered_at_three_pitches_equal_layers_laid_one_by_one() -> None:
    rng = np.random.default_rng(5)
    picture = cv2.GaussianBlur(rng.integers(0, 256, (101, 131, 3)).astype(np.uint8), (0, 0), 3.0)
    together, wanted = Canvas(picture), picture
    for pitch in ((2, 1), (1, 1), (2, 2), (2, 1)):
        size = coarse_size(101, 131, pitch)
        added, floor = (enlarge_grains(rng.integers(0, high, (13, 17)).astype(np.uint8), size) for high in (60, 200))
        together.cover(added, floor, pitch)
        more, least = (cv2.cvtColor(refine(p, 101, 131, pitch), cv2.COLOR_GRAY2RGB) for p in (added, floor))
        wanted = np.asarray(cv2.max(cv2.add(wanted, more), least), dtype=np.uint8)
    difference = together.image().astype(float) - wanted
    assert abs(difference.mean()) < 3.0 and np.abs(difference).mean() < 8.0
    assert together.image().std() == pytest.approx(wanted.std(), rel=0.05)
    again = Canvas(picture)
    again.cover(added, floor, pitch)
    again.cover(added, floor, pitch)
    once = Canvas(picture)
    once.cover(added, floor, pitch)
    once.image()
    once.cover(added, floor, pitch)
    assert np.abs(again.image().astype(int) - once.image()).max() <= 4


def assert_alike(found: BytePlane, exact: BytePlane) -> None:
    """Lines may lie a pixel aside; brightness, spread and sharpness are the same."""
    assert found.shape == exact.shape
    wide, exact_wide = (cv2.GaussianBlur(plane, (0, 0), 2.0) for plane in (found, exact))
    assert np.corrcoef(wide.ravel(), exact_wide.ravel())[0, 1] > 0.9
    assert found.mean() == pytest.approx(exact.mean(), rel=0.03)
    assert found.std() == pytest.approx(exact.std(), rel=0.07)
    assert cv2.Laplacian(found, cv2.CV_32F).std() == pytest.approx(cv2.Laplacian(exact, cv2.CV_32F).std(), rel=0.12)


def test_lines_lean_to_the_side_that_imgaugs_lean_to() -> None:
    plane = np.zeros((101, 101), dtype=np.uint8)
    plane[50, 50] = 255
    for angle in (-25.0, 25.0):
        rows, columns = np.nonzero(fall(plane, 31, angle, gain=8.0))
        exact_rows, exact_columns = np.nonzero(cv2.filter2D(plane, cv2.CV_32F, line_kernel(31, angle)) > 0.1)
        assert np.polyfit(rows, columns, 1)[0] == pytest.approx(np.polyfit(exact_rows, exact_columns, 1)[0], abs=0.06)


def test_a_grain_that_stands_still_stays_as_it_is() -> None:
    plane = drops(1)
    assert np.array_equal(fall(plane, 1, 17.0), plane)
    assert sideways_variance(1, 17.0, (1, 1)) == 0.0


@pytest.mark.parametrize("join", [2, 3, 4, 5, 6])
def test_as_many_of_the_brightest_grains_as_meet_on_a_pixel_stay_bright(join: int) -> None:
    crowded = scatter(60, 80, 1.0 - 1e-7, (1.0, 1.0), np.random.default_rng(1), join)
    assert crowded.min() > 90


@pytest.mark.parametrize("shape", [(8, 20_000), (20_000, 8)])
def test_strips_take_no_more_memory_than_squares(shape: tuple[int, int]) -> None:
    def peak(rows: int, columns: int) -> int:
        plane = np.zeros((rows, columns), np.uint8)
        tracemalloc.start()
        fall(plane, _length(0.2, rows, columns), 15.0)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(*shape) < 20 * peak(400, 400)


@pytest.mark.parametrize("pitch", [(1, 1), (6, 1), (2, 2)])
def test_lines_of_ordinary_pictures_are_never_cut(pitch: Pitch) -> None:
    for short in range(1, 60):
        for long in range(short, 4 * short + 1):
            for height, width in ((short, long), (long, short)):
                assert longest_line(*coarse_size(height, width, pitch), pitch) >= _length(1.0, height, width)
