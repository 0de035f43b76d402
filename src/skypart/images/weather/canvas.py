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

    def veil(self, opacity: BytePlane, colour: int) -> None:
        """Lay a grey `colour` over the picture, as opaque as `opacity` / 255, truncated."""
        kept = cv2.cvtColor(cv2.bitwise_not(opacity), cv2.COLOR_GRAY2RGB)
        total = np.multiply(self.image(), kept, dtype=np.uint16)
        total += cv2.cvtColor(opacity * np.uint16(colour), cv2.COLOR_GRAY2RGB)
        self._image = np.asarray(cv2.convertScaleAbs(total, alpha=1.0 / 255.0, beta=ROUND_TO_FLOOR), dtype=np.uint8)

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
