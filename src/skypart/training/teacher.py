"""The frozen teacher: its normed CLS of each uncorrupted training image, computed once and kept."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skypart.atomic import atomic_path
from skypart.datasets.records import Record
from skypart.images.preprocess import Preprocessing
from skypart.model.backbone import load_backbone
from skypart.model.vit import VisionTransformer
from skypart.progress import track

_SHARD = 512


class TeacherFeatures:
    """(images, teacher dim) float32 features of all training records, on disk under `folder` in shards.

    The images are neither augmented nor corrupted, so their features are constants; a broken-off computation
    goes on with the first missing shard.
    """

    def __init__(self, name: str, size: int, records: Sequence[Record], folder: Path, device: torch.device) -> None:
        self.features = torch.from_numpy(_compute(name, size, records, folder, device))

    @property
    def dim(self) -> int:
        """Width of the teacher's CLS."""
        return int(self.features.shape[1])

    def of(self, records: Sequence[int], device: torch.device) -> Tensor:
        """Features (b, dim) of the records with these indices."""
        return self.features[list(records)].to(device)


def _compute(
    name: str, size: int, records: Sequence[Record], folder: Path, device: torch.device
) -> NDArray[np.float32]:
    """All features, from finished shards and the teacher."""
    starts = range(0, len(records), _SHARD)
    shards = [folder / f"{_key(name, size, records[start : start + _SHARD])}.npy" for start in starts]
    missing = [(s, shard) for s, shard in zip(starts, shards, strict=True) if not shard.is_file()]
    if missing:
        teacher = load_backbone(name).eval().to(device)
        if isinstance(teacher, VisionTransformer):
            teacher.freeze(0)
        preprocessing = Preprocessing(size=size)
        for start, shard in track(missing, "teacher features"):
            blocks = []
            part = records[start : start + _SHARD]
            for first in range(0, len(part), 16):
                images = np.stack([preprocessing(record.path) for record in part[first : first + 16]])
                with torch.inference_mode():
                    blocks.append(teacher(torch.from_numpy(images).to(device))[0].cls.float().cpu().numpy())
            with atomic_path(shard) as temporary:
                np.save(temporary, np.concatenate(blocks))
    return np.concatenate([np.load(shard, allow_pickle=False) for shard in shards])


def _key(name: str, size: int, records: Sequence[Record]) -> str:
    """A name for a shard that changes with the teacher, the size and the images."""
    digest = hashlib.blake2b(f"{name}|{size}".encode(), digest_size=12)
    file = Path(name)
    if file.is_file():
        digest.update(str(file.stat().st_size).encode())
    for record in records:
        digest.update(f"{record.path.resolve()}|{record.path.stat().st_size}\n".encode())
    return digest.hexdigest()
