"""Render a data set in a benchmark layout: plan the locations, render them in processes, write maps and poses."""

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
from skypart.datasets.registry import find_rendering
from skypart.datasets.rendering import WORLD_FILE, Rendering
from skypart.errors import SkyPartError
from skypart.progress import progress_bar
from skypart.signals import handle_signals
from skypart.version import __version__
from skypart.worlds.jobs import POSE_FIELDS, Job, Settings, Site, Source, run_job
from skypart.worlds.procedural import Region
from skypart.worlds.rasters import find_sources
from skypart.worlds.request import Request
from skypart.worlds.sites import RASTER_CONTRAST, find_sites, fit_framing, site_seed
from skypart.worlds.sources import RasterSource

FINGERPRINT_BYTES = 65536
ADDED_OPTIONS: dict[str, object] = {"surround": False, "guess_heights": False}
"""Defaults of options that older versions did not have."""

_count: "Synchronized[int] | None" = None
"""In a worker process: number of images finished by all workers."""
_exiting = False
"""In a worker process: whether it has got a SIGTERM."""


def make_world(out: Path, request: Request, workers: int = 1) -> None:
    """Write the data set to `out`; the same request gives the same bytes for any number of workers.

    Existing images are kept, so a stopped run resumes when it is started again.
    """
    rendering = find_rendering(request.like)
    rasters = _fingerprints(request)
    complete = _is_complete(out, request, rasters)
    jobs = plan_jobs(out, request, rendering)
    expected = (*_expected_paths(jobs, rendering), "poses.csv", *rendering.extra_files)
    if complete and all((out / path).is_file() for path in expected):
        return
    write_text(out / WORLD_FILE, _world_json(request, rasters, complete=False))
    rows: list[dict[str, str]] = []
    total = sum(len(job.sites) * job.shots_each for job in jobs)
    with handle_signals(signal.default_int_handler, signal.SIGTERM), progress_bar() as bar:
        task = bar.add_task("rendering", total=total)
        for finished in _run(jobs, workers, lambda done: bar.update(task, completed=done)):
            rows += finished
    rows.sort(key=lambda row: row["path"])
    _write_poses(out / "poses.csv", rows)
    rendering.write_extra_files(out, dict(_locations(request, rendering)), rows)
    write_text(out / WORLD_FILE, _world_json(request, rasters, complete=True))
    for note in (out / ".work").glob("*.json"):
        note.unlink()
    if (out / ".work").is_dir():
        (out / ".work").rmdir()


def _run(jobs: list[Job], workers: int, report: Callable[[int], None]) -> Iterator[list[dict[str, str]]]:
    """Run all jobs in `workers` processes and yield their results; `report` gets the number of finished images."""
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    if workers <= 1:
        done = 0

        def add(images: int) -> None:
            nonlocal done
            done += images
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
                            "a rendering process was killed, probably because memory ran out; run the same command "
                            "again with --workers 1 to resume"
                        ) from None
            report(count.value)
            yield rows
        pool.close()  # let the workers exit by themselves: SIGTERM during their exit would print an error
        pool.join()


def _start_worker(count: "Synchronized[int]") -> None:
    """Ignore Ctrl-C (the parent handles it), exit on SIGTERM without holding a lock, and store the image counter."""
    global _count
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_once)
    _count = count


def _exit_once(*_: object) -> None:
    """Exit on the first SIGTERM; a second one, during the exit, is ignored."""
    global _exiting
    if not _exiting:
        _exiting = True
        sys.exit()


def _run_in_worker(job: Job) -> list[dict[str, str]]:
    def add(images: int) -> None:
        assert _count is not None
        with _count.get_lock():
            _count.value += images

    return run_job(job, add)


def plan_jobs(out: Path, request: Request, rendering: Rendering) -> list[Job]:
    """Distribute the locations over the maps; each job renders some locations of one map."""
    settings = Settings(
        str(out), rendering, request.seed, request.image_size, request.views or rendering.views, request.strengths
    )
    locations = _locations(request, rendering)
    example = rendering.shots("0", locations[0][1], settings.views, rendering.framing, np.random.default_rng(0))
    shots_each = len(example)
    size = max(math.ceil(400 / shots_each), 1)
    jobs: list[Job] = []
    first = 0
    for number, (source, count) in enumerate(_sources(request, rendering)):
        sites = [Site(*locations[first + i], first + i, i) for i in range(count)]
        first += count
        for start in range(0, count, size):
            part = tuple(sites[start : start + size])
            jobs.append(
                Job(
                    source,
                    number,
                    part,
                    settings,
                    request.spacing or rendering.spacing,
                    shots_each,
                    request.maps and start == 0,
                )
            )
    return jobs


def _locations(request: Request, rendering: Rendering) -> list[tuple[str, str]]:
    """(name, role) of every location."""
    roles = rendering.assign_roles(request.locations, np.random.default_rng([request.seed, 3]))
    return [(rendering.location_name(index), role) for index, role in enumerate(roles)]


