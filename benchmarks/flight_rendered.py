"""Rendered flights with the default model, for benchmarks/flight.py: render, locate each frame once, keep the fixes.

    python benchmarks/flight_rendered.py [--work runs/flight] [--minutes 4] [--until 900] [--only town]

can be stopped and started again; benchmarks/flight.py reads what is there. Three maps that the model was not trained
on; the path of benchmarks/flight_simulation.py at 110 m with the camera 60 degrees below the horizon along the path, in
five weathers; hints with errors: heading 5 degrees, tilt 1 degree, height 3 m.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
from benchmarks.flight_simulation import RATE_HZ, SimulatedFlight, simulate_flight

from skypart.atomic import write_text
from skypart.datasets.rendering import Pose
from skypart.embedding import load
from skypart.images.weather import corrupt
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.position.fix import Hints
from skypart.position.locate import Locator
from skypart.progress import console
from skypart.worlds.appearance import Appearance, sample_appearance
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.ground import World
from skypart.worlds.lighting import Lighting
from skypart.worlds.procedural import Region
from skypart.worlds.render import render_drone, render_map

STYLES = ("town", "suburb", "coast")
SEED = 31
EXTENT, GSD = 800.0, 0.5
HALF = 280.0
"""Half the edge of the square that is flown over, but for the leg out of the map."""
ALTITUDE, TILT, FOV = 110.0, 60.0, 55.0
WEATHER = ("fog", "rain", "dark", "wind", "snow")
EVERY_S = 2.0
"""Time between located frames."""


def headings(flight: SimulatedFlight) -> np.ndarray:
    """(n,) heading along the path, turning at most 40 degrees per second."""
    found, now = np.zeros(len(flight.seconds)), 0.0
    for i, (east, north) in enumerate(flight.velocities.tolist()):
        if math.hypot(east, north) > 2.0:
            change = (math.degrees(math.atan2(east, north)) - now + 180.0) % 360.0 - 180.0
            now += max(-40.0 / RATE_HZ, min(40.0 / RATE_HZ, change))
        found[i] = now % 360.0
    return found


def flight_of(number: int, minutes: float) -> SimulatedFlight:
    """The flight over map `number`. Its map ends where the raster does: the leg outside is 350 m beyond HALF."""
    return simulate_flight(100 + number, minutes, HALF)


def target_of(place: np.ndarray, heading: float) -> tuple[float, float]:
    """The ground at the photo's centre, local metres of the world, below a drone at `place` around its centre."""
    ahead = ALTITUDE / math.tan(math.radians(TILT))
    turn = math.radians(heading)
    return (
        EXTENT / 2 + float(place[0]) + ahead * math.sin(turn),
        -EXTENT / 2 + float(place[1]) + ahead * math.cos(turn),
    )


def on_world(x: float, y: float) -> bool:
    """Whether there is ground to photograph around a point."""
    return 60.0 < x < EXTENT - 60.0 and -EXTENT + 60.0 < y < -60.0


def locate_frame(
    world: World, lighting: Lighting, locator: Locator, flight: SimulatedFlight, heading: float, number: int, style: int
) -> dict[str, object]:
    rng = np.random.default_rng([SEED, style, number])
    x, y = target_of(flight.places[number], heading)
    pose = Pose((x, y), ALTITUDE, TILT, heading, FOV)
    image = render_drone(world, pose, 320, LOOKS[style], rng, lighting)
    if flight.weather[number]:
        image = corrupt(
            image, WEATHER[int(flight.seconds[number] // 30) % len(WEATHER)], "paper", SEED, f"{style}-{number}"
        )
    hints = Hints(
        heading_deg=(heading + rng.normal() * 5.0) % 360.0,
        tilt_deg=TILT + rng.normal() * 1.0,
        altitude_m=ALTITUDE + rng.normal() * 3.0,
        fov_deg=FOV,
    )
    fix = locator.locate(image, name=str(number), hints=hints)
    # The camera is where the truth is asked for: back from the ground it looks at, which the relief may lift.
    turn, back = math.radians(heading), ALTITUDE / math.tan(math.radians(TILT))
    longitude, latitude = world.lonlat(x - back * math.sin(turn), y - back * math.cos(turn))
    ground_longitude, ground_latitude = world.lonlat(x, y)
    return {
        "number": number,
        "found": fix.found,
        "latitude": fix.latitude,
        "longitude": fix.longitude,
        "radius_m": fix.radius_m,
        "map_error_m": fix.map_error_m,
        "confidence": fix.confidence,
        "heading_deg": fix.heading_deg,
        "ground_m": fix.ground_m,
        "drone_latitude": fix.drone_latitude,
        "drone_longitude": fix.drone_longitude,
        "seconds": fix.seconds,
        "true": [latitude, longitude],
        "true_ground": [ground_latitude, ground_longitude],
    }


LOOKS: dict[int, Appearance] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/flight"))
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--until", type=float, default=3600.0, help="seconds after which to stop")
    parser.add_argument("--only", choices=STYLES, help="fly over this map only; all three stay in the index")
    arguments = parser.parse_args()
    began = time.monotonic()
    worlds, rasters = [], []
    for number, style in enumerate(STYLES):
        world = Region(SEED, number, style, EXTENT, GSD).load()
        rasters.append(arguments.work / f"{style}.tif")
        if not rasters[-1].is_file():
            look = sample_appearance(np.random.default_rng([SEED, number]), "satellite")
            write_geotiff(rasters[-1], render_map(world, look), world)
        LOOKS[number] = sample_appearance(np.random.default_rng([SEED, number, 9]), "drone")
        worlds.append((world, Lighting(world.drone, LOOKS[number])))
    embedder = load("default")
    index = arguments.work / "flight.skyindex"
    build_index([str(path) for path in rasters], index, embedder, "default", ViewOptions((110.0, 170.0, 250.0), 0.45))
    locator = Locator(MapIndex(index), embedder)
    flights = [flight_of(number, arguments.minutes) for number in range(len(STYLES))]
    turned = [headings(flight) for flight in flights]
    files = [arguments.work / f"fixes-{style}-{arguments.minutes:g}.json" for style in STYLES]
    rows: list[list[dict[str, object]]] = [json.loads(file.read_text()) if file.is_file() else [] for file in files]
    steps = range(0, len(flights[0].seconds), round(EVERY_S * RATE_HZ))
    for count, number in enumerate(steps):
        for area, flight in enumerate(flights):
            if len(rows[area]) > count or (arguments.only or STYLES[area]) != STYLES[area]:
                continue
            if time.monotonic() - began > arguments.until:
                console.print(f"stopped after {count} frames of each map")
                return
            heading = float(turned[area][number])
            if flight.outage[number] or not on_world(*target_of(flight.places[number], heading)):
                row: dict[str, object] = {"number": number, "found": False, "seconds": 0.0, "none": True}
                x, y = EXTENT / 2 + flight.places[number][0], -EXTENT / 2 + flight.places[number][1]
                longitude, latitude = worlds[area][0].lonlat(float(x), float(y))
                row["true"] = [latitude, longitude]
            else:
                world, lighting = worlds[area]
                row = locate_frame(world, lighting, locator, flight, heading, number, area)
            rows[area].append(row)
            write_text(files[area], json.dumps(rows[area]))
        if count % 10 == 0:
            console.print(f"{count} of {len(steps)} frames of each map, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
