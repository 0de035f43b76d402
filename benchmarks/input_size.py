"""224 against 336 px: the shipped model trained on for a few steps at each size, from the same pictures.

    python benchmarks/input_size.py --shared ../shared

renders real places at 384 px, so that neither size enlarges its pictures, trains the last stage's recipe on from the
shipped model at 224 and at 336 px (same draws, same steps), and writes R@1 on the real test places, rendered as large,
to docs/results/input-size.md, with the processor time an image takes to embed at each size.
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

from skypart.model.embedder import load
from skypart.training.distributed import start_workers
from skypart.training.loop import train
from skypart.training.recipe import load_recipe
from skypart.training.setup import prepare
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

ROOT = Path(__file__).resolve().parent.parent
SIZES = (224, 336)
EDGE = 384


def worlds(arguments: argparse.Namespace) -> tuple[Path, Path, Path]:
    """Folders of places in cities, of sites with heights or drone mosaics, and of the test places."""
    data = arguments.shared / "data"
    common: dict[str, Any] = {"like": "free", "image_size": EDGE, "maps": False}
    cities, sites, test = (arguments.work / name for name in ("cities", "sites", "test"))
    naip = str(data / "naip_california_cc_by")
    others = [str(data / "kentucky_lidar_public_domain"), str(data / "oam_drone_mosaics_cc_by")]
    seen = build_request([naip], skip="long_beach,eureka", seed=5, views=4, locations=320, **common)
    make_world(cities, seen, workers=arguments.workers)
    make_world(sites, build_request(others, seed=5, views=4, spacing=110.0, locations=220, **common), arguments.workers)
    real = [str(data / "autzen_lidar_cc_by"), naip]  # the places of benchmarks/default_model.py, larger
    asked = build_request(real, only=HELD_OUT, seed=7, spacing=100.0, locations=200, views=2, **common)
    make_world(test, asked, workers=arguments.workers)
    return cities, sites, test


def trained(arguments: argparse.Namespace, size: int, cities: Path, sites: Path) -> tuple[Path, float]:
    """The shipped model after some steps more at a size, and the processor time they took in seconds."""
    overrides = [
        f"data.root={cities}",
        f'data.also=["{sites}"]',
        "data.shares=[1.0, 0.8]",
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
    run = prepare(load_recipe(ROOT / "recipes" / "default-model-keen.toml", overrides), start_workers("cpu"))
    begun = time.process_time()
    return train(run).model, time.process_time() - begun


def row(name: str, model: str, size: int, test: Path, steps: int, took: float) -> str:
    """A row of the table."""
    embedder = load(model, size=size)
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
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "input-size")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "input-size.md")
    arguments = parser.parse_args()
    cities, sites, test = worlds(arguments)
    rows = [row("shipped", "default", size, test, 0, 0.0) for size in SIZES]
    for size in SIZES:
        model, took = trained(arguments, size, cities, sites)
        rows.append(row(f"trained on at {size} px", str(model), size, test, arguments.steps, took))
    lines = [
        "# 224 against 336 px",
        "",
        f"The shipped model, and the same trained on for {arguments.steps} steps of {arguments.batch} pairs at each "
        f"size, from new {EDGE} px pictures of places it was trained on. R@1 in per cent, drone to satellite / "
        f"satellite to drone, on the 200 real test places of [default-model.md](default-model.md), rendered at "
        f"{EDGE} px instead of 256. One seed.",
        "",
        "| model | input, px | steps | training, processor s | real, D→S / S→D | processor ms to embed an image |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    write_page(arguments.out, lines)


if __name__ == "__main__":
    main()
