"""Distributions of the 2 x 10 weather cells, SkyPart against imgaug 0.4.0, on three real images.

Usage: .venv/bin/python benchmarks/weather_faithful.py            compare with the stored imgaug draws
       .venv/bin/python benchmarks/weather_faithful.py --redraw   first draw imgaug anew (throw-away environment)
The stored draws are numbers only: tests/images/weather_oracle.json. Writes docs/results/weather-faithful.md.
"""

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from scipy.stats import ks_2samp

from skypart.images.decode import read_rgb
from skypart.images.weather import CONDITIONS, PROFILES, corrupt
from skypart.images.weather.statistics import STATISTICS, image_statistics
from skypart.progress import with_progress

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.weather_environment import ROOT, STATISTICS_FILE, reference_images, run_imgaug

ORACLE = ROOT / "tests" / "images" / "weather_oracle.json"
RESULT = ROOT / "docs" / "results" / "weather-faithful.md"
DRAWS = 120
REJECT = 0.01
Draws = dict[str, dict[str, list[float]]]


def redraw() -> None:
    """Store imgaug's statistics of DRAWS draws per cell and image."""
    cells = [[profile, condition] for profile in PROFILES for condition in CONDITIONS]
    request = {"statistics": str(STATISTICS_FILE), "images": reference_images(), "draws": DRAWS, "cells": cells}
    store(run_imgaug(request | {"samples": None}))


def store(answer: dict[str, Any]) -> None:
    """Write an answer of imgaug to the oracle file, rounded to what the comparison needs."""
    draws = {
        name: {
            image: {key: [float(f"{value:.5g}") for value in values] for key, values in statistics.items()}
            for image, statistics in cell["draws"].items()
        }
        for name, cell in answer["cells"].items()
    }
    ORACLE.write_text(json.dumps({"versions": answer["versions"], "draws": draws}, separators=(",", ":")) + "\n")


def draw_ours(profile: str, condition: str, draws: int, seed: int = 0) -> Draws:
    """Statistics of our draws by image; the same shape as the oracle's cells."""
    result: Draws = {}
    for name, path in reference_images().items():
        clean = read_rgb(path)
        rows = [
            image_statistics(clean, corrupt(clean, condition, profile, seed, f"{name}/{draw}")) for draw in range(draws)
        ]
        result[name] = {key: [float(f"{row[key]:.5g}") for row in rows] for key in STATISTICS}
    return result


def compare(theirs: Draws, ours: Draws) -> dict[str, dict[str, float]]:
    """Per statistic, images pooled: imgaug's quartiles, our median, KS p value; and the p values of single images."""
    result = {}
    for key in STATISTICS:
        a = np.concatenate([theirs[image][key] for image in theirs])
        b = np.concatenate([ours[image][key] for image in theirs])
        low, middle, high = np.percentile(a, [25, 50, 75])
        singles = [float(ks_2samp(theirs[image][key], ours[image][key]).pvalue) for image in theirs]
        inside = [within_quartiles(theirs[image][key], ours[image][key]) for image in theirs]
        result[key] = {
            "low": float(low),
            "median": float(middle),
            "high": float(high),
            "ours": float(np.median(b)),
            "p": float(ks_2samp(a, b).pvalue),
            "p_min": min(singles),
            "rejected": float(sum(p < REJECT for p in singles)),
            "outside": float(sum(not ok for ok in inside)),
        }
    return result


def within_quartiles(theirs: list[float], ours: list[float]) -> bool:
    """Whether our median lies within the 25-75 % range of the oracle, to the last stored digit."""
    low, high = np.percentile(theirs, [25, 75])
    slack = 1e-4 * max(abs(high), 1e-3)
    return bool(low - slack <= np.median(ours) <= high + slack)


def report(results: dict[str, dict[str, dict[str, float]]], versions: dict[str, str]) -> str:
    """The Markdown page."""
    rejected = sum(r["rejected"] for cell in results.values() for r in cell.values())
    outside = sum(r["outside"] for cell in results.values() for r in cell.values())
    tests = 3 * len(STATISTICS) * len(results)
    lines = [
        "# Weather: distributions against imgaug",
        "",
        f"{DRAWS} draws per cell on each of three real 512x512 images (`../shared/weather_reference`), imgaug",
        f"{versions['imgaug']} (numpy {versions['numpy']}; seeds advance from call to call, as in the released code)",
        "against SkyPart (seed 0). Entries: imgaug's median [25 %, 75 %] / SkyPart's median, and the p value of a",
        f"two-sample Kolmogorov-Smirnov test over the {3 * DRAWS} draws of the cell. SSIM and change are against the",
        "clean image; laplacian is the standard deviation of the grey Laplacian.",
        "",
        f"Image by image: {rejected:.0f} of {tests} tests reject at {REJECT} (equal distributions would give about",
        f"{REJECT * tests * 0.9:.0f}; the `normal` cells are identical), and {outside:.0f} of {tests} medians lie",
        "outside imgaug's 25-75 % range of that image.",
        "",
        f"Made by `benchmarks/weather_faithful.py` on {datetime.date.today().isoformat()}.",
        "",
        "| cell | " + " | ".join(STATISTICS) + " |",
        "|---|" + "---|" * len(STATISTICS),
    ]
    for name, cell in results.items():
        entries = [
            f"{r['median']:.4g} [{r['low']:.4g}, {r['high']:.4g}] / {r['ours']:.4g}, p = {r['p']:.2f}"
            for r in cell.values()
        ]
        lines.append(f"| {name} | " + " | ".join(entries) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redraw", action="store_true", help="draw imgaug anew and store its statistics")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    if options.redraw:
        redraw()
    oracle = json.loads(ORACLE.read_text())
    results = {}
    for name, theirs in with_progress(oracle["draws"].items(), "Weather cells", len(oracle["draws"])):
        profile, condition = name.split("/")
        results[name] = compare(theirs, draw_ours(profile, condition, DRAWS))
    text = report(results, oracle["versions"])
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(text)
    print(text)
    bad = [f"{name} {key}" for name, cell in results.items() for key, r in cell.items() if r["p"] < REJECT]
    if bad:
        sys.exit("rejected: " + ", ".join(bad))


if __name__ == "__main__":
    main()
