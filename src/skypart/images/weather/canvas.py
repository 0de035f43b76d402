"""The picture under weather, and the three ways in which a layer changes it."""

from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.weather.fall import BytePlane, Pitch, coarse_size, refine, smooth
from skypart.images.weather.noise import Plane

ROUND_TO_FLOOR = -0.4998
"""Added to a value that is then rounded, it truncates, but leaves whole numbers alone."""

_BAND = 64
_SHARPEN = 0.16
_Cover: TypeAlias = tuple[BytePlane, BytePlane]

# The C library of Linux returns freed memory to the system at once until a large block has been freed; planes of a
# few megabytes then cost more in page faults than in arithmetic. One free of an untouched block raises its limit.
np.empty(24 << 20, dtype=np.uint8)


class Canvas:
    """A picture that takes layers one after the other; pixels are truncated after each, as imgaug does.

    Layers of one kind compose to one: they are gathered on grey planes, coarser than the picture and each pitch by
    itself, until layers of another kind, or the reader of `image()`, need the colours.
    """

    def __init__(self, image: RgbImage) -> None:
        self._image = image
        self.height, self.width = image.shape[:2]
        self._snow: dict[Pitch, _Cover] = {}
        self._rain: dict[Pitch, BytePlane | Plane] = {}
        self._rain_layers, self._rain_colour, self._rain_sideways = 0, 0, 0.0

    def image(self) -> RgbImage:
        """The picture with all layers on it, (h, w, 3) uint8."""
        if self._snow:
            self._lay_snow()
        if self._rain:
            self._lay_rain()
        return self._image

    def paint(self, image: RgbImage) -> None:
        """Replace the picture; what was on it must have been read by `image()` before."""
        self._image = image

    def cover(self, added: BytePlane, floor: BytePlane, pitch: Pitch = (1, 1)) -> None:
        """Lay x -> max(min(x + added, 255), floor) over the picture, (rows, columns) each, at a pitch.

        Such layers compose to one of their kind, exactly.
        """
        if self._rain:
            self._lay_rain()
        below = self._snow.get(pitch)
        self._snow[pitch] = (added, floor) if below is None else _composed(below, (added, floor))

    def veil(self, opacity: BytePlane, colour: int, pitch: Pitch = (1, 1), sideways: float = 0.0) -> None:
        """Lay a grey `colour` over the picture, as opaque as `opacity` / 255, truncated.

        opacity: (rows, columns), at a pitch.
        sideways: variance, in square pixels, by which it has still to be smoothed along its rows. Layers are faint, so
            all are smoothed together, by the mean of their variances.
        """
        if self._snow or (self._rain and colour != self._rain_colour):
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

    def _lay_snow(self) -> None:
        """Bring the gathered snow to the picture, from the coarsest planes to the finest."""
        gathered = sorted(self._snow.items(), reverse=True)
        self._snow = {}
        pitch, (added, floor) = gathered[0]
        for finer, above in [*gathered[1:], ((1, 1), None)]:
            if finer != pitch:
                added, floor = (self._sharpened(plane, pitch, finer) for plane in (added, floor))
            if above is not None:
                added, floor = _composed((added, floor), above)
            pitch = finer
        added, floor = (np.asarray(cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB), dtype=np.uint8) for plane in (added, floor))
        self._image = np.asarray(cv2.max(cv2.add(self._image, added), floor), dtype=np.uint8)

    def _sharpened(self, plane: BytePlane, pitch: Pitch, finer: Pitch) -> BytePlane:
        """A plane of snow at a finer pitch; the edges of flakes, which interpolation wears off, are raised before."""
        ratio = pitch[0] // finer[0], pitch[1] // finer[1]
        raised = smooth(plane, -_SHARPEN if ratio[1] > 1 else 0.0, -_SHARPEN if ratio[0] > 1 else 0.0)
        return refine(np.asarray(raised, dtype=np.uint8), *coarse_size(self.height, self.width, finer), ratio)

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


def _composed(below: _Cover, above: _Cover) -> _Cover:
    """Two layers of `Canvas.cover` as one."""
    (added, floor), (more, upper) = below, above
    return (
        np.asarray(cv2.add(added, more), dtype=np.uint8),
        np.asarray(cv2.max(cv2.add(floor, more), upper), dtype=np.uint8),
    )
