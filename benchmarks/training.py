"""Speed of training: what freezing saves, and whether images arrive in time.

    python benchmarks/training.py       writes docs/results/training-speed.md and .json

All ratios are taken inside one run with interleaved repetitions, so that other load affects both sides alike.
The backbone is a ViT-S/14 with random weights: speed does not depend on their values.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image

from skypart.atomic import write_text
from skypart.training.checkpoint import Progress
from skypart.training.distributed import Workers
from skypart.training.loop import _Loop
from skypart.training.precision import has_native_bfloat16
from skypart.training.recipe import (
    BackboneRecipe,
    BatchRecipe,
    DataRecipe,
    DistillRecipe,
    OptimiserRecipe,
    Recipe,
    RunRecipe,
)
from skypart.training.setup import Run, prepare

OUT = Path(__file__).resolve().parents[1] / "docs/results/training-speed.md"
ALONE = Workers(0, 1, torch.device("cpu"))
SIZE = 224
EDGE = 512
FROZEN_TARGET = 0.60
IDLE_TARGET = 0.10


def make_pictures(root: Path, locations: int = 6, per_altitude: int = 3) -> Path:
    """SUES-200 in raw form with 512 px JPEGs of photographic detail."""
    for number in range(1, locations + 1):
        rng = np.random.default_rng(number)
        layers = [cv2.resize(rng.uniform(-1, 1, (n, n, 3)).astype(np.float32), (EDGE, EDGE)) * 400 / n**0.5
                  for n in (4, 16, 64, 256)]  # fmt: skip
        ground = 128 + sum(layers) / 3
        for folder, count in [(root / "satellite-view" / f"{number:04d}", 1)] + [
            (root / "drone_view_512" / f"{number:04d}" / str(h), per_altitude) for h in (150, 200, 250, 300)
        ]:
            folder.mkdir(parents=True)
            for index in range(count):
                noisy = np.clip(ground + rng.normal(0, 6, ground.shape), 0, 255).astype(np.uint8)
                Image.fromarray(noisy).save(folder / f"{index}.jpg", quality=90)
    (root / "train_ids.txt").write_text("\n".join(map(str, range(1, locations + 1))))
    return root


def recipe(root: Path, out: Path, trainable: int = 6, steps: int = 20, precision: str = "auto") -> Recipe:
    """The full recipe without a teacher at 224 px, 4 locations x (2 drone + 1 satellite), one loading process."""
    return Recipe(
        optimiser=OptimiserRecipe(precision=precision),  # type: ignore[arg-type]
        data=DataRecipe(root=str(root), validation=0.0, workers=1),
        backbone=BackboneRecipe(name="untrained:vits14", size=SIZE, trainable_blocks=trainable),
        batch=BatchRecipe(locations=4, drone=2, satellite=1, steps=steps),
        distill=DistillRecipe(teacher=""),
        run=RunRecipe(out=str(out), device="cpu"),
    )


def one_step(loop: _Loop, batch: Any, number: int) -> tuple[float, float]:
    """Seconds of one whole step (forward, backward, optimiser, moving average): by the clock, and of the processor."""
    start, used = time.perf_counter(), time.process_time()
    report, _ = loop._forward(batch, number)
    report.total.backward()  # type: ignore[no-untyped-call]
    loop._update(0.5, batch.records)
    loop.progress.step += 1
    return time.perf_counter() - start, time.process_time() - used


def frozen_share(root: Path, scratch: Path, repetitions: int, precision: str) -> dict[str, Any]:
    """Time of a step with the first 6 blocks frozen over the same step with all 12 trained."""
    runs = {
        blocks: prepare(recipe(root, scratch / f"{precision}{blocks}", blocks, precision=precision), ALONE)
        for blocks in (6, 12)
    }
    loops = {blocks: _Loop(run, Progress(step=1), None) for blocks, run in runs.items()}
    batch = next(runs[6].data.epoch(0))
    found: dict[int, list[tuple[float, float]]] = {6: [], 12: []}
    for number in range(repetitions + 1):
        for blocks, loop in loops.items():
            took = one_step(loop, batch, number)
            if number:
                found[blocks].append(took)
    pairs = list(zip(found[6], found[12], strict=True))
    return {
        "frozen_s": statistics.median(wall for wall, _ in found[6]),
        "all_s": statistics.median(wall for wall, _ in found[12]),
        "ratio": statistics.median(half[0] / whole[0] for half, whole in pairs),
        "processor_ratio": statistics.median(half[1] / whole[1] for half, whole in pairs),
        "images": len(batch.images),
        "repetitions": repetitions,
    }


def train_pass(run: Run, steps: int) -> tuple[float, float]:
    """(seconds a step as training sees it, idle share) over `steps` steps of an epoch, the first left out."""
    loop = _Loop(run, Progress(step=1), None)
    batches = loop._count_waiting(run.data.epoch(0))
    for number, batch in zip(range(steps + 1), batches, strict=False):
        if number == 1:  # loading processes are up
            loop.waited = loop.worked = 0.0
            start = time.perf_counter()
        one_step(loop, batch, number)
    return (time.perf_counter() - start) / steps, loop.waited / (time.perf_counter() - start)


def load_pass(run: Run, steps: int) -> float:
    """Seconds a batch of loading alone with one process, the first batch left out."""
    batches = run.data.epoch(0)
    next(batches)
    start = time.perf_counter()
    for _ in zip(range(steps), batches, strict=False):
        pass
    return (time.perf_counter() - start) / steps


def loading(root: Path, scratch: Path, steps: int, rounds: int) -> dict[str, float]:
    """Seconds a training step and idle share with one loading process, and seconds to load a batch alone."""
    run = prepare(recipe(root, scratch / "loading", 6, max(steps, 8) + 4), ALONE)
    load_s, passes = [], []
    for _ in range(rounds):
        load_s.append(load_pass(run, max(steps, 8)))
        passes.append(train_pass(run, steps))
    return {
        "load_s": statistics.median(load_s),
        "step_s": statistics.median(seconds for seconds, _ in passes),
        "idle": statistics.median(idle for _, idle in passes),
        "rounds": rounds,
    }


def verdict(value: float, target: float) -> str:
    """Whether a measured value keeps to its target."""
    return "holds" if value <= target else "does not hold"


def text_of(result: dict[str, Any]) -> str:
    """The page under docs/results/."""
    frozen, found = result["frozen"], result["loading"]
    asked = frozen["auto"]
    still = (
        "parts without gradient run in bfloat16, which this CPU supports"
        if len(frozen) > 1
        else "this CPU runs everything in float32"
    )
    rows = "\n".join(
        f"| {kind} | {each['frozen_s']:.2f} | {each['all_s']:.2f} | {each['ratio']:.3f} | "
        f"{each['processor_ratio']:.3f} | at most {FROZEN_TARGET:.2f}: "
        f"{verdict(each['processor_ratio'], FROZEN_TARGET)} |"
        for kind, each in frozen.items()
    )
    return f"""# Speed of training

