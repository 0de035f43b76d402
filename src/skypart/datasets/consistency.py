"""Faults that only show when the parts of a data set are held against each other."""

from collections.abc import Iterator
from typing import Literal

from skypart.datasets import denseuav, folders
from skypart.datasets.records import Dataset


def inconsistencies(dataset: Dataset) -> Iterator[tuple[Literal["missing", "misplaced"], str]]:
    """Yield (kind of fault, sentence): locations without partner, leaks between training and test, no GPS."""
    drone = {record.location for record in dataset.train if record.view == "drone"}
    satellite = {record.location for record in dataset.train if record.view == "satellite"}
    if drone - satellite:
        yield "missing", f"training locations without a satellite image: {_some(drone - satellite)}"
    if satellite - drone:
        yield "missing", f"training locations without a drone image: {_some(satellite - drone)}"
    if not dataset.tests:
        yield "missing", "nothing to test: no query and no gallery"
    tested: set[str] = set()
    for split in dataset.tests:
        queried = {record.location for record in split.query}
        shown = {record.location for record in split.gallery}
        tested |= queried
        if not split.query or not split.gallery:
            yield "missing", f"{split.name}: no {'gallery' if split.query else 'query'} images"
        elif queried - shown:
            yield (
                "missing",
                f"{split.name}: queried locations absent from the gallery: {_some(queried - shown)}",
            )
    leaked = tested & (drone | satellite)
    if leaked and dataset.kind != folders.KIND:
        yield "misplaced", f"locations both in training and among the queries: {_some(leaked)}"
    if dataset.kind == denseuav.KIND:
        records = [
            *dataset.train,
            *(record for split in dataset.tests for record in (*split.query, *split.gallery)),
        ]
        unplaced = {record.location for record in records if record.position is None}
        if unplaced and len(unplaced) < len({record.location for record in records}):
            yield "missing", f"no line in Dense_GPS_*.txt for {_some(unplaced)}"


def _some(names: set[str], shown: int = 5) -> str:
    listed = sorted(names)[:shown]
    return f"{len(names):,} ({', '.join(listed)}{', ...' if len(names) > shown else ''})"
