"""Index maps: cut them into views, embed them block by block, and store them. Interrupted work can be resumed."""

import hashlib
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from skypart.atomic import temporary_target
from skypart.embedding import Embedder
from skypart.errors import SkyPartError
from skypart.maps.engines import Engine, MapJob, ViewProgress, open_engine
from skypart.maps.files import absolute_path, is_remote, path_exists, redact_address
from skypart.maps.manifest import INDEX_FILE, STORE_FOLDER, IndexManifest, MapEntry, map_name, stored_name
from skypart.maps.map_source import MapSource
from skypart.maps.sources import open_maps
from skypart.maps.store import DEFAULT_ADDRESS, ViewBatch, open_store
from skypart.maps.view_tokens import TOKENS_FOLDER, TokenBlock, remove_unused_tokens, write_tokens
from skypart.maps.views import ViewOptions, plan_views
from skypart.progress import progress_bar

log = logging.getLogger(__name__)

BLOCK = 128
"""Views embedded between two writes; at most this many per worker are lost when the process is killed."""
SEGMENT = 65_536
"""Maximum number of views added to the store at once."""
WORK_FOLDER = "work"
"""Folder in the index for blocks of maps that are not finished."""


def build_index(
    maps: Sequence[str],
    folder: str | Path,
    embedder: Embedder,
    model_name: str,
    options: ViewOptions | None = None,
    network: bool = False,
    store: str | None = None,
    engine: Engine | None = None,
    device: str = "cpu",
    tokens: bool = True,
) -> dict[str, int]:
    """Add maps to the index in `folder`, which is created if needed. Returns the number of views per embedded map.

    A map that is in the index already and has not changed is skipped. It is replaced if its file has other pixels, or
    is gone. A different file with the same map name is an error.
    options, store: view options, and address of the view store; None takes those of the index, or the default.
    engine: what embeds the views; None embeds them in this process. device: of the model, for engines that load it.
    tokens: keep compact patch tokens of the views, which make `locate` several times faster.
    """
    folder = Path(folder)
    embedder.preprocessing.check_unwarped(str(folder))
    sources = open_maps(list(maps), network=network)
    _check_names(sources)
    manifest = _start_manifest(folder, embedder, _absolute_model(model_name), options, store)
    for source in sources:
        _check_replaceable(folder, source, manifest)
        for note in (image.note for image in source.images if image.note):
            log.warning("%s", note)
    added: dict[str, int] = {}
    options = manifest.options
    with progress_bar() as bar:
        for source in sources:
            known = {entry.name: entry.fingerprint for entry in manifest.maps}
            work = _work_folder(folder, source, embedder, options, tokens)
            if known.get(source.name) != source.fingerprint:
                views = plan_views(source, options.sizes_m, options.overlap, options.angles)
                files = [work / f"{start:09d}.npz" for start in range(0, len(views), BLOCK)]
                job = MapJob(source, views, BLOCK, files, embedder, manifest.model["name"], device, network, tokens)
                _embed_map(engine or open_engine(), job, bar)
                manifest = _store_map(source, folder, files, manifest)
                added[source.name] = manifest.maps[-1].views
            shutil.rmtree(work, ignore_errors=True)
    if (folder / WORK_FOLDER).is_dir() and not any((folder / WORK_FOLDER).iterdir()):
        (folder / WORK_FOLDER).rmdir()
    with manifest.open_store(folder, check=False) as opened:
        if opened.model is None:  # an index of a version before 0.3
            opened.record_model(manifest.store_model)
        opened.optimize()
    return added


def _absolute_model(model_name: str) -> str:
    """A model name that is valid from any folder: a path becomes absolute."""
    path = Path(model_name).expanduser()
    return absolute_path(path) if model_name != "default" and path.exists() else model_name


def _start_manifest(
    folder: Path, embedder: Embedder, model_name: str, options: ViewOptions | None, store: str | None
) -> IndexManifest:
    """The manifest to add maps to: that of the folder, which must have the same model and options, or a new one."""
    model = {"digest": embedder.weights_digest, "name": model_name, "size": embedder.size}
    existing: IndexManifest | None = None
    if (folder / INDEX_FILE).is_file():
        existing = IndexManifest.read(folder)
    elif folder.exists() and not _is_new(folder):
        raise SkyPartError(f"{folder}: is not empty and contains no map index; choose a new folder")
    chosen = options or (existing.options if existing else ViewOptions())
    address = store or (existing.store if existing else DEFAULT_ADDRESS)
    wanted = (embedder.weights_digest, chosen, address)
    same = existing is not None and (existing.model["digest"], existing.options, existing.store) == wanted
    if existing is None or (not existing.maps and not same):
        if existing is not None:
            _discard_attempt(folder, existing)
        manifest = IndexManifest(model, chosen, store=address)
        _check_store_empty(folder, manifest)
        manifest.write(folder)
        for stale in folder.glob(".index.tmp-*.json"):  # of a process that was killed while it wrote the first one
            stale.unlink(missing_ok=True)
        return manifest
    if existing.model["digest"] != embedder.weights_digest:
        raise SkyPartError(
            f"{folder}: was made with the model {existing.model['name']} ({existing.model['digest'][:12]}) at "
            f"{existing.model['size']} pixels, not with {model_name} ({embedder.weights_digest[:12]}) at "
            f"{embedder.size}; pass that model and size, or choose a new folder (the default model may change with a "
            "new version of SkyPart)"
        )
    if chosen != existing.options:
        raise SkyPartError(
            f"{folder}: its views have sizes {existing.options.sizes_m} m, overlap {existing.options.overlap}, "
            f"{existing.options.rotations} rotations; leave these options out, or choose a new folder"
        )
    if address != existing.store:
        raise SkyPartError(f"{folder}: has its views in another store; leave the address out, or choose a new folder")
    return existing


