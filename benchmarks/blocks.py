"""How many of the backbone's blocks should be trained?

    python benchmarks/blocks.py --data runs/default-model/data/cities-5 --tests runs/default-model/test/real ...

trains the first stage's recipe on some of the places, at a small size, from the untrained backbone. Of the ten blocks
that the head reads, the last 2, 4, 6 or all 10 are trained, with the same places, draws and steps. R@1 on test worlds
and the CPU time of training are written to docs/results/blocks.md.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.kept_tokens import ROOT, recipe_for, scores, some_places
from benchmarks.page import write_page

from skypart.datasets.records import Record
from skypart.training.distributed import start_workers
from skypart.training.loop import train
from skypart.training.setup import prepare

UNREAD = 2
"""Of twelve blocks the head reads ten."""


def trained(arguments: argparse.Namespace, records: Sequence[Record], learning: int) -> tuple[Path, float]:
    """The model with its last `learning` read blocks trained, and the processor time it took in seconds."""
    blocks = f"backbone.trainable_blocks={learning + UNREAD}"
    recipe = recipe_for(arguments, f"{learning}-blocks", arguments.steps, blocks)
    run = prepare(recipe, start_workers("cpu"), records)
    begun = time.process_time()
    return train(run).model, time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tests", type=Path, nargs="+", required=True)
    parser.add_argument("--backbone", default="../shared/weights/dinov2_vits14_descendant.safetensors")
    parser.add_argument("--learning", type=int, nargs="+", default=[2, 4, 6, 10])
    parser.add_argument("--places", type=int, default=400)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "blocks")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "blocks.md")
    arguments = parser.parse_args()
    records = some_places(arguments.data, arguments.places)
    lines = [
        "# Number of trained blocks",
        "",
        f"{len({record.location for record in records})} places, {len(records)} images, {arguments.size} px, "
        f"{arguments.steps} steps of {arguments.batch} pairs from the untrained backbone, with the first "
        "stage's recipe and its learning rate annealed to the end; one seed. R@1 in percent, drone to satellite / "
        "satellite to drone.",
        "",
        "| trained blocks, of ten | training, CPU s | " + " | ".join(world.name for world in arguments.tests) + " |",
        "|---|---|" + "---|" * len(arguments.tests),
    ]
    for learning in arguments.learning:
        model, took = trained(arguments, records, learning)
        lines.append(f"| the last {learning} | {took:.0f} | {scores(arguments, model)} |")
    lines += [
        "",
        "The backbone is a fine-tuned descendant of DINOv2-S, not the published weights, so these are not DINOv2's "
        "numbers.",
    ]
    write_page(arguments.out, lines)


if __name__ == "__main__":
    main()
