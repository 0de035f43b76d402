"""How honest the live filter is: simulated flights, rendered ones and a real one, if their fixes are there.

    python benchmarks/flight.py [--rendered runs/flight] [--fixes fixes] [--real runs/flight/nust.json] [--keep-flown]

writes docs/results/flight.md. The simulated part takes some minutes. --keep-flown takes the rendered and the real
flights from the page as it is. For the rendered part run
benchmarks/flight_frames.py, benchmarks/flight_rendered.py and benchmarks/flight_hills.py first, for the real one
benchmarks/flight_nust.py.
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
from benchmarks.flight_frames import ALTITUDE, FLIGHTS, TILT
from benchmarks.flight_nust import FlownOver
from benchmarks.flight_rendered import fixes_file, read_rows
from benchmarks.flight_replay import ANSWER_S, Replay, Velocity, replay_all
from benchmarks.flight_simulation import (
    RATE_HZ,
    Outcome,
    Sensors,
    calibrated_sensors,
    lost_after,
    run_filter,
    simulate_flight,
)
from benchmarks.page import write_page

from skypart.position.confidence import MATCHING_VERSION, default_calibration
from skypart.position.live import FLYING

ROOT = Path(__file__).resolve().parent.parent
FLIGHTS_SIMULATED = 16
FIRST_SEED = 2000
"""Flights before this one were used while the filter was developed."""
LATE_S = (-20.0, -5.0, -2.0, -1.0, 1.0, 2.0, 5.0, 20.0)
"""Seconds by which the clock of the odometry is late; negative if it is early."""
FLIGHTS_LATE = 6
FLOWN = "## Rendered flights"
UNKNOWN = "## What this does not show"
SIMULATED_KM2 = 1.44
NAVILOC_M = 19.5
KINDS: dict[Velocity, str] = {"none": "no velocity", "flow": "optical flow", "odometry": "odometry"}


def sensors() -> dict[str, Sensors]:
    """The columns of the simulated part."""
    worse: dict[str, object] = {"slow_s": 40.0, "wrong": 0.05, "false_accepts": 0.18}
    return {
        **{name: calibrated_sensors(velocity=kind) for kind, name in KINDS.items()},
        "odometry, worse locator": calibrated_sensors(velocity="odometry", **worse),
    }


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def simulated(each: Sensors, count: int = FLIGHTS_SIMULATED) -> list[Outcome]:
    """The flights; their maps' shifts are spread evenly over the law that they follow."""
    options, outcomes = replace(FLYING, area_km2=SIMULATED_KM2), []
    for number in range(count):
        quantile = ((5 * number) % count + 0.5) / count
        seed = FIRST_SEED + number
        outcomes.append(run_filter(simulate_flight(seed), replace(each, shift_quantile=quantile), options, seed))
    return outcomes


def simulated_rows(each_sensor: Sensors) -> list[tuple[str, str]]:
    outcomes = simulated(each_sensor)
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

    source = np.concatenate([np.array(each.source) for each in outcomes])
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
        ("windows of photos used", str(int((source == "window").sum()))),
        ("truth outside the protection level", f"{100 * float((error > protection)[said].mean()):.2f} %"),
        ("median error", f"{float(np.median(error[said])):.1f} m"),
        ("mean error", f"{float(error[said].mean()):.1f} m"),
        ("median 95 % radius", f"{float(np.median(radius[said])):.1f} m"),
        ("within 50 m, of all time over the map with photos", percent(float((far <= 50)[seen].mean()))),
        ("within 20 m, of the same", percent(float((far <= 20)[seen].mean()))),
    ]


