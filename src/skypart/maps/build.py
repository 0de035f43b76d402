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
from skypart.embedding import Embedder
from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.maps.addresses import is_remote, lasting, told
from skypart.maps.cut import ViewOptions
from skypart.maps.manifest import MANIFEST, Manifest, MapEntry, stored_name
from skypart.maps.map_source import MapSource
from skypart.maps.sources import open_maps, there
from skypart.maps.store import EmbeddedStore, ViewBatch, approximate
from skypart.maps.views import is_empty, plan_views, read_view
from skypart.progress import console, progress_bar

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

    A map that is there already, unchanged, is left alone; one of the same file with other pixels is replaced, and so
    is one whose file is gone. Another file of the same name is refused.
    options: None takes those of the index, or the default.
    """
    folder = Path(folder)
    sources = open_maps(list(maps), network=network)
    _check_names(sources)
    manifest = _manifest(folder, embedder, _lasting(model_name), options)
    for source in sources:
        _check_place(folder, source, manifest)
        for note in (part.note for part in source.parts if part.note):
            console.print(note, soft_wrap=True, markup=False, highlight=False)
    added: dict[str, int] = {}
    with progress_bar() as bar:
        for source in sources:
            known = {entry.name: entry.fingerprint for entry in manifest.maps}
            work = _work(folder, source, embedder, manifest.options)
            if known.get(source.name) != source.fingerprint:
                files = _embed_map(source, work, embedder, manifest.options, bar)
                manifest = _store_map(source, folder, files, manifest)
                added[source.name] = manifest.maps[-1].views
            shutil.rmtree(work, ignore_errors=True)
    if (folder / "work").is_dir() and not any((folder / "work").iterdir()):
        (folder / "work").rmdir()
    if sum(entry.views for entry in manifest.maps) >= approximate.FROM_VIEWS:
        with EmbeddedStore(folder / "store") as store:
            store.build_approximate()
    return added


def _lasting(model_name: str) -> str:
    """A model's name that holds from other folders too: a path becomes absolute."""
    path = Path(model_name).expanduser()
    return lasting(path) if model_name != "default" and path.exists() else model_name


def _manifest(folder: Path, embedder: Embedder, model_name: str, options: ViewOptions | None) -> Manifest:
    """The manifest to add to: the folder's own if it has one, which model and options must agree with."""
    model = {"digest": embedder.digest, "name": model_name, "size": embedder.size}
    begun: Manifest | None = None
    if (folder / MANIFEST).is_file():
        begun = Manifest.read(folder)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SkyPartError(f"{folder}: is not empty and holds no map index; choose a new folder")
    chosen = options or (begun.options if begun else ViewOptions())
    same = begun is not None and (begun.model["digest"], begun.options) == (embedder.digest, chosen)
    if begun is None or (not begun.maps and not same):
        for left in ("work", "store"):  # of an attempt that was given up, perhaps with another model
            shutil.rmtree(folder / left, ignore_errors=True)
        manifest = Manifest(model, chosen)
        manifest.write(folder)
        return manifest
    if begun.model["digest"] != embedder.digest:
        raise SkyPartError(
            f"{folder}: was made with the model {begun.model['name']} ({begun.model['digest'][:12]}) at "
            f"{begun.model['size']} pixels, not with {model_name} ({embedder.digest[:12]}) at {embedder.size}; pass "
            "that model and size, or choose a new folder (the default model may change with a new version of SkyPart)"
        )
    if chosen != begun.options:
        raise SkyPartError(
            f"{folder}: its views are cut at sizes {begun.options.sizes_m} m, overlap {begun.options.overlap}, "
            f"{begun.options.rotations} rotations; leave these options out, or choose a new folder"
        )
    return begun


def _check_names(sources: Sequence[MapSource]) -> None:
    """Refuse two maps of one name: one would replace the other."""
    names = [source.name for source in sources]
    double = next((name for name in names if names.count(name) > 1), None)
    if double:
        raise SkyPartError(f"two maps are called {double}; rename one of the files")


