"""Render the flights of benchmarks/flight_rendered.py into a folder, frame by frame.

    nice -n 15 python benchmarks/flight_frames.py [--work runs/flight] [--until 3600]

can be stopped and started again. Three maps that the model was not trained on, two flights of 5.5 minutes over each:
the path of benchmarks/flight_simulation.py at 110 m with the camera 60 degrees below the horizon along the path; half
of the time in five weathers. Each flight has a leg out of the map, over ground that goes on, and an outage of 60 s
without frames. A frame each 3 s is for the locator; all of them, 2.5 a second, are for optical flow.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cv2
import numpy as np
from benchmarks.flight_simulation import RATE_HZ, Floats, SimulatedFlight, simulate_flight
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.datasets.rendering import Pose
from skypart.images.decode import RgbImage
from skypart.images.weather import corrupt
from skypart.progress import console
from skypart.worlds.appearance import sample_appearance
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.ground import Ground, World
from skypart.worlds.lighting import Lighting
from skypart.worlds.procedural import Region
from skypart.worlds.render import render_drone, render_map

STYLES = ("town", "suburb", "coast")
PARTS = 2
"""Flights over each map."""
MINUTES = 5.5
SEED = 31
EXTENT, MAP_EXTENT, GSD = 1800.0, 800.0, 0.5
"""Edges of the world and of the map in its middle, and metres per pixel."""
HALF = 330.0
"""Half the edge of the square that is flown over, but for the leg out of the map, which ends 350 m further."""
ALTITUDE, TILT, FOV = 110.0, 60.0, 55.0
WEATHER = ("fog", "rain", "dark", "wind", "snow")
FIX_STEPS, FLOW_STEPS = 15, 2
"""Steps of 1 / RATE_HZ between frames that are located, and between those for optical flow."""
FIX_RAYS, FLOW_RAYS = 1.5, 1.0
"""Rays per pixel edge."""
FRAME_EDGE = 320
JPEG_QUALITY = 92


def headings(flight: SimulatedFlight) -> Floats:
    """(n,) heading along the path, turning at most 40 degrees per second."""
    found, now = np.zeros(len(flight.seconds)), 0.0
    for i, (east, north) in enumerate(flight.velocities.tolist()):
        if math.hypot(east, north) > 2.0:
            change = (math.degrees(math.atan2(east, north)) - now + 180.0) % 360.0 - 180.0
            now += max(-40.0 / RATE_HZ, min(40.0 / RATE_HZ, change))
        found[i] = now % 360.0
    return found


@dataclass(frozen=True)
class RenderedFlight:
    """One flight. number: of the map. part: which flight over it."""

    number: int
    part: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{STYLES[self.number]}-{self.part}"

    @cached_property
    def path(self) -> SimulatedFlight:
        """Where it goes, in metres from the middle of the world; the drone is on the map within MAP_EXTENT."""
        flown = simulate_flight(200 + 10 * self.part + self.number, MINUTES, HALF)
        flown.half = MAP_EXTENT / 2
        return flown

    @cached_property
    def headings(self) -> Floats:
        """(n,) degrees."""
        return headings(self.path)

    def pose(self, step: int) -> Pose:
        """The camera at a step, in local metres of the world."""
        ahead, turn = ALTITUDE / math.tan(math.radians(TILT)), math.radians(float(self.headings[step]))
        east, north = self.path.places[step].tolist()
        target = EXTENT / 2 + east + ahead * math.sin(turn), -EXTENT / 2 + north + ahead * math.cos(turn)
        return Pose(target, ALTITUDE, TILT, float(self.headings[step]), FOV)

    def fix_steps(self) -> list[int]:
        """Steps whose frame is located; none in the outage."""
        return [step for step in range(0, len(self.path.seconds), FIX_STEPS) if not self.path.outage[step]]

    def flow_steps(self) -> list[int]:
        """Steps with any frame."""
        steps = {*range(0, len(self.path.seconds), FLOW_STEPS), *self.fix_steps()}
        return sorted(step for step in steps if not self.path.outage[step])

    def frame_file(self, work: Path, step: int) -> Path:
        """Where its frame is kept."""
        return work / self.name / f"{step:05d}.jpg"


FLIGHTS = tuple(RenderedFlight(number, part) for number in range(len(STYLES)) for part in range(PARTS))


def map_file(work: Path, number: int) -> Path:
    """The map of a world."""
    return work / f"{STYLES[number]}.tif"


def ready(work: Path, flight: RenderedFlight) -> bool:
    """Whether all frames that are to be located were rendered."""
    return all(flight.frame_file(work, step).is_file() for step in flight.fix_steps())


def jobs(work: Path) -> Iterator[tuple[int, RenderedFlight, int, float]]:
    """Map number, flight, step and rays of the frames that are missing: first those to locate, then the others."""
    for number in range(len(STYLES)):
        for rays in (FIX_RAYS, FLOW_RAYS):
            for flight in FLIGHTS:
                if flight.number != number:
                    continue
                for step in flight.fix_steps() if rays == FIX_RAYS else flight.flow_steps():
                    if not flight.frame_file(work, step).is_file():
                        yield number, flight, step, rays


def render_frame(world: World, lighting: Lighting, flight: RenderedFlight, step: int, rays: float) -> RgbImage:
    """The frame of a step, in its weather, (320, 320, 3)."""
    rng = np.random.default_rng([SEED, flight.number, flight.part, step])
    image = render_drone(world, flight.pose(step), FRAME_EDGE, lighting.appearance, rng, lighting, rays)
    if flight.path.weather[step]:
        kind = WEATHER[int(flight.path.seconds[step] // 30) % len(WEATHER)]
        image = corrupt(image, kind, "paper", SEED, f"{flight.name}-{step}")
    return image


def write_map(world: World, number: int, path: Path) -> None:
    """The middle of a world as a GeoTIFF."""
    margin = round((EXTENT - MAP_EXTENT) / 2 / GSD)
    whole = world.satellite

    def cut(layer: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(layer[margin:-margin, margin:-margin])

    inner = Ground(
        rgb=cut(whole.rgb),
        heights=cut(whole.heights),
        terrain=cut(whole.terrain),
        vegetation=cut(whole.vegetation),
        facades=cut(whole.facades),
        wall_angle=cut(whole.wall_angle),
        gsd=whole.gsd,
        baked=whole.baked,
    )
    corner = world.origin[0] + margin * GSD, world.origin[1] - margin * GSD
    middle = World(world.name, [inner], corner, world.epsg)
    write_geotiff(
        path, render_map(middle, sample_appearance(np.random.default_rng([SEED, number]), "satellite")), middle
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/flight"))
    parser.add_argument("--until", type=float, default=7200.0, help="seconds after which to stop")
    arguments = parser.parse_args()
    began, count, loaded = time.monotonic(), 0, -1
    todo = list(jobs(arguments.work))
    for number, flight, step, rays in todo:
        if time.monotonic() - began > arguments.until:
            break
        if number != loaded:
            world = Region(SEED, number, STYLES[number], EXTENT, GSD).load()
            looks = {
                part: sample_appearance(np.random.default_rng([SEED, number, part, 9]), "drone")
                for part in range(PARTS)
            }
            lightings = {part: Lighting(world.drone, look) for part, look in looks.items()}
            loaded = number
            if not map_file(arguments.work, number).is_file():
                write_map(world, number, map_file(arguments.work, number))
        file = flight.frame_file(arguments.work, step)
        if not file.is_file():  # the same frame may be listed twice
            image = render_frame(world, lightings[flight.part], flight, step, rays)
            with atomic_path(file) as temporary:
                cv2.imwrite(str(temporary), image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        count += 1
        if count % 100 == 0:
            console.print(f"{count} of {len(todo)} frames, {time.monotonic() - began:.0f} s")
    console.print(f"{count} of {len(todo)} frames, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
