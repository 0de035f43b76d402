"""Index maps: cut them into views, embed them block by block, and hand them to the store; killed work goes on."""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress, TaskID

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError
from skypart.maps.footprint import Footprint
from skypart.maps.index import MANIFEST, Manifest, MapEntry, ViewOptions
from skypart.maps.map_source import MapSource
from skypart.maps.sources import open_maps
from skypart.maps.store import EmbeddedStore, ViewBatch
from skypart.maps.views import is_empty, plan_views, read_view
from skypart.model.embedder import Embedder
from skypart.progress import progress_bar

BLOCK = 128
"""Views embedded between two writes; what a kill can cost."""
SEGMENT = 65_536
"""Most views of one segment of the store."""


def build_index(
    maps: Sequence[str],
    folder: str | Path,
    embedder: Embedder,
    model_name: str,
    options: ViewOptions | None = None,
    network: bool = False,
) -> dict[str, int]:
    """Add maps to the index in `folder`, or make it: the number of views of each map that was embedded now.

    A map that is there already, unchanged, is left alone; one of the same name with other pixels is replaced.
    options: None takes those of the index, or the default.
    """
    folder = Path(folder)
    sources = open_maps(list(maps), network=network)
    manifest = _manifest(folder, embedder, model_name, options)
    _check_names(sources)
    added: dict[str, int] = {}
    with progress_bar() as bar:
        for source in sources:
            known = {entry.name: entry for entry in manifest.maps}
            if source.name in known and known[source.name].fingerprint == source.fingerprint:
                continue
            entry = _index_map(source, folder, embedder, manifest.options, bar)
            manifest = replace(manifest, maps=(*(e for e in manifest.maps if e.name != source.name), entry))
            manifest.write(folder)
            shutil.rmtree(_work(folder, source, embedder, manifest.options), ignore_errors=True)
            added[source.name] = entry.views
    if (folder / "work").is_dir() and not any((folder / "work").iterdir()):
        (folder / "work").rmdir()
    return added


def _manifest(folder: Path, embedder: Embedder, model_name: str, options: ViewOptions | None) -> Manifest:
    """The manifest to add to: the folder's own if it has one, which model and options must agree with."""
    if not (folder / MANIFEST).is_file():
        if folder.exists() and any(folder.iterdir()):
            raise SkyPartError(f"{folder}: is not empty and holds no map index; choose a new folder")
        model = {"digest": embedder.digest, "name": model_name, "size": embedder.size}
        manifest = Manifest(model, options or ViewOptions())
        manifest.write(folder)
        return manifest
    manifest = Manifest.read(folder)
    if manifest.model["digest"] != embedder.digest:
        raise SkyPartError(
            f"{folder}: was made with the model {manifest.model['name']}, which is another than {model_name}; "
            "pass that model, or choose a new folder"
        )
    if options is not None and options != manifest.options:
        raise SkyPartError(
            f"{folder}: its views are cut at sizes {manifest.options.sizes_m} m, overlap {manifest.options.overlap}, "
            f"{manifest.options.rotations} rotations; leave these options out, or choose a new folder"
        )
    return manifest


def _check_names(sources: Sequence[MapSource]) -> None:
    """Refuse two maps of one name: one would replace the other."""
    names = [source.name for source in sources]
    double = next((name for name in names if names.count(name) > 1), None)
    if double:
        raise SkyPartError(f"two maps are called {double}; rename one of the files")


def _work(folder: Path, source: MapSource, embedder: Embedder, options: ViewOptions) -> Path:
    """Where the blocks of a map wait until all are done; another map, model or cut has another place."""
    key = repr((source.name, source.fingerprint, embedder.digest, options)).encode()
    return folder / "work" / hashlib.blake2b(key, digest_size=8).hexdigest()


def _index_map(source: MapSource, folder: Path, embedder: Embedder, options: ViewOptions, bar: Progress) -> MapEntry:
    """Embed what is missing of a map, then put all of it into the store."""
    views = plan_views(source, options.sizes_m, options.overlap, options.angles)
    work = _work(folder, source, embedder, options)
    task = bar.add_task(f"indexing {source.name}", total=len(views))
    files = [work / f"{start:09d}.npz" for start in range(0, len(views), BLOCK)]
    for number, file in enumerate(files):
        block = views[number * BLOCK : (number + 1) * BLOCK]
        if not file.is_file():
            _embed_block(source, block, embedder, file, bar, task)
        else:
            bar.advance(task, len(block))
    store = EmbeddedStore(folder / "store")
    store.remove(source.name)
    stored = 0
    for vectors, footprints in _segments(files):
        store.add(ViewBatch(source.name, vectors, footprints))
        stored += len(vectors)
    if not stored:
        raise SkyPartError(f"{source.paths[0]}: every view of this map is empty; check its pixels and no-data value")
    return MapEntry(
        source.name, tuple(str(Path(p).resolve()) for p in source.paths), source.fingerprint, stored, source.bounds
    )


def _embed_block(
    source: MapSource, block: Sequence[Footprint], embedder: Embedder, file: Path, bar: Progress, task: TaskID
) -> None:
    """Read, embed and write one block of views, without the empty ones."""
    kept: list[Footprint] = []
    vectors: list[NDArray[np.float32]] = []
    batch: list[NDArray[np.float32]] = []

    def flush() -> None:
        if batch:
            vectors.append(embedder.forward(np.stack(batch)).embedding.cpu().numpy())
            batch.clear()

    for view in block:
        picture, valid = read_view(source, view, embedder.size)
        if not is_empty(picture, valid):
            kept.append(view)
            batch.append(embedder.preprocessing(picture))
        if len(batch) == 16:
            flush()
        bar.advance(task)
    flush()
    rows = np.array([[v.latitude, v.longitude, v.metres, v.rotation] for v in kept], dtype=np.float64).reshape(-1, 4)
    found = np.concatenate(vectors) if vectors else np.zeros((0, embedder.dim), dtype=np.float32)
    with atomic_path(file) as temporary:
        np.savez(temporary, vectors=found.astype(np.float16), footprints=rows)


def _segments(files: Sequence[Path]) -> Iterator[tuple[NDArray[np.float16], NDArray[np.float64]]]:
    """The blocks joined to segments; which blocks make a segment depends on their number alone."""
    together = SEGMENT // BLOCK
    for start in range(0, len(files), together):
        vectors, footprints = [], []
        for file in files[start : start + together]:
            with np.load(file) as content:
                vectors.append(content["vectors"])
                footprints.append(content["footprints"])
        joined = np.concatenate(vectors)
        if len(joined):
            yield joined, np.concatenate(footprints)
