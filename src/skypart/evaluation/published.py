"""The numbers printed in the paper, quoted beside ours; `published.json` names the table of each row."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from skypart.datasets import denseuav, folders, sues200, university1652
from skypart.datasets.layout import WORLD_FILE
from skypart.datasets.records import Dataset
from skypart.evaluation.tables import Row

PUBLISHED_TESTS = {
    university1652.KIND: {"D2S": (37_855, 951), "S2D": (701, 51_355)},
    sues200.KIND: {f"D2S {h}m": (4_000, 200) for h in sues200.ALTITUDES}
    | {f"S2D {h}m": (80, 10_000) for h in sues200.ALTITUDES},
    denseuav.KIND: {"D2S": (2_331, 18_198), "S2D": (4_662, 9_099)},
}
"""(queries, gallery images) of each split of the published data sets."""


@cache
def _all() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((files("skypart.evaluation") / "published.json").read_text(encoding="utf-8"))
    return data


def published_rows(kind: str, part: str = "clean") -> list[Row]:
    """Quoted rows for a data set `kind`; `part` is `clean` or `weather`. None for own folders."""
    rows = _all()[part].get(kind, [])
    return [Row(r["method"] + _venue(r), r["values"], r["params"], r["source"]) for r in rows]


def _venue(row: dict[str, Any]) -> str:
    return "" if row["venue"] is None else f" ({row['venue']})"


def is_published(dataset: Dataset) -> bool:
    """Whether the splits have the published sizes and places, so that quoted numbers can stand beside ours."""
    sizes = {split.name: (len(split.query), len(split.gallery)) for split in dataset.tests}
    published = PUBLISHED_TESTS.get(dataset.kind, {})
    rendered = (dataset.root / WORLD_FILE).is_file()
    if dataset.kind == sues200.KIND and any(
        int(record.location) in sues200.TRAIN_IDS for split in dataset.tests for record in split.query
    ):
        return False  # a split of its own
    return bool(published) and not rendered and all(sizes.get(name) == size for name, size in published.items())


def short_title(dataset: Dataset) -> str:
    """The data set's name, with the folder's where it is not the published set; for figures and provenance."""
    if dataset.kind == folders.KIND or is_published(dataset):
        return dataset.name
    return f"{dataset.root.resolve().name} ({_made(dataset)} like {dataset.name})"


def _made(dataset: Dataset) -> str:
    return "rendered" if (dataset.root / WORLD_FILE).is_file() else "reduced"


def dataset_title(dataset: Dataset) -> str:
    """The data set's name; a reduced or rendered set says so, because quoted rows do not compare with it."""
    if dataset.kind == folders.KIND or is_published(dataset):
        return dataset.name
    folder, made = dataset.root.resolve().name, _made(dataset)
    return f"{folder} ({made}, laid out like {dataset.name}; quoted rows are of the real one)"
