"""Size, time and cost of indexing a town, a county, a country and the planet, from what was measured on this machine.

    python benchmarks/scale_model.py                          writes docs/results/scale-model.md, fills docs/scale.md
    python benchmarks/scale_model.py --measure town.tif       measures this machine first

Measured inputs: processor time of embedding a view, and of exact searches with and without a prior area
(docs/results/scale-model.json, written by --measure); bytes and search time of ten million views in codes
(docs/results/scale-vectors.json, by scale_vectors.py). Everything else is an assumption, named below and printed on the
page; change it here.
"""

import argparse
import datetime
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from benchmarks.page import write_page
from benchmarks.store_views import draw_photos, draw_views, make_land

from skypart.atomic import write_text
from skypart.embedding.patches import COMPACT_CHANNELS
from skypart.maps.store import Circle, ViewBatch
from skypart.maps.store.embedded import EmbeddedStore
from skypart.training.checkpoint import code_version

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
SCALE = RESULTS.parent / "scale.md"
FIGURES = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", flags=re.DOTALL)
DIMENSION = 768
FOOTPRINT_BYTES = 32
CODE_BYTES = 64
PATCH_PX = 14
REGION_KM2 = 2_750_000.0
"""Of the largest partition of a collection: 15 degrees at the equator."""
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
        return min(self.views, self.views / self.square_km * np.pi * self.prior_km**2)

    @property
    def views_compared(self) -> float:
        """Number of views whose footprints are compared with a prior area: those of one partition at most."""
        return self.views * min(1.0, REGION_KM2 / self.square_km)


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


