"""Sizes, times and money for a town, a county, a country and the planet, from what was measured on this machine.

    python benchmarks/scale_model.py                          writes docs/results/scale-model.md
    python benchmarks/scale_model.py --measure town.tif       measures views a second of the default model first

Measured inputs: views a second of one core (docs/results/scale-model.json, written by --measure), bytes and latency of
ten million views (docs/results/scale-vectors.json, by scale_vectors.py). Everything else is an assumption, named below
and printed on the page; change it here.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from benchmarks.page import write_page

from skypart.atomic import write_text
from skypart.embedding.patches import COMPACT_CHANNELS

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
DIMENSION = 768
FOOTPRINT_BYTES = 32
CODE_BYTES = 64
PATCH_PX = 14
TOKEN_PLACE_BYTES = 40
"""Of the table that finds the patch tokens of a view: footprint and row."""


@dataclass(frozen=True)
class Region:
    """An area to index. sizes_m, overlap: how it is cut into views. prior_km: radius of a prior area."""

    name: str
    square_km: float
    sizes_m: tuple[float, ...]
    overlap: float
    prior_km: float = 3.0

    @property
    def views(self) -> float:
        """Number of views: for each size one per square of (1 - overlap) times its edge."""
        return sum(self.square_km * 1e6 / (size * (1 - self.overlap)) ** 2 for size in self.sizes_m)

    @property
    def views_in_prior(self) -> float:
        """Number of views in the prior area."""
        return min(self.views, self.views / self.square_km * 3.14159 * self.prior_km**2)


REGIONS = (
    Region("town", 25, (100.0, 160.0, 250.0), 0.5),
    Region("county", 1_500, (160.0, 250.0), 0.25),
    Region("country", 357_000, (100.0, 160.0), 0.25),
    Region("planet, land", 149_000_000, (300.0,), 0.0),
)
"""A country is the size of Germany. The planet is cut once, without overlap, which alone gives 1.7 billion views."""


@dataclass(frozen=True)
class Assumptions:
    """What was not measured here. Money in US dollars; prices are of the order of public clouds' list prices."""

    gpu_views_a_second: float = 1_500.0
    cpu_core_hour: float = 0.04
    gpu_hour: float = 1.0
    disk_gb_month: float = 0.08
    object_gb_month: float = 0.023
    memory_gb_month: float = 3.0


