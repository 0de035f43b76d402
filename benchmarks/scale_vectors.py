"""Ten million views in an IVF-PQ index of 64-byte codes with the float16 vectors on disk: recall@10 and latency.

    python benchmarks/scale_vectors.py --index real.skyindex            writes docs/results/scale-vectors.md and .json
    python benchmarks/scale_vectors.py --index real.skyindex --views 200000 --out /tmp/scale-vectors.md
    python benchmarks/scale_vectors.py --page                           writes the page again from the .json

The views are those of a real index, repeated and perturbed: each row is one embedded view, plus a part of the
difference of two others, plus noise, so that it has a cosine of about 0.8 with the view it comes from. Queries have a
cosine of 0.7 with a row. The truth is an exact search over all rows. Two threads build; single queries on one thread.
"""

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import faiss
import numpy as np
from benchmarks.page import write_page
from numpy.typing import NDArray

from skypart.atomic import write_text
from skypart.training.checkpoint import code_version

Rows = NDArray[np.float32]
BLOCK = 100_000
QUERIES = 100
K = 10
AREA = 2_000
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
        self.seconds = 0.0

    def add(self, block: Rows, first: int) -> None:
        """Take in the rows that begin at number `first`."""
        start = time.perf_counter()
        scores = self.queries @ block.T
        keep = np.argpartition(scores, -K, axis=1)[:, -K:]
        every = np.concatenate([self.best, np.take_along_axis(scores, keep, 1)], axis=1)
        known = np.concatenate([self.places, keep + first], axis=1)
        keep = np.argpartition(every, -K, axis=1)[:, -K:]
        self.best, self.places = np.take_along_axis(every, keep, 1), np.take_along_axis(known, keep, 1)
        self.seconds += time.perf_counter() - start


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


def measure(codes: Any, stored: Any, queries: Rows, truth: NDArray[np.int64]) -> list[dict[str, Any]]:
    results = []
    faiss.omp_set_num_threads(1)
    for probes in PROBES:
        for reranked in RERANKED:
            spans, shared = [], 0
            for query, wanted in zip(queries, truth, strict=True):
                start = time.perf_counter()
                found = search(codes, stored, query, probes, reranked)
                spans.append(1e3 * (time.perf_counter() - start))
                shared += len(set(found.tolist()) & set(wanted.tolist()))
            p50, p99 = np.percentile(spans, [50, 99])
            results.append(
                {
                    "probes": probes,
                    "reranked": reranked,
                    "recall": shared / truth.size,
                    "p50_ms": float(p50),
                    "p99_ms": float(p99),
                }
            )
            print(results[-1], flush=True)
    return results


def measure_area(stored: Any, queries: Rows) -> tuple[float, float]:
    """p50 and p99 milliseconds of scoring AREA rows that lie together on disk: a search with a prior area."""
    rng, spans = np.random.default_rng(3), []
    for query in queries:
        first = int(rng.integers(len(stored) - AREA))
        start = time.perf_counter()
        scores = stored[first : first + AREA].astype(np.float32) @ query
        np.argpartition(scores, -K)[-K:]
        spans.append(1e3 * (time.perf_counter() - start))
    p50, p99 = np.percentile(spans, [50, 99])
    return float(p50), float(p99)


def load_caveat(summary: dict[str, Any]) -> str:
    """What the load of the machine means for the times."""
    start, end = summary["load_at_start"], summary["load_at_end"]
    later = "fell during the run, to a value that was not recorded" if end is None else f"was {end:.1f} at the end"
    return (
        f"Load average from other work: {start:.1f} at the start, on {summary['cores']} cores. It {later}. "
        "Training, adding and the exact answer came before the table, so their times do not compare with it."
    )


