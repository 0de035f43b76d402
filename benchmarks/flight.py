"""How honest the live filter is: simulated flights of half an hour and more, and rendered ones if there are any.

    python benchmarks/flight.py [--rendered runs/flight]

writes docs/results/flight.md. The simulated part takes about two minutes; for the rendered part run
benchmarks/flight_rendered.py first.
"""

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.flight_rendered import EVERY_S, STYLES, flight_of
from benchmarks.flight_simulation import (
    RATE_HZ,
    Floats,
    Outcome,
    Sensors,
    VelocitySimulator,
    lost_after,
    run_filter,
    simulate_flight,
)
from benchmarks.page import write_page

from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Fix
from skypart.position.live import FLYING
from skypart.position.track_filter import TrackFilter

ROOT = Path(__file__).resolve().parent.parent
FLIGHTS = 8
EARLIER_RUN = [
    "",
    "An earlier run of the same filter on six other flights (seeds 10 to 15, commit bb34574) had the truth inside in",
    "96.6 %, 95.9 %, 95.8 % and 89.7 %, by column. The shift of the map is drawn once per flight, so a few flights",
    "tell little: with a locator whose errors last 40 s the radius may not hold.",
]
"""A run that is not repeated here, and came out worse."""
FIRST_SEED = 30
"""Flights before this one were used while the filter was developed."""
KINDS = {"none": "no velocity", "flow": "optical flow", "odometry": "odometry"}
SENSORS = {
    **{name: Sensors(velocity=kind) for kind, name in KINDS.items()},
    "odometry, worse locator": Sensors(velocity="odometry", slow_s=40.0, wrong=0.05, false_accepts=0.18),
}


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def simulated(sensors: Sensors) -> list[Outcome]:
    return [
        run_filter(simulate_flight(seed), sensors, FLYING, seed) for seed in range(FIRST_SEED, FIRST_SEED + FLIGHTS)
    ]


def simulated_rows(sensors: Sensors) -> list[tuple[str, str]]:
    outcomes = simulated(sensors)
    error, radius, protection = (
        np.concatenate([getattr(each, name) for each in outcomes]) for name in ("error", "radius", "protection")
    )
    state = np.concatenate([np.array(each.state) for each in outcomes])
    turning = np.concatenate([each.flight.turning for each in outcomes])
    inside = np.concatenate([each.flight.inside for each in outcomes])
    seen = inside & ~np.concatenate([each.flight.outage for each in outcomes])
    said = np.isfinite(error)
    far = np.where(said, error, math.inf)

    def covered(where: np.ndarray) -> str:
        return percent(float((error <= radius)[said & where].mean()))

    flights = [float((each.error <= each.radius)[np.isfinite(each.error)].mean()) for each in outcomes]
    lost = [each for outcome in outcomes for each in lost_after(outcome)]
    return [
        ("truth inside the 95 % radius", covered(said)),
        ("lowest and highest of a flight", f"{percent(min(flights))}, {percent(max(flights))}"),
        ("while tracking", covered(state == "tracking")),
        ("while coasting", covered(state == "coasting")),
        ("while turning", covered(turning)),
        ("largest error, in radii", f"{float((error / radius)[said].max()):.2f}"),
        ("slowest `lost` after leaving the map", f"{max(lost):.1f} s"),
        ("truth outside the protection level", f"{100 * float((error > protection)[said].mean()):.2f} %"),
        ("median error", f"{float(np.median(error[said])):.1f} m"),
        ("mean error", f"{float(error[said].mean()):.1f} m"),
        ("median 95 % radius", f"{float(np.median(radius[said])):.1f} m"),
        ("within 50 m, of all time over the map with photos", percent(float((far <= 50)[seen].mean()))),
        ("within 20 m, of the same", percent(float((far <= 20)[seen].mean()))),
    ]


def rendered_fix(row: dict[str, Any], floor: float | None) -> Fix | None:
    """The fix of a row. floor: the map's own error instead of the default calibration's, which real maps need."""
    if row.get("none"):
        return None
    if not row["found"] or row["drone_latitude"] is None:
        return Fix(photo="rendered", reason="no fix")
    own = math.sqrt(max(row["radius_m"] ** 2 - row["map_error_m"] ** 2, 0.0))
    error = row["map_error_m"] if floor is None else floor
    return Fix(
        photo="rendered",
        latitude=row["latitude"],
        longitude=row["longitude"],
        drone_latitude=row["drone_latitude"],
        drone_longitude=row["drone_longitude"],
        radius_m=math.hypot(own, error),
        map_error_m=error,
        confidence=row["confidence"],
    )


