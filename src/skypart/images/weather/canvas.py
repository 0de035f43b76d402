"""The picture under weather, and the three ways in which a layer changes it."""

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.weather.noise import Plane

BytePlane = NDArray[np.uint8]
"""(height, width) uint8."""

ROUND_TO_FLOOR = -0.4998
"""Added to a value that is then rounded, it truncates, but leaves whole numbers alone."""

# The C library of Linux returns freed memory to the system at once until a large block has been freed; planes of a
# few megabytes then cost more in page faults than in arithmetic. One free of an untouched block raises its limit.
np.empty(24 << 20, dtype=np.uint8)


class Canvas:
    """A picture that takes layers one after the other; pixels are truncated after each, as imgaug does.

    Falling snow, x -> max(min(x + added, 255), floor), composes with itself to the same form, exactly: such layers are
    gathered on one grey plane until other layers, or the reader of `image()`, need the colours.
    """

    def __init__(self, image: RgbImage) -> None:
        self._image = image
        self.height, self.width = image.shape[:2]
        self._cover: tuple[BytePlane, BytePlane] | None = None

    def image(self) -> RgbImage:
        """The picture with all layers on it, (h, w, 3) uint8."""
        if self._cover is not None:
            added, floor = (cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB) for plane in self._cover)
            self._image = np.asarray(cv2.max(cv2.add(self._image, added), floor), dtype=np.uint8)
            self._cover = None
        return self._image

    def paint(self, image: RgbImage) -> None:
        """Replace the picture; what was on it must have been read by `image()` before."""
        self._image = image

    def cover(self, added: BytePlane, floor: BytePlane) -> None:
        """Lay x -> max(min(x + added, 255), floor) over the picture."""
        if self._cover is not None:
            below, below_floor = self._cover
            floor = np.asarray(cv2.max(cv2.add(below_floor, added), floor), dtype=np.uint8)
            added = np.asarray(cv2.add(below, added), dtype=np.uint8)
        self._cover = (added, floor)

    def veil(self, transmission: BytePlane, light: BytePlane) -> None:
        """Lay x -> x * transmission / 255 + light over the picture, in steps of grey levels."""
        dimmed = cv2.multiply(self.image(), cv2.cvtColor(transmission, cv2.COLOR_GRAY2RGB), scale=1.0 / 255.0)
        self._image = np.asarray(cv2.add(dimmed, cv2.cvtColor(light, cv2.COLOR_GRAY2RGB)), dtype=np.uint8)

    def mix(self, opacity: Plane, light: Plane) -> None:
        """Lay x -> (1 - opacity) * x + opacity * light over the picture, truncated; uses up both planes."""
        light *= opacity
        light += np.float32(ROUND_TO_FLOOR)
        transmission = np.subtract(np.float32(1.0), opacity, out=opacity)
        channels = [
            cv2.add(cv2.multiply(channel, transmission, dtype=cv2.CV_32F), light, dtype=cv2.CV_8U)
            for channel in cv2.split(self.image())
        ]
        self._image = np.asarray(cv2.merge(channels), dtype=np.uint8)
