"""Does the head learn? Full SkyPart and CLS-only, trained the same way, on rendered worlds, with three seeds.

    python benchmarks/learning.py --backbone ../shared/weights/dinov2_vits14_descendant.safetensors

makes the worlds (procedural; real ones too if --real FOLDER of rasters is given), trains 2 variants x 3 seeds on
each, evaluates both directions on test locations never trained on, and writes docs/results/learning.md and .json.
Finished runs are kept under --work and not repeated.
"""

import argparse
import datetime
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from skypart.atomic import write_text
from skypart.datasets import open_dataset
from skypart.embedding import load
from skypart.evaluation.protocol import Protocol, embed_dataset, evaluate
from skypart.evaluation.run import open_source
from skypart.progress import console
from skypart.training.checkpoint import code_version
from skypart.training.distributed import start_workers
from skypart.training.loop import train
from skypart.training.recipe import Recipe, load_recipe
from skypart.training.setup import prepare
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

ROOT = Path(__file__).resolve().parent.parent
SEEDS = (42, 123, 2024)
# CLS-only: the embedding is the CLS branch, and no loss touches parts; InfoNCE on each branch, which on the only one
# would be InfoNCE again, is left out. Everything else is the same.
VARIANTS: dict[str, list[str]] = {
    "full SkyPart": [],
    "CLS-only": [
        "head.readout=cls",
        "head.patch_layer=10",
        "loss.part=false",
        "loss.alt=false",
        "loss.branches=false",
    ],
}


def make_worlds(work: Path, arguments: argparse.Namespace) -> dict[str, Path]:
    """Render (or find) the data sets."""
    # 250 m apart: no tile (220 m) of a test location overlaps one that was trained on
    options = {
        "locations": arguments.locations, "image_size": 224, "views": arguments.views, "maps": False, "spacing": 250.0,
    }  # fmt: skip
    worlds = {"procedural": work / "procedural"}
    make_world(worlds["procedural"], build_request(None, seed=7, **options), workers=os.cpu_count() or 1)
    if arguments.real:
        worlds["real"] = work / "real"
        make_world(worlds["real"], build_request(arguments.real, seed=7, **options), workers=os.cpu_count() or 1)
    return worlds


def recipe_for(arguments: argparse.Namespace, data: Path, out: Path, seed: int, extra: list[str]) -> Recipe:
    """The recipe of one run."""
    overrides = [
        f"data.root={data}",
        f"backbone.name={arguments.backbone}",
        f"run.out={out}",
        f"run.seed={seed}",
        f"optimiser.epochs={arguments.epochs}",
        *arguments.set,
        *extra,
    ]
    return load_recipe(ROOT / "recipes" / "world.toml", overrides)


def run_one(recipe: Recipe, work: Path) -> dict[str, Any]:
    """Train (or resume, or find) one run and evaluate its last model on the test locations."""
    out = Path(recipe.run.out)
    finished = out / "test.json"
    if finished.is_file():
        return dict(json.loads(finished.read_text()))
    result = train(prepare(recipe, start_workers("cpu")))
    if not result.finished:
        raise SystemExit(130)
    dataset = open_dataset(Path(recipe.data.root))
    embedder = load(result.model)
    source = open_source(embedder, work / "cache", 32)
    with source.cache:
        vectors = embed_dataset(dataset, source)
        scores = evaluate(dataset, vectors, Protocol(embedder.size, embedder.interpolation), out.name, embedder.digest)
    row = {
        "headline": scores.headline,
        "validation": result.progress.history,
        "idle": result.idle,
        "steps": result.progress.step,
        "health": _last_health(out / "log.jsonl"),
    }
    write_text(finished, json.dumps(row, indent=1))
    return row


