"""The frozen teacher: its normed CLS of each uncorrupted training image, computed once and kept."""

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
from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model.backbone import TRANSFORMERS, UNTRAINED, load_backbone
from skypart.model.shipped import sha256_of
from skypart.model.sources import resolve
from skypart.model.vit import VisionTransformer
from skypart.progress import track

_SHARD = 512


class TeacherFeatures:
    """(images, teacher dim) float32 features of all training records, on disk under `folder` in shards.

    The images are neither augmented nor corrupted, so their features are constants; a broken-off computation
    goes on with the first missing shard, and a damaged one is made again.
    """

    def __init__(self, name: str, size: int, records: Sequence[Record], folder: Path, device: torch.device) -> None:
        self.features = torch.from_numpy(_compute(name, size, records, folder, device))

    @property
    def dim(self) -> int:
        """Width of the teacher's CLS."""
        return int(self.features.shape[1])

    def features_for(self, records: Sequence[int], device: torch.device) -> Tensor:
        """Features (b, dim) of the records with these indices."""
        return self.features[list(records)].to(device)


def _compute(
    name: str, size: int, records: Sequence[Record], folder: Path, device: torch.device
) -> NDArray[np.float32]:
    """All features, from finished shards and the teacher."""
    parts = [records[start : start + _SHARD] for start in range(0, len(records), _SHARD)]
    teacher_key = _teacher_key(name)
    shards = [folder / f"{_key(teacher_key, size, part)}.npy" for part in parts]
    found: dict[Path, NDArray[np.float32]] = {}
    missing = []
    for shard, part in zip(shards, parts, strict=True):
        kept = _read(shard, len(part))
        if kept is None:
            missing.append((shard, part))
        else:
            found[shard] = kept
    if missing:
        teacher = load_backbone(name).eval().to(device)
        if isinstance(teacher, VisionTransformer):
            teacher.freeze(0)
        preprocessing = Preprocessing(size=size)
        with closing(track(missing, "teacher features")) as work:
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


def _read(shard: Path, images: int) -> NDArray[np.float32] | None:
    """The (images, dim) features in a shard; None where it is missing or damaged."""
    try:
        block = np.load(shard, allow_pickle=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SkyPartError(
            f"{shard}: cannot be read ({error.strerror or error}); mend its rights, or remove it"
        ) from error
    except Exception:  # numpy has half a dozen kinds of error for a damaged header
        return None
    whole = isinstance(block, np.ndarray) and block.dtype == np.float32 and block.ndim == 2 and len(block) == images
    return block if whole else None


def _key(teacher: str, size: int, records: Sequence[Record]) -> str:
    """A name for a shard that changes with the teacher, the size and the images."""
    digest = hashlib.blake2b(f"{teacher}|{size}".encode(), digest_size=12)
    for record in records:
        facts = record.path.stat()
        digest.update(f"{record.path.resolve()}|{facts.st_size}|{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _teacher_key(name: str) -> str:
    """What tells a teacher from any other: the content of its files; its name where it has none on this disk."""
    if name.startswith(UNTRAINED):
        return name
    if name.startswith(TRANSFORMERS):
        folder = Path(name.removeprefix(TRANSFORMERS))
        files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
        return "|".join([TRANSFORMERS, *(f"{file.name} {sha256_of(file)}" for file in files)]) if files else name
    source = resolve(name)
    return f"{sha256_of(source.file)}|{json.dumps(source.config, sort_keys=True)}"