def page(summary: dict[str, Any]) -> list[str]:
    """The lines of the page."""
    return [
        f"# {summary['views']:,} views in 64-byte codes",
        "",
        f"Rows of {summary['dimension']} numbers, made from {summary['embedded_views']:,} embedded views of real maps.",
        "Each row is an embedded view, perturbed to a cosine of about 0.8. Queries have a cosine of 0.7 with a row.",
        f"FAISS `{summary['codes']}`, in memory; the float16 vectors are in a memory-mapped file on disk.",
        f"Codes: {summary['codes_bytes'] / 1e9:.2f} GB. Vectors: {summary['vectors_bytes'] / 1e9:.1f} GB.",
        f"Training took {summary['training_s']:.0f} s, adding {summary['adding_s']:.0f} s by the clock.",
        f"The exact answer took {summary['exact_ms_a_query']:.0f} ms per query: the average over a batch of {QUERIES}, "
        "with two threads. [scale-model](scale-model.md) has the processor time of single queries.",
        "",
        "| lists visited | vectors read for re-ranking | recall@10 | p50, ms | p99, ms |",
        "|---:|---:|---:|---:|---:|",
        *(
            f"| {r['probes']} | {r['reranked']} | {r['recall']:.3f} | {r['p50_ms']:.1f} | {r['p99_ms']:.1f} |"
            for r in summary["results"]
        ),
        "",
        f"With a prior area of {AREA:,} views that are close together, scored exactly: p50 "
        f"{summary['area_p50_ms']:.1f} ms, "
        f"p99 {summary['area_p99_ms']:.1f} ms.",
        load_caveat(summary),
        "The machine was busy with other work. The page cache was warm from the run.",
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
    load = os.getloadavg()[0]
    stages = sorted(int(part) for part in options.views.split(","))
    with tempfile.TemporaryDirectory() as folder:
        file = options.rows or Path(folder) / "rows.npy"
        stored = np.load(file, mmap_mode="r") if file.is_file() else make_rows(base, stages[-1], file)
        rng = np.random.default_rng(2)
        chosen = np.sort(rng.choice(stages[0], QUERIES, replace=False))
        truth = Truth(draw_queries(unit(stored[chosen].astype(np.float32)), base, rng))
        codes = faiss.index_factory(base.shape[1], CODES.format(lists=options.lists), faiss.METRIC_INNER_PRODUCT)
        start = time.perf_counter()
        codes.train(np.asarray(stored[: 24 * options.lists]).astype(np.float32))  # rows are in random order
        training, adding = time.perf_counter() - start, 0.0
        for first in range(0, stages[-1], BLOCK):
            block = np.asarray(stored[first : min(first + BLOCK, stages[-1])]).astype(np.float32)
            start = time.perf_counter()
            codes.add(block)
            adding += time.perf_counter() - start
            truth.add(block, first)
            done = first + len(block)
            print(f"added {done:,}, {adding:.0f} s, exact {truth.seconds:.0f} s", flush=True)
            if done not in stages:
                continue
            faiss.write_index(codes, str(Path(folder) / "codes.faiss"))
            area = measure_area(stored[:done], truth.queries)
            summary = {
                "views": done,
                "dimension": base.shape[1],
                "embedded_views": len(base),
                "codes": CODES.format(lists=options.lists),
                "codes_bytes": (Path(folder) / "codes.faiss").stat().st_size,
                "vectors_bytes": done * base.shape[1] * 2,
                "training_s": training,
                "adding_s": adding,
                "exact_ms_a_query": 1e3 * truth.seconds / QUERIES,
                "area_rows": AREA,
                "area_p50_ms": area[0],
                "area_p99_ms": area[1],
                "results": measure(codes, stored, truth.queries, truth.places),
                "load_at_start": load,
                "load_at_end": os.getloadavg()[0],
                "cores": os.cpu_count(),
                "measured_with": f"`python {shlex.join(sys.argv)}` and skypart {code_version()}",
            }
            write_text(options.out.with_suffix(".json"), json.dumps(summary, indent=1) + "\n")
            write_page(options.out, page(summary))
            faiss.omp_set_num_threads(2)


if __name__ == "__main__":
    main()
