"""`skypart bench`: how fast a model runs here, in PyTorch and as exported, measured in turns in one run."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from skypart.embedding import Embedder, load
from skypart.embedding.exported import ExportedEmbedder
from skypart.embedding.interface import Inputs
from skypart.errors import SkyPartError
from skypart.model.cost import measure_cost
from skypart.model.embedder import TorchEmbedder, load_torch, model_file
from skypart.progress import with_progress

EAGER = "PyTorch eager"
GEMM_EDGE = 1024
"""Edge of the square float32 matrices whose product measures the machine's peak."""
_START = """
import json, re, resource, sys, time
from pathlib import Path
import numpy as np
import skypart
began = time.perf_counter()
model = skypart.load(sys.argv[1], size=int(sys.argv[2]))
loaded = time.perf_counter() - began
model.embed([np.zeros((64, 64, 3), np.uint8)])
status = Path("/proc/self/status")
if status.is_file():  # getrusage counts the memory of the process that started this one, too
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1])
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"load_s": loaded, "cpu_s": time.process_time(), "peak_mb": peak / 1024}))
"""


@dataclass
class Timing:
    """Times of one engine at one size and batch: seconds per call, in processor time and by the clock."""

    engine: str
    size: int
    batch: int
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @property
    def ms_per_image(self) -> float:
        """Median processor time of an image in milliseconds."""
        return 1000 * float(np.median(self.cpu)) / self.batch

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a share of the median."""
        low, middle, high = np.percentile(self.cpu, [25, 50, 75])
        return float((high - low) / (2 * middle))


@dataclass(frozen=True)
class Start:
    """A new process: seconds from its start to the first embedding, by the clock and in processor time; load: of that,
    loading the model. peak_mb: memory. file_mb: size of the model on disk."""

    engine: str
    size: int
    wall_s: float
    cpu_s: float
    load_s: float
    peak_mb: float
    file_mb: float


@dataclass(frozen=True)
class BenchResult:
    """All measurements. gemm: peak in GFLOP/s of processor time. gflop: of one image, by size. head: time of the head
    over that of the backbone, by size, at batch 1. notes: what was not run, and why."""

    timings: list[Timing]
    starts: list[Start]
    gemm: float
    gflop: dict[int, float]
    head: dict[int, float]
    notes: list[str]

    def ratio(self, timing: Timing) -> float:
        """How many times as fast as eager PyTorch at the same size and batch."""
        eager = next(t for t in self.timings if (t.engine, t.size, t.batch) == (EAGER, timing.size, timing.batch))
        return float(np.median(np.array(eager.cpu) / np.array(timing.cpu)))

    def peak_share(self, timing: Timing) -> float:
        """Operations per second over the peak of a float32 matrix product; int8 can exceed 1."""
        return self.gflop[timing.size] / (timing.ms_per_image / 1000) / self.gemm


def run_bench(
    model: str,
    exported: Sequence[Path] = (),
    sizes: Sequence[int] = (),
    batches: Sequence[int] = (1, 8),
    rounds: int = 10,
    compiled: bool = False,
) -> BenchResult:
    """Measure a model in PyTorch at `sizes` (default: its own and those of `exported`) and its exports."""
    if rounds < 3 or min(batches, default=0) < 1:
        raise SkyPartError("a benchmark needs 3 rounds or more, and batches of 1 or more; give larger numbers")
    loaded = [(path, load(path)) for path in exported]
    base = load_torch(model)
    chosen = sorted(set(sizes) or {base.size, *(each.size for _, each in loaded)})
    gemm: list[float] = []
    result = BenchResult([], [], 0.0, {}, {}, [])
    for size in chosen:
        eager = load_torch(model, size=size)
        result.gflop[size] = 2 * sum(_multiply_adds(eager, size)) / 1e9
        engines: dict[str, Callable[[Inputs], Any]] = {EAGER: eager.embed_inputs}
        engines |= {_title(path, each): each.embed_inputs for path, each in loaded if each.size == size}
        if compiled:
            engines |= _compiled(eager, result.notes)
        for batch in batches:
            inputs = np.random.default_rng(0).normal(size=(batch, 3, size, size)).astype(np.float32)
            result.timings.extend(_measure(engines, inputs, rounds, gemm))
        result.head[size] = _head_share(eager, size, rounds)
    files = {EAGER: (model_file(model), base.size)} | {_title(path, each): (path, each.size) for path, each in loaded}
    for title, (file, size) in files.items():
        result.starts.append(_measure_start(title, file if title != EAGER else Path(model), file, size))
    return BenchResult(result.timings, result.starts, max(gemm), result.gflop, result.head, result.notes)


def _title(path: Path, embedder: Embedder) -> str:
    """An export's name in tables: engine and precision."""
    if isinstance(embedder, ExportedEmbedder):
        return f"{embedder.engine.rsplit(' ', 1)[0]} {embedder.contract.precision}"
    return path.name


def _multiply_adds(embedder: TorchEmbedder, size: int) -> tuple[int, int, int]:
    cost = measure_cost(embedder.model, size)
    return cost.linear, cost.attention, cost.parts