def measure_search(stores: tuple[int, ...] = (50_000, 250_000), queries: int = 15) -> dict[str, float]:
    """Processor time of single queries to the embedded store on one core, as a sum of what they have to do.

    exact_ns: for each view that is scored when all are. prior_fixed_ms, prior_ns, footprint_ns: with a prior area, of
    any search, for each view in the area, and for each view whose footprint is compared with it. The last three are
    least squares over areas of several sizes in stores of two sizes.
    """
    land, rng = make_land(DIMENSION), np.random.default_rng(1)
    exact, terms, spans = [], [], []
    for count in stores:
        with tempfile.TemporaryDirectory() as folder, EmbeddedStore(Path(folder) / "store") as store:
            views = draw_views(land, count, rng)
            place = np.arange(count)
            table = np.column_stack([place // 500 * 1e-3, place % 500 * 1e-3, np.full(count, 100.0), 0.0 * place])
            store.add(ViewBatch("town", views.astype(np.float16), table))
            photos = draw_photos(land, views[:: count // queries][:queries], 0.7, rng)
            store.search(photos[:1], 10)
            exact += [processor_ms(partial(store.search, photo[None], 10)) / count for photo in photos]
            for radius in (500.0, 3_000.0, 6_000.0, 9_000.0):
                area = Circle(latitude=0.05, longitude=0.25, radius_m=radius)
                inside = len(store.snapshot().positions_within(area))
                for photo in photos:
                    spans.append(processor_ms(partial(store.search, photo[None], 10, area)))
                    terms.append((1.0, inside, count))
    fixed, each, compared = np.linalg.lstsq(np.array(terms), np.array(spans), rcond=None)[0]
    return {
        "exact_ns": 1e6 * float(np.median(exact)),
        "prior_fixed_ms": float(fixed),
        "prior_ns": 1e6 * float(each),
        "footprint_ns": 1e6 * float(compared),
    }


def processor_ms(search: Callable[[], object]) -> float:
    """Milliseconds of the processor, which other work on the machine does not add to."""
    start = time.process_time()
    search()
    return 1e3 * (time.process_time() - start)


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
    """Milliseconds or seconds."""
    return f"{value:.1f} ms" if value < 1e3 else f"{value / 1e3:,.0f} s"


@dataclass(frozen=True)
class Costs:
    """What one region takes. Times of a query are on one core; bytes are of float16 vectors, codes and patch tokens."""

    region: Region
    core_hours: float
    gpu_hours: float
    vector_bytes: float
    code_bytes: float
    token_bytes: float
    exact_ms: float
    codes_ms: float
    prior_ms: float


def best_search(vectors: dict[str, Any]) -> dict[str, Any]:
    """The fastest measured search of the codes that finds nine of ten neighbours, or the one that finds most."""
    good = [result for result in vectors["results"] if result["recall"] >= 0.9]
    if good:
        return dict(min(good, key=lambda each: each["p50_ms"]))
    return dict(max(vectors["results"], key=lambda each: each["recall"]))


def patches(speed: dict[str, Any]) -> int:
    """Number of patch tokens of a view."""
    return int((speed["input_px"] // PATCH_PX) ** 2)


def costs(region: Region, speed: dict[str, Any], vectors: dict[str, Any], assumed: Assumptions) -> Costs:
    """What a region takes, from what was measured and assumed."""
    count = region.views
    prior_ns = speed["prior_ns"] * region.views_in_prior + speed["footprint_ns"] * region.views_compared
    return Costs(
        region=region,
        core_hours=count / speed["views_a_core_second"] / 3600,
        gpu_hours=count / assumed.gpu_views_a_second / 3600,
        vector_bytes=count * (2 * DIMENSION + FOOTPRINT_BYTES),
        code_bytes=count * (CODE_BYTES + 8 + FOOTPRINT_BYTES),
        token_bytes=count * (patches(speed) * COMPACT_CHANNELS + TOKEN_PLACE_BYTES),
        exact_ms=1e-6 * speed["exact_ns"] * count,
        codes_ms=best_search(vectors)["p50_ms"] * max(1.0, count / vectors["views"]),
        prior_ms=speed["prior_fixed_ms"] + 1e-6 * prior_ns,
    )


def summary(found: Sequence[Costs], assumed: Assumptions) -> list[str]:
    """The table of docs/scale.md, one column a region."""
    rows: dict[str, Callable[[Costs], str]] = {
        "views": lambda c: quantity(c.region.views),
        "to embed on CPUs, core hours": lambda c: hours(c.core_hours),
        "their price": lambda c: dollars(c.core_hours * assumed.cpu_core_hour),
        "to embed on GPUs, assumed": lambda c: hours(c.gpu_hours),
        "vectors in float16": lambda c: size(c.vector_bytes),
        "in 64-byte codes": lambda c: size(c.code_bytes),
        "a query, exact": lambda c: milliseconds(c.exact_ms),
        "a query by codes": lambda c: milliseconds(c.codes_ms),
        "a query with a prior area": lambda c: milliseconds(c.prior_ms),
    }
    return [
        f"| | {' | '.join(each.region.name for each in found)} |",
        f"|---|{'---:|' * len(found)}",
        *(f"| {name} | {' | '.join(map(cell, found))} |" for name, cell in rows.items()),
    ]


def page(found: Sequence[Costs], speed: dict[str, Any], vectors: dict[str, Any], assumed: Assumptions) -> list[str]:
    """The lines of the page."""
    rate, best, tokens = speed["views_a_core_second"], best_search(vectors), patches(speed)
    token_bytes = tokens * COMPACT_CHANNELS + TOKEN_PLACE_BYTES
    rows: dict[str, list[str]] = {name: [] for name in ("views", "embedding", "storage", "search", "million")}
    for each in found:
        region = each.region
        cut = f"{', '.join(f'{s:g}' for s in region.sizes_m)} m"
        rows["views"].append(
            f"| {region.name} | {region.square_km:,.0f} km² | {cut} | {region.overlap:g} | {quantity(region.views)} |"
        )
        rows["embedding"].append(
            f"| {region.name} | {hours(each.core_hours)} | {dollars(each.core_hours * assumed.cpu_core_hour)} | "
            f"{hours(each.gpu_hours)} | {dollars(each.gpu_hours * assumed.gpu_hour)} |"
        )
        rows["storage"].append(
            f"| {region.name} | {size(each.vector_bytes)} | "
            f"{dollars(each.vector_bytes / 1e9 * assumed.object_gb_month)} | {size(each.code_bytes)} | "
            f"{dollars(each.code_bytes / 1e9 * assumed.memory_gb_month)} | {size(each.token_bytes)} |"
        )
        rows["search"].append(
            f"| {region.name} | {milliseconds(each.exact_ms)} | {milliseconds(each.codes_ms)} | "
            f"{quantity(region.views_in_prior)} | {milliseconds(each.prior_ms)} |"
        )
        million = (each.exact_ms, each.codes_ms, each.prior_ms)  # a millisecond each are 1/3.6 hours
        prices = (dollars(span / 3.6 * assumed.cpu_core_hour) for span in million)
        rows["million"].append(f"| {region.name} | {' | '.join(prices)} |")
    return [
        "# Size, time and cost",
        "",
        f"Measured: {rate:.2f} views per core second of the default model at {speed['input_px']} px,",
        f"from {speed['views']} views of {speed['map']}: {speed['reading_cpu_ms']:.0f} ms of CPU to read one,",
        f"{speed['embedding_cpu_ms']:.0f} ms to embed it. The load average was {speed['load_average']:.1f}.",
        f"With {speed['measured_with']}.",
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
        f"float16: {2 * DIMENSION} bytes a view and {FOOTPRINT_BYTES} of footprint, on object storage.",
        f"Codes: {CODE_BYTES} bytes a view, 8 of row number and {FOOTPRINT_BYTES} of footprint, in memory.",
        f"Patch tokens: {tokens} patches of {COMPACT_CHANNELS} bytes and {TOKEN_PLACE_BYTES} of place, "
        f"{token_bytes:,} bytes a view, in the index's folder; `--no-tokens` leaves them out.",
        "",
        "| region | float16 | cost per month | 64-byte codes | cost per month | patch tokens |",
        "|---|---:|---:|---:|---:|---:|",
        *rows["storage"],
        "",
        "## One query, on one core",
        f"Exact: {speed['exact_ns']:.0f} ns per view, of the embedded store, for a single query.",
        f"Prior area: a circle of 3 km. Its views are scored exactly, {speed['prior_ns']:.0f} ns each; "
        f"{speed['footprint_ns']:.1f} ns for each footprint that is compared with it, and "
        f"{speed['prior_fixed_ms']:.1f} ms for any search.",
        "The footprints of one region of 15 degrees are compared at most, as with partitions of a Milvus collection.",
        "These three are processor times, which other work on the machine does not add to.",
        f"Codes: {best['probes']} lists visited and {best['reranked']} vectors read, recall@10 {best['recall']:.2f}.",
        "Its time is by the clock, on a crowded machine: an order of magnitude.",
        "Above ten million views it is scaled in proportion: the same share of lists is visited.",
        "A cluster divides all of these by its cores. A search in a Milvus server was not measured.",
        "",
        "| region | exact | by codes | views in the prior area | with the prior area |",
        "|---|---:|---:|---:|---:|",
        *rows["search"],
        "",
        "A million queries, at the price of a core hour:",
        "",
        "| region | exact | by codes | with the prior area |",
        "|---|---:|---:|---:|",
        *rows["million"],
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
        with_what = f"`python {shlex.join(sys.argv)}` on {datetime.date.today().isoformat()}, skypart {code_version()}"
        measured = measure(options.measure) | measure_search() | {"measured_with": with_what}
        write_text(recorded, json.dumps(measured, indent=1) + "\n")
    speed = json.loads(recorded.read_text())
    vectors = json.loads((RESULTS / "scale-vectors.json").read_text())
    assumed = Assumptions()
    found = [costs(region, speed, vectors, assumed) for region in REGIONS]
    table = "".join(f"{line}\n" for line in summary(found, assumed))
    text, count = FIGURES.subn(lambda match: match[1] + table + match[2], SCALE.read_text(encoding="utf-8"))
    assert count == 1, f"{SCALE} has one place for figures"
    write_text(SCALE, text)
    write_page(options.out, page(found, speed, vectors, assumed))


if __name__ == "__main__":
    main()
