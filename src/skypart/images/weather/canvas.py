"""The image that weather is applied to, and the three kinds of layers that change it."""

from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.weather.random_fields import Plane
from skypart.images.weather.streaks import BytePlane, Pitch, enlarge_plane, plane_size, smooth

ROUND_TO_FLOOR = -0.4998
"""Added before rounding, it turns rounding into truncation, but leaves whole numbers alone."""

_BAND_ROWS = 64
_SHARPENING = 0.16
_SnowPlanes: TypeAlias = tuple[BytePlane, BytePlane]

# glibc returns freed memory to the system at once until a large block has been freed. Planes of a few megabytes then
# cost more in page faults than in arithmetic. Freeing one untouched block raises the threshold.
np.empty(24 << 20, dtype=np.uint8)


class Canvas:
    """An image that takes one layer after the other. Pixels are truncated after each, as in imgaug.

    Layers of one kind compose into one. They are collected on grey planes, coarser than the image, one per pitch, until
    a layer of another kind or a call of `image()` needs the colours.
    """

    def __init__(self, image: RgbImage) -> None:
        self._image = image
        self.height, self.width = image.shape[:2]
        self._snow: dict[Pitch, _SnowPlanes] = {}
        self._rain: dict[Pitch, BytePlane | Plane] = {}
        self._rain_layers, self._rain_colour, self._rain_sideways = 0, 0, 0.0

    def image(self) -> RgbImage:
        """The image with all layers applied, (h, w, 3) uint8."""
        if self._snow:
            self._flush_snow()
        if self._rain:
            self._flush_rain()
        return self._image

    def replace(self, image: RgbImage) -> None:
        """Replace the image. Call `image()` before, or collected layers are applied to the new one."""
        self._image = image

    def add_snow(self, added: BytePlane, floor: BytePlane, pitch: Pitch = (1, 1)) -> None:
        """Apply x -> max(min(x + added, 255), floor), with planes (rows, columns) at a pitch.

        Such layers compose exactly into one of their kind.
        """
        if self._rain:
            self._flush_rain()
        below = self._snow.get(pitch)
        self._snow[pitch] = (added, floor) if below is None else _compose(below, (added, floor))

    def add_rain(self, opacity: BytePlane, colour: int, pitch: Pitch = (1, 1), sideways: float = 0.0) -> None:
        """Blend in a grey `colour` with opacity `opacity` / 255, truncated.

        opacity: (rows, columns), at a pitch.
        sideways: variance, in pixels squared, of the blur along rows that is still due. Layers are faint, so all are
            blurred together, with the mean of their variances.
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

    def blend(self, kept: BytePlane, light: NDArray[np.uint16]) -> None:
        """Apply x -> (kept * x + light) / 255, truncated. kept, light: (h, w); light is at most 255 * (255 - kept)."""
        image = self.image()
        blended = np.empty_like(image)
        for top in range(0, self.height, _BAND_ROWS):  # in bands that fit in the processor's cache
            rows = slice(top, top + _BAND_ROWS)
            total = np.multiply(image[rows], cv2.cvtColor(kept[rows], cv2.COLOR_GRAY2RGB), dtype=np.uint16)
            total += cv2.cvtColor(light[rows], cv2.COLOR_GRAY2RGB)
            cv2.convertScaleAbs(total, dst=blended[rows], alpha=1.0 / 255.0, beta=ROUND_TO_FLOOR)
        self._image = blended

    def _flush_snow(self) -> None:
        """Apply the collected snow to the image, from the coarsest planes to the finest."""
        collected = sorted(self._snow.items(), reverse=True)
        self._snow = {}
        pitch, (added, floor) = collected[0]
        for finer, above in [*collected[1:], ((1, 1), None)]:
            if finer != pitch:
                added, floor = (self._refine_snow(plane, pitch, finer) for plane in (added, floor))
            if above is not None:
                added, floor = _compose((added, floor), above)
            pitch = finer
        added, floor = (np.asarray(cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB), dtype=np.uint8) for plane in (added, floor))
        self._image = np.asarray(cv2.max(cv2.add(self._image, added), floor), dtype=np.uint8)

    def _refine_snow(self, plane: BytePlane, pitch: Pitch, finer: Pitch) -> BytePlane:
        """A plane of snow at a finer pitch; sharpened first, because interpolation softens the edges of flakes."""
        ratio = pitch[0] // finer[0], pitch[1] // finer[1]
        sharpened = smooth(plane, -_SHARPENING if ratio[1] > 1 else 0.0, -_SHARPENING if ratio[0] > 1 else 0.0)
        return enlarge_plane(np.asarray(sharpened, dtype=np.uint8), *plane_size(self.height, self.width, finer), ratio)

    def _flush_rain(self) -> None:
        """Apply the collected rain to the image."""
        layers, colour, sideways = self._rain_layers, self._rain_colour, self._rain_sideways / self._rain_layers
        planes = []
        for pitch, plane in self._rain.items():
            smoothed = smooth(np.asarray(cv2.convertScaleAbs(plane), dtype=np.uint8), sideways, 0.0)
            planes.append(enlarge_plane(np.asarray(smoothed, dtype=np.uint8), self.height, self.width, pitch))
        self._rain, self._rain_layers, self._rain_sideways = {}, 0, 0.0
        kept = planes[0]
        for other in planes[1:]:
            kept = np.asarray(cv2.multiply(kept, other, scale=1.0 / 255.0), dtype=np.uint8)
        levels = np.arange(256) / 255.0
        # Truncation takes half a grey level per layer, dimmed by the layers above; all are assumed equally strong.
        lost = sum((0.5 * levels ** (above / layers) for above in range(1, layers)), np.zeros(256))
        light = np.round(np.maximum(255.0 * (colour * (1.0 - levels) - lost), 0.0)).astype(np.uint16)
        self.blend(kept, np.asarray(cv2.LUT(kept, light), dtype=np.uint16))


def _compose(below: _SnowPlanes, above: _SnowPlanes) -> _SnowPlanes:
    """Two layers of `Canvas.add_snow` as one."""
    (added, floor), (more, upper) = below, above
    return (
        np.asarray(cv2.add(added, more), dtype=np.uint8),
        np.asarray(cv2.max(cv2.add(floor, more), upper), dtype=np.uint8),
    )
