"""The interface of an embedding engine, and the two steps that all engines share: embed a block, write a block."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.embedding import Embedder
from skypart.embedding.patches import PatchReader, compact_tokens
from skypart.geo.footprint import Footprint
from skypart.maps.map_source import MapSource
from skypart.maps.views import ViewPlan, is_empty, read_view

_BATCH = 16
Advance = Callable[[int], None]
"""Called with the number of views that were just finished."""


@dataclass(frozen=True)
class MapJob:
    """The work on one map: embed `views` with `embedder` and write one file per block.

    block_size: number of views per block, fewer in the last. files: where the blocks belong, in order; those that exist
    are finished. model: what `skypart.load` loads the embedder by, on any machine. device: of the model. network:
    whether remote maps may be read. tokens: whether compact patch tokens are kept, too.
    """

    source: MapSource
    views: ViewPlan
    block_size: int
    files: Sequence[Path]
    embedder: Embedder
    model: str
    device: str = "cpu"
    network: bool = False
    tokens: bool = False

    def block(self, number: int) -> ViewPlan:
        """The views of one block."""
        return self.views[number * self.block_size : (number + 1) * self.block_size]

    def missing(self, advance: Advance) -> list[int]:
        """Numbers of the blocks that are not written yet; the others are reported to `advance`."""
        missing = [number for number, file in enumerate(self.files) if not file.is_file()]
        done = set(range(len(self.files))) - set(missing)
        advance(sum(len(self.block(number)) for number in done))
        return missing


class Engine(Protocol):
    """Embeds maps. A block is written once, atomically; work that was broken off resumes with the missing blocks."""

    def embed_map(self, job: MapJob, advance: Advance) -> None:
        """Write all missing blocks of `job`."""

    def close(self) -> None:
        """Release workers and connections."""


class EmbeddedBlock(NamedTuple):
    """vectors (n, d) float16, footprints (n, 4) float64 and compact tokens of the views that are not empty.

    tokens: (n, patches, k) int8; (n, 0, 0) if they are not kept.
    """

    vectors: NDArray[np.float16]
    footprints: NDArray[np.float64]
    tokens: NDArray[np.int8]


def embed_block(
    source: MapSource, block: Sequence[Footprint], reader: PatchReader, advance: Advance, keep_tokens: bool = False
) -> EmbeddedBlock:
    """Read and embed one block of views, skipping empty ones."""
    embedder = reader.embedder
    kept: list[Footprint] = []
    vectors: list[NDArray[np.float32]] = []
    tokens: list[NDArray[np.int8]] = []
    batch: list[NDArray[np.float32]] = []

    def flush() -> None:
        if batch and keep_tokens:
            found, patches = reader.embed(np.stack(batch))
            vectors.append(found)
            tokens.extend(compact_tokens(each.tokens) for each in patches)
        elif batch:
            vectors.append(embedder.embed_inputs(np.stack(batch)))
        batch.clear()

    for view in block:
        image, valid_share = read_view(source, view, embedder.size)
        if not is_empty(image, valid_share):
            kept.append(view)
            batch.append(embedder.preprocessing(image))
        if len(batch) == _BATCH:
            flush()
        advance(1)
    flush()
    rows = np.array([[v.latitude, v.longitude, v.metres, v.rotation] for v in kept], dtype=np.float64).reshape(-1, 4)
    found = np.concatenate(vectors) if vectors else np.zeros((0, embedder.dim), dtype=np.float32)
    return EmbeddedBlock(
        found.astype(np.float16), rows, np.stack(tokens) if tokens else np.zeros((len(found), 0, 0), dtype=np.int8)
    )


def write_block(file: Path, block: EmbeddedBlock) -> None:
    """Write a block atomically."""
    with atomic_path(file) as temporary:
        np.savez(temporary, vectors=block.vectors, footprints=block.footprints, tokens=block.tokens)
