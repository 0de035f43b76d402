"""Speed, memory and recall of the store of views, compared with plain FAISS in the same run.

    python benchmarks/store.py                        writes docs/results/store-speed.md
    python benchmarks/store.py --views 20000 --out /tmp/store.md      a quick look

100,000 and 1,000,000 views of 768 numbers (see store_views.py), on one core. Single queries alternate between the
engines, so that all see the same load of the machine; memory is that of a process that does nothing else.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import faiss
import numpy as np
from benchmarks.store_views import Rows, draw_photos, draw_views, make_land
from numpy.typing import NDArray

from skypart.atomic import write_text
from skypart.maps.store import Circle, ViewBatch, approximate
from skypart.maps.store.embedded import EmbeddedStore

ROOT = Path(__file__).resolve().parents[1]
DIMENSION = 768
BATCH = 50_000
K = 10
MANY = 1_000
WANTED = 1.2
IN_CIRCLE = "store, exact, in a circle of 3 km"
Search = Callable[[Rows], object]


def sq_index() -> Any:
    """FAISS's own exact search over float16."""
    index: Any = faiss.IndexScalarQuantizer(DIMENSION, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    index.train(np.zeros((1, DIMENSION), dtype=np.float32))
    return index


def build(views: int, folder: Path) -> tuple[EmbeddedStore, dict[str, Any], dict[str, float], Rows]:
    """Fill the store and FAISS indexes with the same views: (store, indexes, seconds of adding, some views)."""
    land, rng = make_land(DIMENSION), np.random.default_rng(1)
    indexes: dict[str, Any] = {"FAISS SQfp16": sq_index(), "FAISS Flat float32": faiss.IndexFlatIP(DIMENSION)}
    store = EmbeddedStore(folder)
    seconds = dict.fromkeys(["store", *indexes], 0.0)
    some = []
    for first in range(0, views, BATCH):
        rows = draw_views(land, min(BATCH, views - first), rng)
        some.append(rows[:: max(1, views // (2 * MANY))])
        place = np.arange(first, first + len(rows))
        table = np.column_stack([place // 1000 * 1e-3, place % 1000 * 1e-3, np.full(len(rows), 100.0), 0.0 * place])
        start = time.perf_counter()
        store.add(ViewBatch("town", rows.astype(np.float16), table))
        seconds["store"] += time.perf_counter() - start
        for name, index in indexes.items():
            start = time.perf_counter()
            index.add(rows)
            seconds[name] += time.perf_counter() - start
        print(f"{first + len(rows):,} views", flush=True)
    return store, indexes, seconds, np.concatenate(some)


def in_turns(engines: dict[str, Search], queries: Rows) -> dict[str, NDArray[np.float64]]:
    """(queries, 2) milliseconds of each single query by the clock and of the processor, after a few uncounted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    for query in [*queries[:5], *queries]:
        for name, search in engines.items():
            start, work = time.perf_counter(), time.process_time()
            search(query[None])
            times[name].append((1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - work)))
    return {name: np.array(spans[5:]) for name, spans in times.items()}


def many_at_once(engines: dict[str, Search], queries: Rows) -> dict[str, tuple[float, float]]:
    """Seconds of all queries in one call, by the clock and of the processor."""
    spans = {}
    for name, search in engines.items():
        start, work = time.perf_counter(), time.process_time()
        search(queries)
        spans[name] = (time.perf_counter() - start, time.process_time() - work)
        print(f"{name}: {len(queries)} queries in {spans[name][0]:.1f} s", flush=True)
    return spans


def memory_of(name: str, folder: Path) -> tuple[float, float]:
    """(peak, own) megabytes of a process that opens or loads the views and searches them; own: not of mapped files."""
    run = subprocess.run(
        [sys.executable, __file__, "--memory", name, "--folder", str(folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    peak, own = json.loads(run.stdout.splitlines()[-1])
    return peak, own


def report_memory(name: str, folder: Path) -> None:
    """In a process of its own: search once with one and once with many queries, and print its memory."""

    def status() -> dict[str, float]:
        lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
        return {line[0]: float(line[1]) / 1e3 for line in lines if line[-1] == "kB"}

    queries = draw_views(make_land(DIMENSION), MANY, np.random.default_rng(5))
    before = status()
    if name.startswith("store"):
        store = EmbeddedStore(folder)
        exact = "approximate" not in name
        store.search(queries[:1], K, exact=exact)
        store.search(queries, K, exact=exact)
    else:
        index: Any = faiss.IndexFlatIP(DIMENSION) if "Flat" in name else sq_index()
        for file in sorted(folder.glob("*.vectors.npy")):
            rows = np.load(file, mmap_mode="r")
            for first in range(0, len(rows), 4_096):
                index.add(rows[first : first + 4_096].astype(np.float32))
            del rows
        index.search(queries[:1], K)
        index.search(queries[: MANY // 10], K)
    after = status()
    print(json.dumps([after["VmHWM:"] - before["VmRSS:"], after["RssAnon:"] - before["RssAnon:"]]))


def recall(found: list[Any], best: list[Any]) -> float:
    """Share of the exact ten best that were found."""
    pairs = zip(found, best, strict=True)
    return float(np.mean([len({h.row for h in f} & {h.row for h in b}) / len(b) for f, b in pairs]))


def measure(views: int, single: int, folder: Path) -> list[str]:
    """Everything for one size: lines of markdown."""
    store, indexes, adding, some = build(views, folder)
    land, rng = make_land(DIMENSION), np.random.default_rng(2)
    photos = draw_photos(land, some[rng.permutation(len(some))[:MANY]], 0.7, rng)
    near = Circle(latitude=0.02, longitude=0.5, radius_m=3_000.0)
    engines: dict[str, Search] = {"store, exact": lambda q: store.search(q, K, exact=True)}
    engines |= {name: partial(index.search, k=K) for name, index in indexes.items()}
    engines[IN_CIRCLE] = lambda q: store.search(q, K, near)
    start = time.perf_counter()
    tuned = store.optimize()
    building = time.perf_counter() - start
    more = []
    if tuned is not None:
        engines["store, approximate"] = lambda q: store.search(q, K)
        more = approximate_lines(store, land, some, tuned, building)
    singles, many = in_turns(engines, photos[:single]), many_at_once(engines, photos)
    memory = {name: memory_of(name, folder) for name in engines if name != IN_CIRCLE}
    inside = len(store.search(photos[:1], views, near)[0])
    lines = [
        f"## {views:,} views x {DIMENSION}",
        "",
        *state_lines(store, indexes["FAISS SQfp16"], photos),
        f"Single queries: {single} per engine, alternating. The circle holds {inside:,} views.",
        "",
        *table({"store, exact": adding["store"], **adding}, singles, many, memory),
        "",
        *more,
    ]
    store.close()
    return lines


def state_lines(store: EmbeddedStore, index: Any, photos: Rows) -> list[str]:
    """Size on disk, time to open, and whether the store and FAISS agree."""
    start = time.perf_counter()
    again = EmbeddedStore(store.folder)
    opening = time.perf_counter() - start
    again.search(photos[:1], K)
    first = time.perf_counter() - start
    stats = again.stats()
    pairs = zip(store.search(photos[:100], K, exact=True), index.search(photos[:100], K)[1].tolist(), strict=True)
    same = np.mean([[hit.row for hit in hits] == rows for hits, rows in pairs])
    return [
        f"Segments: {stats.segments}; on disk: {stats.bytes / 1e6:.0f} MB. Opening: {1e3 * opening:.0f} ms; until "
        f"the first answer, including SHA-256 sums of the files if they are 2 GiB at most: {first:.2f} s.",
        "The ten best views of the store's exact search and of FAISS SQfp16 are the same, in the same order, for "
        f"{100 * same:.0f} % of 100 queries.",
    ]


def table(
    adding: dict[str, float],
    singles: dict[str, NDArray[np.float64]],
    many: dict[str, tuple[float, float]],
    memory: dict[str, tuple[float, float]],
) -> list[str]:
    """A row an engine."""
    rows = [
        "| engine | adding, s | p50, ms | p99, ms | CPU p50, ms | p50 / SQfp16 | CPU / SQfp16 | 1,000 queries, s "
        "| CPU, s | peak memory, MB | of that own, MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    reference = np.median(singles["FAISS SQfp16"], axis=0)
    for name, spans in singles.items():
        clock, work = np.median(spans, axis=0)
        cells = [f"{adding[name]:.1f}" if name in adding else ""]
        cells += [f"{value:.2f}" for value in (clock, np.percentile(spans[:, 0], 99), work)]
        cells += [f"{value:.2f}" for value in (clock / reference[0], work / reference[1], *many[name])]
        cells += [f"{value:.0f}" for value in memory[name]] if name in memory else ["", ""]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def approximate_lines(store: EmbeddedStore, land: Any, some: Rows, tuned: float, building: float) -> list[str]:
    """What the approximate cache finds, for queries that it was not tuned with."""
    rng = np.random.default_rng(3)
    settings = json.loads((store.folder / approximate.SETTINGS).read_text())
    size = (store.folder / approximate.CODES).stat().st_size / 1e6
    lines = [
        f"Approximate cache: built in {building:.0f} s, {size:.0f} MB; compares the codes around {settings['probes']} "
        f"centres and scores {settings['width']} views exactly; recall@10 of its tuning sample {tuned:.4f}. "
        "Recall@10 against the exact search:",
        "",
        "| 500 other queries | recall@10 | same best view |",
        "|---|---:|---:|",
    ]
    kinds = {"stored views": some[-500:]}
    kinds |= {f"cosine {c} with a view": draw_photos(land, some[-500:], c, rng) for c in (0.9, 0.7, 0.5, 0.4)}
    for name, queries in kinds.items():
        best, found = store.search(queries, K, exact=True), store.search(queries, K)
        first = np.mean([f[0].row == b[0].row for f, b in zip(found, best, strict=True)])
        lines.append(f"| {name} | {recall(found, best):.4f} | {first:.3f} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--single", type=int, default=200, help="single queries")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/results/store-speed.md")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        report_memory(arguments.memory, arguments.folder)
        return
    load, python = os.getloadavg()[0], platform.python_version()
    lines: list[str] = []
    for views in arguments.views:
        with tempfile.TemporaryDirectory() as scratch:
            lines += measure(views, arguments.single, Path(scratch))
    text = f"""# Speed of the store of views

Made by `python {" ".join(["benchmarks/store.py", *sys.argv[1:]])}` on {datetime.date.today().isoformat()}, one of
{os.cpu_count()} cores, {platform.machine()}; faiss {faiss.__version__}, numpy {np.__version__}, Python {python};
load average from other work {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end.
Target: a single query at 100,000 views takes at most {WANTED} times as long as FAISS SQfp16;
recall@10 of the approximate cache is 0.99.
The vectors imitate those of maps: 300 kinds of ground with unequal shares, nine overlapping views per place
(store_views.py).
Queries have a cosine of 0.7 with one of them. Engines take turns, query by query. Own memory excludes pages of mapped
files, which the system can reclaim.

{chr(10).join(lines)}"""
    write_text(arguments.out, text.rstrip() + "\n")
    print(text)


if __name__ == "__main__":
    main()
