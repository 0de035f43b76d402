"""Render data sets in benchmark layouts from procedural or real ground."""

import warnings
from typing import Any

from skypart.datasets.rendering import Pose, orbit, spiral
from skypart.worlds.appearance import NEUTRAL, Appearance, Strengths, sample_appearance
from skypart.worlds.camera import Camera, random_pose
from skypart.worlds.ground import Ground, World
from skypart.worlds.lighting import Lighting
from skypart.worlds.make import make_world
from skypart.worlds.procedural import Region
from skypart.worlds.rasters import find_sources
from skypart.worlds.render import render_drone, render_map, render_satellite
from skypart.worlds.request import Request, build_request
from skypart.worlds.styles import STYLES

__all__ = [
    "NEUTRAL",
    "STYLES",
    "Appearance",
    "Camera",
    "Ground",
    "Lighting",
    "Pose",
    "Region",
    "Request",
    "Strengths",
    "World",
    "build_request",
    "find_sources",
    "make_world",
    "orbit",
    "random_pose",
    "render_drone",
    "render_map",
    "render_satellite",
    "sample_appearance",
    "spiral",
]

_RENAMED = {"Look": "Appearance", "PLAIN": "NEUTRAL", "draw_look": "sample_appearance"}


def __getattr__(name: str) -> Any:
    """Names of version 0.1; they will be removed in the next release."""
    if name in _RENAMED:
        new = _RENAMED[name]
        warnings.warn(f"skypart.worlds.{name} is now skypart.worlds.{new}", DeprecationWarning, stacklevel=2)
        return globals()[new]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