def _last_health(log: Path) -> dict[str, float]:
    """The last record of prototypes and gate."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [r for r in records if r["kind"] == "health"][-1]  # type: ignore[no-any-return]


def table(results: dict[str, dict[str, dict[int, dict[str, Any]]]]) -> list[str]:
    """Markdown rows: a data set, a seed, both variants in both directions, and the difference."""
    lines = [
        "| world | seed | D->S R@1 full | CLS-only | difference | S->D R@1 full | CLS-only | difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for world, variants in results.items():
        pairs = {
            s: [variants[v][s]["headline"] for v in VARIANTS] for s in SEEDS if all(s in variants[v] for v in VARIANTS)
        }
        for seed, (full, cls) in pairs.items():
            cells = [
                f"{a:.2f} | {b:.2f} | {a - b:+.2f}"
                for a, b in ((full[d]["R@1"], cls[d]["R@1"]) for d in ("D2S", "S2D"))
            ]
            lines.append(f"| {world} | {seed} | {' | '.join(cells)} |")
        if len(pairs) > 1:
            means = [
                [sum(pair[i][d]["R@1"] for pair in pairs.values()) / len(pairs) for i in (0, 1)] for d in ("D2S", "S2D")
            ]
            cells = [f"**{a:.2f}** | **{b:.2f}** | **{a - b:+.2f}**" for a, b in means]
            lines.append(f"| {world} | mean | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run everything that is not finished yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--real", nargs="*", default=[])
    parser.add_argument("--work", type=Path, default=Path("runs/learning"))
    parser.add_argument("--locations", type=int, default=120)
    parser.add_argument("--views", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], help="more recipe overrides, for all runs")
    parser.add_argument("--only", default="", help="only this world")
    arguments = parser.parse_args()
    worlds = {k: v for k, v in make_worlds(arguments.work, arguments).items() if arguments.only in ("", k)}
    results: dict[str, dict[str, dict[int, dict[str, Any]]]] = {w: {v: {} for v in VARIANTS} for w in worlds}
    for seed in SEEDS:
        for world, data in worlds.items():
            for variant, extra in VARIANTS.items():
                out = arguments.work / f"{world}-{variant.replace(' ', '-').lower()}-{seed}"
                results[world][variant][seed] = run_one(recipe_for(arguments, data, out, seed, extra), arguments.work)
                console.print(f"{out.name}: {results[world][variant][seed]['headline']}")
    recipe = recipe_for(arguments, Path("DATA"), Path("OUT"), 0, [])
    first = next(iter(results.values()))["full SkyPart"][SEEDS[0]]
    lines = [
        "# Does it learn? Full SkyPart against CLS-only",
        "",
        "R@1 in percent, mean over four altitudes, full gallery, on test locations never trained on. The worlds",
        "are rendered and laid out like SUES-200. Both variants have the same backbone, data, steps, batch,",
        "augmentation and seeds. CLS-only uses the CLS branch alone and has no part losses. The full head",
        "also has an InfoNCE on each branch; CLS-only has one branch, so one InfoNCE. The last model of each run",
        "is evaluated; no epoch was chosen on the test locations. The decision to pool all twelve parts was made",
        "while looking at worlds of this kind.",
        "",
        *table(results),
        "",
        f"{first['steps']} steps of {recipe.batch.locations} locations x ({recipe.batch.drone} drone + "
        f"{recipe.batch.satellite} satellite) images at {recipe.backbone.size} px, "
        f"{recipe.backbone.trainable_blocks} blocks trained, no teacher; {arguments.locations} locations, "
        f"{arguments.views} drone views per altitude, 60 % of the locations for training.",
        "The backbone is a fine-tuned descendant of DINOv2-S, not the published weights, so these are not DINOv2's "
        "numbers.",
        "",
        f"Made by `python {' '.join(sys.argv)}` on {datetime.date.today().isoformat()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, no GPU, skypart {code_version()}. Details of every run: learning.json.",
        "",
    ]
    write_text(ROOT / "docs/results/learning.md", "\n".join(lines))
    write_text(ROOT / "docs/results/learning.json", json.dumps(results, indent=1))
    console.print("\n".join(lines))


if __name__ == "__main__":
    main()
