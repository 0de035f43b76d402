"""Make a benchmark-shaped data set from worlds: plan the locations, draw them in workers, write maps and poses."""

import atexit
import csv
import hashlib
import io
import json
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numpy as np

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.progress import progress_bar
from skypart.signals import handle_signals
from skypart.version import __version__
from skypart.worlds.draw import POSE_FIELDS, Job, Settings, Site, Source, run_job
from skypart.worlds.layouts import LAYOUTS, Layout, fit, layout_named, location_name
from skypart.worlds.procedural import Region
from skypart.worlds.rasters import find_sources
from skypart.worlds.request import Request
from skypart.worlds.sites import RASTER_CONTRAST, find_sites, site_seed
from skypart.worlds.sources import RasterSource

SKETCH_BYTES = 65536
LATER: dict[str, object] = {"surround": False, "guess_heights": False}
"""Options that worlds of older versions were made without."""

_count: "Synchronized[int] | None" = None
"""In a worker: pictures done by all workers."""


def make_world(out: Path, request: Request, workers: int = 1) -> None:
    """Write the data set to `out`; the same request gives the same bytes for any number of workers.

    What is there already is not drawn again, so a stopped run goes on when it is started again.
    """
    layout = layout_named(request.like)
    rasters = _sketches(request)
    complete = _look_into(out, request, rasters)
    jobs = plan_jobs(out, request, layout)
    if complete and all((out / path).is_file() for path in (*_expected(jobs, layout), *_lists(layout))):
        return
    write_text(out / "world.json", _describe(request, rasters, complete=False))
    rows: list[dict[str, str]] = []
    total = sum(len(job.sites) * job.shots_each for job in jobs)
    with handle_signals(signal.default_int_handler, signal.SIGTERM), progress_bar() as bar:
        task = bar.add_task("drawing", total=total)
        for finished in _run(jobs, workers, lambda done: bar.update(task, completed=done)):
            rows += finished
    rows.sort(key=lambda row: row["path"])
    _write_poses(out / "poses.csv", rows)
    _write_lists(out, request, layout, rows)
    write_text(out / "world.json", _describe(request, rasters, complete=True))
    for note in (out / ".work").glob("*.json"):
        note.unlink()
    if (out / ".work").is_dir():
        (out / ".work").rmdir()


def _run(jobs: list[Job], workers: int, report: Callable[[int], None]) -> Iterator[list[dict[str, str]]]:
    """Results of all jobs as they come, from `workers` processes; `report` is told the number of pictures done."""
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    if workers <= 1:
        done = 0

        def add(pictures: int) -> None:
            nonlocal done
            done += pictures
            report(done)

        for job in jobs:
            yield run_job(job, add)
        return
    context = multiprocessing.get_context("spawn")
    count = context.Value("q", 0)
    others = {child.pid for child in multiprocessing.active_children()}
    with context.Pool(workers, _start_worker, (count,)) as pool:
        started = {child.pid for child in multiprocessing.active_children()} - others
        results = pool.imap_unordered(_run_in_worker, jobs)
        for _ in jobs:
            while True:
                try:
                    rows = results.next(timeout=0.5)
                    break
                except multiprocessing.TimeoutError:
                    report(count.value)
                    if started - {child.pid for child in multiprocessing.active_children()}:
                        raise SkyPartError(
                            "a process that draws was killed, probably for want of memory; give the same command "
                            "again with --workers 1, it goes on"
                        ) from None
            report(count.value)
            yield rows
        pool.close()  # let them leave by themselves: a process told to end while it leaves complains
        pool.join()


def _start_worker(count: "Synchronized[int]") -> None:
    """Leave Ctrl-C to the parent, end on SIGTERM without a lock in hand, and remember the counter of pictures."""
    global _count
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)  # one that leaves already must not leave twice
    _count = count


def _run_in_worker(job: Job) -> list[dict[str, str]]:
    def add(pictures: int) -> None:
        assert _count is not None
        with _count.get_lock():
            _count.value += pictures

    return run_job(job, add)


def plan_jobs(out: Path, request: Request, layout: Layout) -> list[Job]:
    """Share the locations out over the maps; each job draws some locations of one map."""
    settings = Settings(
        str(out), layout.name, request.seed, request.image_size, request.views or layout.views, request.strengths
    )
    roles = layout.assign(request.locations, np.random.default_rng([request.seed, 3]))
    jobs: list[Job] = []
    first = 0
    for number, (source, count) in enumerate(_sources(request, layout)):
        sites = [Site(location_name(layout, first + i), roles[first + i], first + i, i) for i in range(count)]
        first += count
        shots_each = len(layout.shots("0", roles[0], settings.views, layout.framing, np.random.default_rng(0)))
        size = max(math.ceil(400 / shots_each), 1)
        for start in range(0, count, size):
            part = tuple(sites[start : start + size])
            jobs.append(
                Job(
                    source,
                    number,
                    part,
                    settings,
                    request.spacing or layout.spacing,
                    shots_each,
                    request.maps and start == 0,
                )
            )
    return jobs


