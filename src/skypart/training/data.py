"""From draws to tensors, in worker processes: decode, crop, weather, preprocessing, colour augmentation."""

import hashlib
import signal
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from skypart.datasets.records import Record
from skypart.datasets.sampler import BalancedSampler, Draw
from skypart.errors import SkyPartError
from skypart.images.augment import Augmentation
from skypart.images.decode import ImageLike, read_rgb
from skypart.images.preprocess import Preprocessing
from skypart.images.weather import PROFILES, WeatherTransform
from skypart.training.distributed import Workers


@dataclass(frozen=True)
class Batch:
    """The images of one rank in one step.

    images: (b, 3, size, size). location: (b,) int64 label. is_drone: (b,) bool. altitude: (b,) metres, NaN where
    unknown; only drone images have one. records: (b,) indices into the training records.
    """

    images: Tensor
    location: Tensor
    is_drone: Tensor
    altitude: Tensor
    records: list[int]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        return Batch(
            self.images.to(device, non_blocking=True),
            self.location.to(device),
            self.is_drone.to(device),
            self.altitude.to(device),
            self.records,
        )


class TrainingImages(Dataset[tuple[Tensor, int]]):
    """Reads one drawn image. Augmentation and weather depend only on the draw, not on the worker process."""

    def __init__(
        self,
        records: Sequence[Record],
        preprocessing: Preprocessing,
        augmentation: Augmentation,
        weather: str,
        seed: int,
        weather_share: float = 1.0,
    ) -> None:
        self.records = records
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        profiles = PROFILES if weather == "both" else (weather,) if weather else ()
        self.weather = [WeatherTransform(profile, seed) for profile in profiles]
        self.weather_share = weather_share
        # corrupted images are resized by area, as evaluation does; see PROTOCOLS in docs/evaluation.md
        self.corrupted = replace(preprocessing, interpolation="area")

    def weather_for(self, draw: Draw) -> tuple[WeatherTransform, str] | None:
        """The weather transform of a `Draw` and its key; None for satellite images and in clear weather."""
        record = self.records[draw.record]
        if not self.weather or record.view != "drone":
            return None
        rng = np.random.default_rng([draw.seed, 0x3E])
        if rng.uniform() >= self.weather_share:
            return None
        return self.weather[int(rng.integers(len(self.weather)))], f"{record.location}/{record.path.name}"

    def read_held_out(self, record: Record) -> ImageLike:
        """A validation drone image, without crop or colour augmentation.

        It has weather as often as training images do, and the same weather at every call.
        """
        key = f"{record.location}/{record.path.name}"
        rng = np.random.default_rng([zlib.crc32(key.encode()), 0x3E])
        if not self.weather or rng.uniform() >= self.weather_share:
            return record.path
        corrupted = self.weather[int(rng.integers(len(self.weather)))](read_rgb(record.path), key, 0)
        return self.corrupted.resize(corrupted)

    def __getitem__(self, draw: Any) -> tuple[Tensor, int]:
        """The image of a `Draw` as (3, size, size), and the index of its record.

        Weather is applied after rotation and cropping, at full resolution, so cropped pixels cost no time.
        """
        record = self.records[draw.record]
        drone = record.view == "drone"
        image = self.augmentation.orient(read_rgb(record.path), record.view == "satellite", draw.shared, draw.seed)
        rng = np.random.default_rng(draw.seed)
        image = self.augmentation.frame(image, rng, drone)
        found = self.weather_for(draw)
        if found is not None:
            weather, key = found
            image = weather(image, key, draw.seed)
        varied = self.augmentation.finish(image, self.corrupted if found else self.preprocessing, rng, drone)
        if record.view == "satellite":
            varied = self.preprocessing.warp_tile(varied)
        return torch.from_numpy(self.preprocessing.finish(varied)), draw.record


class _ErrorsAsValues(Dataset[tuple[Tensor, int] | SkyPartError]):
    """`TrainingImages` that returns errors as values.

    An error raised in a worker process would reach the user wrapped in a traceback.
    """

    def __init__(self, images: TrainingImages) -> None:
        self.images = images

    def __getitem__(self, draw: Any) -> tuple[Tensor, int] | SkyPartError:
        """The image and its record's index, or the error."""
        try:
            return self.images[draw]
        except SkyPartError as error:
            return error


class TrainingData:
    """The training images of a run, batch by batch, for one rank."""

    def __init__(self, images: TrainingImages, sampler: BalancedSampler, loader_workers: int, workers: Workers) -> None:
        self.images, self.sampler, self.loader_workers, self.workers = images, sampler, loader_workers, workers
        self.label = {name: label for label, name in enumerate(sampler.index.names)}

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """This rank's batches of `epoch`, from `first_step` on."""
        each = self.sampler.images_per_location
        share = self.workers.slice(self.sampler.locations)
        mine = [batch[share.start * each : share.stop * each] for batch in self.sampler.epoch(epoch)[first_step:]]
        cv2.setNumThreads(1)  # before the fork: a forked copy of OpenCV's thread pool has no threads and would hang
        loader: DataLoader[Any] = DataLoader(
            _ErrorsAsValues(self.images),
            batch_sampler=mine,
            num_workers=self.loader_workers,
            collate_fn=self.collate,
            worker_init_fn=_init_loader_process,
            pin_memory=self.workers.device.type == "cuda",
            prefetch_factor=4 if self.loader_workers else None,
            generator=torch.Generator(),  # the default generator's state is saved in checkpoints
        )
        for batch in loader:
            if isinstance(batch, SkyPartError):
                raise batch
            yield batch

    def collate(self, found: list[tuple[Tensor, int] | SkyPartError]) -> Batch | SkyPartError:
        """Stack images and look up their labels. Returns the first error if there is one."""
        items = [item for item in found if not isinstance(item, SkyPartError)]
        if len(items) < len(found):
            return next(item for item in found if isinstance(item, SkyPartError))
        records = [self.images.records[index] for _, index in items]
        unknown = float("nan")
        return Batch(
            images=torch.stack([image for image, _ in items]),
            location=torch.tensor([self.label[record.location] for record in records]),
            is_drone=torch.tensor([record.view == "drone" for record in records]),
            altitude=torch.tensor(
                [r.altitude if r.altitude is not None and r.view == "drone" else unknown for r in records],
                dtype=torch.float32,
            ),
            records=[index for _, index in items],
        )


def _init_loader_process(_: int) -> None:
    """Limit a worker process to one core, since the model uses the others. The main process handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cv2.setNumThreads(1)
    torch.set_num_threads(1)


def fingerprint(records: Sequence[Record]) -> str:
    """A hash of the training data: name, view, location, altitude and file size of each image."""
    digest = hashlib.blake2b(digest_size=16)
    for record in sorted(records, key=lambda r: (r.location, r.view, r.path.name, r.altitude or 0.0)):
        line = f"{record.location}|{record.view}|{record.path.name}|{record.altitude}|{record.path.stat().st_size}\n"
        digest.update(line.encode())
    return digest.hexdigest()
