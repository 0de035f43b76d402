"""Streaks by recursive doubling, and planes coarser than the image, compared with OpenCV's dense filter."""

import tracemalloc

import cv2
import numpy as np
import pytest

from skypart.images.weather.camera import line_kernel
from skypart.images.weather.canvas import Canvas
from skypart.images.weather.particles import (
    clipping_gain,
    enlarge_grains,
    enlargement_variance,
    reduced_size,
    scatter_grains,
    streak_length,
)
from skypart.images.weather.streaks import (
    BytePlane,
    Pitch,
    draw_streaks,
    enlarge_plane,
    max_length,
    plane_size,
    rows_per_plane_row,
    sideways_variance,
    smooth,
)


def drops(seed: int, share: float = 0.08) -> BytePlane:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((401, 512)) < share, rng.integers(128, 256, (401, 512)), 0).astype(np.uint8)


@pytest.mark.parametrize("length", [2, 3, 4, 7, 12, 31, 100])
def test_vertical_streaks_equal_a_dense_filter(length: int) -> None:
    plane = drops(length)
    count = length - 1
    weights = np.arange(count, 0, -1, dtype=np.float32)[:, None]
    anchor = (0, count // 2)
    wanted = cv2.filter2D(plane.astype(np.float32), -1, weights / weights.sum(), anchor=anchor)
    assert np.abs(draw_streaks(plane, length, 0.0) - wanted).max() <= 0.51


@pytest.mark.parametrize(
    ("length", "angle"), [(25, -12.0), (51, 3.0), (51, 10.0), (101, -14.0), (151, 7.0), (151, 0.2)]
)
def test_streaks_of_drops_resemble_a_dense_filter(length: int, angle: float) -> None:
    plane = drops(length)
    pitch = (rows_per_plane_row(length, angle), 1)
    assert pitch[0] > 1
    whole = np.pad(plane, ((0, -len(plane) % pitch[0]), (0, 0)), "reflect")
    joined = np.round(whole.reshape(-1, pitch[0], 512).mean(axis=1)).astype(np.uint8)
    streaks = draw_streaks(joined, length, angle, pitch)
    assert streaks.shape == plane_size(401, 512, pitch)
    smoothed = np.asarray(smooth(streaks, sideways_variance(length, angle, pitch), 0.0), dtype=np.uint8)
    assert_similar(enlarge_plane(smoothed, 401, 512, pitch), cv2.filter2D(plane, -1, line_kernel(length, angle)))


@pytest.mark.parametrize("pitch", [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize(("length", "angle"), [(5, -10.0), (7, 24.0), (15, 12.0)])
def test_streaks_of_flakes_resemble_a_dense_filter(length: int, angle: float, pitch: Pitch) -> None:
    few = drops(length)[:100, :128]
    size = plane_size(401, 512, pitch)
    flakes = smooth(enlarge_grains(few, size), sideways_variance(length, angle, pitch), 0.0, cv2.CV_16S)
    streaks = draw_streaks(np.asarray(flakes, dtype=np.int16), length, angle, pitch)
    exact = cv2.filter2D(enlarge_grains(few, (401, 512)), -1, line_kernel(length, angle))
    assert_similar(enlarge_plane(streaks, 401, 512, pitch), exact)


@pytest.mark.parametrize("join", [2, 3, 6])
@pytest.mark.parametrize("density", [0.03, 0.14])
def test_joined_rows_have_the_statistics_of_single_rows(join: int, density: float) -> None:
    single = scatter_grains(600, 500, density, (1.0, 1.0), np.random.default_rng(1))
    joined = scatter_grains(600 // join, 500, density, (1.0, 1.0), np.random.default_rng(2), join)
    assert joined.shape == (600 // join, 500)
    wanted = single.reshape(-1, join, 500).mean(axis=1)
    assert joined.mean() == pytest.approx(wanted.mean(), rel=0.03)
    assert joined.std() == pytest.approx(wanted.std(), rel=0.03)
    assert (joined > 0).mean() == pytest.approx((wanted > 0).mean(), rel=0.03)


@pytest.mark.parametrize("size", [0.01, 0.05, 0.1, 0.2])
def test_drops_drawn_at_full_size_resemble_enlarged_ones(size: float) -> None:
    length, angle, density, pitch = 25, 8.0, 0.08, (2, 1)
    small = reduced_size(401, 512, size)
    reduction = small[0] * small[1] / (401 * 512)
    drawn = scatter_grains(*small, density, (1.0, 1.0), np.random.default_rng(1))
    exact = cv2.filter2D(enlarge_grains(drawn, (401, 512)), -1, line_kernel(length, angle))
    drops = scatter_grains(
        *plane_size(401, 512, pitch), density, (1.0, 1.0), np.random.default_rng(2), pitch[0], reduction
    )
    streaks = draw_streaks(drops, length, angle, pitch, clipping_gain(density) / reduction)
    variance = sideways_variance(length, angle, pitch) + enlargement_variance(size)
    found = enlarge_plane(np.asarray(smooth(streaks, variance, 0.0), dtype=np.uint8), 401, 512, pitch)
    assert found.mean() == pytest.approx(exact.mean(), rel=0.05)
    assert found.std() == pytest.approx(exact.std(), rel=0.1)
    sharp, exact_sharp = (cv2.Laplacian(plane, cv2.CV_32F).std() for plane in (found, exact))
    assert sharp == pytest.approx(exact_sharp, rel=0.15)


def test_planes_without_grains_and_of_one_pixel() -> None:
    assert not scatter_grains(30, 40, 0.0, (0.5, 0.5), np.random.default_rng(1), 3).any()
    assert scatter_grains(1, 1, 0.5, (1.0, 1.0), np.random.default_rng(1)).shape == (1, 1)


def test_snow_collected_at_three_pitches_equals_layers_applied_one_by_one() -> None:
    rng = np.random.default_rng(5)
    picture = cv2.GaussianBlur(rng.integers(0, 256, (101, 131, 3)).astype(np.uint8), (0, 0), 3.0)
    together, wanted = Canvas(picture), picture
    for pitch in ((2, 1), (1, 1), (2, 2), (2, 1)):
        size = plane_size(101, 131, pitch)
        added, floor = (enlarge_grains(rng.integers(0, high, (13, 17)).astype(np.uint8), size) for high in (60, 200))
        together.add_snow(added, floor, pitch)
        more, least = (cv2.cvtColor(enlarge_plane(p, 101, 131, pitch), cv2.COLOR_GRAY2RGB) for p in (added, floor))
        wanted = np.asarray(cv2.max(cv2.add(wanted, more), least), dtype=np.uint8)
    difference = together.image().astype(float) - wanted
    assert abs(difference.mean()) < 3.0 and np.abs(difference).mean() < 8.0
    assert together.image().std() == pytest.approx(wanted.std(), rel=0.05)
    again = Canvas(picture)
    again.add_snow(added, floor, pitch)
    again.add_snow(added, floor, pitch)
    once = Canvas(picture)
    once.add_snow(added, floor, pitch)
    once.image()
    once.add_snow(added, floor, pitch)
    assert np.abs(again.image().astype(int) - once.image()).max() <= 4


def assert_similar(found: BytePlane, exact: BytePlane) -> None:
    """Brightness, spread and sharpness are equal; lines may be a pixel aside."""
    assert found.shape == exact.shape
    wide, exact_wide = (cv2.GaussianBlur(plane, (0, 0), 2.0) for plane in (found, exact))
    assert np.corrcoef(wide.ravel(), exact_wide.ravel())[0, 1] > 0.9
    assert found.mean() == pytest.approx(exact.mean(), rel=0.03)
    assert found.std() == pytest.approx(exact.std(), rel=0.07)
    assert cv2.Laplacian(found, cv2.CV_32F).std() == pytest.approx(cv2.Laplacian(exact, cv2.CV_32F).std(), rel=0.12)


def test_streaks_lean_to_the_same_side_as_in_imgaug() -> None:
    plane = np.zeros((101, 101), dtype=np.uint8)
    plane[50, 50] = 255
    for angle in (-25.0, 25.0):
        rows, columns = np.nonzero(draw_streaks(plane, 31, angle, gain=8.0))
        exact_rows, exact_columns = np.nonzero(cv2.filter2D(plane, cv2.CV_32F, line_kernel(31, angle)) > 0.1)
        assert np.polyfit(rows, columns, 1)[0] == pytest.approx(np.polyfit(exact_rows, exact_columns, 1)[0], abs=0.06)


def test_a_streak_of_length_one_changes_nothing() -> None:
    plane = drops(1)
    assert np.array_equal(draw_streaks(plane, 1, 17.0), plane)
    assert sideways_variance(1, 17.0, (1, 1)) == 0.0


@pytest.mark.parametrize("join", [2, 3, 4, 5, 6])
def test_as_many_of_the_brightest_grains_as_meet_on_a_pixel_stay_bright(join: int) -> None:
    crowded = scatter_grains(60, 80, 1.0 - 1e-7, (1.0, 1.0), np.random.default_rng(1), join)
    assert crowded.min() > 90


@pytest.mark.parametrize("shape", [(8, 20_000), (20_000, 8)])
def test_strips_take_no_more_memory_than_squares(shape: tuple[int, int]) -> None:
    def peak(rows: int, columns: int) -> int:
        plane = np.zeros((rows, columns), np.uint8)
        tracemalloc.start()
        draw_streaks(plane, streak_length(0.2, rows, columns), 15.0)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(*shape) < 20 * peak(400, 400)


@pytest.mark.parametrize("pitch", [(1, 1), (6, 1), (2, 2)])
def test_streaks_in_ordinary_images_are_never_shortened(pitch: Pitch) -> None:
    for short in range(1, 60):
        for long in range(short, 4 * short + 1):
            for height, width in ((short, long), (long, short)):
                assert max_length(*plane_size(height, width, pitch), pitch) >= streak_length(1.0, height, width)
