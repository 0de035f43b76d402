"""A pinhole camera over a world: from a pose to its centre, from a pixel to its ray, from a point to its pixel."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skypart.datasets.rendering import Pose
from skypart.worlds.ground import FloatMap, World


def camera_centre(pose: Pose, world: World) -> tuple[float, float, float]:
    """The camera's centre over `world` in local metres (x east, y north, z up)."""
    back = pose.altitude / math.tan(math.radians(pose.tilt)) if pose.tilt < 90 else 0.0
    heading = math.radians(pose.azimuth)
    x, y = pose.target
    return x - back * math.sin(heading), y - back * math.cos(heading), world.height_at(x, y) + pose.altitude


@dataclass(frozen=True)
class Camera:
    """A pinhole without distortion, `size` x `size` pixels, at `centre` in local metres."""

    centre: tuple[float, float, float]
    tilt: float
    azimuth: float
    fov: float
    size: int

    @staticmethod
    def at(world: World, pose: Pose, size: int) -> "Camera":
        """The camera of `pose` over `world`."""
        return Camera(camera_centre(pose, world), pose.tilt, pose.azimuth, pose.fov, size)

    @property
    def focal(self) -> float:
        """Focal length in pixels."""
        return 0.5 * self.size / math.tan(math.radians(self.fov) / 2)

    @property
    def axes(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Unit vectors to the image's right, down the image, and along the optical axis."""
        tilt, heading = math.radians(self.tilt), math.radians(self.azimuth)
        right = np.array([math.cos(heading), -math.sin(heading), 0.0])
        forward = np.array([math.cos(tilt) * math.sin(heading), math.cos(tilt) * math.cos(heading), -math.sin(tilt)])
        return right, np.cross(forward, right), forward

    def project(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Image (column, row) of (n, 3) points in local metres; (0, 0) is the outer corner of the first pixel."""
        right, down, forward = self.axes
        offset = np.asarray(points, dtype=np.float64) - np.asarray(self.centre)
        depth = offset @ forward
        half = self.size / 2
        return np.stack(
            [half + self.focal * (offset @ right) / depth, half + self.focal * (offset @ down) / depth], axis=1
        )

    def rays(self) -> tuple[FloatMap, FloatMap, FloatMap]:
        """Rays of all pixels, (size, size) maps: angle from the azimuth (rad), slope (rise / run), run per depth."""
        axis = ((np.arange(self.size) + 0.5 - self.size / 2) / self.focal).astype(np.float32)
        tilt = math.radians(self.tilt)
        sideways, downwards = axis[None, :], axis[:, None]
        ahead = np.float32(math.cos(tilt)) - np.float32(math.sin(tilt)) * downwards
        rise = np.float32(-math.sin(tilt)) - np.float32(math.cos(tilt)) * downwards
        run = np.maximum(np.hypot(sideways, ahead), np.float32(1e-4))
        angle = np.arctan2(np.broadcast_to(sideways, run.shape), np.broadcast_to(ahead, run.shape))
        return angle, rise / run, run


def random_pose(
    world: World,
    rng: np.random.Generator,
    altitude: tuple[float, float] = (80.0, 300.0),
    tilt: tuple[float, float] = (40.0, 90.0),
    fov: tuple[float, float] = (40.0, 60.0),
    margin: float = 60.0,
) -> Pose:
    """A pose whose target is on valid ground, at least `margin` metres inside `world`."""
    width, height = world.extent_m
    for _ in range(1000):
        x = rng.uniform(min(margin, width / 2), max(width - margin, width / 2))
        y = -rng.uniform(min(margin, height / 2), max(height - margin, height / 2))
        if world.valid is None or world.valid[int(-y / world.gsd), int(x / world.gsd)]:
            break
    return Pose((x, y), rng.uniform(*altitude), rng.uniform(*tilt), rng.uniform(0.0, 360.0), rng.uniform(*fov))
