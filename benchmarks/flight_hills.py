"""Render a flight over hills, locate it with the default model, and compare positions over a plane and over heights.

    nice -n 15 python benchmarks/flight_hills.py [--work runs/flight]

writes WORK/hills.json for benchmarks/flight.py; every frame is located once, and its fix is kept. The ground of a
procedural map is lifted by smooth hills; the drone flies level, and its height counts from the take-off, in the middle
of the map. Hints have the errors of benchmarks/flight_rendered.py.
"""

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import rasterio
from benchmarks.flight_frames import FRAME_EDGE, SEED, headings
from benchmarks.flight_rendered import COMPASS_DEG, HEIGHT_M, TILT_DEG, VIEWS, to_fix, to_row
from benchmarks.flight_simulation import RATE_HZ, simulate_flight
from numpy.typing import NDArray
from rasterio.transform import from_origin

from skypart.atomic import write_text
from skypart.datasets.rendering import Pose
from skypart.embedding import load
from skypart.geo.geodesy import distance_m
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.position.camera import drone_position
from skypart.position.confidence import MATCHING_VERSION
from skypart.position.fix import Fix, Hints, Place
from skypart.position.locate import Locator
from skypart.position.terrain import Terrain, add_terrain
from skypart.progress import console
from skypart.training.checkpoint import code_version
from skypart.worlds.appearance import sample_appearance
from skypart.worlds.camera import camera_centre
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.ground import FloatMap, World
from skypart.worlds.lighting import Lighting
from skypart.worlds.noise import fractal
from skypart.worlds.procedural import Region
from skypart.worlds.render import render_drone, render_map

NUMBER, STYLE = 7, "suburb"
EXTENT, GSD, MARGIN = 1000.0, 0.5, 150.0
"""Metres of the world's edge, per pixel, and between the world's edge and the path."""
HILLS_M, WAVES_M = 20.0, 300.0
"""Standard deviation of the hills' height, and their size."""
CELL_M = 10.0
"""Cells of the raster of heights."""
HEIGHT, TILT, FOV = 120.0, 50.0, 55.0
MINUTES, EVERY_S = 6.0, 5.0
SIZES = np.array([COMPASS_DEG, TILT_DEG, HEIGHT_M])
"""Of the errors of the hints: for the flight, and from frame to frame."""


def hilly(world: World) -> World:
    """The world on hills."""
    rng = np.random.default_rng([SEED, NUMBER, 3])
    hills: FloatMap = np.float32(HILLS_M) * fractal(world.shape, WAVES_M / GSD, rng, 2)
    dates = [replace(each, heights=each.heights + hills, terrain=each.terrain + hills) for each in world.dates]
    return replace(world, dates=dates)


def write_heights(world: World, path: Path) -> None:
    """The bare earth as a GeoTIFF with cells of CELL_M."""
    fold = round(CELL_M / GSD)
    rows, columns = world.shape[0] // fold, world.shape[1] // fold
    earth = world.satellite.terrain[: rows * fold, : columns * fold].reshape(rows, fold, columns, fold).mean((1, 3))
    shape: dict[str, Any] = {"height": rows, "width": columns, "count": 1, "dtype": "float32"}
    corner = from_origin(*world.origin, CELL_M, CELL_M)
    with rasterio.open(path, "w", driver="GTiff", crs=f"EPSG:{world.epsg}", transform=corner, **shape) as raster:
        raster.write(earth.astype(np.float32), 1)


def looking_from(world: World, drone: tuple[float, float, float], heading: float) -> Pose:
    """The pose of a camera at `drone`, in local metres, whose line of sight is followed to the bare earth."""
    turn, slope = math.radians(heading), math.tan(math.radians(TILT))
    run = 0.0
    while drone[2] - slope * run > world.height_at(drone[0] + run * math.sin(turn), drone[1] + run * math.cos(turn)):
        run += 0.05
    return Pose((drone[0] + run * math.sin(turn), drone[1] + run * math.cos(turn)), run * slope, TILT, heading, FOV)