def clock_lines() -> list[str]:
    """A table of flights whose odometry has a clock that is off."""
    lines = [
        "",
        "### Odometry with a clock that is off",
        "",
        f"{FLIGHTS_LATE} of these flights for each offset, which the filter is not told. Fixes in turns show it.",
        "A clock that is up to 5 s early is corrected. Of what comes late over a live link, the velocity of now is not",
        "there yet, and an offset of 20 s is not looked for. A velocity moves the track once its clock is confirmed;",
        "that of these clocks never is.",
        "",
        "| the clock is | inside | lowest flight | largest error, in radii | slowest `lost` | median radius |",
        "|---|---|---|---|---|---|",
    ]
    for late_s in LATE_S:
        outcomes = simulated(calibrated_sensors(velocity="odometry", late_s=late_s), FLIGHTS_LATE)
        error, radius = (np.concatenate([getattr(each, name) for each in outcomes]) for name in ("error", "radius"))
        said = np.isfinite(error)
        flights = [float((each.error <= each.radius)[np.isfinite(each.error)].mean()) for each in outcomes]
        lines.append(
            f"| {abs(late_s):.0f} s {'late' if late_s > 0 else 'early'} "
            f"| {percent(float((error <= radius)[said].mean()))} "
            f"| {percent(min(flights))} | {float((error / radius)[said].max()):.2f} "
            f"| {max(each for outcome in outcomes for each in lost_after(outcome)):.1f} s "
            f"| {float(np.median(radius[said])):.1f} m |"
        )
    return lines


def kept_lines(page: Path) -> list[str]:
    """The rendered and the real flights of a page, with where they are from."""
    text = page.read_text(encoding="utf-8")
    made = next((line for line in text.splitlines()[::-1] if line.startswith("Made by")), "")
    before = [line for line in text.splitlines() if line.startswith("The rendered and the real flights were")]
    flown = text[text.index(FLOWN) : text.index(UNKNOWN)].strip().splitlines()
    return [
        "",
        *flown,
        *([] if before else ["", made.replace("Made by", "The rendered and the real flights were made by")]),
    ]


def joined(replays: list[Replay], name: str) -> Any:
    """A field of all flights, one after the other."""
    return np.concatenate([getattr(each, name) for each in replays])


def rendered_rows(replays: list[Replay]) -> list[tuple[str, str]]:
    """A column of the rendered part."""
    error, radius, protection = (joined(replays, name) for name in ("error", "radius", "protection"))
    said, state, source = np.isfinite(error), joined(replays, "state"), joined(replays, "source")
    seen = joined(replays, "inside") & ~joined(replays, "outage")
    frames, far = joined(replays, "located") & seen, np.where(said, error, math.inf)

    def covered(where: Any) -> str:
        return percent(float((error <= radius)[said & where].mean())) if (said & where).any() else ""

    flights = [float((each.error <= each.radius)[each.said].mean()) for each in replays if each.said.any()]
    lost = [seconds for each in replays for seconds in each.lost_after]
    asked = [seconds for each in replays for seconds in each.ask_after]
    return [
        ("truth inside the 95 % radius", covered(said)),
        ("lowest and highest of a flight", f"{percent(min(flights))}, {percent(max(flights))}"),
        ("while tracking", covered(state == "tracking")),
        ("while coasting", covered(state == "coasting")),
        ("while turning", covered(joined(replays, "turning"))),
        ("largest error, in radii", f"{float((error / radius)[said].max()):.2f}"),
        ("slowest `lost` after leaving the map", f"{max(lost):.1f} s" if lost else "none left it"),
        ("slowest call for the operator after leaving it", f"{max(asked):.1f} s" if asked else ""),
        ("windows of photos used", str(int((source == "window").sum()))),
        ("truth outside the protection level", f"{100 * float((error > protection)[said].mean()):.2f} %"),
        ("median error", f"{float(np.median(error[said])):.1f} m"),
        ("mean error", f"{float(error[said].mean()):.1f} m"),
        ("mean error over the map with photos", f"{float(error[said & seen].mean()):.1f} m"),
        ("median 95 % radius", f"{float(np.median(radius[said])):.1f} m"),
        ("a position, of all time over the map with photos", percent(float(said[seen].mean()))),
        ("located frames over the map within 50 m", percent(float((far <= 50)[frames].mean()))),
        ("located frames over the map within 20 m", percent(float((far <= 20)[frames].mean()))),
    ]


def table(columns: dict[str, list[tuple[str, str]]]) -> list[str]:
    """Markdown of columns that share their first one."""
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(f"| {row[0][0]} | " + " | ".join(value for _, value in row) + " |")
    return lines


