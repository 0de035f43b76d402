"""Five statistics of how strongly, and with what texture, an image was corrupted.

The imgaug environment of the benchmarks loads this file on its own, so it must not import SkyPart.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

STATISTICS = ("mean", "std", "ssim", "change", "laplacian")
_SSIM_SIGMA = 1.5
_SSIM_WINDOW = (11, 11)
_C1 = (0.01 * 255.0) ** 2
_C2 = (0.03 * 255.0) ** 2


def image_statistics(clean: NDArray[np.uint8], corrupted: NDArray[np.uint8]) -> dict[str, float]:
    """Compare two (h, w, 3) uint8 images; grey is luma, not rounded.

    mean, std: of the corrupted image's pixels over all channels, in grey levels.
    ssim: mean structural similarity of the grey images (11 x 11 Gaussian window, standard deviation 1.5), 1 = equal.
    change: mean absolute difference over all channels, in grey levels.
    laplacian: standard deviation of the corrupted grey image's Laplacian (4 neighbours), in grey levels.
    """
    grey = _luma(corrupted)
    return {
        "mean": float(corrupted.mean()),
        "std": float(corrupted.std()),
        "ssim": ssim(_luma(clean), grey),
        "change": float(cv2.absdiff(clean, corrupted).mean()),
        "laplacian": float(cv2.Laplacian(grey, cv2.CV_32F).std()),
    }


def ssim(x: NDArray[np.float32], y: NDArray[np.float32]) -> float:
    """Mean structural similarity of two (h, w) float32 images of 0..255, including (mirrored) borders."""
    mean_x, mean_y = _smooth(x), _smooth(y)
    variance_x = _smooth(x * x) - mean_x * mean_x
    variance_y = _smooth(y * y) - mean_y * mean_y
    covariance = _smooth(x * y) - mean_x * mean_y
    similarity = (2.0 * mean_x * mean_y + _C1) * (2.0 * covariance + _C2)
    similarity /= (mean_x * mean_x + mean_y * mean_y + _C1) * (variance_x + variance_y + _C2)
    return float(similarity.mean(dtype=np.float64))


def _luma(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(h, w, 3) uint8 RGB to (h, w) float32 grey."""
    return np.asarray(image @ np.array([0.299, 0.587, 0.114], dtype=np.float32), dtype=np.float32)


def _smooth(plane: NDArray[np.float32]) -> NDArray[np.float32]:
    """Gaussian-weighted mean of (h, w) float32 over the window."""
    return np.asarray(
        cv2.GaussianBlur(plane, _SSIM_WINDOW, _SSIM_SIGMA, borderType=cv2.BORDER_REFLECT_101), dtype=np.float32
    )
