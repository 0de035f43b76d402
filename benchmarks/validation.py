"""Which model should ship? Compares models on validation places, so that the reported test places decide nothing.

    python benchmarks/validation.py default runs/default-model/tried-night-and-grey/model.safetensors [--shares 0.5]

renders the validation worlds (kept under --work) and prints a Markdown table. The worlds are squares of Santa Monica,
seen obliquely over guessed heights, and a procedural coast. The shipped model was trained on Santa Monica; a run to be
compared with it has to skip that city (`--skip long_beach,eureka,santa_monica`), and is then at a disadvantage there.
No model was trained on the style `coast`. --shares adds means of weights with the first model (see skypart.model.mean).
"""

import argparse
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.unseen import at_night, both_ways, views_of

from skypart.images.augment import photograph
from skypart.images.decode import RgbImage, read_rgb
from skypart.model.embedder import TorchEmbedder, load_torch
from skypart.model.mean import mean_model
from skypart.progress import console
from skypart.training.checkpoint import code_version
from skypart.worlds.make import make_world
from skypart.worlds.request import Request, build_request

ROOT = Path(__file__).resolve().parent.parent
TEMPERATURE = 0.05
"""Of the cross entropy, as in the last stages of training."""


def requests(shared: Path) -> dict[str, Request]:
    """The validation worlds by name."""
    city = [str(shared / "data" / "naip_california_cc_by")]
    return {
        "Santa Monica": build_request(
            city,
            only="santa_monica",
            locations=92,
            seed=71,
            like="free",
            image_size=320,
            views=2,
            maps=False,
            surround=True,
            guess_heights=True,
        ),
        "coast": build_request(
            None,
            styles="coast",
            locations=60,
            seed=109,
            like="free",
            image_size=320,
            views=2,
            maps=False,
            spacing=200.0,
        ),
    }


def without_colour(picture: RgbImage) -> RgbImage:
    """(h, w, 3) uint8, all channels the luma."""
    luma = picture.astype(np.float32) @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    grey: RgbImage = np.repeat((luma + 0.5).astype(np.uint8)[..., None], 3, axis=2)
    return grey


def cross_entropy(
    drones: NDArray[np.float32], labels: NDArray[np.str_], tiles: NDArray[np.float32], places: NDArray[np.str_]
) -> float:
    """Mean over drone images, in nats, of the right tile among all: moves before R@1 does. One tile a place."""
    logits = torch.from_numpy(drones @ tiles.T / TEMPERATURE)
    right = torch.from_numpy((labels[:, None] == places[None]).argmax(axis=1))
    return float(torch.nn.functional.cross_entropy(logits, right))


def judge(embedder: TorchEmbedder, world: Path) -> dict[str, str]:
    """R@1 of both directions in per cent and the cross entropy, by column."""
    files, drones = views_of(world)
    places, labels = np.array([path.parent.name for path in files]), np.array([place for place, _ in drones])
    tiles, photos = [read_rgb(path) for path in files], [read_rgb(path) for _, path in drones]
    columns: Mapping[str, tuple[Sequence[RgbImage], bool]] = {
        "clear": (photos, True),
        "framed as in flight": ([photograph(each, _draws(number)) for number, each in enumerate(photos)], True),
        "at night": ([at_night(each, _draws(number)) for number, each in enumerate(photos)], True),
        "clear, tiles without colour": (photos, False),
    }
    galleries = {True: embedder.embed(tiles), False: embedder.embed([without_colour(tile) for tile in tiles])}
    found = {}
    for title, (pictures, coloured) in columns.items():
        rows, gallery = embedder.embed(pictures), galleries[coloured]
        ways = both_ways(rows, labels, gallery, places)
        entropy = cross_entropy(rows, labels, gallery, places)
        found[title] = f"{ways['D2S']:.1f} / {ways['S2D']:.1f} ({entropy:.2f})"
    return found


def _draws(number: int) -> np.random.Generator:
    """The random numbers of a photo."""
    return np.random.default_rng([number, 77])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="`default` or model files")
    parser.add_argument("--shares", type=float, nargs="*", default=[], help="of the first model, in means with others")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "default-model" / "validation")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    compared = {name: load_torch(name) for name in arguments.models}
    first, *others = arguments.models
    for name in others:
        for share in arguments.shares:
            compared[f"mean, {share:g} of {first}, with {name}"] = TorchEmbedder(mean_model(first, name, share))
    for title, request in requests(arguments.shared).items():
        world = arguments.work / title.lower().replace(" ", "-")
        make_world(world, request, workers=arguments.workers)
        rows = {name: judge(embedder, world) for name, embedder in compared.items()}
        heads = list(next(iter(rows.values())))
        console.print(f"\n| {title}: R@1, %, D→S / S→D (cross entropy, nats) | {' | '.join(heads)} |", soft_wrap=True)
        console.print("|---|" + "---|" * len(heads), soft_wrap=True)
        for name, cells in rows.items():
            console.print(f"| {name} | {' | '.join(cells.values())} |", soft_wrap=True)
    console.print(f"\n{platform.machine()}, {os.cpu_count()} cores, code {code_version()}", soft_wrap=True)


if __name__ == "__main__":
    main()
