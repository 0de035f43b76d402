"""Ten million views in an IVF-PQ index of 64-byte codes with the float16 vectors on disk: recall@10 and latency.

    python benchmarks/scale_vectors.py --index real.skyindex            writes docs/results/scale-vectors.md and .json
    python benchmarks/scale_vectors.py --index real.skyindex --views 200000 --out /tmp/scale-vectors.md
    python benchmarks/scale_vectors.py --page                           writes the page again from the .json

The views are those of a real index, repeated and perturbed: each row is one embedded view, plus a part of the
difference of two others, plus noise, so that it has a cosine of about 0.8 with the view it comes from. Queries have a
cosine of 0.7 with a row. The truth is an exact search over all rows. Two threads build; single queries on one thread.
The exact search of a single query, and that with a prior area, are those of the embedded store, over the same rows.
Percentiles are given by the clock and of the processor: other work on the machine does not add to the latter.
"""

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import faiss
import numpy as np
from benchmarks.page import write_page
from numpy.typing import NDArray

from skypart.atomic import write_text
from skypart.maps.manifest import IndexManifest
from skypart.maps.store import Circle, Within
from skypart.maps.store.approximate import search_snapshot
from skypart.maps.store.manifest import FileRecord, SegmentRecord, StoreManifest
from skypart.maps.store.segment import Segment
from skypart.maps.store.snapshot import StoreSnapshot
from skypart.training.checkpoint import code_version

Rows = NDArray[np.float32]
T = TypeVar("T")
BLOCK = 100_000
QUERIES, EXACT_QUERIES = 100, 5
K = 10
PLACE_DEG, AREA_M = 0.0009, 3_000.0
"""Rows lie in a square grid, 100 m apart; a prior area has a radius of 3 km."""
CODES = "PCA128,IVF{lists},PQ128x4fs"
PROBES = (16, 64, 256)
RERANKED = (0, 200, 1000)


def unit(rows: Rows) -> Rows:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def read_views(index: Path) -> Rows:
    files = sorted((index / "store").glob("*.vectors.npy"))
    return unit(np.concatenate([np.load(file).astype(np.float32) for file in files]))


def draw_rows(base: Rows, noise: Rows, count: int, rng: np.random.Generator) -> NDArray[np.float16]:
    """Rows with a cosine of about 0.8 with a view; noise (m, d): unit rows, two of which are added to each."""
    one, two, three = (rng.integers(len(base), size=count) for _ in range(3))
    rows = base[one] + 0.45 * (base[two] - base[three])
    rows += 0.25 * (noise[rng.integers(len(noise), size=count)] + noise[rng.integers(len(noise), size=count)])
    return unit(rows).astype(np.float16)


def draw_queries(rows: Rows, base: Rows, rng: np.random.Generator) -> Rows:
    """Queries of cosine 0.7 with rows; the rest is half noise and half differences of views."""
    other = unit(rng.standard_normal(rows.shape, dtype=np.float32))
    other += unit(base[rng.integers(len(base), size=len(rows))] - base[rng.integers(len(base), size=len(rows))] + 1e-6)
    other -= np.einsum("ij,ij->i", other, rows)[:, None] * rows
    return unit(0.7 * rows + 0.51**0.5 * unit(other))


def make_rows(base: Rows, views: int, file: Path) -> Any:
    rng = np.random.default_rng(1)
    noise = unit(rng.standard_normal((8192, base.shape[1]), dtype=np.float32))
    stored = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=(views, base.shape[1]))
    for first in range(0, views, BLOCK):
        stored[first : first + BLOCK] = draw_rows(base, noise, min(BLOCK, views - first), rng)
        print(f"made {first + BLOCK:,}", flush=True)
    stored.flush()
    return np.load(file, mmap_mode="r")


class Truth:
    """The exact answer, kept up to date as rows are added. places (q, K): the best rows so far."""

    def __init__(self, queries: Rows) -> None:
        self.queries = queries
        self.best = np.full((len(queries), K), -np.inf, dtype=np.float32)
        self.places = np.full((len(queries), K), -1, dtype=np.int64)

    def add(self, block: Rows, first: int) -> None:
        """Take in the rows that begin at number `first`."""
        scores = self.queries @ block.T
        keep = np.argpartition(scores, -K, axis=1)[:, -K:]
        every = np.concatenate([self.best, np.take_along_axis(scores, keep, 1)], axis=1)
        known = np.concatenate([self.places, keep + first], axis=1)
        keep = np.argpartition(every, -K, axis=1)[:, -K:]
        self.best, self.places = np.take_along_axis(every, keep, 1), np.take_along_axis(known, keep, 1)


