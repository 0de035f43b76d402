"""Input size, 224 or 336 px: the shipped model after a few more training steps at each size, on the same images.

    python benchmarks/input_size.py --shared ../shared

continues training from the shipped model with the last stage's recipe at 224 and at 336 px, on the images of that stage
(320 px; same draws, same steps). It writes R@1 on real test places, rendered at 384 px so that neither size enlarges
them, and the CPU time of embedding an image at each size to docs/results/input-size.md.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.branches import judged
from benchmarks.page import write_page
from benchmarks.unseen import HELD_OUT, views_of

from skypart.model.embedder import load_torch
from skypart.training.distributed import start_workers
from skypart.training.loop import train
from skypart.training.recipe import load_recipe
from skypart.training.setup import prepare
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

ROOT = Path(__file__).resolve().parent.parent
SIZES = (224, 336)
EDGE = 384


def places(arguments: argparse.Namespace) -> Path:
    """The folder of the test places: of the maps of benchmarks/default_model.py, seen as in its oblique column."""
    data = arguments.shared / "data"
    real = [str(data / "autzen_lidar_cc_by"), str(data / "naip_california_cc_by")]
    common: dict[str, Any] = {"like": "free", "image_size": EDGE, "maps": False, "views": 2}
    common |= {"surround": True, "guess_heights": True}
    asked = build_request(real, only=HELD_OUT, seed=27, spacing=100.0, locations=arguments.places, **common)
    make_world(arguments.work / "test", asked, workers=arguments.workers)
    return Path(arguments.work / "test")


def trained(arguments: argparse.Namespace, size: int) -> tuple[Path, float]:
    """The shipped model after some steps more at a size, and the processor time they took in seconds."""
    overrides = [
        "backbone.start=default",
        "backbone.trainable_blocks=6",  # of the ten that it has: 5 to 10
        f"backbone.size={size}",
        f"batch.locations={arguments.batch}",
        f"batch.steps={arguments.steps}",
        "batch.alike=false",  # neighbours instead: to see which places look alike takes as long as the training
        "optimiser.epochs=1",
        "optimiser.warmup_epochs=0.1",
        "optimiser.head_lr=0.0001",
        "optimiser.backbone_lr=0.000015",
        "optimiser.precision=auto",
        f"run.out={arguments.work / str(size)}",
        "run.device=cpu",
    ]
    recipe = load_recipe(ROOT / "recipes" / "default-model" / "10-oblique-cities.toml", overrides)
    run = prepare(recipe, start_workers("cpu"))
    begun = time.process_time()
    return train(run).model, time.process_time() - begun


def row(name: str, model: str, size: int, test: Path, steps: int, took: float) -> str:
    """A row of the table."""
    embedder = load_torch(model, size=size)
    found = judged(embedder, test, {"all": "embedding"})["all"]
    tiles = views_of(test)[0][:32]
    embedder.embed(tiles)
    begun = time.process_time()
    embedder.embed(tiles)
    each = (time.process_time() - begun) / len(tiles)
    return f"| {name} | {size} | {steps} | {took:.0f} | {found['D2S']:.1f} / {found['S2D']:.1f} | {1000 * each:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--places", type=int, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "input-size")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "input-size.md")
    arguments = parser.parse_args()
    test = places(arguments)
    rows = [row("shipped", "default", size, test, 0, 0.0) for size in SIZES]
    for size in SIZES:
        model, took = trained(arguments, size)
        rows.append(row(f"after training at {size} px", str(model), size, test, arguments.steps, took))
    lines = [
        "# Input size: 224 or 336 px",
        "",
        f"The shipped model, alone and after {arguments.steps} more steps of {arguments.batch} pairs at "
        "each size, on the images of its last stage (320 px). R@1 in percent, drone to satellite / satellite to "
        "drone, "
        f"on {arguments.places} of the real test places of [default-model.md](default-model.md), two oblique drone "
        f"views each, rendered at {EDGE} px instead of 256. One seed.",
        "",
        "| model | input, px | steps | training, processor s | real, oblique, D→S / S→D | embedding, processor ms |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    write_page(arguments.out, lines)


if __name__ == "__main__":
    main()
