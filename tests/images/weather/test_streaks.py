"""Motion blur against OpenCV's dense filter."""

import cv2
import numpy as np
import pytest

from skypart.images.weather.streaks import fall, line_kernel, motion_blur


@pytest.mark.parametrize("angle", [0.0, 20.0, -45.0, 90.0, 200.0, 317.0])
@pytest.mark.parametrize("length", [3, 15, 31, 101])
def test_motion_blur_equals_dense_filter(length: int, angle: float) -> None:
    image = np.random.default_rng(1).integers(0, 256, (140, 170, 3), dtype=np.uint8)
    kernel = line_kernel(length, angle, 0.8)
    assert kernel.sum() == pytest.approx(1.0, abs=1e-5)
    wanted = cv2.filter2D(image.astype(np.float32), -1, kernel)
    assert np.abs(motion_blur(image, kernel) - wanted).max() < 1.1


def test_kernel_is_a_line_brightest_at_its_upper_end() -> None:
    kernel = line_kernel(15, 0.0)
    assert np.array_equal(np.nonzero(kernel.any(axis=0))[0], [7])
    assert np.all(np.diff(kernel[:, 7]) < 0)
    rows, columns = np.mgrid[-7:8, -7:8]
    tilted = line_kernel(15, 30.0)
    # Clockwise from the vertical: the upper end lies to the right.
    assert (tilted * columns).sum() > 0 > (tilted * rows).sum()
    assert (tilted * columns).sum() / -(tilted * rows).sum() == pytest.approx(np.tan(np.deg2rad(30.0)), rel=0.1)


@pytest.mark.parametrize(
    ("length", "angle"), [(25, -12.0), (51, 3.0), (51, 10.0), (101, -14.0), (151, 7.0), (151, 0.2)]
)
def test_long_falls_look_like_the_exact_ones(length: int, angle: float) -> None:
    rng = np.random.default_rng(length)
    drops = np.where(rng.random((401, 512)) < 0.08, rng.integers(128, 256, (401, 512)), 0).astype(np.uint8)
    exact = cv2.filter2D(drops, -1, line_kernel(length, angle))
    fallen = fall(drops, length, angle)
    assert fallen.shape == exact.shape
    assert np.corrcoef(fallen.ravel(), exact.ravel())[0, 1] > 0.92
    assert fallen.mean() == pytest.approx(exact.mean(), rel=0.02)
    assert fallen.std() == pytest.approx(exact.std(), rel=0.07)
    assert cv2.Laplacian(fallen, cv2.CV_32F).std() == pytest.approx(cv2.Laplacian(exact, cv2.CV_32F).std(), rel=0.12)
