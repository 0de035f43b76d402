"""Motion blur against OpenCV's dense filter."""

import cv2
import numpy as np
import pytest

from skypart.images.weather.camera import line_kernel, motion_blur


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
    # Clockwise from the vertical: the upper end is on the right.
    assert (tilted * columns).sum() > 0 > (tilted * rows).sum()
    assert (tilted * columns).sum() / -(tilted * rows).sum() == pytest.approx(np.tan(np.deg2rad(30.0)), rel=0.1)
