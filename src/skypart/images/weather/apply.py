"""Apply weather to an image, as a pure function, and as a training transform."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage, array_to_rgb
from skypart.images.weather.canvas import Canvas
from skypart.images.weather.conditions import CONDITIONS, STEPS, check_condition, check_profile, severity_steps
from skypart.images.weather.random_fields import generator


def corrupt(
    image: NDArray[np.generic],
    condition: str,
    profile: str = "paper",
    seed: int = 0,
    key: str = "",
    severity: float | None = None,
) -> RgbImage:
    """Apply weather to `image`. Equal arguments give equal bytes on any thread or worker, in any order.

    image: (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) of uint8 or uint16, at its original size; it is not modified.
    condition: one of CONDITIONS. profile: one of PROFILES.
    seed, key: determine the random numbers. The key identifies the image, for instance its path in the data set.
    severity: None for the profile itself, or 0 (clean) to 1 (harder than both profiles) for the severity axis, which
        has its own parameters and ignores the profile.
    Returns (h, w, 3) uint8, a new array.
    """
    check_condition(condition)
    check_profile(profile)
    if severity is None:
        steps, source = STEPS[profile][condition], profile
    else:
        steps, source = severity_steps(condition, severity), "severity"
    clean = np.ascontiguousarray(array_to_rgb(image))
    canvas = Canvas(clean)
    for index, step in enumerate(steps):
        # One random stream per step, so that no step depends on how much another one draws.
        step.apply(canvas, generator(source, condition, seed, key, index))
    result = canvas.image()
    return result.copy() if np.may_share_memory(result, image) else result


@dataclass(frozen=True)
class WeatherTransform:
    """Training transform: a random condition for every image, drawn again at every visit.

    Call it as transform(image, key, draw). It is picklable, stateless, and the same on any worker.
    profile: one of PROFILES. seed: of the training run. conditions: the choices, equally likely.
    """

    profile: str = "paper"
    seed: int = 0
    conditions: tuple[str, ...] = CONDITIONS

    def __post_init__(self) -> None:
        """Raise on unknown names."""
        check_profile(self.profile)
        for condition in self.conditions:
            check_condition(condition)

    def condition(self, key: str, draw: int) -> str:
        """The condition of image `key` at visit `draw`."""
        rng = generator("transform", self.profile, self.seed, key, draw)
        return self.conditions[int(rng.integers(len(self.conditions)))]

    def __call__(self, image: NDArray[np.generic], key: str, draw: int) -> RgbImage:
        """Corrupt an image to (h, w, 3) uint8. key: identifies the image. draw: the epoch or step."""
        return corrupt(image, self.condition(key, draw), self.profile, self.seed, f"{key}#{draw}")
