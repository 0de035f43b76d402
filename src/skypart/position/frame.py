"""One photo of a flight."""

from dataclasses import dataclass, field

from skypart.images.decode import RgbImage
from skypart.position.fix import Hints


@dataclass(frozen=True)
class Frame:
    """One photo of a flight: seconds from its start, its pixels, its path (of a video: name and frame number), and
    what its file says of the camera.
    """

    time_s: float
    image: RgbImage
    name: str
    hints: Hints = field(default_factory=Hints)
