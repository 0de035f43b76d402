"""Choose the best epoch on held-out TRAINING locations, never on the test set."""

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
    """Training records split by location into training and validation.

    train: the records to train on. drone: a sample of the drone images of held-out locations. satellite: tiles of all
    locations, so that the others serve as distractors, as in the benchmarks.
    """

    train: list[Record]
    drone: list[Record]
    satellite: list[Record]


def hold_out(records: Sequence[Record], share: float, drone_per_location: int, seed: int) -> HoldOut:
    """Hold out a random `share` of the locations, at least two unless it is 0. seed: of the random choice."""
    names = sorted({record.location for record in records})
    count = min(len(names) - 2, max(2, round(share * len(names)))) if share > 0 else 0
    if count < 2:
        return HoldOut(list(records), [], [])
    held_out = set(np.random.default_rng([seed, 0xE7]).permutation(names)[:count].tolist())
    drone: list[Record] = []
    for name in sorted(held_out):
        images = [r for r in records if r.location == name and r.view == "drone"]
        images.sort(key=lambda r: (r.altitude or 0.0, r.path.name))
        chosen = np.linspace(0, len(images) - 1, min(len(images), drone_per_location)).round().astype(int)
        drone += [images[i] for i in dict.fromkeys(chosen.tolist())]
    satellite = [r for r in records if r.view == "satellite"]
    return HoldOut([r for r in records if r.location not in held_out], drone, satellite)


def ranking_key(result: Mapping[str, float]) -> tuple[float, float]:
    """Sort key of validation results, best last: the score; ties, common with few locations, go by the sum of APs."""
    return result["score"], result["D2S AP"] + result["S2D AP"]


def validate(model: SkyPart, split: HoldOut, images: TrainingImages, device: torch.device) -> dict[str, float]:
    """Retrieval metrics in both directions on the held-out records, in percent; `score` is the mean R@1 of the two.

    D2S: each drone image against all tiles, with SDM@1 if all positions are known, as in DenseUAV. S2D: each tile whose
    location has drone images, against all drone images. Drone images have the weather of training, the same at every
    validation.
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
    tile_vectors = np.concatenate(
        [
            embedder.embed([model.preprocessing.read_tile(r.path) for r in satellite[first : first + _BATCH]])
            for first in range(0, len(satellite), _BATCH)
        ]
    )
    model.train(was_training)
    labels = {name: i for i, name in enumerate(sorted({r.location for r in (*drone, *satellite)}))}
    drone_ids = np.asarray([labels[r.location] for r in drone])
    tile_ids = np.asarray([labels[r.location] for r in satellite])
    queries = np.isin(tile_ids, drone_ids)
    d2s = retrieval_metrics(drone_vectors, drone_ids, tile_vectors, tile_ids)
    s2d = retrieval_metrics(tile_vectors[queries], tile_ids[queries], drone_vectors, drone_ids)
    result = {
        "D2S R@1": d2s["R@1"],
        "D2S AP": d2s["AP"],
        "S2D R@1": s2d["R@1"],
        "S2D AP": s2d["AP"],
        "score": (d2s["R@1"] + s2d["R@1"]) / 2,
    }
    drone_positions, tile_positions = positions(drone), positions(satellite)
    if drone_positions is not None and tile_positions is not None:
        nearest, _ = top_matches(drone_vectors, tile_vectors, 1)
        result["D2S SDM@1"] = sdm(drone_positions, tile_positions, nearest, [1])["SDM@1"]
    return result