def located(work: Path, world: World) -> tuple[list[tuple[Place, Hints, Fix]], Place]:
    """True position of the drone, hints and fix of each frame, and the take-off."""
    path = simulate_flight(300, MINUTES, EXTENT / 2 - MARGIN)
    towards, rng = headings(path), np.random.default_rng([SEED, NUMBER, 5])
    middle = EXTENT / 2, -EXTENT / 2
    takeoff_m, takeoff = world.height_at(*middle), Place(*world.lonlat(*middle)[::-1])
    name, embedder = "hills", load("default")
    map_file, index = work / f"{name}.tif", work / f"{name}.skyindex"
    write_geotiff(map_file, render_map(world, sample_appearance(rng, "satellite")), world)
    build_index([str(map_file)], index, embedder, "default", VIEWS)
    locator, look = Locator(MapIndex(index), embedder), sample_appearance(rng, "drone")
    lighting, file = Lighting(world.drone, look), work / f"{name}-fixes.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    kept = {int(row["step"]): row for row in map(json.loads, lines[1:])}
    off = rng.normal(size=3)
    found = []
    for step in range(0, len(path.seconds), round(EVERY_S * RATE_HZ)):
        errors = off * SIZES[:, 0] + rng.normal(size=3) * SIZES[:, 1]
        east, north = path.places[step].tolist()
        if max(abs(east), abs(north)) > EXTENT / 2 - MARGIN:
            continue
        pose = looking_from(world, (middle[0] + east, middle[1] + north, takeoff_m + HEIGHT), float(towards[step]))
        x, y, _ = camera_centre(pose, world)
        hints = Hints(
            heading_deg=(pose.azimuth + float(errors[0])) % 360.0,
            tilt_deg=TILT + float(errors[1]),
            altitude_m=HEIGHT + float(errors[2]),
            fov_deg=FOV,
        )
        if step not in kept:
            image = render_drone(world, pose, FRAME_EDGE, look, np.random.default_rng([SEED, NUMBER, step]), lighting)
            row = to_row(step, locator.locate(image, name=str(step), hints=hints))
            with file.open("a", encoding="utf-8") as stream:
                if stream.tell() == 0:
                    stream.write(json.dumps({"version": code_version(), "matching": MATCHING_VERSION}) + "\n")
                stream.write(json.dumps(row) + "\n")
            kept[step] = json.loads(json.dumps(row))
            console.print(f"{step / RATE_HZ:.0f} s, {row['seconds']:.1f} s")
        found.append((Place(*world.lonlat(x, y)[::-1]), hints, to_fix(kept[step])))
    return found, takeoff


def without_heights(fix: Fix, hints: Hints) -> Fix:
    """The fix with the drone's position by the match's size, or else by its height over a plane."""
    assert fix.latitude is not None and fix.longitude is not None
    place = drone_position(
        latitude=fix.latitude, longitude=fix.longitude, heading=fix.heading_deg, ground_m=fix.ground_m, hints=hints
    )
    assert place is not None
    return replace(fix, drone_latitude=place.latitude, drone_longitude=place.longitude)


def away(true: Place, fix: Fix) -> float:
    """Metres between the drone and where a fix has it."""
    if fix.drone_latitude is None or fix.drone_longitude is None:
        return math.nan
    metres = distance_m(
        latitude=true.latitude,
        longitude=true.longitude,
        to_latitude=fix.drone_latitude,
        to_longitude=fix.drone_longitude,
    )
    return float(metres)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/flight"))
    work: Path = parser.parse_args().work
    work.mkdir(parents=True, exist_ok=True)
    world = hilly(Region(SEED, NUMBER, STYLE, EXTENT, GSD).load())
    write_heights(world, work / "hills-heights.tif")
    terrain = Terrain.read(work / "hills-heights.tif")
    frames, takeoff = located(work, world)
    takeoff_m = terrain.height(*takeoff)
    fixes = [(true, hints, fix) for true, hints, fix in frames if fix.found]
    level = Terrain(np.full_like(terrain.heights, takeoff_m), terrain.inverse, terrain.to_raster)

    def errors(heights: Terrain | None, lens: float | None) -> NDArray[np.float64]:
        """(n,) metres. lens: its angle of view in degrees, as it is taken to be; None if it is unknown."""
        found = []
        for true, given, fix in fixes:
            hints, fix = replace(given, fov_deg=lens), without_heights(fix, replace(given, fov_deg=lens))
            found.append(away(true, fix if heights is None else add_terrain(fix, hints, heights, takeoff_m)))
        return np.array(found)

    made = json.loads((work / "hills-fixes.jsonl").read_text(encoding="utf-8").splitlines()[0])
    low, high = float(np.nanmin(terrain.heights)), float(np.nanmax(terrain.heights))
    columns = {
        "no lens: a plane at the take-off's height": errors(level, None),
        "no lens: `--dem`": errors(terrain, None),
        "the lens and the match's size": errors(None, FOV),
        "the lens and the match's size, and `--dem`": errors(terrain, FOV),
        "a lens that is 5 % off, and the match's size": errors(None, 1.05 * FOV),
        "the same, and `--dem`": errors(terrain, 1.05 * FOV),
    }
    lines = [
        f"A level flight {HEIGHT:.0f} m above the take-off, over a rendered {STYLE} on hills: the ground lies between",
        f"{low - takeoff_m:.0f} and {high - takeoff_m:+.0f} m of the take-off. The camera looks {TILT:.0f} degrees "
        "down. The hints have the errors above.",
        f"{len(fixes)} of {len(frames)} frames got a fix. The raster has cells of {CELL_M:.0f} m. Errors are those of "
        "the drone's own",
        "position. With a lens the size of the match gives the distance, even without heights. All frames were located",
        "with the right lens; the other rows change it afterwards.",
        "",
        "| the drone's position from | mean error | median error | largest error |",
        "|---|---|---|---|",
        *(
            f"| {name} | {np.nanmean(each):.1f} m | {np.nanmedian(each):.1f} m | {np.nanmax(each):.1f} m |"
            for name, each in columns.items()
        ),
        "",
        f"Located with skypart {made['version']}, matching {made['matching']}.",
    ]
    write_text(work / "hills.json", json.dumps({"lines": lines}, indent=1) + "\n")
    console.print("\n".join(lines))


if __name__ == "__main__":
    main()