Made by `{result["command"]}` on {result["date"]}: {result["machine"]}, load average {result["load"]} at the start.
ViT-S/14, {SIZE} px, full GeoPartLoss without teacher, {asked["images"]} images per step (4 locations x 2 drone +
1 satellite).

## What freezing saves

Counting only the blocks, with 1 for a forward pass of one block and 2 for a backward pass: frozen
12 + 2 x 6 + 6 for the moving average = 30, all trained 12 + 2 x 12 + 12 = 48, ratio 0.625. Medians over
{asked["repetitions"]} interleaved pairs of steps of one run. The target is judged by CPU time, which other
work on the machine disturbs less than wall-clock time. With `optimiser.precision=auto`, the default, {still}.

| precision | first 6 blocks frozen, s per step | all 12 trained, s per step | ratio | ratio of CPU time | target |
|---|---|---|---|---|---|
{rows}

## Do images arrive in time?

{EDGE} px JPEGs, crop and colour augmentation, one loading process, first 6 blocks frozen; medians of
{found["rounds"]} rounds. Loading alone: one process, no training step. Idle: share of the time in which the training
step waits for images.

| loading alone, ms per batch | training, s per step | idle | target |
|---|---|---|---|
| {1000 * found["load_s"]:.0f} | {found["step_s"]:.2f} | {100 * found["idle"]:.1f} % | \
below {100 * IDLE_TARGET:.0f} %: {verdict(found["idle"], IDLE_TARGET)} |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9, help="pairs of steps for the frozen ratio")
    parser.add_argument("--steps", type=int, default=6, help="training steps in a pass of the loading measurement")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved passes of the loading measurement")
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0: torch's own choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    load = f"{os.getloadavg()[0]:.1f}"
    with tempfile.TemporaryDirectory() as folder:
        root = make_pictures(Path(folder) / "data")
        kinds = ("auto", "float32") if has_native_bfloat16() else ("auto",)
        frozen = {kind: frozen_share(root, Path(folder), options.repetitions, kind) for kind in kinds}
        print(json.dumps(frozen), flush=True)
        found = loading(root, Path(folder), options.steps, options.rounds)
        print(json.dumps(found), flush=True)
    result = {
        "command": " ".join(["python", "benchmarks/training.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads, "
        f"torch {torch.__version__}, Python {platform.python_version()}",
        "load": load,
        "frozen": frozen,
        "loading": found,
    }
    write_text(OUT.with_suffix(".json"), json.dumps(result, indent=2) + "\n")
    write_text(OUT, text_of(result))
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main()
