"""Hard negatives: training locations that the start model of a run confuses with each other."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.datasets.records import Record
from skypart.datasets.sampler import index_locations
from skypart.embedding.files import embed_paths
from skypart.model.embedder import load_torch
from skypart.training.data import fingerprint
from skypart.training.precision import autocast


def location_similarity(
    records: Sequence[Record],
    start: str,
    size: int,
    folder: Path,
    device: torch.device,
    precision: torch.dtype | None = None,
) -> NDArray[np.float32]:
    """Symmetric similarities (n, n) in [-1, 1] of the n training locations in label order, cached in `folder`.

    Compares the first drone image of each location with the first tiles of the others. Embeddings come from the model
    `start` at `size` pixels, without augmentation or weather. precision: that of the run; None: float32.
    """
    embedder = load_torch(start, size=size, device=device)
    embedder.preprocessing.check_unwarped("batch.alike")
    suffix = "" if precision is None else f"-{precision}".replace("torch.", "")
    cache = folder / f"location-similarity-{embedder.digest[:12]}-{fingerprint(records)[:12]}{suffix}.npy"
    if not cache.is_file():
        index = index_locations(records)
        firsts = [records[images[0]].path for view in (index.drone, index.satellite) for images in view]
        with autocast(device, precision):
            drone, tile = np.split(embed_paths(embedder, firsts, "hard negatives"), 2)
        similarity = drone @ tile.T
        with atomic_path(cache) as temporary:
            np.save(temporary, ((similarity + similarity.T) / 2).astype(np.float32))
    cached: NDArray[np.float32] = np.load(cache, allow_pickle=False)
    return cached
