"""Ground from procedure or from real rasters, and cameras over it: benchmark-shaped data anyone can make."""

from skypart.worlds.camera import Camera, Pose, orbit, random_pose, spiral
from skypart.worlds.ground import Ground, World
from skypart.worlds.look import PLAIN, Look, Strengths, draw_look
from skypart.worlds.render import render_drone, render_satellite
from skypart.worlds.shade import Lighting
