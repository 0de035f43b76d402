"""Follow NUST's real video over its orthomosaic with `fly`, and compare with the positions beside it.

    nice -n 15 python benchmarks/flight_nust.py --shared SHARED [--work runs/flight] [--until 3600]

can be stopped and started again: every frame is located once, and its fix is kept. Without flight data: the heading is
unknown, and the ground at the photo's centre is followed. Writes WORK/nust.json for benchmarks/flight.py.
"""

import argparse
import csv
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cv2
import numpy as np
from benchmarks.flight_rendered import to_fix, to_row

from skypart.atomic import write_text
from skypart.embedding import load
from skypart.geo.geodesy import distance_m
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.fly import open_tracker
from skypart.position.frames import Frame
from skypart.position.live import FlyOptions, LiveTracker, Report, fly
from skypart.position.locate import Locator
from skypart.progress import console

VIEWS = ViewOptions((110.0, 170.0, 250.0), 0.45)
RATE_HZ = 1.0
LENS = Hints(tilt_deg=90.0)


@dataclass(frozen=True)
class FlownOver:
    """How far positions lie from the truth. share: of the true positions that had one. inside: of those, in the radius.

    slowest_m: the largest error.
    """

    mean_m: float
    median_m: float
    largest_m: float
    share: float
    inside: float
    photos: int


class Kept:
    """A sink that keeps all reports."""

    def __init__(self) -> None:
        self.problem = ""
        self.reports: list[Report] = []

    def send(self, report: Report) -> None:
        """Keep a report."""
        self.reports.append(report)

    def close(self) -> None:
        """Nothing to close."""


class OutOfTimeError(Exception):
    """The time is up; what was located is kept."""


class KeptFixes:
    """Locates each frame once and keeps its fix in a file."""

    def __init__(self, locator: Locator, file: Path, end: float) -> None:
        self.locator, self.file, self.end = locator, file, end
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        self.rows: dict[int, dict[str, Any]] = {int(row["step"]): row for row in map(json.loads, lines)}

    def __call__(self, frame: Frame, hints: Hints, prior: Prior | None) -> Fix:
        """The fix of a frame, by its time. hints: left out, so that a fix does not depend on the filter."""
        number = round(1000.0 * frame.time_s)
        if number not in self.rows:
            if time.monotonic() > self.end:
                raise OutOfTimeError
            row = to_row(number, self.locator.locate(frame.image, name=frame.name, hints=LENS))
            with self.file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
            self.rows[number] = json.loads(json.dumps(row))
            console.print(f"{frame.time_s:.1f} s of the video, {row['seconds']:.1f} s")
        return to_fix(self.rows[number])


def read_positions(path: Path, fps: float) -> list[tuple[float, float, float]]:
    """(seconds, latitude, longitude) of the ground at the photos' centres."""
    from pyproj import Transformer

    to_degrees = Transformer.from_crs("EPSG:32643", "EPSG:4326", always_xy=True)
    found = []
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            longitude, latitude = to_degrees.transform(float(row["utm43n_E"]), float(row["utm43n_N"]))
            found.append((float(row["video_frame"]) / fps, float(latitude), float(longitude)))
    return found


def compare(
    said: list[tuple[float, float | None, float | None, float | None]], truth: list[tuple[float, float, float]]
) -> FlownOver:
    """Errors at the times of the truth. said: (seconds, latitude, longitude, radius), at most 0.3 s away."""
    errors, radii = [], []
    for seconds, latitude, longitude in truth:
        _, north, east, radius = min(said, key=lambda each: abs(each[0] - seconds))
        if north is None or east is None or min(abs(each[0] - seconds) for each in said) > 0.3:
            continue
        metres = distance_m(latitude=latitude, longitude=longitude, to_latitude=north, to_longitude=east)
        errors.append(float(metres))
        radii.append(radius or 0.0)
    error = np.array(errors) if errors else np.array([math.nan])
    return FlownOver(
        mean_m=float(error.mean()),
        median_m=float(np.median(error)),
        largest_m=float(error.max()),
        share=len(errors) / len(truth),
        inside=float((error <= np.array(radii or [0.0])).mean()),
        photos=len(truth),
    )


def tracker_of(locator: Locator, window: bool) -> LiveTracker:
    """As `skypart fly --rate 1` makes it, with or without windows of photos."""
    made = open_tracker(locator, FlyOptions(rate_hz=RATE_HZ, hints=LENS), follow="ground")
    track = replace(made.filter.options, window_s=made.filter.options.window_s if window else 0.0)
    return LiveTracker(made.options, track, locator.index.bounds.frame, None, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/flight"))
    parser.add_argument("--until", type=float, default=7200.0, help="seconds after which to stop")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.until
    folder = arguments.shared / "data" / "nust_bsd2"
    video = folder / "drone_video.mp4"
    embedder = load("default")
    index = arguments.work / "nust.skyindex"
    build_index([str(folder / "orthomosaic_utm43n.tif")], index, embedder, "default", VIEWS)
    locator = Locator(MapIndex(index), embedder)
    locate = KeptFixes(locator, arguments.work / "nust-fixes.jsonl", end)
    capture = cv2.VideoCapture(str(video))
    fps = float(capture.get(cv2.CAP_PROP_FPS))
    capture.release()
    truth = read_positions(folder / "frames.csv", fps)
    rows: dict[str, FlownOver] = {}
    windows = 0
    for name, window in (("fly", True), ("fly without windows", False)):
        kept = Kept()
        fly(str(video), tracker_of(locator, window), locate, [kept])
        said = [
            (report.point.time_s, report.point.latitude, report.point.longitude, report.point.radius_m)
            for report in kept.reports
        ]
        rows[name] = compare(said, truth)
        windows = max(windows, sum(report.point.source == "window" for report in kept.reports))
    fixes = [to_fix(row) for row in locate.rows.values()]
    notes = [
        f"The real video of {len(fixes)} s is near-nadir, without flight data. Its map is from another flight.",
        f"A frame is located each second; {sum(fix.found for fix in fixes)} of {len(fixes)} got a fix.",
        f"With windows, {windows} positions came from several photos together.",
        f"Its {len(truth)} true positions come from SIFT registration, about 2 m, and so also from matching features.",
        "Of them "
        + ", ".join(f"{100 * row.inside:.0f} % lie inside the 95 % radius ({name})" for name, row in rows.items())
        + ".",
        f"The largest error is {max(row.largest_m for row in rows.values()):.0f} m.",
        "Frames of this video are among the calibration's photos, so this is no independent test.",
    ]
    content = {"rows": {name: asdict(row) for name, row in rows.items()}, "notes": notes}
    write_text(arguments.work / "nust.json", json.dumps(content, indent=1) + "\n")
    console.print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