def search(codes: Any, stored: Any, query: Rows, probes: int, reranked: int) -> NDArray[np.int64]:
    """The ten best rows by the codes, or the ten best of `reranked` by their vectors on disk."""
    lists: Any = faiss.SearchParametersIVF()
    lists.nprobe = probes
    parameters: Any = faiss.SearchParametersPreTransform()
    parameters.index_params = lists
    found: NDArray[np.int64] = codes.search(query[None], reranked or K, params=parameters)[1][0]
    if not reranked:
        return found
    found = np.sort(found[found >= 0])
    scores = stored[found].astype(np.float32) @ query
    return found[np.argsort(-scores)[:K]]


class Stopwatch:
    """Times of single calls: pairs of milliseconds by the clock and of the processor."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def time(self, call: Callable[[], T]) -> T:
        """The result of `call`, whose time is kept."""
        start, work = time.perf_counter(), time.process_time()
        result = call()
        self.spans.append((1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - work)))
        return result

    def summary(self) -> dict[str, float]:
        """Median and 99th percentile of both."""
        (p50, cpu_p50), (p99, cpu_p99) = np.percentile(self.spans, [50, 99], axis=0)
        return {"p50_ms": float(p50), "p99_ms": float(p99), "cpu_p50_ms": float(cpu_p50), "cpu_p99_ms": float(cpu_p99)}


def measure(codes: Any, stored: Any, queries: Rows, truth: NDArray[np.int64]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for probes in PROBES:
        for reranked in RERANKED:
            watch, shared = Stopwatch(), 0
            for query, wanted in zip(queries, truth, strict=True):
                found = watch.time(partial(search, codes, stored, query, probes, reranked))
                shared += len(set(found.tolist()) & set(wanted.tolist()))
            results.append({"probes": probes, "reranked": reranked, "recall": shared / truth.size, **watch.summary()})
            print(results[-1], flush=True)
    return results


def as_snapshot(stored: Any) -> StoreSnapshot:
    """The rows as a store of one mapped segment."""
    count, dimension = stored.shape
    south, east = np.divmod(np.arange(count), int(np.ceil(count**0.5)))
    table = np.column_stack([south * PLACE_DEG, east * PLACE_DEG, np.full(count, 100.0), np.zeros(count)])
    file = FileRecord(name="rows.npy", bytes=stored.nbytes, sha256="0" * 64)
    record = SegmentRecord(map_name="rows", rows=((0, count),), vectors=file, footprints=file)
    segment = Segment(Path(file.name), record, stored, np.asfortranarray(table), stored._mmap)
    return StoreSnapshot(StoreManifest(dimension=dimension, next_row=count, segments=(record,)), [segment])


def measure_store(snapshot: StoreSnapshot, queries: Rows, truth: NDArray[np.int64]) -> dict[str, Any]:
    """Times of the embedded store's own searches, of all rows and with a prior area."""
    exact, area, rng, counts = Stopwatch(), Stopwatch(), np.random.default_rng(3), []
    for query, wanted in zip(queries[:EXACT_QUERIES], truth, strict=False):
        hits = exact.time(partial(search_snapshot, snapshot, None, query[None], K))[0]
        assert len({hit.row for hit in hits} & set(wanted.tolist())) >= K - 1  # ties may differ in float32
    edge = float(snapshot.segments[0].footprints[-1, 0])
    for query in queries:
        south, east = rng.uniform(0.1, 0.9, size=2) * edge
        within: Within = Circle(latitude=south, longitude=east, radius_m=AREA_M)
        area.time(partial(search_snapshot, snapshot, None, query[None], K, within))
        counts.append(len(snapshot.positions_within(within)))
    return {"exact": exact.summary(), "area": area.summary(), "area_views": float(np.mean(counts))}


def times(found: dict[str, float]) -> str:
    """Table cells of a summary of a stopwatch."""
    return " | ".join(f"{found[name]:,.1f}" for name in ("p50_ms", "p99_ms", "cpu_p50_ms", "cpu_p99_ms"))


