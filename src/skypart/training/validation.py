"""Choosing by held-out TRAINING locations, never by the test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from skypart.datasets.records import Record
from skypart.evaluation.distance import sdm
from skypart.evaluation.metrics import retrieval_metrics
from skypart.evaluation.protocol import positions
from skypart.evaluation.ranking import top_matches
from skypart.model.embedder import TorchEmbedder
from skypart.model.skypart import SkyPart
from skypart.training.data import TrainingImages

_BATCH = 16


@dataclass(frozen=True)
class HoldOut:
    """The training records split by location: what is trained on, and what the best epoch is chosen by.

    drone: drone images of held-out locations, thinned. satellite: tiles of all training locations, the held-out
    ones among the others as distractors, as the benchmarks do.
    """

    train: list[Record]
    drone: list[Record]
    satellite: list[Record]


def hold_out(records: Sequence[Record], share: float, drone_per_location: int, seed: int) -> HoldOut:
    """Keep `share` of the locations (at least two, if any) out of training, drawn from `seed`."""
    names = sorted({record.location for record in records})
    count = min(len(names) - 2, max(2, round(share * len(names)))) if share > 0 else 0
    if count < 2:
        return HoldOut(list(records), [], [])
    kept = set(np.random.default_rng([seed, 0xE7]).permutation(names)[:count].tolist())
    drone: list[Record] = []
    for name in sorted(kept):
        images = [r for r in records if r.location == name and r.view == "drone"]
        images.sort(key=lambda r: (r.altitude or 0.0, r.path.name))
        chosen = np.linspace(0, len(images) - 1, min(len(images), drone_per_location)).round().astype(int)
        drone += [images[i] for i in dict.fromkeys(chosen.tolist())]
    satellite = [r for r in records if r.view == "satellite"]
    return HoldOut([r for r in records if r.location not in kept], drone, satellite)


def ranking_key(result: Mapping[str, float]) -> tuple[float, float]:
    """What the best epoch is best in: the score, and where few held-out locations make that equal, both APs."""
    return result["score"], result["D2S AP"] + result["S2D AP"]


def validate(model: SkyPart, split: HoldOut, images: TrainingImages, device: torch.device) -> dict[str, float]:
    """Both directions on the held-out records, in percent; `score` is the mean R@1 of the two.

    D2S: each drone image against all tiles, with SDM@1 where all positions are known, as in DenseUAV. S2D: each tile
    whose location has drone images, against them. Drone images are in the weather that training has, the same at every
    validation, else clear.
    """
    was_training = model.training
    embedder = TorchEmbedder(model, device)
    drone, satellite = split.drone, split.satellite
    drone_vectors = np.concatenate(
        [
            embedder.embed([images.read_held_out(record) for record in drone[first : first + _BATCH]])
            for first in range(0, len(drone), _BATCH)
        ]
    )
    tile_vectors = embedder.embed([record.path for record in satellite])
    model.train(was_training)
    labels = {name: i for i, name in enumerate(sorted({r.location for r in (*drone, *satellite)}))}
    drone_ids = np.asarray([labels[r.location] for r in drone])
    tile_ids = np.asarray([labels[r.location] for r in satellite])
    asked = np.isin(tile_ids, drone_ids)
    down = retrieval_metrics(drone_vectors, drone_ids, tile_vectors, tile_ids)
    up = retrieval_metrics(tile_vectors[asked], tile_ids[asked], drone_vectors, drone_ids)
    result = {
        "D2S R@1": down["R@1"],
        "D2S AP": down["AP"],
        "S2D R@1": up["R@1"],
        "S2D AP": up["AP"],
        "score": (down["R@1"] + up["R@1"]) / 2,
    }
    here, there = positions(drone), positions(satellite)
    if here is not None and there is not None:
        nearest, _ = top_matches(drone_vectors, tile_vectors, 1)
        result["D2S SDM@1"] = sdm(here, there, nearest, [1])["SDM@1"]
    return result