def _sources(request: Request, rendering: Rendering) -> list[tuple[Source, int]]:
    """The maps and the number of locations on each."""
    spacing = request.spacing or rendering.spacing
    if request.sources == ("procedural",):
        per_edge = max(int((request.extent - 1.12 * rendering.framing.tile) / spacing) + 1, 1)
        most = max(int(0.55 * per_edge * per_edge), 1)
        count = request.regions or max(math.ceil(request.locations / most), min(request.locations, len(request.styles)))
        if count * most < request.locations:
            raise SkyPartError(
                f"{count} maps have room for {count * most} locations; choose --locations {count * most} or fewer, "
                "a smaller --spacing, or leave --preset out"
            )
        order = np.random.default_rng([request.seed, 4]).permutation(len(request.styles))
        regions: list[Source] = [
            Region(
                request.seed,
                i,
                request.styles[order[i % len(order)]],
                request.extent,
                request.gsd,
                request.strengths.changes,
                rendering.dates,
            )
            for i in range(count)
        ]
        shares = [request.locations // count + (i < request.locations % count) for i in range(count)]
        return list(zip(regions, shares, strict=True))
    return _share_rasters(request, rendering, spacing)


def _share_rasters(request: Request, rendering: Rendering, spacing: float) -> list[tuple[Source, int]]:
    """Distribute the locations over real maps in proportion to their number of sites."""
    found = _rasters(request)
    sources = [source for source in found if _is_selected(source.name, request)]
    if not sources:
        raise SkyPartError(
            f"--skip and --only exclude every map; there are {', '.join(s.name for s in found[:8])}, ..."
        )
    names = [source.name for source in sources]
    double = next((name for name in names if names.count(name) > 1), None)
    if double:
        raise SkyPartError(f"{', '.join(request.sources)}: two maps have the name {double}; rename one of the files")
    order = np.random.default_rng([request.seed, 4]).permutation(len(sources))
    sources = [sources[i] for i in order]
    room = []
    for source in sources:
        framing = fit_framing(rendering.framing, source.extent_m, rendering.highest, source.margin_m)
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
    """All real maps of the request, including those that --skip and --only exclude."""
    options = {"surround": request.surround, "guess_heights": request.guess_heights}
    return [source for path in request.sources for source in find_sources(Path(path), request.seed, **options)]


def _is_selected(name: str, request: Request) -> bool:
    """Whether --skip and --only select a real map, by the prefix of its name."""
    return not name.startswith(request.skip or ("\0",)) and name.startswith(request.only or ("",))


def _world_json(request: Request, rasters: dict[str, str], complete: bool) -> str:
    """The content of world.json: version, request, framing, and fingerprints of the rasters."""
    framing = asdict(find_rendering(request.like).framing)
    content = {
        "made_by": f"skypart {__version__}",
        "request": asdict(request),
        "framing": framing,
        "rasters": rasters,
        "complete": complete,
    }
    return json.dumps(content, indent=1, default=list) + "\n"


def _is_complete(out: Path, request: Request, rasters: dict[str, str]) -> bool:
    """Whether `out` has the finished data set of this request; raises if it has something else."""
    note = out / WORLD_FILE
    if not note.is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise SkyPartError(f"{out}: is not empty and has no world.json; choose a new folder")
        return False
    wanted = json.loads(_world_json(request, rasters, complete=False))["request"]
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        found, complete = ADDED_OPTIONS | content["request"], content["complete"]
        used = content.get("rasters", rasters)  # older versions did not store them
    except (ValueError, KeyError) as error:
        raise SkyPartError(f"{note}: cannot be read ({error}); choose another folder") from error
    if wanted != found:
        raise SkyPartError(f"{out}: has a world made with other options (see world.json); choose another folder")
    if rasters != used:
        raise SkyPartError(f"{out}: has a world made from other versions of the rasters; choose another folder")
    return bool(complete)


def _fingerprints(request: Request) -> dict[str, str]:
    """Path -> fingerprint of each raster file: its size and a hash of some of its bytes."""
    if "procedural" in request.sources:
        return {}
    found = _rasters(request)
    wanted = [source for source in found if _is_selected(source.name, request)]
    files = {file for source in wanted for file in (*source.files, source.surface, *chain(*source.around))}
    return {str(file): _fingerprint(file) for file in sorted(file for file in files if file is not None)}


def _fingerprint(file: Path) -> str:
    try:
        size, digest = file.stat().st_size, hashlib.blake2b(digest_size=8)
        with file.open("rb") as content:
            for start in (0, size // 2, max(size - FINGERPRINT_BYTES, 0)):
                content.seek(start)
                digest.update(content.read(FINGERPRINT_BYTES))
    except OSError as error:
        raise SkyPartError(f"{file}: cannot be read ({error.strerror or error}); check the path") from error
    return f"{size} {digest.hexdigest()}"


def _expected_paths(jobs: list[Job], rendering: Rendering) -> Iterator[str]:
    """Paths of all images and maps, relative to the data set."""
    for job in jobs:
        if job.write_map:
            yield f"maps/{job.source.name}.tif"
        for site in job.sites:
            views = job.settings.views
            for shot in rendering.shots(site.name, site.role, views, rendering.framing, np.random.default_rng(0)):
                yield from shot.paths


def _write_poses(path: Path, rows: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, POSE_FIELDS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(row for row in rows if row["view"] == "drone")
    write_text(path, text.getvalue())