def page(summary: dict[str, Any]) -> list[str]:
    """The lines of the page."""
    heading = "p50, ms | p99, ms | p50 of the processor, ms | p99 of the processor, ms |"
    loads = ", ".join(f"{name} {load:.1f}" for name, load in summary["load"].items())
    return [
        f"# {summary['views']:,} views in 64-byte codes",
        "",
        f"Rows of {summary['dimension']} numbers, made from {summary['embedded_views']:,} embedded views of real maps: "
        f"{', '.join(summary['maps'])}.",
        "Each row is an embedded view, perturbed to a cosine of about 0.8. Queries have a cosine of 0.7 with a row.",
        "",
        "## Codes",
        f"FAISS `{summary['codes']}`, in memory; the float16 vectors lie in a mapped file on disk.",
        f"Codes: {summary['codes_bytes'] / 1e9:.2f} GB. Vectors: {summary['vectors_bytes'] / 1e9:.1f} GB.",
        f"Training took {summary['training_s']:.0f} s of the processor, adding {summary['adding_s']:.0f} s.",
        f"{QUERIES} single queries, each on one thread:",
        "",
        f"| lists visited | vectors read to rank again | recall@10 | {heading}",
        "|---:|---:|---:|---:|---:|---:|---:|",
        *(f"| {r['probes']} | {r['reranked']} | {r['recall']:.3f} | {times(r)} |" for r in summary["results"]),
        "",
        "## Exact",
        "Single queries to the embedded store's own search over the same rows, each on one thread.",
        f"A prior area of 3 km has {summary['area_views']:,.0f} views.",
        "",
        f"| search | queries | {heading}",
        "|---|---:|---:|---:|---:|---:|",
        f"| of all views | {EXACT_QUERIES} | {times(summary['exact'])} |",
        f"| with a prior area | {QUERIES} | {times(summary['area'])} |",
        "",
        "## Load",
        f"Load average, this run included: {loads}. The machine has {summary['cores']} cores.",
        "Times by the clock include waiting for other work and for the disk. The page cache was as the run left it.",
        f"Measured with {summary['measured_with']}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", type=Path, help="index whose views are repeated")
    parser.add_argument("--views", default="10000000", help="numbers of views to measure at, separated by commas")
    parser.add_argument("--lists", type=int, default=1024)
    parser.add_argument("--rows", type=Path, default=None, help="file of rows: made if missing, kept for another run")
    parser.add_argument("--out", type=Path, default=Path("docs/results/scale-vectors.md"))
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page again")
    options = parser.parse_args()
    if options.page:
        write_page(options.out, page(json.loads(options.out.with_suffix(".json").read_text())))
        return
    if options.index is None:
        parser.error("--index is needed to measure")
    base = read_views(options.index)
    load = {"at the start": os.getloadavg()[0]}
    stages = sorted(int(part) for part in options.views.split(","))
    with tempfile.TemporaryDirectory() as folder:
        file = options.rows or Path(folder) / "rows.npy"
        stored = np.load(file, mmap_mode="r") if file.is_file() else make_rows(base, stages[-1], file)
        rng = np.random.default_rng(2)
        chosen = np.sort(rng.choice(stages[0], QUERIES, replace=False))
        truth = Truth(draw_queries(unit(stored[chosen].astype(np.float32)), base, rng))
        codes = faiss.index_factory(base.shape[1], CODES.format(lists=options.lists), faiss.METRIC_INNER_PRODUCT)
        start = time.process_time()
        codes.train(np.asarray(stored[: 24 * options.lists]).astype(np.float32))  # rows are in random order
        training, adding = time.process_time() - start, 0.0
        for first in range(0, stages[-1], BLOCK):
            block = np.asarray(stored[first : min(first + BLOCK, stages[-1])]).astype(np.float32)
            start = time.process_time()
            codes.add(block)
            adding += time.process_time() - start
            truth.add(block, first)
            done = first + len(block)
            print(f"added {done:,}, {adding:.0f} s", flush=True)
            if done not in stages:
                continue
            faiss.write_index(codes, str(Path(folder) / "codes.faiss"))
            faiss.omp_set_num_threads(1)
            load["before the queries"] = os.getloadavg()[0]
            results = measure(codes, stored, truth.queries, truth.places)
            load["before the exact searches"] = os.getloadavg()[0]
            summary = measure_store(as_snapshot(stored[:done]), truth.queries, truth.places)
            load["at the end"] = os.getloadavg()[0]
            summary |= {
                "views": done,
                "dimension": base.shape[1],
                "embedded_views": len(base),
                "maps": [entry.name for entry in IndexManifest.read(options.index).maps],
                "codes": CODES.format(lists=options.lists),
                "codes_bytes": (Path(folder) / "codes.faiss").stat().st_size,
                "vectors_bytes": done * base.shape[1] * 2,
                "training_s": training,
                "adding_s": adding,
                "results": results,
                "load": load,
                "cores": os.cpu_count(),
                "measured_with": f"`python {shlex.join(sys.argv)}` and skypart {code_version()}",
            }
            write_text(options.out.with_suffix(".json"), json.dumps(summary, indent=1) + "\n")
            write_page(options.out, page(summary))
            faiss.omp_set_num_threads(2)


if __name__ == "__main__":
    main()
