"""The severity axis: 0 is the clean picture, 1 is harder than both published profiles, for every condition."""

import math

from skypart.errors import SkyPartError
from skypart.images.weather.fog import Fog
from skypart.images.weather.light import Gain, Shake
from skypart.images.weather.particles import Rain, Snow
from skypart.images.weather.profiles import Steps

_RAIN_LAYERS = 6
_SNOW_LAYERS = 18
_SHAKE_HALF_LENGTH = 40


def severity_steps(condition: str, severity: float) -> Steps:
    """The steps of `condition` at `severity` between 0 and 1.

    Fog thickens, rain and snow gain layers (the last one fades in), light falls or rises, the shake gets longer.
    Layers are drawn in the same order at every severity, so a stronger one adds to a weaker one of the same key.
    """
    if not 0.0 <= severity <= 1.0:
        raise SkyPartError(f"severity must lie between 0 and 1, not {severity}")
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
    """Opacity of 0.95 to 1 at severity 1; weatherprompt's is 0.5 to 0.9."""
    thickest = 0.95 * severity
    return (
        Fog(
            brightness=(235.0, 235.0),
            grain=(-2.0, -2.0),
            thickness_min=(1.0, 1.0),
            thickness_gain=0.2,
            patch_size=(10, 10),
            patch_exponent=(-2.0, -2.0),
            density=(thickest, thickest),
        ),
    )


def _rain(severity: float) -> Steps:
    """6 layers of few but opaque streaks at severity 1: many faint ones would add up to an even grey, not to rain."""
    layers, opacity = _layers(_RAIN_LAYERS * severity)
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
    layers, opacity = _layers(_SNOW_LAYERS * severity)
    return (Snow(flake_size=(0.5, 0.9), speed=(0.007, 0.03), layers=layers, opacity=opacity),)


def _layers(exact: float) -> tuple[int, float]:
    """Number of layers, and the visibility of the last one, that make up a fractional number."""
    layers = max(math.ceil(exact), 1)
    return layers, exact - (layers - 1)


def _dark(severity: float) -> Steps:
    """Light falls exponentially, to 1/100 at severity 1."""
    gain = 10.0 ** (-2.0 * severity)
    return (Gain((gain, gain)),)


def _over_exposure(severity: float) -> Steps:
    """Gain 4 and an offset of 60 grey levels at severity 1; weatherprompt has 1.6 and 15."""
    gain = 1.0 + 3.0 * severity
    return (Gain((gain, gain), offset=60.0 * severity),)


def _wind(severity: float) -> Steps:
    """A shake of 81 pixels at severity 1, in steps of 2; both profiles have 15."""
    return (Shake(1 + 2 * round(_SHAKE_HALF_LENGTH * severity)),)