def _is_new(folder: Path) -> bool:
    """Whether a folder has nothing in it, but for what a killed process left of the first index.json."""
    return folder.is_dir() and all(temporary_target(each) == INDEX_FILE for each in folder.iterdir())


def _discard_attempt(folder: Path, manifest: IndexManifest) -> None:
    """Delete what an abandoned attempt, perhaps with another model, has left in the folder and in its store."""
    for name in (WORK_FOLDER, STORE_FOLDER, TOKENS_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    with manifest.open_store(folder) as store:
        for name in store.stats().maps:
            store.remove(name)


def _check_store_empty(folder: Path, manifest: IndexManifest) -> None:
    """Raise if the store of a new index already contains views, which belong to another index."""
    with open_store(manifest.store, folder / STORE_FOLDER) as store:
        if store.stats().views:
            raise SkyPartError(f"{store.location}: contains the views of another index; give another store address")


def _check_names(sources: Sequence[MapSource]) -> None:
    """Raise if two maps have the same name: one would replace the other."""
    names = [source.name for source in sources]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate:
        raise SkyPartError(f"two maps are called {duplicate}; rename one of the files")


def _check_replaceable(folder: Path, source: MapSource, manifest: IndexManifest) -> None:
    """Raise if a map would replace another file with the same map name."""
    for entry in manifest.maps:
        changed = entry.name == source.name and entry.fingerprint != source.fingerprint
        if (
            changed
            and not _same_files(entry.paths, source.paths)
            and any(is_remote(path) or path_exists(path) for path in entry.paths)
        ):
            raise SkyPartError(
                f"{folder}: already has a map {entry.name}, from {redact_address(entry.paths[0])}; rename "
                f"{redact_address(source.paths[0])}, or remove the other map first: "
                f"skypart maps {folder} --remove {entry.name}"
            )


def _same_files(some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two lists of paths refer to the same files, through links or not."""
    one, other = ([path if is_remote(path) else Path(path).resolve() for path in paths] for paths in (some, others))
    return one == other


def _absolute_paths(source: MapSource) -> tuple[str, ...]:
    """The paths of a map, valid from any folder."""
    return tuple(path if is_remote(path) else absolute_path(path) for path in source.paths)


def _work_folder(folder: Path, source: MapSource, embedder: Embedder, options: ViewOptions, tokens: bool) -> Path:
    """Where the blocks of a map are kept until all are done; specific to the map, model and view options."""
    key = repr((source.name, source.fingerprint, embedder.digest, options, tokens)).encode()
    return folder / WORK_FOLDER / hashlib.blake2b(key, digest_size=8).hexdigest()


def _embed_map(engine: Engine, job: MapJob, bar: Progress) -> None:
    """Embed the blocks of a map that are not on disk yet."""
    engine.embed_map(job, ViewProgress(job.source.name, len(job.views), bar).advance)


def _store_map(source: MapSource, folder: Path, files: Sequence[Path], expected: IndexManifest) -> IndexManifest:
    """Add all blocks to the store, and finally the map to the manifest. After a crash, this can be repeated safely."""
    name = stored_name(source.name, source.fingerprint)
    with expected.open_store(folder) as store:
        with store.transaction():
            store.record_model(expected.store_model)
            maps = store.stats().maps
            stored = maps.get(name, 0)
            for other in maps:
                if other != name and map_name(other) == source.name:
                    store.remove(other)
            for vectors, footprints in _joined_blocks(files) if not stored else ():
                store.add(ViewBatch(name, vectors, footprints))
                stored += len(vectors)
            if not stored:
                raise SkyPartError(
                    f"{redact_address(source.paths[0])}: every view of this map is empty; check its pixels and "
                    "its no-data value"
                )
        if any(tokens.shape[1] for tokens, _ in _token_blocks(files)):
            write_tokens(folder, name, lambda: _token_blocks(files))
        manifest = IndexManifest.read(folder)  # again: another process may have added maps
        if (manifest.model["digest"], manifest.options) != (expected.model["digest"], expected.options):
            raise SkyPartError(f"{folder}: was restarted by another process; choose another folder")
        entry = MapEntry(source.name, _absolute_paths(source), source.fingerprint, stored, source.bounds)
        manifest = replace(manifest, maps=(*(e for e in manifest.maps if e.name != source.name), entry))
        manifest.write(folder)
        remove_unused_tokens(folder, [entry.stored_name for entry in manifest.maps])
    return manifest


def _joined_blocks(files: Sequence[Path]) -> Iterator[tuple[NDArray[np.float16], NDArray[np.float64]]]:
    """Blocks concatenated up to SEGMENT views; the grouping depends only on the number of blocks."""
    group = SEGMENT // BLOCK
    for start in range(0, len(files), group):
        blocks = [_read_block(file, "vectors", "footprints") for file in files[start : start + group]]
        joined = np.concatenate([vectors for vectors, _ in blocks])
        if len(joined):
            yield joined, np.concatenate([footprints for _, footprints in blocks])


def _token_blocks(files: Sequence[Path]) -> Iterator[TokenBlock]:
    """The tokens and footprints of the blocks that have views."""
    for file in files:
        tokens, footprints = _read_block(file, "tokens", "footprints")
        if len(tokens):
            yield tokens, footprints


def _read_block(file: Path, *names: str) -> list[NDArray[Any]]:
    """Arrays of the file of a block."""
    try:
        with np.load(file, allow_pickle=False) as content:
            return [content[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise SkyPartError(
            f"{file}: cannot be read ({reason}); check the disk, or delete the file, and start again"
        ) from error
