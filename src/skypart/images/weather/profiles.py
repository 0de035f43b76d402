"""The two fixed profiles: which steps make which condition, with which parameters."""

from typing import Protocol

import numpy as np

from skypart.images.weather.canvas import Canvas
from skypart.images.weather.fog import Fog
from skypart.images.weather.light import Brightness, FlatLight, Gain, Shake
from skypart.images.weather.particles import Rain, Snow


class Step(Protocol):
    """One thing that the weather does to a picture."""

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Do it to `canvas`, drawing from `rng`."""


Steps = tuple[Step, ...]

_FOG = Fog()
_RAIN = Rain(speed=(0.1, 0.3))
_SNOW = Snow(flake_size=(0.1, 0.4), speed=(0.01, 0.05))

PAPER: dict[str, Steps] = {
    "normal": (),
    "fog": (_FOG,),
    "rain": (_RAIN,),
    "snow": (_SNOW,),
    "fog_rain": (_FOG, _RAIN),
    "fog_snow": (_FOG, _SNOW),
    "rain_snow": (_RAIN, _SNOW),
    "dark": (Gain((0.3, 0.5)),),
    "over_exposure": (Gain((1.5, 2.0)),),
    "wind": (Shake(15, angle=(-45.0, 45.0), either=True),),
}
"""The paper's parameter table."""

CLOUD = Fog(
    brightness=(225.0, 225.0),
    grain=(-2.0, -2.0),
    thickness_min=(1.0, 1.0),
    thickness_gain=0.9,
    patch_size=(10, 10),
    patch_exponent=(-2.0, -2.0),
    sparsity=0.9,
    density=(0.5, 0.5),
)


def _drops(low: float, high: float) -> Rain:
    return Rain(drop_size=(low, high), speed=(0.04, 0.06))


def _flakes(low: float, high: float) -> Snow:
    return Snow(flake_size=(low, high), speed=(0.007, 0.03))


WEATHERPROMPT: dict[str, Steps] = {
    "normal": (),
    "fog": (CLOUD,),
    "rain": (_drops(0.05, 0.1), _drops(0.05, 0.1), _drops(0.1, 0.2), _drops(0.1, 0.2), _drops(0.05, 0.2)),
    "snow": (_flakes(0.5, 0.8), _flakes(0.5, 0.8), _flakes(0.6, 0.9), _flakes(0.6, 0.9), _flakes(0.5, 0.9)),
    "fog_rain": (CLOUD, _drops(0.05, 0.2), _drops(0.05, 0.2)),
    "fog_snow": (CLOUD, _flakes(0.5, 0.9), _flakes(0.5, 0.9)),
    "rain_snow": (
        _flakes(0.5, 0.8),
        _drops(0.05, 0.1),
        _drops(0.1, 0.2),
        _drops(0.05, 0.2),
        _flakes(0.6, 0.9),
    ),
    "dark": (FlatLight(), Brightness(0.2, (-30.0, -15.0))),
    "over_exposure": (Brightness(1.6, (0.0, 30.0)),),
    "wind": (Shake(15),),
}
"""What the released code of MuSe-Net and WeatherPrompt applies."""

STEPS = {"paper": PAPER, "weatherprompt": WEATHERPROMPT}
