"""Embed image files: threads decode ahead of the model, and the cache stores every embedding."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from skypart.bounded import BoundedCache
from skypart.embedding import Embedder
from skypart.errors import SkyPartError
from skypart.evaluation.cache import EmbeddingCache, content_hash, content_key
from skypart.images.decode import RgbImage, check_readable, read_rgb, unreadable_message
from skypart.images.preprocess import Interpolation, Preprocessing
from skypart.images.weather import RENDERING, corrupt
from skypart.progress import progress_bar


@dataclass(frozen=True)
class Corruption:
    """Weather added to an image before it is resized.

    severity: 0..1 scales the condition; None uses the profile's fixed strength.
    """

    condition: str
    profile: str = "paper"
    seed: int = 0
    severity: float | None = None


class PreparedImages(BoundedCache[RgbImage]):
    """Images (size, size, 3) by content and settings."""


@dataclass
class ImageSource:
    """Embeds files with one model, through one cache.

    workers: threads that read, corrupt and resize images. ahead: batches they may prepare before the model needs them.
    prepared: corrupted and resized images, for sources of several models to share; None prepares them every time.
    computed: images embedded so far, without those from the cache.
    """

    embedder: Embedder
    cache: EmbeddingCache
    batch_size: int = 16
    workers: int = 4
    ahead: int = 3
    prepared: "PreparedImages | None" = None
    computed: int = 0
    _hashes: dict[Path, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """How many images were embedded, and where the cache is."""
        return f"{self.computed:,} images embedded, the rest came from the cache {self.cache.folder}"

    def embed(
        self,
        paths: Sequence[Path],
        corruption: Corruption | None = None,
        flip: bool = False,
        description: str = "embedding",
        satellite: bool = False,
    ) -> NDArray[np.float32]:
        """(n, dim) embeddings of `paths`; with `flip`, the normalised sum for the image and its mirror image.

        satellite: whether they are satellite tiles, which some models warp first.
        """
        clean = corruption is None or corruption.condition == "normal"
        wanted = None if clean else corruption
        vectors = self._embed(paths, wanted, False, description, satellite)
        if flip:
            vectors = vectors + self._embed(paths, wanted, True, f"{description}, flipped", satellite)
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def _embed(
        self, paths: Sequence[Path], corruption: Corruption | None, mirrored: bool, description: str, satellite: bool
    ) -> NDArray[np.float32]:
        interpolation = self._interpolation(corruption)
        weather = None if corruption is None else (corruption, RENDERING)
        warped = satellite and self.embedder.preprocessing.polar
        settings = (self.embedder.size, interpolation, mirrored, weather, *(("polar",) if warped else ()))
        self._hash(paths)
        keys = [content_key(self._hashes[path], *settings) for path in paths]
        vectors = np.empty((len(paths), self.embedder.dim), dtype=np.float32)
        rows: dict[bytes, list[int]] = {}
        for index, key in enumerate(keys):
            known = None if key in rows else self.cache.get(key)
            if known is None:
                rows.setdefault(key, []).append(index)
            else:
                vectors[index] = known
        missing = [(key, paths[where[0]]) for key, where in rows.items()]

        def prepare(key: bytes, path: Path) -> RgbImage:
            known = None if self.prepared is None else self.prepared.get(key)
            if known is None:
                known = self.prepare(path, corruption, mirrored, satellite)
                if self.prepared is not None:
                    self.prepared.put(key, known)
            return known

        for key, vector in self._compute(missing, prepare, description):
            vectors[rows[key]] = vector
        return vectors

    def _interpolation(self, corruption: Corruption | None) -> Interpolation:
        return self.embedder.interpolation if corruption is None else "area"

    def prepare(
        self, path: Path, corruption: Corruption | None = None, mirrored: bool = False, satellite: bool = False
    ) -> RgbImage:
        """Read, corrupt, resize and warp an image: (size, size, 3) uint8, which the model's preprocessing completes."""
        polar = satellite and self.embedder.preprocessing.polar
        preprocessing = Preprocessing(self.embedder.size, self._interpolation(corruption), polar=polar)
        image = read_rgb(path)
        if corruption is not None:
            self._hash([path])
            key = self._hashes[path]
            image = corrupt(image, corruption.condition, corruption.profile, corruption.seed, key, corruption.severity)
        resized = preprocessing.resize(image)
        return preprocessing.warp_tile(np.ascontiguousarray(resized[:, ::-1]) if mirrored else resized)

    def _hash(self, paths: Sequence[Path]) -> None:
        """Hash the contents of files that are new in this run."""
        unseen = sorted({path for path in paths if path not in self._hashes})
        if not unseen:
            return
        with ThreadPoolExecutor(self.workers) as pool, progress_bar() as bar:
            for path, digest in zip(
                unseen, bar.track(pool.map(content_hash, unseen), len(unseen), description="reading"), strict=True
            ):
                self._hashes[path] = digest

    def _compute(
        self, missing: Sequence[tuple[bytes, Path]], prepare: "_Prepare", description: str
    ) -> Iterator[tuple[bytes, NDArray[np.float32]]]:
        """Embed what is not in the cache and store it batch by batch; raise for unreadable images at the end."""
        if not missing:
            return
        check_readable([path for _, path in missing], "no other image was embedded")
        broken: list[str] = []
        with progress_bar() as bar:
            task = bar.add_task(description, total=len(missing))
            for keys, images in self._batches(missing, prepare, broken):
                batch = self.embedder.embed(images, self.batch_size)
                if not np.isfinite(batch).all():
                    raise SkyPartError(
                        "the model returns NaN or infinity; its weights are damaged, or its training diverged"
                    )
                self.cache.put(keys, batch)
                self.computed += len(keys)
                bar.advance(task, len(keys))
                yield from zip(keys, batch, strict=True)
        if broken:
            raise SkyPartError(
                unreadable_message(broken, f"the other {len(missing) - len(broken):,} embeddings are kept")
            )

    def _batches(
        self, missing: Sequence[tuple[bytes, Path]], prepare: "_Prepare", broken: list[str]
    ) -> Iterator[tuple[list[bytes], list[RgbImage]]]:
        """Batches of prepared images; threads prepare a few batches ahead."""
        pool = ThreadPoolExecutor(self.workers)
        waiting: deque[tuple[bytes, Future[RgbImage]]] = deque()
        items = iter(missing)
        try:
            while True:
                while len(waiting) < self.ahead * self.batch_size and (item := next(items, None)) is not None:
                    waiting.append((item[0], pool.submit(prepare, *item)))
                if not waiting:
                    return
                keys: list[bytes] = []
                images: list[RgbImage] = []
                while waiting and len(keys) < self.batch_size:
                    key, future = waiting.popleft()
                    try:
                        images.append(future.result())
                        keys.append(key)
                    except SkyPartError as error:
                        broken.append(str(error))
                if keys:
                    yield keys, images
        finally:
            pool.shutdown(cancel_futures=True)


class _Prepare(Protocol):
    def __call__(self, key: bytes, path: Path) -> RgbImage: ...
