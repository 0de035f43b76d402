"""The names of the ten conditions and the two profiles, in the order of the published tables."""

import difflib
from collections.abc import Sequence

from skypart.errors import SkyPartError

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
"""Counts changes that give other bytes for the same seed and key; caches of corrupted images go by it."""
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
