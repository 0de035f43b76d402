"""How fast the deployed model runs on this machine: PyTorch eager and compiled, ONNX Runtime, OpenVINO, fp32 and int8.

    python benchmarks/inference.py [--sizes 224,448] [--rounds 7] [--compile]

exports the default model at each size (int8 calibrated on a small rendered world; `skypart export` proves parity, this
does not), measures all engines in turns in one process with one thread, and writes docs/results/inference-speed.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.page import write_page

from skypart.atomic import write_text
from skypart.embedding.exported import contract_file
from skypart.export.bench import BenchResult, read_numbers, run_bench, speed_row, start_row
from skypart.export.run import ExportOptions, build_contract, write_graph
from skypart.images.decode import read_photo, read_rgb
from skypart.images.preprocess import Preprocessing
from skypart.model.embedder import load_torch
from skypart.worlds.camera import random_pose
from skypart.worlds.procedural import Region
from skypart.worlds.render import render_drone

ROOT = Path(__file__).resolve().parent.parent
CALIBRATION = 24


def exports(work: Path, size: int, kinds: list[tuple[str, str]]) -> list[Path]:
    """Exports of the default model at a size, written where they are not there yet."""
    files = []
    for to, precision in kinds:
        options = ExportOptions(to, precision, size, calibration=CALIBRATION)
        file = work / f"{precision}-{size}{'.onnx' if to == 'onnx' else '.xml'}"
        if not contract_file(file).is_file():
            work.mkdir(parents=True, exist_ok=True)
            source = load_torch("default", size=size)
            write_graph(source, file, options)
            write_text(contract_file(file), build_contract(source, source.digest, options).to_json())
        files.append(file)
    return files


def preprocessing(work: Path, sizes: Sequence[int]) -> list[str]:
    """Table rows: processor time from a JPEG of 12 megapixels to a model input, and how far the pixels are off."""
    file = work / "12-megapixels.jpg"
    if not file.is_file():
        rng = np.random.default_rng(0)
        world = Region(7, 0, "town", 600.0, 0.5).load()
        photo = render_drone(world, random_pose(world, rng), 1000, rng=rng)
        large = cv2.resize(photo, (4000, 3000), interpolation=cv2.INTER_CUBIC) + rng.normal(0, 4, (3000, 4000, 3))
        Image.fromarray(np.clip(large, 0, 255).astype(np.uint8)).save(file, quality=90)
    rows = []
    for size in sizes:
        prepare = Preprocessing(size=size, level=True)
        whole = [_milliseconds(partial(prepare_whole, prepare, file)) for _ in range(3)]
        scaled = [_milliseconds(partial(prepare, file)) for _ in range(3)]
        off = np.abs(prepare.resize(read_rgb(file)).astype(float) - prepare.resize(read_photo(file, size))).mean()
        rows.append(f"| {size} | {np.median(whole):.0f} | {np.median(scaled):.0f} | {off:.2f} |")
    return rows


def prepare_whole(prepare: Preprocessing, file: Path) -> object:
    """Decode the whole image, as training does."""
    return prepare.finish(prepare.resize(read_rgb(file)))


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def page(result: BenchResult, prepared: Sequence[str]) -> list[str]:
    """The tables of the page."""
    lines = [
        "# Inference speed",
        "",
        "The default model with its head, one thread. For each size and batch, all engines take turns in one process;",
        "times are medians of CPU time, because other processes share the machine. `times eager` is the median of",
        "the ratios within each round. The peak is that of a float32 matrix product of PyTorch in the same run:",
        f"{result.gemm:.0f} GFLOP/s. Engines with faster products and int8 models can exceed it.",
        "",
        "| engine | px | batch | ms an image | spread, % | images/s | times eager | of the peak, % |",
        "|---|---|---|---|---|---|---|---|",
        *("| " + " | ".join(speed_row(result, each)) + " |" for each in result.timings),
        "",
        "From the start of a new process to its first embedding:",
        "",
        "| engine | px | first embedding, s | processor, s | of this loading, s | peak memory, MB | file, MB |",
        "|---|---|---|---|---|---|---|",
        *("| " + " | ".join(start_row(row)) + " |" for row in result.starts),
        "",
        "| px | head on top of the backbone, batch 1, eager, % |",
        "|---|---|",
        *(f"| {size} | {100 * share:.1f} |" for size, share in result.head.items()),
        "",
        "From a JPEG file of 12 megapixels (rendered, enlarged, with noise) to the model's input, on one core:",
        "",
        "| px | decoded whole, ms | scaled by the decoder, ms | mean difference of the pixels, of 255 |",
        "|---|---|---|---|",
        *prepared,
    ]
    return [*lines, *(["", *result.notes] if result.notes else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="224,448")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "inference")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "inference-speed.md")
    arguments = parser.parse_args()
    kinds = [("onnx", "fp32"), ("onnx", "int8"), ("openvino", "fp32"), ("openvino", "int8")]
    sizes = read_numbers(arguments.sizes)
    files = [file for size in sizes for file in exports(arguments.work, size, kinds)]
    result = run_bench("default", files, sizes, read_numbers(arguments.batches), arguments.rounds, arguments.compile)
    write_page(arguments.out, page(result, preprocessing(arguments.work, (224, 392, 448))))


if __name__ == "__main__":
    main()
