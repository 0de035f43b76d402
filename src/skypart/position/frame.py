"""One photo of a flight."""

from dataclasses import dataclass

from skypart.images.decode import RgbImage


@dataclass(frozen=True)
class Frame:
    """One photo of a flight: seconds from its start, its pixels, and its path (of a video: name and frame number)."""

    time_s: float
    image: RgbImage
    name: str
