"""Ten million views in an IVF-PQ index of 64-byte codes with the float16 vectors on disk: recall@10 and latency.

    python benchmarks/scale_vectors.py --index real.skyindex            writes docs/results/scale-vectors.md and .json
    python benchmarks/scale_vectors.py --index real.skyindex --views 200000 --out /tmp/scale-vectors.md

The views are those of a real index, repeated and perturbed: each row is one embedded view, plus a part of the
difference of two others, plus noise, so that it has a cosine of about 0.8 with the view it comes from. Queries have a
cosine of 0.7 with a row. The truth is an exact search over all rows. Two threads build; single queries on one thread.
"""

import argparse
import json
import os
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


def add_and_search_exactly(stored: Any, codes: Any, queries: Rows) -> tuple[NDArray[np.int64], float, float]:
    """Add all rows to the codes; the true neighbours, and the seconds of adding and of the exact search."""
    best = np.full((len(queries), K), -np.inf, dtype=np.float32)
    places = np.full((len(queries), K), -1, dtype=np.int64)
    adding = exact = 0.0
    for first in range(0, len(stored), BLOCK):
        block = np.asarray(stored[first : first + BLOCK]).astype(np.float32)
        start = time.perf_counter()
        codes.add(block)
        middle = time.perf_counter()
        scores = queries @ block.T
        keep = np.argpartition(scores, -K, axis=1)[:, -K:]
        every = np.concatenate([best, np.take_along_axis(scores, keep, 1)], axis=1)
        known = np.concatenate([places, keep + first], axis=1)
        keep = np.argpartition(every, -K, axis=1)[:, -K:]
        best, places = np.take_along_axis(every, keep, 1), np.take_along_axis(known, keep, 1)
        adding, exact = adding + middle - start, exact + time.perf_counter() - middle
        print(f"added {first + len(block):,}, {adding:.0f} s, exact {exact:.0f} s", flush=True)
    return places, adding, exact


def search(codes: Any, stored: Any, query: Rows, probes: int, reranked: int) -> NDArray[np.int64]:
    """The ten best rows by the codes, or the ten best of `reranked` by their vectors on disk."""
    parameters = faiss.SearchParametersPreTransform(index_params=faiss.SearchParametersIVF(nprobe=probes))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--views", type=int, default=10_000_000)
    parser.add_argument("--lists", type=int, default=1024)
    parser.add_argument("--rows", type=Path, default=None, help="file of rows: made if missing, kept for another run")
    parser.add_argument("--out", type=Path, default=Path("docs/results/scale-vectors.md"))
    options = parser.parse_args()
    base = read_views(options.index)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = options.rows or Path(folder) / "rows.npy"
        stored = np.load(rows, mmap_mode="r") if rows.is_file() else make_rows(base, options.views, rows)
        rng = np.random.default_rng(2)
        chosen = np.sort(rng.choice(options.views, QUERIES, replace=False))
        queries = draw_queries(unit(stored[chosen].astype(np.float32)), base, rng)
        codes = faiss.index_factory(base.shape[1], CODES.format(lists=options.lists), faiss.METRIC_INNER_PRODUCT)
        sample = np.sort(rng.choice(options.views, min(options.views, 24 * options.lists), replace=False))
        start = time.perf_counter()
        codes.train(stored[sample].astype(np.float32))
        training = time.perf_counter() - start
        truth, adding, exact = add_and_search_exactly(stored, codes, queries)
        faiss.write_index(codes, str(Path(folder) / "codes.faiss"))
        size = (Path(folder) / "codes.faiss").stat().st_size
        results = measure(codes, stored, queries, truth)
        area = measure_area(stored, queries)
    summary = {
        "views": options.views,
        "dimension": base.shape[1],
        "embedded_views": len(base),
        "codes": CODES.format(lists=options.lists),
        "codes_bytes": size,
        "vectors_bytes": options.views * base.shape[1] * 2,
        "training_s": training,
        "adding_s": adding,
        "exact_ms_a_query": 1e3 * exact / QUERIES,
        "area_rows": AREA,
        "area_p50_ms": area[0],
        "area_p99_ms": area[1],
        "results": results,
    }
    write_text(options.out.with_suffix(".json"), json.dumps(summary, indent=1) + "\n")
    lines = [
        "# Ten million views in 64-byte codes" if options.views == 10_000_000 else f"# {options.views:,} views",
        "",
        f"{options.views:,} rows of {base.shape[1]} numbers, made from {len(base):,} views embedded from real maps.",
        "Each row is an embedded view, perturbed to a cosine of about 0.8. Queries have a cosine of 0.7 with a row.",
        f"FAISS `{summary['codes']}`, in memory; the float16 vectors lie in a mapped file on disk.",
        f"Codes: {size / 1e9:.2f} GB. Vectors: {summary['vectors_bytes'] / 1e9:.1f} GB.",
        f"Training took {training:.0f} s, adding {adding:.0f} s by the clock, on two threads beside other work.",
        f"The exact answer took {summary['exact_ms_a_query']:.0f} ms a query, in a batch of {QUERIES}.",
        "",
        "| lists visited | vectors read to rank again | recall@10 | p50, ms | p99, ms |",
        "|---:|---:|---:|---:|---:|",
        *(
            f"| {r['probes']} | {r['reranked']} | {r['recall']:.3f} | {r['p50_ms']:.1f} | {r['p99_ms']:.1f} |"
            for r in results
        ),
        "",
        f"With a prior area of {AREA:,} views that lie together, scored exactly: p50 {area[0]:.1f} ms, "
        f"p99 {area[1]:.1f} ms.",
        f"Load average from other work at the start: {load:.1f}. The page cache was as the run left it, not cold.",
    ]
    write_page(options.out, lines)


if __name__ == "__main__":
    main()
