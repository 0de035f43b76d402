"""Hard negatives: which training locations the model that a run starts from confuses with each other."""

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
    """(n, n) symmetric similarities of the n training locations in label order, between -1 and 1, kept in `folder`.

    Each location's first drone image is compared with the others' first tiles, as the model `start` sees them at
    `size` pixels, neither augmented nor corrupted. precision: of the run, if not single.
    """
    embedder = load_torch(start, size=size, device=device)
    in_what = "" if precision is None else f"-{precision}".replace("torch.", "")
    kept = folder / f"alike-{embedder.digest[:12]}-{fingerprint(records)[:12]}{in_what}.npy"
    if not kept.is_file():
        index = index_locations(records)
        firsts = [records[images[0]].path for view in (index.drone, index.satellite) for images in view]
        with autocast(device, precision):
            drone, tile = np.split(embed_paths(embedder, firsts, "which locations look alike"), 2)
        across = drone @ tile.T
        with atomic_path(kept) as temporary:
            np.save(temporary, ((across + across.T) / 2).astype(np.float32))
    found: NDArray[np.float32] = np.load(kept, allow_pickle=False)
    return found
