"""The picture under weather, and the three ways in which a layer changes it."""

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.weather.fall import BytePlane, Pitch, refine, smooth
from skypart.images.weather.noise import Plane

ROUND_TO_FLOOR = -0.4998
"""Added to a value that is then rounded, it truncates, but leaves whole numbers alone."""

_BAND = 64

# The C library of Linux returns freed memory to the system at once until a large block has been freed; planes of a
# few megabytes then cost more in page faults than in arithmetic. One free of an untouched block raises its limit.
np.empty(24 << 20, dtype=np.uint8)


class Canvas:
    """A picture that takes layers one after the other; pixels are truncated after each, as imgaug does.

    Layers of one kind compose to one: they are gathered on grey planes, those of rain coarser than the picture and
    each pitch by itself, until layers of another kind, or the reader of `image()`, need the colours.
    """

    def __init__(self, image: RgbImage) -> None:
        self._image = image
        self.height, self.width = image.shape[:2]
        self._snow: tuple[BytePlane, BytePlane] | None = None
        self._rain: dict[Pitch, BytePlane | Plane] = {}
        self._rain_layers, self._rain_colour, self._rain_sideways = 0, 0, 0.0

    def image(self) -> RgbImage:
        """The picture with all layers on it, (h, w, 3) uint8."""
        if self._snow is not None:
            added, floor = (cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB) for plane in self._snow)
            self._image = np.asarray(cv2.max(cv2.add(self._image, added), floor), dtype=np.uint8)
            self._snow = None
        if self._rain:
            self._lay_rain()
        return self._image

    def paint(self, image: RgbImage) -> None:
        """Replace the picture; what was on it must have been read by `image()` before."""
        self._image = image

    def cover(self, added: BytePlane, floor: BytePlane) -> None:
        """Lay x -> max(min(x + added, 255), floor) over the picture, (h, w) each: composes to itself, exactly."""
        if self._rain:
            self._lay_rain()
        if self._snow is not None:
            below, below_floor = self._snow
            floor = np.asarray(cv2.max(cv2.add(below_floor, added), floor), dtype=np.uint8)
            added = np.asarray(cv2.add(below, added), dtype=np.uint8)
        self._snow = (added, floor)

    def veil(self, opacity: BytePlane, colour: int, pitch: Pitch = (1, 1), sideways: float = 0.0) -> None:
        """Lay a grey `colour` over the picture, as opaque as `opacity` / 255, truncated.

        opacity: (rows, columns), at a pitch.
        sideways: variance, in square pixels, by which it has still to be smoothed along its rows. Layers are faint, so
            all are smoothed together, by the mean of their variances.
        """
        if self._snow is not None or (self._rain and colour != self._rain_colour):
            self.image()
        kept: BytePlane | Plane = np.asarray(cv2.bitwise_not(opacity), dtype=np.uint8)
        if pitch in self._rain:
            kept = np.asarray(cv2.multiply(self._rain[pitch], kept, scale=1.0 / 255.0, dtype=cv2.CV_32F))
        self._rain[pitch] = kept
        self._rain_colour = colour
        self._rain_layers += 1
        self._rain_sideways += sideways

    def mix(self, kept: BytePlane, light: NDArray[np.uint16]) -> None:
        """Lay x -> (kept * x + light) / 255 over the picture, truncated; (h, w), light at most 255 * (255 - kept)."""
        image = self.image()
        mixed = np.empty_like(image)
        for top in range(0, self.height, _BAND):  # in bands that stay in the processor's cache
            rows = slice(top, top + _BAND)
            total = np.multiply(image[rows], cv2.cvtColor(kept[rows], cv2.COLOR_GRAY2RGB), dtype=np.uint16)
            total += cv2.cvtColor(light[rows], cv2.COLOR_GRAY2RGB)
            cv2.convertScaleAbs(total, dst=mixed[rows], alpha=1.0 / 255.0, beta=ROUND_TO_FLOOR)
        self._image = mixed

    def _lay_rain(self) -> None:
        """Bring the gathered rain to the picture."""
        layers, colour, sideways = self._rain_layers, self._rain_colour, self._rain_sideways / self._rain_layers
        planes = []
        for pitch, plane in self._rain.items():
            smoothed = smooth(np.asarray(cv2.convertScaleAbs(plane), dtype=np.uint8), sideways, 0.0)
            planes.append(refine(np.asarray(smoothed, dtype=np.uint8), self.height, self.width, pitch))
        self._rain, self._rain_layers, self._rain_sideways = {}, 0, 0.0
        kept = planes[0]
        for other in planes[1:]:
            kept = np.asarray(cv2.multiply(kept, other, scale=1.0 / 255.0), dtype=np.uint8)
        levels = np.arange(256) / 255.0
        # Truncation takes half a grey level a layer, dimmed by the layers above; all are taken for equally strong.
        lost = sum((0.5 * levels ** (above / layers) for above in range(1, layers)), np.zeros(256))
        light = np.round(np.maximum(255.0 * (colour * (1.0 - levels) - lost), 0.0)).astype(np.uint16)
        self.mix(kept, np.asarray(cv2.LUT(kept, light), dtype=np.uint16))
