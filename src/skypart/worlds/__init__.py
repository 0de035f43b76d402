"""Ground from procedure or from real rasters, and cameras over it: benchmark-shaped data anyone can make."""

from skypart.datasets.rendering import Pose, orbit, spiral
from skypart.worlds.camera import Camera, random_pose
from skypart.worlds.ground import Ground, World
from skypart.worlds.look import PLAIN, Look, Strengths, draw_look
from skypart.worlds.make import make_world
from skypart.worlds.procedural import Region
from skypart.worlds.rasters import find_sources
from skypart.worlds.render import render_drone, render_map, render_satellite
from skypart.worlds.request import Request, build_request
from skypart.worlds.shade import Lighting
from skypart.worlds.styles import STYLES

__all__ = [
    "PLAIN",
    "STYLES",
    "Camera",
    "Ground",
    "Lighting",
    "Look",
    "Pose",
    "Region",
    "Request",
    "Strengths",
    "World",
    "build_request",
    "draw_look",
    "find_sources",
    "make_world",
    "orbit",
    "random_pose",
    "render_drone",
    "render_map",
    "render_satellite",
    "spiral",
]