def rendered(folder: Path, minutes: float, kind: str, floor: float | None) -> tuple[Floats, Floats, int, float]:
    """Errors, radii (NaN while lost) at RATE_HZ over all maps, frames located, and their mean time."""
    errors: list[float] = []
    radii: list[float] = []
    times: list[float] = []
    for number, style in enumerate(STYLES):
        file = folder / f"fixes-{style}-{minutes:g}.json"
        rows = json.loads(file.read_text()) if file.is_file() else []
        if not rows:
            continue
        times += [row["seconds"] for row in rows if not row.get("none")]
        flight = flight_of(number, minutes)
        frame = LocalFrame(latitude=rows[0]["true"][0], longitude=rows[0]["true"][1])
        first = flight.places[rows[0]["number"]]
        options = replace(FLYING, follow="drone", area_km2=0.64)
        track_filter = TrackFilter(options, frame, record=False)
        velocities = VelocitySimulator(flight, kind, number)
        by_step = {row["number"]: row for row in rows}
        for step in range(rows[-1]["number"] + 1):
            now, velocity = float(flight.seconds[step]), velocities.velocity(step)
            if step in by_step:
                point = track_filter.step(now, rendered_fix(by_step[step], floor), velocity)
            else:
                point = track_filter.drive(now, velocity)
            errors.append(math.nan)
            radii.append(math.nan)
            if point.latitude is not None and point.longitude is not None and point.radius_m is not None:
                metres = frame.to_metres(latitude=point.latitude, longitude=point.longitude)
                errors[-1] = math.dist((float(metres.x), float(metres.y)), flight.places[step] - first)
                radii[-1] = math.hypot(point.radius_m, track_filter.map_error_m)
    return np.array(errors), np.array(radii), len(times), float(np.mean(times)) if times else math.nan


def rendered_lines(folder: Path, minutes: float) -> list[str]:
    error, radius, count, seconds = rendered(folder, minutes, "none", None)
    if count == 0:
        return ["", "Rendered flights: not run."]
    length = len(error) / RATE_HZ
    flown = [style for style in STYLES if (folder / f"fixes-{style}-{minutes:g}.json").is_file()]
    lines = [
        "",
        "## Rendered flights with the default model",
        "",
        f"{count} frames, {length / 60:.1f} minutes over {' and '.join(flown)}, one frame each {EVERY_S:g} s. The",
        f"index has all of {', '.join(STYLES)}. This is too short for the goal of 30 minutes; it shows the order of",
        "magnitude.",
        "The camera looks 60 degrees down, at 110 m; half of the time in five weathers. The position is the drone's.",
        f"Locating a frame took {seconds:.1f} s on average on this machine, which ran other work.",
        "",
        "| velocity, map's own error | inside | largest, radii | median error | mean error | said |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ("none", "odometry"):
        for floor, name in ((None, "12 m"), (0.0, "0 m")):
            error, radius, _, _ = rendered(folder, minutes, kind, floor)
            said = np.isfinite(error)
            if not said.any():
                lines.append(f"| {KINDS[kind]}, {name} | | | | | 0 % |")
                continue
            lines.append(
                f"| {KINDS[kind]}, {name} | {percent(float((error <= radius)[said].mean()))} "
                f"| {float((error / radius)[said].max()):.2f} | {float(np.median(error[said])):.1f} m "
                f"| {float(error[said].mean()):.1f} m | {percent(float(said.mean()))} |"
            )
    return [*lines, "", "12 m is the default calibration's allowance for real maps; rendered maps have no such error."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rendered", type=Path, default=ROOT / "runs" / "flight")
    parser.add_argument("--minutes", type=float, default=4.0, help="of each rendered flight")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "flight.md")
    arguments = parser.parse_args()
    tables = {name: simulated_rows(sensors) for name, sensors in SENSORS.items()}
    lines = [
        "# The live filter",
        "",
        "## Simulated flights",
        "",
        f"{FLIGHTS} flights of 6 minutes with each kind of velocity; no image is rendered. Legs at 6 to 16 m/s,",
        "turns at up to 3.5 m/s^2, hovering, one leg out of the map and one outage of 60 s each. Half of the time is",
        "bad weather. A photo is located each second, and the filter is asked five times a second.",
        "",
        "From [calibration.md](calibration.md): the share of false accepts outside the map, 5.2 %.",
        "Assumed, not measured: radii of 9 m (median); 94 % of the errors lie within the stated radius, with a",
        "heavy tail. Half of their variance is shared for 12 s, where the filter assumes a half and 15 s. Of the",
        "fixes 2 % are wrong, in runs of up to three. A map is shifted by up to 6 m (95 %), once per flight.",
        "Velocities are simulated, too: optical flow with noise of 0.5 m/s and a slow error of 0.2 m/s plus 5 % of",
        "the speed, none in an outage; odometry with 0.2 m/s and 0.25 m/s. The last column assumes worse: errors",
        "shared for 40 s, 5 % wrong fixes and 18 % false accepts. The flights are others than those that the",
        "filter was developed with.",
        "",
        "| | " + " | ".join(tables) + " |",
        "|---|" + "---|" * len(tables),
    ]
    for row in zip(*tables.values(), strict=True):
        lines.append(f"| {row[0][0]} | " + " | ".join(value for _, value in row) + " |")
    lines += EARLIER_RUN
    lines += rendered_lines(arguments.rendered, arguments.minutes)
    write_page(arguments.out, lines)


if __name__ == "__main__":
    main()
