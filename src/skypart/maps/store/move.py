"""Bulk load: copy all views of an embedded store, segment by segment, into another store."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from skypart.errors import SkyPartError
from skypart.maps.store.interface import StoreModel, ViewBatch
from skypart.maps.store.open import open_store
from skypart.progress import progress_bar

if TYPE_CHECKING:
    from skypart.maps.store.embedded import EmbeddedStore

ROWS = 65_536
"""Maximum number of views per batch."""


def copy_views(address: str, folder: Path, new_address: str, model: StoreModel) -> int:
    """Copy the views of an index from its embedded store into an empty one. Returns their number.

    folder: that of the index's store. model: of the index. All views become visible together, at the end.
    """
    from skypart.maps.store.embedded import EmbeddedStore  # engines are imported when first used

    with open_store(address, folder) as source, open_store(new_address, folder) as target:
        if not isinstance(source, EmbeddedStore):
            raise SkyPartError(f"{source.location}: views can be copied from an embedded store only")
        if target.stats().views:
            raise SkyPartError(f"{target.location}: contains the views of another index; give another store address")
        with progress_bar() as bar, target.transaction():
            task = bar.add_task("copying views", total=source.stats().views)
            target.record_model(model)
            for batch in _batches(source):
                target.add(batch)
                bar.advance(task, len(batch.vectors))
        target.optimize()
        return target.stats().views


def _batches(store: "EmbeddedStore") -> Iterator[ViewBatch]:
    """All views in the order of their rows, so that equal scores keep their order."""
    snapshot = store.snapshot()
    spans = []
    for segment in snapshot.segments:
        local = 0
        for first, count in segment.record.rows:
            spans += [
                (first + start, segment, local + start, min(ROWS, count - start)) for start in range(0, count, ROWS)
            ]
            local += count
    for _, segment, start, count in sorted(spans, key=lambda span: span[0]):
        rows = slice(start, start + count)
        yield ViewBatch(segment.record.map_name, segment.vectors[rows], segment.footprints[rows])