def _sources(request: Request, layout: Layout) -> list[tuple[Source, int]]:
    """The maps and the number of locations each carries."""
    spacing = request.spacing or layout.spacing
    if request.sources == ("procedural",):
        per_edge = max(int((request.extent - 1.12 * layout.framing.tile) / spacing) + 1, 1)
        most = max(int(0.55 * per_edge * per_edge), 1)
        count = request.regions or max(math.ceil(request.locations / most), min(request.locations, len(request.styles)))
        if count * most < request.locations:
            raise SkyPartError(
                f"{count} maps hold at most {count * most} locations; choose --locations {count * most} or fewer, "
                "a smaller --spacing, or leave --preset out"
            )
        order = np.random.default_rng([request.seed, 4]).permutation(len(request.styles))
        dates = 3 if layout.name == "denseuav" else 2
        regions: list[Source] = [
            Region(
                request.seed,
                i,
                request.styles[order[i % len(order)]],
                request.extent,
                request.gsd,
                request.strengths.changes,
                dates,
            )
            for i in range(count)
        ]
        shares = [request.locations // count + (i < request.locations % count) for i in range(count)]
        return list(zip(regions, shares, strict=True))
    return _share_rasters(request, layout, spacing)


def _share_rasters(request: Request, layout: Layout, spacing: float) -> list[tuple[Source, int]]:
    """Spread the locations over real maps in proportion to the sites each has."""
    found = _rasters(request)
    sources = [source for source in found if _wanted(source.name, request)]
    if not sources:
        raise SkyPartError(f"--skip and --only leave no map; there are {', '.join(s.name for s in found[:8])}, ...")
    names = [source.name for source in sources]
    double = next((name for name in names if names.count(name) > 1), None)
    if double:
        raise SkyPartError(f"{', '.join(request.sources)}: two maps are called {double}; rename one of the files")
    order = np.random.default_rng([request.seed, 4]).permutation(len(sources))
    sources = [sources[i] for i in order]
    room = []
    for source in sources:
        framing = fit(layout.framing, source.extent_m, layout.highest, source.margin_m)
        own = (edge - 2 * rim for edge, rim in zip(source.extent_m, source.margin_m, strict=True))
        if max(own) < framing.tile * 1.12 + spacing:
            room.append(1)
        else:
            seed = site_seed(request.seed, source.name)
            sites = find_sites(source.load(), spacing, framing.tile, seed, contrast=RASTER_CONTRAST)
            room.append(len(sites))
    if sum(room) < request.locations:
        raise SkyPartError(
            f"{', '.join(request.sources)}: room for {sum(room)} locations {spacing:.0f} m apart, not "
            f"{request.locations}; lower --locations or --spacing, or add rasters"
        )
    exact = np.asarray(room) * request.locations / sum(room)
    shares = np.floor(exact).astype(int)
    for index in np.argsort(shares - exact, kind="stable")[: request.locations - int(shares.sum())]:
        shares[index] += 1
    return [(source, int(share)) for source, share in zip(sources, shares, strict=True) if share]


def _rasters(request: Request) -> list[RasterSource]:
    """All real maps of the request, those that take no part included."""
    how = {"surround": request.surround, "guess_heights": request.guess_heights}
    return [source for path in request.sources for source in find_sources(Path(path), request.seed, **how)]


def _wanted(name: str, request: Request) -> bool:
    """Whether a real map takes part, by the beginning of its name."""
    return not name.startswith(request.skip or ("\0",)) and name.startswith(request.only or ("",))


def _describe(request: Request, rasters: dict[str, str], complete: bool) -> str:
    """What world.json says: the request, the version, and how the views were framed."""
    framing = asdict(LAYOUTS[request.like].framing)
    content = {
        "made_by": f"skypart {__version__}",
        "request": asdict(request),
        "framing": framing,
        "rasters": rasters,
        "complete": complete,
    }
    return json.dumps(content, indent=1, default=list) + "\n"


def _look_into(out: Path, request: Request, rasters: dict[str, str]) -> bool:
    """Whether the folder holds this request's data set, finished; say so if it holds something else."""
    note = out / "world.json"
    if not note.is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise SkyPartError(f"{out}: is not empty and holds no world.json; choose a new folder")
        return False
    mine = json.loads(_describe(request, rasters, complete=False))["request"]
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        theirs, complete = LATER | content["request"], content["complete"]
        drawn_from = content.get("rasters", rasters)  # older ones did not tell
    except (ValueError, KeyError) as error:
        raise SkyPartError(f"{note}: cannot be read ({error}); choose another folder") from error
    if mine != theirs:
        raise SkyPartError(f"{out}: holds a world made with other options (see world.json); choose another folder")
    if rasters != drawn_from:
        raise SkyPartError(f"{out}: holds a world made when the rasters were others; choose another folder")
    return bool(complete)


def _sketches(request: Request) -> dict[str, str]:
    """Path -> what tells a raster from the one that stood there before: its size and a hash of some of its bytes."""
    if "procedural" in request.sources:
        return {}
    found = _rasters(request)
    wanted = [source for source in found if _wanted(source.name, request)]
    files = {file for source in wanted for file in (*source.files, source.surface, *chain(*source.around))}
    return {str(file): _sketch(file) for file in sorted(file for file in files if file is not None)}


def _sketch(file: Path) -> str:
    try:
        size, digest = file.stat().st_size, hashlib.blake2b(digest_size=8)
        with file.open("rb") as content:
            for start in (0, size // 2, max(size - SKETCH_BYTES, 0)):
                content.seek(start)
                digest.update(content.read(SKETCH_BYTES))
    except OSError as error:
        raise SkyPartError(f"{file}: cannot be read ({error.strerror or error}); check the path") from error
    return f"{size} {digest.hexdigest()}"


def _expected(jobs: list[Job], layout: Layout) -> Iterator[str]:
    """Paths of all pictures and maps, relative to the data set."""
    for job in jobs:
        if job.write_map:
            yield f"maps/{job.source.name}.tif"
        for site in job.sites:
            views = job.settings.views
            for shot in layout.shots(site.name, site.role, views, layout.framing, np.random.default_rng(0)):
                yield from shot.paths


def _lists(layout: Layout) -> tuple[str, ...]:
    """Paths of what stands beside the pictures, relative to the data set."""
    beside = {
        "sues200": ["train_ids.txt"],
        "free": ["positions.csv"],
        "denseuav": [f"Dense_GPS_{part}.txt" for part in ("train", "test", "ALL")],
    }
    return ("poses.csv", *beside.get(layout.name, ()))


def _write_poses(path: Path, rows: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, POSE_FIELDS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(row for row in rows if row["view"] == "drone")
    write_text(path, text.getvalue())


def _write_lists(out: Path, request: Request, layout: Layout, rows: list[dict[str, str]]) -> None:
    """What stands beside the pictures: training ids of SUES-200, empty street folders, positions, GPS of DenseUAV."""
    roles = layout.assign(request.locations, np.random.default_rng([request.seed, 3]))
    names = [location_name(layout, index) for index in range(request.locations)]
    if layout.name == "sues200":
        write_text(out / "train_ids.txt", "".join(f"{n}\n" for n, r in zip(names, roles, strict=True) if r == "train"))
    if layout.name == "free":
        drones = [row for row in rows if row["view"] == "drone"]
        places = [f"{row['path']},{row['target_lon']},{row['target_lat']},{row['altitude_m']}\n" for row in drones]
        write_text(out / "positions.csv", "path,longitude,latitude,altitude\n" + "".join(places))
    if layout.name == "university1652":
        for name, role in zip(names, roles, strict=True):
            for view in ("street", "google") if role == "train" else ():
                (out / "train" / view / name).mkdir(parents=True, exist_ok=True)
    if layout.name == "denseuav":
        lines = {part: [line for row in rows for line in gps_lines(row, part)] for part in ("train", "test")}
        write_text(out / "Dense_GPS_train.txt", "".join(lines["train"]))
        write_text(out / "Dense_GPS_test.txt", "".join(lines["test"]))
        write_text(out / "Dense_GPS_ALL.txt", "".join(lines["train"] + lines["test"]))


def gps_lines(row: dict[str, str], part: str) -> list[str]:
    """Lines `path E<lon> N<lat> <height>` of one picture in DenseUAV's lists."""
    return [
        f"{path} E{row['target_lon']} N{row['target_lat']} {row['altitude_m']}\n"
        for path in row["all_paths"].split("|")
        if path.startswith(part)
    ]