def rendered_lines(work: Path, fixes: str) -> tuple[list[str], dict[str, list[Replay]]]:
    """The rendered part, and its flights by column."""
    flown = [flight for flight in FLIGHTS if read_rows(work, fixes, flight)]
    if not flown:
        return ["", "## Rendered flights", "", "Not run."], {}
    rows = [row for flight in flown for row in read_rows(work, fixes, flight)]
    heads = [json.loads(fixes_file(work, fixes, flight).read_text().splitlines()[0]) for flight in flown]
    made, matching = {head["version"] for head in heads}, sorted({str(head["matching"]) for head in heads})
    replays: dict[str, list[Replay]] = {name: replay_all(work, fixes, kind) for kind, name in KINDS.items()}
    replays["odometry, no window"] = replay_all(work, fixes, "odometry", window=False)
    replays["odometry, none added"] = replay_all(work, fixes, "odometry", exact_map=True)
    some, sources = replays["no velocity"], default_calibration().sources
    located, found, inside = (joined(some, name) for name in ("located", "found", "inside"))
    fix_error, guess_error = joined(some, "fix_error"), joined(some, "guess_error")
    on_map, off_map = located & inside, located & ~inside
    wrong = int((fix_error > 50).sum())
    guesses = guess_error[on_map & ~found & np.isfinite(guess_error)]
    seconds = [row["seconds"] for row in rows]
    lines = [
        "",
        "## Rendered flights with the default model",
        "",
        f"{len(rows)} located frames in {len(found) / RATE_HZ / 60:.1f} of the 33 minutes that were rendered: "
        f"{', '.join(flight.name for flight in flown)}.",
        f"The camera looks {TILT:.0f} degrees down along the path, from {ALTITUDE:.0f} m. Half of the time is in five",
        "weathers. Flights hover, leave the map over other ground once, and have an outage of 60 s without frames.",
        "One index has all three maps, which the model was not trained on. The position is the drone's.",
        "Renderings lack the errors that the radius allows for, so they are added. Each flight's map is shifted, its",
        "tilt is wrong for the whole flight, and unknown relief changes along the path. 95 % of them lie within",
        f"{sources.map_m:.0f} m, {sources.camera_deg:.0f} degrees and {sources.height_m:.0f} m of height.",
        f"A frame is located each 3 s, and its answer comes {ANSWER_S:.0f} s later. Reports are {RATE_HZ:.0f} a "
        "second.",
        "Flight data are simulated: compass off by 4 degrees, tilt by 1 degree, height by 3 m; odometry as above.",
        "Optical flow sees 2.5 frames a second.",
        "",
        *table({name: rendered_rows(each) for name, each in replays.items()}),
        "",
        f"Of {int(on_map.sum())} frames over the map {percent(float(found[on_map].mean()))} got a fix; {wrong} of "
        f"{int(found.sum())} fixes were wrong by more than 50 m.",
        f"Of {int(off_map.sum())} frames taken outside the map, some of which still show its edge, "
        f"{int((found & off_map).sum())} got a fix;",
        f"{int((found & off_map & (fix_error > 50)).sum())} of these were wrong by more than 50 m.",
        f"Of the frames over the map without a fix, the best guess was within 50 m in "
        f"{percent(float((guesses <= 50).mean()) if len(guesses) else 0.0)}.",
        f"The median error of a fix is {float(np.nanmedian(fix_error)):.1f} m, for the drone's own position.",
        "These are errors without those that are added. In the last column of the table there are none, and the",
        "radius does not allow for an error of the map.",
        f"Locating a frame took {float(np.median(seconds)):.1f} s (median) on this machine, which ran other work, with "
        f"skypart {', '.join(sorted(made))}",
        f"(matching {', '.join(matching)}; the shipped one is {MATCHING_VERSION}).",
    ]
    return lines, replays


def hills_lines(work: Path) -> list[str]:
    """The flight over hills."""
    file = work / "hills.json"
    found = json.loads(file.read_text(encoding="utf-8"))["lines"] if file.is_file() else ["Not run."]
    return ["", "## Over hills, with and without heights", "", *found]


