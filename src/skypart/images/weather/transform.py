"""Weather as a training transform: one of the ten conditions for every image, drawn anew at every visit."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.weather.apply import corrupt
from skypart.images.weather.draws import generator
from skypart.images.weather.names import CONDITIONS, check_condition, check_profile


@dataclass(frozen=True)
class WeatherTransform:
    """Call it as transform(image, key, draw); picklable, without state, the same on any worker.

    profile: one of PROFILES. seed: of the training run. conditions: to choose from, each equally likely.
    """

    profile: str = "paper"
    seed: int = 0
    conditions: tuple[str, ...] = CONDITIONS

    def __post_init__(self) -> None:
        """Refuse unknown names at once."""
        check_profile(self.profile)
        for condition in self.conditions:
            check_condition(condition)

    def condition(self, key: str, draw: int) -> str:
        """The condition that image `key` gets at visit `draw`."""
        rng = generator("transform", self.profile, self.seed, key, draw)
        return self.conditions[int(rng.integers(len(self.conditions)))]

    def __call__(self, image: NDArray[np.generic], key: str, draw: int) -> RgbImage:
        """Corrupt an image as `corrupt` takes it; key: names the image; draw: the epoch or step. (h, w, 3) uint8."""
        return corrupt(image, self.condition(key, draw), self.profile, self.seed, f"{key}#{draw}")