def _compiled(eager: TorchEmbedder, notes: list[str]) -> dict[str, Callable[[Inputs], Any]]:
    """The model after torch.compile, or a note why it cannot be compiled here."""
    module = torch.compile(eager.model, dynamic=False)

    def embed(inputs: Inputs) -> NDArray[np.float32]:
        with torch.inference_mode():
            vectors: NDArray[np.float32] = module(torch.from_numpy(inputs)).embedding.numpy()
        return vectors

    try:
        embed(np.zeros((1, 3, eager.size, eager.size), np.float32))
    except Exception as error:  # the compiler raises anything
        notes.append(f"torch.compile at {eager.size} px: not run ({type(error).__name__})")
        return {}
    return {"torch.compile": embed}


def _measure(
    engines: dict[str, Callable[[Inputs], Any]], inputs: Inputs, rounds: int, gemm: list[float]
) -> list[Timing]:
    """Run all engines in turns, `rounds` times, with the matrix product that measures the peak in between."""
    timings = [Timing(name, inputs.shape[-1], len(inputs)) for name in engines]
    for run in engines.values():
        run(inputs)
    for _ in with_progress(range(rounds), f"{inputs.shape[-1]} px, batch {len(inputs)}"):
        for timing, run in zip(timings, engines.values(), strict=True):
            cpu, wall = time.process_time(), time.perf_counter()
            run(inputs)
            timing.cpu.append(time.process_time() - cpu)
            timing.wall.append(time.perf_counter() - wall)
        gemm.append(_gemm_rate())
    return timings


def _gemm_rate() -> float:
    """GFLOP per second of processor time of a float32 matrix product."""
    one = torch.ones(GEMM_EDGE, GEMM_EDGE)
    started = time.process_time()
    for _ in range(3):
        one @ one
    return 3 * 2 * GEMM_EDGE**3 / (time.process_time() - started) / 1e9


def _head_share(eager: TorchEmbedder, size: int, rounds: int) -> float:
    """Time of the head over the time of the backbone, one image, eager."""
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    backbone, head, taps = eager.model.backbone_interface, eager.model.head, eager.model.taps
    ratios = []
    with torch.inference_mode():
        for _ in range(rounds + 1):
            first = time.process_time()
            tokens = backbone.finish(backbone.trunk(images, taps), taps)
            second = time.process_time()
            head([each.float() for each in tokens])
            ratios.append((time.process_time() - second) / (second - first))
    return float(np.median(ratios[1:]))


def _measure_start(title: str, name: Path, file: Path, size: int) -> Start:
    """Start a process that loads the model and embeds one image."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _START, str(name), str(size)], capture_output=True, text=True, env=dict(os.environ)
    )
    wall = time.perf_counter() - began
    if done.returncode:
        raise SkyPartError(f"{name}: cannot be loaded in a new process ({done.stderr.strip().splitlines()[-1]})")
    found = json.loads(done.stdout)
    weights = file.with_suffix(".bin") if file.suffix == ".xml" else file
    megabytes = weights.stat().st_size / 1e6
    return Start(title, size, wall, found["cpu_s"], found["load_s"], found["peak_mb"], megabytes)


def read_numbers(text: str) -> list[int]:
    """Parse whole numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise SkyPartError(f"{text!r}: give whole numbers separated by commas, for instance 224,448") from error


def bench_tables(result: BenchResult) -> list[Table]:
    """The measurements as tables for the terminal."""
    speed = Table(title="times are processor time per image", caption="; ".join(result.notes))
    for column in ("engine", "px", "batch", "ms", "±, %", "images/s", "times eager", "of GEMM peak, %"):
        speed.add_column(column, justify="left" if column == "engine" else "right")
    for each in result.timings:
        speed.add_row(*speed_row(result, each))
    start = Table(title="a new process")
    for column in ("engine", "px", "first embedding, s", "processor, s", "load, s", "peak, MB", "file, MB"):
        start.add_column(column, justify="left" if column == "engine" else "right")
    for row in result.starts:
        start.add_row(*start_row(row))
    return [speed, start]


def speed_row(result: BenchResult, each: Timing) -> list[str]:
    """Cells of one row: engine, size, batch, ms, spread, images a second, ratio to eager, share of the peak."""
    return [
        each.engine,
        str(each.size),
        str(each.batch),
        f"{each.ms_per_image:.1f}",
        f"{100 * each.spread:.0f}",
        f"{1000 / each.ms_per_image:.1f}",
        f"{result.ratio(each):.2f}",
        f"{100 * result.peak_share(each):.0f}",
    ]


def start_row(row: Start) -> list[str]:
    """Cells of one row: engine, size, seconds to the first embedding, processor time, load, memory, file."""
    numbers = (f"{row.wall_s:.1f}", f"{row.cpu_s:.1f}", f"{row.load_s:.1f}", f"{row.peak_mb:.0f}", f"{row.file_mb:.1f}")
    return [row.engine, str(row.size), *numbers]
