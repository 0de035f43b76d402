"""Polar warp of a satellite tile: bearing along the columns, distance from the centre along the rows."""

import cv2
import numpy as np

from skypart.images.decode import RgbImage


def polar_warp(image: RgbImage) -> RgbImage:
    """Warp a square (n, n, 3) uint8 tile to polar coordinates, (n, n, 3), as Shi et al. (NeurIPS 2019) do.

    Column j looks in the bearing 2 pi (j + 0.5) / n, clockwise from the top of the tile. Row i is at the distance
    (n - i - 0.5) / n of half an edge, so that the last row is the centre. Sampling is bilinear.
    """
    size = image.shape[0]
    steps = (np.arange(size) + 0.5) / size
    bearing = 2 * np.pi * steps[None, :]
    distance = (1 - steps[:, None]) * size / 2
    x = size / 2 + distance * np.sin(bearing) - 0.5
    y = size / 2 - distance * np.cos(bearing) - 0.5
    warped: RgbImage = cv2.remap(
        image, x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return warped