def naviloc_lines(replayed: dict[str, list[Replay]], real: Path) -> list[str]:
    """The comparison by mean error over whole flights."""
    lines = [
        "",
        "## Mean error over whole flights, beside NaviLoc",
        "",
        "NaviLoc reports the mean error over a flight, from visual-inertial odometry and retrieval. Its number is",
        "quoted; it was measured on other data, at 9 frames a second on a Raspberry Pi 5. The rows cannot be ranked.",
        "",
        "| flights | mean error | share of time with a position |",
        "|---|---|---|",
        f"| NaviLoc, quoted, its own data | {NAVILOC_M} m | not stated |",
    ]
    if replayed:
        for kind in ("optical flow", "odometry"):
            replays = replayed[kind]
            error, said = joined(replays, "error"), joined(replays, "said")
            inside, seen = joined(replays, "inside"), joined(replays, "inside") & ~joined(replays, "outage")
            name = kind if kind == "optical flow" else f"simulated {kind}"
            lines.append(
                f"| rendered, {name}, over the map, outages included | {float(error[said & inside].mean()):.1f} m "
                f"| {percent(float(said[inside].mean()))} |"
            )
            lines.append(
                f"| rendered, {name}, over the map, without outages | {float(error[said & seen].mean()):.1f} m "
                f"| {percent(float(said[seen].mean()))} |"
            )
    if real.is_file():
        for name, values in json.loads(real.read_text())["rows"].items():
            found = FlownOver(**values)
            lines.append(f"| real video (NUST), {name} | {found.mean_m:.1f} m | {percent(found.share)} |")
        lines += ["", *json.loads(real.read_text())["notes"]]
    else:
        lines += ["", "The real video was not run."]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rendered", type=Path, default=ROOT / "runs" / "flight")
    parser.add_argument("--fixes", default="fixes")
    parser.add_argument("--real", type=Path, default=ROOT / "runs" / "flight" / "nust.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "flight.md")
    parser.add_argument("--keep-flown", action="store_true", help="keep the rendered and real flights of the page")
    arguments = parser.parse_args()
    columns = sensors()
    one = columns["no velocity"]
    lines = [
        "# The live filter",
        "",
        "## Simulated flights",
        "",
        f"{FLIGHTS_SIMULATED} flights of 6 minutes with each kind of velocity; nothing is rendered. Legs at 6-16 m/s,",
        "turns at up to 3.5 m/s^2, hovering, one leg out of the map and one outage of 60 s each. Half of the time is",
        "bad weather. A photo is located each second, and the filter is asked five times a second.",
        "",
        f"From [calibration.md](calibration.md): {percent(one.missing)} of the photos in good weather get no fix, and",
        f"{percent(one.missing_in_weather)} in bad weather. The best guess is right in {percent(one.guessed)} of them.",
        f"Outside the map {percent(one.false_accepts)} are accepted. The median radius is {one.radius_m:.0f} m, beside",
        f"the map's own error of {one.map_error_m:.0f} m. Maps are shifted by as much, once per flight; the shifts are",
        "spread evenly over a normal law.",
        "Assumed, not measured: 94 % of the errors lie within the stated radius, with a heavy tail. Half of their",
        "variance is shared for 12 s, where the filter assumes a half and 15 s. Of the fixes 2 % are wrong, in runs of",
        "up to three. Wrong best guesses repeat in 40 % of the cases. Optical flow has noise of 0.5 m/s and a slow",
        "error of 0.2 m/s plus 5 % of the speed, none in an outage; odometry has 0.2 m/s and 0.25 m/s. The last column",
        "assumes worse: errors shared for 40 s, 5 % wrong fixes and 18 % false accepts. The flights are others than",
        "those that the filter was developed with.",
        "",
        *table({name: simulated_rows(each) for name, each in columns.items()}),
    ]
    lines += clock_lines()
    if arguments.keep_flown:
        lines += kept_lines(arguments.out)
    else:
        found, replayed = rendered_lines(arguments.rendered, arguments.fixes)
        lines += [*found, *hills_lines(arguments.rendered), *naviloc_lines(replayed, arguments.real)]
    lines += ["", UNKNOWN, ""]
    lines += [
        "- Thirty minutes of rendered flights are the goal. Flights that are not listed above were not located.",
        "- A clock that is off by more than 5 seconds is not corrected; its velocity is left out. Offsets other than",
        "  those in the table were not flown.",
        "- Errors of map, tilt and relief are added to the rendered flights by assumption.",
        "  Whether the radius is right in real flights is known from one short video only.",
        "- So many frames got a fix in the rendered flights that windows of photos were never needed there.",
        "- The simulated locator is an assumption. Whether a flight lies inside the radius depends on its map's shift.",
    ]
    write_page(arguments.out, lines)


if __name__ == "__main__":
    main()
