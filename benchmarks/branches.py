"""R@1 of a model's embedding and of each of its branches on rendered test worlds.

    python benchmarks/branches.py MODEL --size 224 runs/default-model/test/real ...

Prints D->S / S->D in percent, as benchmarks/default_model.py measures them.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.default_model import rows_of
from benchmarks.unseen import both_ways, views_of

from skypart.model.embedder import TorchEmbedder, load_torch

BRANCHES = {name: name for name in ("embedding", "part", "cls", "graph")}


def judged(embedder: TorchEmbedder, world: Path, wanted: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """R@1 of both directions by name, each of the embedding or the branch that `wanted` gives for it."""
    files, drones = views_of(world)
    tiles, views = (rows_of(embedder, wanted, each) for each in (files, [path for _, path in drones]))
    labels, places = np.array([place for place, _ in drones]), np.array([path.parent.name for path in files])
    return {name: both_ways(views[name], labels, tiles[name], places) for name in wanted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("worlds", type=Path, nargs="+")
    parser.add_argument("--size", type=int)
    arguments = parser.parse_args()
    embedder = load_torch(arguments.model, size=arguments.size)
    for world in arguments.worlds:
        for name, found in judged(embedder, world, BRANCHES).items():
            print(f"{world.name} {embedder.size} px {name}: {found['D2S']:.1f} / {found['S2D']:.1f}")


if __name__ == "__main__":
    main()
