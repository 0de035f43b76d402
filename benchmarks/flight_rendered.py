"""Locate the rendered flights with the default model, for benchmarks/flight.py; every frame once, the fixes are kept.

    nice -n 15 python benchmarks/flight_rendered.py [--work runs/flight] [--fixes fixes] [--until 3600]

can be stopped and started again; benchmarks/flight.py reads what is there. Render the frames first, with
benchmarks/flight_frames.py. One index has all three maps. Hints with errors come from simulated flight data: the
compass is off by 4 degrees for a while and by 1.5 degrees from sample to sample, the tilt by 1 and 0.3 degrees, and the
height by 3 m and 0.5 m.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from benchmarks.flight_frames import ALTITUDE, FLIGHTS, FOV, STYLES, TILT, RenderedFlight, map_file
from benchmarks.flight_simulation import RATE_HZ, VelocitySimulator

from skypart.embedding import load
from skypart.images.decode import read_rgb
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.position.camera import hints_from_telemetry, merge_hints
from skypart.position.confidence import MATCHING_VERSION
from skypart.position.fix import Evidence, Fix, Hints, Peak, Place
from skypart.position.locate import Locator
from skypart.progress import console
from skypart.telemetry.record import Sample, Telemetry
from skypart.training.checkpoint import code_version

INDEX = "flight.skyindex"
VIEWS = ViewOptions((110.0, 170.0, 250.0), 0.45)
LENS = Hints(fov_deg=FOV)
COMPASS_DEG, TILT_DEG, HEIGHT_M = (4.0, 1.5), (1.0, 0.3), (3.0, 0.5)
"""Standard deviations of the errors of flight data: for a minute, and from sample to sample."""
SLOW_S = 60.0


def telemetry_of(flight: RenderedFlight, velocity: str = "none") -> Telemetry:
    """Simulated flight data at RATE_HZ. velocity: `odometry` adds that of benchmarks/flight_simulation.py."""
    rng = np.random.default_rng([5, flight.number, flight.part])
    measured = VelocitySimulator(flight.path, velocity, 10 * flight.number + flight.part)
    slow, kept = rng.normal(size=3), math.exp(-1.0 / RATE_HZ / SLOW_S)
    samples = []
    for step, seconds in enumerate(flight.path.seconds.tolist()):
        slow = kept * slow + math.sqrt(1.0 - kept**2) * rng.normal(size=3)
        heading, tilt, height = (
            true + error[0] * now + error[1] * fast
            for true, error, now, fast in zip(
                (float(flight.headings[step]), TILT, ALTITUDE),
                (COMPASS_DEG, TILT_DEG, HEIGHT_M),
                slow.tolist(),
                rng.normal(size=3).tolist(),
                strict=True,
            )
        )
        known = measured.velocity(step) if velocity == "odometry" else None
        samples.append(
            Sample(
                time_s=seconds,
                heading_deg=heading % 360.0,
                tilt_deg=tilt,
                height_m=height,
                velocity_east=None if known is None else float(known.velocity[0]),
                velocity_north=None if known is None else float(known.velocity[1]),
            )
        )
    return Telemetry(samples, source="simulated")


def to_row(step: int, fix: Fix) -> dict[str, Any]:
    """What the filter needs of a fix."""
    names = ("latitude", "longitude", "radius_m", "map_error_m", "confidence", "reason", "refined")
    more = ("heading_deg", "ground_m", "drone_latitude", "drone_longitude", "seconds")
    return {
        "step": step,
        **{name: getattr(fix, name) for name in (*names, *more)},
        "peaks": [vars(peak) for peak in fix.peaks],
        "guess": fix.best_guess,
        "evidence": None if fix.evidence is None else vars(fix.evidence),
    }


def to_fix(row: dict[str, Any]) -> Fix:
    """The fix of a row."""
    given = {name: value for name, value in row.items() if name not in ("step", "peaks", "guess", "evidence")}
    return Fix(
        photo=str(row["step"]),
        **given,
        peaks=tuple(Peak(**peak) for peak in row["peaks"]),
        best_guess=None if row["guess"] is None else Place(*row["guess"]),
        evidence=None if row["evidence"] is None else Evidence(**row["evidence"]),
    )


def fixes_file(work: Path, fixes: str, flight: RenderedFlight) -> Path:
    """Where the fixes of a flight are kept."""
    return work / fixes / f"{flight.name}.jsonl"


def read_rows(work: Path, fixes: str, flight: RenderedFlight) -> list[dict[str, Any]]:
    """The frames of a flight that were located, in order; the first line of the file says with what."""
    file = fixes_file(work, fixes, flight)
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(line) for line in lines[1:]]


def jobs(work: Path, fixes: str) -> Iterator[tuple[RenderedFlight, int]]:
    """Frames that were rendered and not located, a flight over each map first."""
    for flight in sorted(FLIGHTS, key=lambda each: each.part):
        done = {row["step"] for row in read_rows(work, fixes, flight)}
        for step in flight.fix_steps():
            if step in done:
                continue
            if not flight.frame_file(work, step).is_file():
                break  # fixes are kept in order
            yield flight, step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/flight"))
    parser.add_argument("--fixes", default="fixes", help="folder of the fixes; another one for another search")
    parser.add_argument("--until", type=float, default=7200.0, help="seconds after which to stop")
    arguments = parser.parse_args()
    began = time.monotonic()
    maps = [str(map_file(arguments.work, number)) for number in range(len(STYLES))]
    embedder = load("default")
    index = arguments.work / INDEX
    build_index(maps, index, embedder, "default", VIEWS)
    locator = Locator(MapIndex(index), embedder)
    data = {flight: telemetry_of(flight) for flight in FLIGHTS}
    todo = list(jobs(arguments.work, arguments.fixes))
    console.print(f"index ready after {time.monotonic() - began:.0f} s; {len(todo)} frames to locate")
    for count, (flight, step) in enumerate(todo, start=1):
        if time.monotonic() - began > arguments.until:
            break
        hints = merge_hints(LENS, hints_from_telemetry(data[flight].at(float(flight.path.seconds[step]))))
        fix = locator.locate(read_rgb(flight.frame_file(arguments.work, step)), name=str(step), hints=hints)
        file = fixes_file(arguments.work, arguments.fixes, flight)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            if stream.tell() == 0:
                stream.write(json.dumps({"version": code_version(), "matching": MATCHING_VERSION}) + "\n")
            stream.write(json.dumps(to_row(step, fix)) + "\n")
        if count % 10 == 0:
            console.print(f"{count} of {len(todo)} frames, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
