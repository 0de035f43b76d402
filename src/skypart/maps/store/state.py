"""Opening the newest state of a store while another process may be writing the next."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from skypart.errors import SkyPartError
from skypart.maps.store.manifest import Manifest, read_manifest
from skypart.maps.store.segment import check_hash, damaged, open_file, open_segment
from skypart.maps.store.snapshot import Snapshot

T = TypeVar("T")


def read_state(folder: Path, visit: Callable[[Manifest], T]) -> tuple[Manifest, T]:
    """The newest manifest, and what `visit` makes of it.

    A file that is not there belongs to a state that a writer has just replaced, then the next one is read; or, if
    there is none, it is missing.
    """
    manifest = read_manifest(folder)
    while True:
        try:
            return manifest, visit(manifest)
        except FileNotFoundError as error:
            path = Path(error.filename)
            newest = read_manifest(folder)
            if newest == manifest:
                record = next(s for s in manifest.segments if path.name in (file.name for file in s.files))
                raise damaged(path, record, "missing") from error
            manifest = newest


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Refuse a store one of whose files is missing or of another size."""
    for record in manifest.segments:
        for file_record in record.files:
            open_file(folder, record, file_record).close()


def open_snapshot(folder: Path, manifest: Manifest, open_before: Snapshot | None, hash_limit: int) -> Snapshot:
    """Open all segments; those of `open_before` are taken over. SHA-256 of vectors: up to `hash_limit` bytes in all."""
    known = {} if open_before is None else {segment.record: segment for segment in open_before.segments}
    full_check = sum(record.vectors.bytes for record in manifest.segments) <= hash_limit
    segments = [
        known[record] if record in known else open_segment(folder, record, manifest.dimension, full_check)
        for record in manifest.segments
    ]
    return Snapshot(manifest, segments)


def find_damage(folder: Path, manifest: Manifest) -> list[str]:
    """A sentence for each file that is not as it was written; all are read."""
    problems = []
    for record in manifest.segments:
        for file_record in record.files:
            try:
                with open_file(folder, record, file_record) as file:
                    check_hash(file, folder / file_record.name, record, file_record)
            except SkyPartError as error:
                problems.append(str(error))
    return problems
