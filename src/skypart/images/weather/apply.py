"""corrupt(): a picture under one condition, as a pure function."""

import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage, array_to_rgb
from skypart.images.weather.canvas import Canvas
from skypart.images.weather.draws import generator
from skypart.images.weather.names import check_condition, check_profile
from skypart.images.weather.profiles import STEPS
from skypart.images.weather.severity import severity_steps


def corrupt(
    image: NDArray[np.generic],
    condition: str,
    profile: str = "paper",
    seed: int = 0,
    key: str = "",
    severity: float | None = None,
) -> RgbImage:
    """Put `image` under weather; equal arguments give equal bytes on any thread, worker and order.

    image: (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) of uint8 or uint16, at its original size; not changed.
    condition: one of CONDITIONS. profile: one of PROFILES.
    seed, key: choose the draw; the key names the image, for instance its path within the data set.
    severity: None for the profile itself; 0 (clean) to 1 (harder than both profiles) for the severity axis, which has
        parameters of its own and does not depend on the profile.
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
        # A stream for each step: what one of them draws must not depend on how much another one drew.
        step.apply(canvas, generator(source, condition, seed, key, index))
    result = canvas.image()
    return result.copy() if np.may_share_memory(result, image) else result
