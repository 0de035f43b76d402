"""Is it worth caching the tokens of frozen blocks, so that a long run computes them only once?

    python benchmarks/kept_tokens.py --data runs/default-model/data/real --tests runs/default-model/test/real ...

trains the first stage's recipe on some of the places, at a small size, twice from the same start. One run augments each
image whenever it is drawn. The other draws a few variants of each image once and caches their tokens after the last
frozen block. Given time, it also runs as many steps as the first one could, including the preparation. R@1 on test
worlds is written to docs/results/kept-tokens.md.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.branches import judged
from benchmarks.page import write_page

from skypart.datasets import open_dataset
from skypart.datasets.records import Record
from skypart.datasets.sampler import Draw
from skypart.model.embedder import load_torch
from skypart.model.skypart import SkyPart
from skypart.model.vit import Trunk, VisionTransformer
from skypart.progress import with_progress
from skypart.training.data import Batch
from skypart.training.distributed import start_workers
from skypart.training.loop import train
from skypart.training.recipe import Recipe, load_recipe
from skypart.training.setup import Run, prepare

ROOT = Path(__file__).resolve().parent.parent


def recipe_for(arguments: argparse.Namespace, out: str, steps: int, *more: str) -> Recipe:
    """The first stage, small, its learning rate falling to the end after `steps` steps. more: further overrides."""
    overrides = [
        f"data.root={arguments.data}",
        "data.also=[]",
        f"backbone.name={arguments.backbone}",
        f"backbone.size={arguments.size}",
        f"batch.locations={arguments.batch}",
        f"batch.steps={steps}",
        "optimiser.epochs=1",
        "optimiser.stop_after=0",
        "optimiser.warmup_epochs=0.1",
        "distill.mar_ramp_epochs=0.2",
        f"run.out={arguments.work / out}",
        "run.device=cpu",
        *more,
    ]
    return load_recipe(ROOT / "recipes" / "default-model" / "01-small-images.toml", overrides)


def some_places(root: Path, count: int) -> list[Record]:
    """Training images of `count` places, evenly chosen."""
    every = open_dataset(root).train
    names = sorted({record.location for record in every})
    taken = set(names[:: max(1, len(names) // count)][:count])
    return [record for record in every if record.location in taken]


class KeptData:
    """Stands in for a run's data: batches whose images are tokens, (b, tokens, dim), of some variants of each image."""

    def __init__(self, run: Run, variants: int) -> None:
        self.data, self.variants = run.data, variants
        self.sampler, self.images = run.data.sampler, run.data.images
        self.tokens: dict[tuple[int, int], Tensor] = {}
        model = run.student
        draws = [
            self._fixed(record, variant) for record in range(len(self.images.records)) for variant in range(variants)
        ]
        with torch.inference_mode():
            for start in with_progress(range(0, len(draws), 48), "keeping tokens"):
                some = draws[start : start + 48]
                trunk = model.trunk(torch.stack([self.images[draw][0] for draw in some]))
                for draw, tokens in zip(some, trunk.x.half(), strict=True):
                    self.tokens[draw.record, draw.seed] = tokens.clone()

    def _fixed(self, record: int, variant: int) -> Draw:
        """A variant of an image; all images of a place are mirrored alike in a variant."""
        place = int.from_bytes(self.images.records[record].location.encode()[-6:], "big")
        return Draw(record, record * self.variants + variant, place * self.variants + variant)

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """As of `TrainingData`, with a variant drawn for each place of a batch."""
        each = self.sampler.images_per_location
        for number, batch in enumerate(self.sampler.epoch(epoch)[first_step:]):
            chosen = np.random.default_rng([epoch, first_step + number, 0x6E]).integers(self.variants, size=len(batch))
            fixed = [self._fixed(draw.record, int(chosen[index // each])) for index, draw in enumerate(batch)]
            found = self.data.collate([(self.tokens[draw.record, draw.seed].float(), draw.record) for draw in fixed])
            assert isinstance(found, Batch)
            yield found


@dataclass(frozen=True)
class Outcome:
    """One run: its steps, the seconds of preparation and of training, and the model."""

    steps: int
    prepared: float
    trained: float
    model: Path


def read_tokens(student: SkyPart, size: int) -> None:
    """Let the student take kept tokens, (b, tokens, dim), for what frozen blocks make of images of `size` px."""
    edge, trunk_of = size // student.backbone_interface.patch, student.trunk
    frozen = cast(VisionTransformer, student.backbone).frozen_blocks

    def trunk(given: Tensor) -> Trunk:
        return Trunk(given, frozen, (edge, edge), {}) if given.ndim == 3 else trunk_of(given)

    student.trunk = trunk  # type: ignore[method-assign, assignment]


def fresh(arguments: argparse.Namespace, records: Sequence[Record]) -> Outcome:
    """Every draw anew."""
    run = prepare(recipe_for(arguments, "fresh", arguments.steps), start_workers("cpu"), records)
    begun = time.perf_counter()
    result = train(run)
    return Outcome(arguments.steps, 0.0, time.perf_counter() - begun, result.model)


def kept(
    arguments: argparse.Namespace, records: Sequence[Record], name: str, steps: int, data: KeptData | None
) -> tuple[Outcome, KeptData]:
    """With kept tokens: the outcome, and the tokens for another run."""
    run = prepare(recipe_for(arguments, name, steps), start_workers("cpu"), records)
    begun = time.perf_counter()
    if data is None:
        data = KeptData(run, arguments.variants)
    prepared = time.perf_counter() - begun
    data.sampler = run.data.sampler
    read_tokens(run.student, arguments.size)
    begun = time.perf_counter()
    result = train(replace(run, data=data))  # type: ignore[arg-type]
    return Outcome(steps, prepared, time.perf_counter() - begun, result.model), data


def scores(arguments: argparse.Namespace, model: Path) -> str:
    """R@1 of both directions on each test world, as cells of a table."""
    embedder = load_torch(str(model), size=arguments.size)
    found = [judged(embedder, world, {"all": "embedding"})["all"] for world in arguments.tests]
    return " | ".join(f"{each['D2S']:.1f} / {each['S2D']:.1f}" for each in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tests", type=Path, nargs="+", required=True)
    parser.add_argument("--backbone", default="../shared/weights/dinov2_vits14_descendant.safetensors")
    parser.add_argument("--places", type=int, default=400)
    parser.add_argument("--variants", type=int, default=3)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "kept-tokens")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "kept-tokens.md")
    arguments = parser.parse_args()
    records = some_places(arguments.data, arguments.places)
    outcomes = {"tokens computed again whenever an image is drawn": fresh(arguments, records)}
    anew = outcomes["tokens computed again whenever an image is drawn"]
    short, data = kept(arguments, records, "kept-short", arguments.steps, None)
    outcomes[f"{arguments.variants} variants of each image cached, same number of steps"] = short
    left = anew.trained - short.prepared
    more = round(left / short.trained * short.steps)
    if more > short.steps:
        outcomes[f"{arguments.variants} variants of each image cached, same time"] = replace(
            kept(arguments, records, "kept-long", more, data)[0], prepared=short.prepared
        )
    lines = [
        "# Caching the tokens of frozen blocks",
        "",
        f"{len({record.location for record in records})} places, {len(records)} images, {arguments.size} px, "
        f"batches of {arguments.batch} pairs, the "
        "first stage's recipe with its learning rate annealed to the end; one seed. R@1 in percent, drone to "
        "satellite / satellite to drone.",
        "",
        "| run | steps | preparation, s | training, s | " + " | ".join(world.name for world in arguments.tests) + " |",
        "|---|---|---|---|" + "---|" * len(arguments.tests),
    ]
    for name, each in outcomes.items():
        figures = scores(arguments, each.model)
        lines.append(f"| {name} | {each.steps} | {each.prepared:.0f} | {each.trained:.0f} | {figures} |")
    lines += [
        "",
        "The backbone is a fine-tuned descendant of DINOv2-S, not the published weights, so these are not DINOv2's "
        "numbers.",
    ]
    write_page(arguments.out, lines)


if __name__ == "__main__":
    main()
