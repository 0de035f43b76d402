"""R@1 of a model's embedding and of each of its branches on rendered test worlds.

    python benchmarks/branches.py MODEL --size 224 runs/default-model/test/real ...

A world is a folder made by `skypart world make --like free`. Prints D->S / S->D in per cent: every drone picture
against one tile a place, every tile against all drone pictures.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from skypart.evaluation.metrics import retrieval_metrics
from skypart.model.embedder import Embedder, load

BRANCHES = ("embedding", "part", "cls", "graph")


def branches(embedder: Embedder, pictures: list[Path]) -> dict[str, NDArray[np.float32]]:
    """Unit rows of the embedding and of each branch."""
    outputs = list(embedder.outputs(pictures, 16))
    return {name: torch.cat([getattr(output, name) for output in outputs]).numpy() for name in BRANCHES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("worlds", type=Path, nargs="+")
    parser.add_argument("--size", type=int)
    arguments = parser.parse_args()
    embedder = load(arguments.model, size=arguments.size)
    for world in arguments.worlds:
        places = sorted(path.name for path in (world / "drone").iterdir())
        drones = [(place, path) for place in places for path in sorted((world / "drone" / place).iterdir())]
        tiles = branches(embedder, [world / "satellite" / place / "0.jpg" for place in places])
        views = branches(embedder, [path for _, path in drones])
        labels, gallery = np.array([place for place, _ in drones]), np.array(places)
        for name in BRANCHES:
            there = retrieval_metrics(views[name], labels, tiles[name], gallery)["R@1"]
            back = retrieval_metrics(tiles[name], gallery, views[name], labels)["R@1"]
            print(f"{world.name} {embedder.size} px {name}: {there:.1f} / {back:.1f}")


if __name__ == "__main__":
    main()