def _check_place(folder: Path, source: MapSource, manifest: Manifest) -> None:
    """Refuse to replace a map by another file of the same name."""
    for entry in manifest.maps:
        other = entry.name == source.name and entry.fingerprint != source.fingerprint
        if (
            other
            and not _same_files(entry.paths, source.paths)
            and any(is_remote(path) or there(path) for path in entry.paths)
        ):
            raise SkyPartError(
                f"{folder}: holds a map {entry.name} already, of {told(entry.paths[0])}; rename "
                f"{told(source.paths[0])}, or take the other out first: skypart maps {folder} --remove {entry.name}"
            )


def _same_files(some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two lists of paths name the same files, through links or not."""
    one, other = ([path if is_remote(path) else Path(path).resolve() for path in paths] for paths in (some, others))
    return one == other


def _lasting_paths(source: MapSource) -> tuple[str, ...]:
    """Where a map lies, from any folder."""
    return tuple(path if is_remote(path) else lasting(path) for path in source.paths)


def _work(folder: Path, source: MapSource, embedder: Embedder, options: ViewOptions) -> Path:
    """Where the blocks of a map wait until all are done; another map, model or cut has another place."""
    key = repr((source.name, source.fingerprint, embedder.digest, options)).encode()
    return folder / "work" / hashlib.blake2b(key, digest_size=8).hexdigest()


def _embed_map(source: MapSource, work: Path, embedder: Embedder, options: ViewOptions, bar: Progress) -> list[Path]:
    """Embed what is missing of a map: the files of all its blocks."""
    views = plan_views(source, options.sizes_m, options.overlap, options.angles)
    task = bar.add_task(f"indexing {source.name}", total=len(views))
    files = [work / f"{start:09d}.npz" for start in range(0, len(views), BLOCK)]
    for number, file in enumerate(files):
        block = views[number * BLOCK : (number + 1) * BLOCK]
        if not file.is_file():
            _embed_block(source, block, embedder, file, bar, task)
        else:
            bar.advance(task, len(block))
    return files


def _store_map(source: MapSource, folder: Path, files: Sequence[Path], expected: Manifest) -> Manifest:
    """Put all blocks into the store, then the map last into the manifest; done again after a kill, nothing changes."""
    name = stored_name(source.name, source.fingerprint)
    with EmbeddedStore(folder / "store") as store:
        with store.transaction():
            held = store.stats().maps
            stored = held.get(name, 0)
            for other in held:
                if other != name and other.rpartition("@")[0] == source.name:
                    store.remove(other)
            for vectors, footprints in _segments(files) if not stored else ():
                store.add(ViewBatch(name, vectors, footprints))
                stored += len(vectors)
            if not stored:
                raise SkyPartError(
                    f"{told(source.paths[0])}: every view of this map is empty; check its pixels and no-data value"
                )
        manifest = Manifest.read(folder)  # again: others may have added maps since
        if (manifest.model["digest"], manifest.options) != (expected.model["digest"], expected.options):
            raise SkyPartError(f"{folder}: was begun anew by another process; choose a folder of your own")
        entry = MapEntry(source.name, _lasting_paths(source), source.fingerprint, stored, source.bounds)
        manifest = replace(manifest, maps=(*(e for e in manifest.maps if e.name != source.name), entry))
        manifest.write(folder)
    return manifest


def _embed_block(
    source: MapSource, block: Sequence[Footprint], embedder: Embedder, file: Path, bar: Progress, task: TaskID
) -> None:
    """Read, embed and write one block of views, without the empty ones."""
    kept: list[Footprint] = []
    vectors: list[NDArray[np.float32]] = []
    batch: list[NDArray[np.float32]] = []

    def flush() -> None:
        if batch:
            vectors.append(embedder.embed_inputs(np.stack(batch)))
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