def measure(raster: Path, views: int = 96) -> dict[str, Any]:
    """Views a second of one core: reading, embedding and both, of views of a real map."""
    from skypart.embedding import load
    from skypart.maps.sources import open_maps
    from skypart.maps.views import plan_views, read_view

    embedder = load("default")
    source = open_maps([str(raster)])[0]
    plan = plan_views(source, (160.0,), 0.25, (0.0,))
    chosen = [plan[int(place)] for place in range(0, len(plan), max(1, len(plan) // views))][:views]
    embedder.embed_inputs(embedder.preprocess([read_view(source, chosen[0], embedder.size).rgb]))
    load_before, start, work = os.getloadavg()[0], time.perf_counter(), time.process_time()
    inputs = [embedder.preprocessing(read_view(source, view, embedder.size).rgb) for view in chosen]
    middle, middle_work = time.perf_counter(), time.process_time()
    for first in range(0, len(inputs), 16):
        embedder.embed_inputs(np.stack(inputs[first : first + 16]))
    end, end_work = time.perf_counter(), time.process_time()
    return {
        "map": raster.name,
        "views": len(chosen),
        "input_px": embedder.size,
        "reading_cpu_ms": 1e3 * (middle_work - work) / len(chosen),
        "embedding_cpu_ms": 1e3 * (end_work - middle_work) / len(chosen),
        "views_a_core_second": len(chosen) / (end_work - work),
        "views_a_second_by_the_clock": len(chosen) / (end - start),
        "embedding_clock_ms": 1e3 * (end - middle) / len(chosen),
        "load_average": load_before,
    }


def quantity(value: float) -> str:
    """A number with its unit of thousands."""
    for limit, unit in ((1e9, " billion"), (1e6, " million")):
        if value >= limit:
            return f"{value / limit:.1f}{unit}"
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes in a readable unit."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if value >= limit:
            return f"{value / limit:.1f} {unit}"
    return f"{value / 1e3:.0f} kB"


def hours(value: float) -> str:
    """Hours, or minutes below one."""
    return f"{value:,.0f} h" if value >= 10 else f"{value:.1f} h" if value >= 1 else f"{60 * value:.1f} min"


def dollars(value: float) -> str:
    """Money; cents only where they matter."""
    return f"$ {value:,.0f}" if value >= 10 else f"$ {value:.2f}"


def milliseconds(value: float) -> str:
    """Milliseconds, seconds or hours."""
    return f"{value:.1f} ms" if value < 1e3 else f"{value / 1e3:,.0f} s"


def page(speed: dict[str, Any], vectors: dict[str, Any], assumed: Assumptions) -> list[str]:
    """The lines of the page."""
    rate = speed["views_a_core_second"]
    exact_ms_a_view = vectors["exact_ms_a_query"] / vectors["views"]
    area_ms_a_view = vectors["area_p50_ms"] / vectors["area_rows"]
    best = min(
        (r for r in vectors["results"] if r["recall"] >= 0.9),
        key=lambda r: r["p50_ms"],
        default=max(vectors["results"], key=lambda r: r["recall"]),
    )
    patches = (speed["input_px"] // PATCH_PX) ** 2
    token_bytes = patches * COMPACT_CHANNELS + TOKEN_PLACE_BYTES
    rows: dict[str, list[str]] = {name: [] for name in ("views", "embedding", "storage", "search")}
    for region in REGIONS:
        count = region.views
        half, codes = count * (2 * DIMENSION + FOOTPRINT_BYTES), count * (CODE_BYTES + 8 + FOOTPRINT_BYTES)
        core_hours, gpu_hours = count / rate / 3600, count / assumed.gpu_views_a_second / 3600
        cut = f"{', '.join(f'{s:g}' for s in region.sizes_m)} m"
        rows["views"].append(
            f"| {region.name} | {region.square_km:,.0f} km² | {cut} | {region.overlap:g} | {quantity(count)} |"
        )
        rows["embedding"].append(
            f"| {region.name} | {hours(core_hours)} | {dollars(core_hours * assumed.cpu_core_hour)} | "
            f"{hours(gpu_hours)} | {dollars(gpu_hours * assumed.gpu_hour)} |"
        )
        rows["storage"].append(
            f"| {region.name} | {size(half)} | {dollars(half / 1e9 * assumed.object_gb_month)} | {size(codes)} | "
            f"{dollars(codes / 1e9 * assumed.memory_gb_month)} | {size(count * token_bytes)} |"
        )
        probed = best["p50_ms"] * max(1.0, count / vectors["views"])
        rows["search"].append(
            f"| {region.name} | {milliseconds(exact_ms_a_view * count)} | {milliseconds(probed)} | "
            f"{quantity(region.views_in_prior)} | {milliseconds(area_ms_a_view * region.views_in_prior)} |"
        )
    return [
        "# Size, time and cost",
        "",
        f"Measured: {rate:.2f} views per core second of the default model at {speed['input_px']} px,",
        f"from {speed['views']} views of {speed['map']}: {speed['reading_cpu_ms']:.0f} ms of CPU to read one,",
        f"{speed['embedding_cpu_ms']:.0f} ms to embed it. The load average was {speed['load_average']:.1f}.",
        f"Measured: {vectors['views']:,} vectors, [scale-vectors](scale-vectors.md).",
        "",
        "## Views",
        "| region | area | ground sizes | overlap | views |",
        "|---|---:|---:|---:|---:|",
        *rows["views"],
        "",
        "## Embedding",
        "CPU hours follow from the measured rate. GPU hours are **assumed**, not measured: there is no GPU here.",
        "",
        "| region | core hours | cost | GPU hours (assumed) | cost |",
        "|---|---:|---:|---:|---:|",
        *rows["embedding"],
        "",
        "## Storage",
        f"float16: {2 * DIMENSION} bytes per view and {FOOTPRINT_BYTES} for the footprint, on object storage.",
        f"Codes: {CODE_BYTES} bytes per view, 8 for the row number and {FOOTPRINT_BYTES} for the footprint, in memory.",
        f"Patch tokens: {patches} patches of {COMPACT_CHANNELS} bytes and {TOKEN_PLACE_BYTES} for the position, "
        f"{token_bytes:,} bytes per view, in the index's folder; `--no-tokens` omits them.",
        "",
        "| region | float16 | cost per month | 64-byte codes | cost per month | patch tokens |",
        "|---|---:|---:|---:|---:|---:|",
        *rows["storage"],
        "",
        "## One query, on one core",
        f"Exact: {1e6 * exact_ms_a_view:.0f} ns per view, the average over a batch of queries with two threads.",
        "A single query on one core takes longer than this column says; it was not measured.",
        f"Codes: {best['probes']} lists visited and {best['reranked']} vectors read, recall@10 {best['recall']:.2f}.",
        "Above ten million views the time is scaled in proportion: the same share of lists is visited.",
        "These times are from a busy machine whose load fell during the run. Read them as orders of magnitude.",
        "On a cluster, divide them by the number of cores. The prior area is a circle of 3 km, searched exactly.",
        "",
        "| region | exact | by codes | views in the prior area | with the prior area |",
        "|---|---:|---:|---:|---:|",
        *rows["search"],
        "",
        "## Assumptions",
        "None of these was measured here.",
        "",
        "| what | value |",
        "|---|---:|",
        f"| views per second of one data-centre GPU | {assumed.gpu_views_a_second:,.0f} |",
        f"| a core hour | $ {assumed.cpu_core_hour} |",
        f"| a GPU hour | $ {assumed.gpu_hour} |",
        f"| a GB on object storage, per month | $ {assumed.object_gb_month} |",
        f"| a GB of memory, per month | $ {assumed.memory_gb_month} |",
        "",
        "The maps themselves are not included: neither licences, nor transfer, nor storage.",
        "Empty views and water are not subtracted. By default, Milvus stores float32, which doubles the size.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=RESULTS / "scale-model.md")
    options = parser.parse_args()
    recorded = RESULTS / "scale-model.json"
    if options.measure is not None:
        write_text(recorded, json.dumps(measure(options.measure), indent=1) + "\n")
    speed = json.loads(recorded.read_text())
    vectors = json.loads((RESULTS / "scale-vectors.json").read_text())
    write_page(options.out, page(speed, vectors, Assumptions()))


if __name__ == "__main__":
    main()
