"""Embed image files with a progress bar, into memory or into an .npz file."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from skypart.atomic import atomic_path, check_writable
from skypart.embedding.interface import Embedder, Vectors
from skypart.errors import SkyPartError
from skypart.images.decode import check_readable, list_photos
from skypart.progress import with_progress


def embed_paths(embedder: Embedder, photos: Sequence[Path], title: str, batch_size: int = 16) -> Vectors:
    """Embed at least one photo with a progress bar: (n, dim)."""
    with closing(with_progress(range(0, len(photos), batch_size), title)) as starts:
        return np.concatenate([embedder.embed(photos[start : start + batch_size], batch_size) for start in starts])


def embed_files(embedder: Embedder, sources: Sequence[Path], output: Path, batch_size: int = 16) -> int:
    """Embed photos and folders of photos into an .npz file with `paths`, `embeddings` and the model's digest."""
    photos = list_photos(sources)
    if batch_size < 1:
        raise SkyPartError(f"batch_size={batch_size} must be at least 1")
    if output.suffix != ".npz":
        raise SkyPartError(f"{output}: embeddings are written as .npz; rename the output")
    check_writable(output)
    check_readable(photos, "nothing was embedded")
    vectors = embed_paths(embedder, photos, "embedding", batch_size)
    with atomic_path(output) as temporary:
        np.savez(temporary, paths=[str(p) for p in photos], embeddings=vectors, model=embedder.digest)
    return len(photos)
