"""The ten weather conditions: their names, their steps in the two published profiles, and a severity axis."""

import difflib
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from skypart.errors import SkyPartError
from skypart.images.weather.camera import Brightness, FlatLight, Gain, MotionBlur
from skypart.images.weather.canvas import Canvas
from skypart.images.weather.fog import Fog
from skypart.images.weather.particles import Rain, Snow

CONDITIONS = (
    "normal",
    "fog",
    "rain",
    "snow",
    "fog_rain",
    "fog_snow",
    "rain_snow",
    "dark",
    "over_exposure",
    "wind",
)
PROFILES = ("paper", "weatherprompt")
RENDERING = 5
"""Increase it whenever the same seed and key give other bytes: it invalidates caches of corrupted images."""
LABELS = {
    "normal": "Normal",
    "fog": "Fog",
    "rain": "Rain",
    "snow": "Snow",
    "fog_rain": "Fog+Rain",
    "fog_snow": "Fog+Snow",
    "rain_snow": "Rain+Snow",
    "dark": "Dark",
    "over_exposure": "Over-exposure",
    "wind": "Wind",
}

_MAX_RAIN_LAYERS = 6
_MAX_SNOW_LAYERS = 18
_MAX_BLUR_HALF_LENGTH = 40


def check_condition(condition: str) -> None:
    """Raise SkyPartError unless `condition` is one of the ten."""
    _check("weather condition", condition, CONDITIONS)


def check_profile(profile: str) -> None:
    """Raise SkyPartError unless `profile` is one of the two."""
    _check("weather profile", profile, PROFILES)


def _check(what: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    nearest = difflib.get_close_matches(str(name).lower().replace("+", "_").replace("-", "_"), known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise SkyPartError(f"unknown {what} {name!r}; {hint}choose one of {', '.join(known)}")


# --- profiles --------------------------------------------------------------------------------------------------------


class Step(Protocol):
    """One step of a weather condition."""

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change `canvas`, drawing from `rng`."""


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
    "wind": (MotionBlur(15, angle=(-45.0, 45.0), either=True),),
}
"""The parameters of the paper's table."""

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
    "wind": (MotionBlur(15),),
}
"""The parameters in the released code of MuSe-Net and WeatherPrompt."""

STEPS = {"paper": PAPER, "weatherprompt": WEATHERPROMPT}


# --- severity --------------------------------------------------------------------------------------------------------


def severity_steps(condition: str, severity: float) -> Steps:
    """The steps of `condition` at a severity from 0 (clean) to 1 (harder than both profiles).

    Fog gets thicker, rain and snow get more layers (the last one fades in), light decreases or increases, and motion
    blur gets longer. Layers are drawn in the same order at every severity, so with the same key a higher severity
    adds to a lower one.
    """
    if not 0.0 <= severity <= 1.0:
        raise SkyPartError(f"severity must be between 0 and 1, not {severity}")
    if severity == 0.0 or condition == "normal":
        return ()
    single = {
        "fog": _fog,
        "rain": _rain,
        "snow": _snow,
        "dark": _dark,
        "over_exposure": _over_exposure,
        "wind": _wind,
    }
    names = [condition] if condition in single else condition.split("_")
    return tuple(step for name in names for step in single[name](severity))


def _fog(severity: float) -> Steps:
    """Opacity 0.95 to 1 at severity 1; weatherprompt has 0.5 to 0.9."""
    density = 0.95 * severity
    return (
        Fog(
            brightness=(235.0, 235.0),
            grain=(-2.0, -2.0),
            thickness_min=(1.0, 1.0),
            thickness_gain=0.2,
            patch_size=(10, 10),
            patch_exponent=(-2.0, -2.0),
            density=(density, density),
        ),
    )


def _rain(severity: float) -> Steps:
    """6 layers of few but opaque streaks at severity 1: many faint ones would add up to uniform grey."""
    layers, opacity = _layers(_MAX_RAIN_LAYERS * severity)
    return (
        Rain(
            drop_size=(0.05, 0.2),
            speed=(0.04, 0.06),
            density=(0.01, 0.02),
            visibility=8.0,
            layers=layers,
            opacity=opacity,
        ),
    )


def _snow(severity: float) -> Steps:
    """18 layers at severity 1; weatherprompt has 10 on average."""
    layers, opacity = _layers(_MAX_SNOW_LAYERS * severity)
    return (Snow(flake_size=(0.5, 0.9), speed=(0.007, 0.03), layers=layers, opacity=opacity),)


def _layers(exact: float) -> tuple[int, float]:
    """Split a fractional number of layers into a whole number and the opacity of the last one."""
    layers = max(math.ceil(exact), 1)
    return layers, exact - (layers - 1)


def _dark(severity: float) -> Steps:
    """Light decreases exponentially, to 1/100 at severity 1."""
    gain = 10.0 ** (-2.0 * severity)
    return (Gain((gain, gain)),)


def _over_exposure(severity: float) -> Steps:
    """Gain 4 and an offset of 60 grey levels at severity 1; weatherprompt has 1.6 and 15."""
    gain = 1.0 + 3.0 * severity
    return (Gain((gain, gain), offset=60.0 * severity),)


def _wind(severity: float) -> Steps:
    """Motion blur of 81 pixels at severity 1, in steps of 2; both profiles have 15."""
    return (MotionBlur(1 + 2 * round(_MAX_BLUR_HALF_LENGTH * severity)),)
