"""CPU time of every weather condition at 512x512 on one core, SkyPart and imgaug 0.4.0 in one run.

Usage: .venv/bin/python benchmarks/weather.py [--draws 10]
Creates a temporary environment for imgaug. The two alternate, so that both see the same load of the machine.
Writes docs/results/weather-speed.md and .json.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.weather_environment import ROOT, machine, reference_images, run_imgaug, single_threaded

RESULT = ROOT / "docs" / "results" / "weather-speed"
ROUNDS = 3
WANTED = 8.0


def measure_ours(draws: int, images: dict[str, str]) -> dict[str, list[float]]:
    """CPU milliseconds of every call, per cell, in this process; two calls a cell and image go before unmeasured."""
    import cv2

    from skypart.images.decode import read_rgb
    from skypart.images.weather import CONDITIONS, PROFILES, corrupt

    cv2.setNumThreads(1)
    clean = {name: read_rgb(path) for name, path in images.items()}
    times: dict[str, list[float]] = {}
    for profile in PROFILES:
        for condition in CONDITIONS:
            cell = times.setdefault(f"{profile}/{condition}", [])
            for draw in range(-1, draws):
                for name, image in clean.items():
                    start = time.process_time()
                    corrupt(image, condition, profile, 0, f"{name}/{draw}")
                    if draw >= 0:
                        cell.append(1000.0 * (time.process_time() - start))
    return times


def one_round(draws: int, images: dict[str, str], cells: list[list[str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Times of imgaug, then of ours in a fresh single-threaded process."""
    theirs = run_imgaug({"statistics": None, "images": images, "draws": draws, "cells": cells, "samples": None})
    command = [sys.executable, __file__, "--ours", "--draws", str(draws)]
    answer = subprocess.run(command, check=True, env=single_threaded(), capture_output=True, text=True)
    return theirs, json.loads(answer.stdout)


def table(theirs: dict[str, float], ours: dict[str, float], profiles: tuple[str, ...]) -> list[str]:
    """Markdown rows of both profiles, with the means."""
    lines = []
    for profile in profiles:
        lines += [f"### {profile}", "", "| condition | imgaug ms | SkyPart ms | ratio |", "|---|---:|---:|---:|"]
        names = [name for name in theirs if name.startswith(profile + "/")]
        for name in names:
            factor = "–" if name.endswith("/normal") else f"{theirs[name] / ours[name]:.1f}"
            lines.append(f"| {name.split('/')[1]} | {theirs[name]:.2f} | {ours[name]:.2f} | {factor} |")
        mean_theirs = sum(theirs[name] for name in names) / len(names)
        mean_ours = sum(ours[name] for name in names) / len(names)
        ratio = mean_theirs / mean_ours
        lines += [f"| **mean of ten** | **{mean_theirs:.2f}** | **{mean_ours:.2f}** | **{ratio:.1f}** |", ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=8, help="draws per image, cell and round")
    parser.add_argument("--ours", action="store_true", help="only measure SkyPart and print JSON")
    options = parser.parse_args()
    images = reference_images()
    if options.ours:
        json.dump(measure_ours(options.draws, images), sys.stdout)
        return
    import cv2
    import numpy as np

    from skypart.images.weather import CONDITIONS, PROFILES

    cells = [[profile, condition] for profile in PROFILES for condition in CONDITIONS]
    names = ["/".join(cell) for cell in cells]
    theirs: dict[str, list[float]] = {name: [] for name in names}
    ours: dict[str, list[float]] = {name: [] for name in names}
    versions: dict[str, str] = {}
    for number in range(ROUNDS):
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
        answer, times = one_round(options.draws, images, cells)
        versions = answer["versions"]
        for name in names:
            theirs[name] += answer["cells"][name]["cpu_ms"]
            ours[name] += times[name]
    mean_theirs = {name: float(np.mean(theirs[name])) for name in names}
    mean_ours = {name: float(np.mean(ours[name])) for name in names}
    calls = len(ours[names[0]])
    lines = [
        "# Weather: CPU time per image",
        "",
        f"Mean CPU time of one 512x512 image over {calls} calls per cell ({ROUNDS} alternating rounds, three real "
        "images),",
        f"one core, single-threaded. imgaug {versions['imgaug']} on numpy {versions['numpy']} and OpenCV",
        f"{versions['opencv']}; SkyPart on numpy {np.__version__} and OpenCV {cv2.__version__}.",
        f"Machine: {machine()}, load {os.getloadavg()[0]:.1f}; {datetime.date.today().isoformat()}.",
        "Made by `benchmarks/weather.py`.",
        "",
        *table(mean_theirs, mean_ours, PROFILES),
    ]
    text = "\n".join(lines)
    print(text)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.with_suffix(".md").write_text(text)
    record = {"imgaug_ms": mean_theirs, "skypart_ms": mean_ours, "calls": calls, "versions": versions}
    record |= {"machine": machine(), "date": datetime.date.today().isoformat()}
    RESULT.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    for profile in PROFILES:
        inside = [name for name in names if name.startswith(profile + "/")]
        if sum(mean_theirs[name] for name in inside) < WANTED * sum(mean_ours[name] for name in inside):
            sys.exit(f"{profile}: less than {WANTED:g} times faster than imgaug")


if __name__ == "__main__":
    main()
