"""Drone images rendered per second at 512x512 by two processes, for procedural and real worlds.

    python benchmarks/worlds.py [--images 40]        writes docs/results/worlds-speed.md

Each process loads its worlds first; then both draw SUES-200 views (four altitudes, an orbit each, 1.5 x 1.5 rays per
pixel, shadows, camera, JPEG coding) and are timed together from the first image to the last. CPU time is that of
the two processes alone, so it says what an otherwise idle machine would do when other work shares the cores.
"""

import argparse
import datetime
import multiprocessing
import os
import platform
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import cv2
import numpy as np

from skypart.atomic import write_text
from skypart.datasets.rendering import Pose
from skypart.worlds import (
    Lighting,
    Region,
    World,
    find_sources,
    orbit,
    render_drone,
    render_satellite,
    sample_appearance,
)
from skypart.worlds.sites import find_sites

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs/results/worlds-speed.md"
AUTZEN = ROOT.parent / "shared/data/autzen_lidar_cc_by"
ALTITUDES = (150.0, 200.0, 250.0, 300.0)
WANTED = 5.0


def load(kind: str) -> World:
    if kind == "real":
        return find_sources(AUTZEN)[0].load()
    return Region(1, 0, kind).load()


def draw(
    kind: str, worker: int, images: int, gate: Barrier, results: "multiprocessing.Queue[tuple[float, ...]]"
) -> None:
    """Draw `images` pictures after all workers have loaded; report start, end and CPU seconds."""
    cv2.setNumThreads(1)
    started = time.process_time()
    world = load(kind)
    making = time.process_time() - started
    rng = np.random.default_rng(worker)
    sites = find_sites(world, 150.0, 220.0, [worker])
    warm = Pose((float(sites[0][0]), float(sites[0][1])), 200.0, 55.0, 0.0)
    render_drone(world, warm, 512, sample_appearance(rng, "drone"), rng)
    render_satellite(world, warm.target, 220.0, 512, sample_appearance(rng, "satellite"), rng)
    gate.wait()
    begun, cpu, drawn = time.time(), time.process_time(), 0
    while drawn < images:
        site = sites[(drawn // 20) % len(sites)]
        look = sample_appearance(rng, "drone")
        light = Lighting(world.drone, look)
        aim = Pose((float(site[0]), float(site[1])), ALTITUDES[(drawn // 5) % 4], rng.uniform(45, 65), 0.0, 45.0)
        for pose in orbit(aim, 5, rng.uniform(0, 360)):
            picture = render_drone(world, pose, 512, look, rng, light)
            cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, look.jpeg])
            drawn += 1
    results.put((begun, time.time(), time.process_time() - cpu, drawn, making))


def measure(kind: str, images: int) -> tuple[float, float, float]:
    """Images a second by the clock, by CPU time of two cores, and CPU seconds to make the world."""
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(2), context.Queue()
    workers = [context.Process(target=draw, args=(kind, i, images, gate, results)) for i in range(2)]
    for worker in workers:
        worker.start()
    rows = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    total = sum(row[3] for row in rows)
    clock = max(row[1] for row in rows) - min(row[0] for row in rows)
    return total / clock, 2 * total / sum(row[2] for row in rows), float(np.mean([row[4] for row in rows]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=40, help="pictures a process and world")
    images = parser.parse_args().images
    kinds = ["town", "suburb", "farmland"] + (["real"] if AUTZEN.is_dir() else [])
    load_before = os.getloadavg()[0]
    rows = []
    for kind in kinds:
        clock, cpu, making = measure(kind, images)
        name = "Autzen, LiDAR heights" if kind == "real" else f"procedural, {kind}"
        rows.append(f"| {name} | {clock:.1f} | {cpu:.1f} | {making:.1f} |")
        print(rows[-1])
    text = f"""# Speed of rendering drone views

512 x 512 pixels, two processes, {images} images per process and world; made by `python benchmarks/worlds.py`.
{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, OpenCV {cv2.__version__},
Python {platform.python_version()}; load at the start {load_before:.1f}; {datetime.date.today()}.
Target: at least {WANTED:.0f} images per second.
Orbits at 150 to 300 m, 45 to 65 degrees below the horizon, 1.5 x 1.5 rays per pixel, shadows, camera and JPEG included.

| world | images/s by the clock | images/s by CPU time of two cores | CPU s to make or load the world |
|---|---:|---:|---:|
{chr(10).join(rows)}

By the clock: both processes, slowed down by other work on the machine. By CPU time: 2 / (CPU seconds per image),
which is what two otherwise idle cores would give. A procedural region is 900 x 900 m at 0.3 m, two dates.
"""
    write_text(OUT, text)


if __name__ == "__main__":
    main()
