"""The frozen teacher: its normed CLS token of each original training image, computed once and cached."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skypart.atomic import atomic_path
from skypart.datasets.records import Record
from skypart.embedding.shipped import sha256_of
from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model.backbone import TRANSFORMERS, UNTRAINED, load_backbone
from skypart.model.sources import resolve
from skypart.model.vit import VisionTransformer
from skypart.progress import with_progress

_SHARD = 512


class TeacherFeatures:
    """Features (images, teacher dim), float32, of all training records, cached in shards in `folder`.

    The images have no augmentation or weather, so their features are constants. An interrupted computation resumes
    with the first missing shard; damaged shards are recomputed.
    """

    def __init__(self, name: str, size: int, records: Sequence[Record], folder: Path, device: torch.device) -> None:
        self.features = torch.from_numpy(_load_or_compute(name, size, records, folder, device))

    @property
    def dim(self) -> int:
        """Width of the teacher's CLS token."""
        return int(self.features.shape[1])

    def features_for(self, records: Sequence[int], device: torch.device) -> Tensor:
        """Features (b, dim) of the records with these indices."""
        return self.features[list(records)].to(device)


def _load_or_compute(
    name: str, size: int, records: Sequence[Record], folder: Path, device: torch.device
) -> NDArray[np.float32]:
    """The features of all records. Reads finished shards and computes the missing ones."""
    parts = [records[start : start + _SHARD] for start in range(0, len(records), _SHARD)]
    teacher_key = _teacher_key(name)
    shards = [folder / f"{_shard_name(teacher_key, size, part)}.npy" for part in parts]
    found: dict[Path, NDArray[np.float32]] = {}
    missing = []
    for shard, part in zip(shards, parts, strict=True):
        cached = _read_shard(shard, len(part))
        if cached is None:
            missing.append((shard, part))
        else:
            found[shard] = cached
    if missing:
        teacher = load_backbone(name).eval().to(device)
        if isinstance(teacher, VisionTransformer):
            teacher.freeze(0)
        preprocessing = Preprocessing(size=size)
        with closing(with_progress(missing, "teacher features")) as work:
            for shard, part in work:
                blocks = []
                for first in range(0, len(part), 16):
                    images = np.stack([preprocessing(record.path) for record in part[first : first + 16]])
                    with torch.inference_mode():
                        blocks.append(teacher(torch.from_numpy(images).to(device))[0].cls.float().cpu().numpy())
                found[shard] = np.concatenate(blocks)
                with atomic_path(shard) as temporary:
                    np.save(temporary, found[shard])
    return np.concatenate([found[shard] for shard in shards])


def _read_shard(shard: Path, images: int) -> NDArray[np.float32] | None:
    """The features (images, dim) in a shard; None if it is missing or damaged."""
    try:
        block = np.load(shard, allow_pickle=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SkyPartError(
            f"{shard}: cannot be read ({error.strerror or error}); fix its permissions, or delete it"
        ) from error
    except Exception:  # numpy raises half a dozen types of error for a damaged header
        return None
    valid = isinstance(block, np.ndarray) and block.dtype == np.float32 and block.ndim == 2 and len(block) == images
    return block if valid else None


def _shard_name(teacher: str, size: int, records: Sequence[Record]) -> str:
    """The name of a shard: a hash of the teacher, the input size and the images."""
    digest = hashlib.blake2b(f"{teacher}|{size}".encode(), digest_size=12)
    for record in records:
        status = record.path.stat()
        digest.update(f"{record.path.resolve()}|{status.st_size}|{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _teacher_key(name: str) -> str:
    """Identifies a teacher by the content of its files, or by its name if it has no local files."""
    if name.startswith(UNTRAINED):
        return name
    if name.startswith(TRANSFORMERS):
        folder = Path(name.removeprefix(TRANSFORMERS))
        files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
        return "|".join([TRANSFORMERS, *(f"{file.name} {sha256_of(file)}" for file in files)]) if files else name
    source = resolve(name)
    return f"{sha256_of(source.file)}|{json.dumps(source.config, sort_keys=True)}"
