"""The numbers printed in the paper, quoted beside ours; `published.json` names the table of each row."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from skypart.datasets.records import Dataset
from skypart.datasets.registry import find_benchmark
from skypart.datasets.rendering import is_rendered
from skypart.evaluation.tables import Row


@cache
def _load() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((files("skypart.evaluation") / "published.json").read_text(encoding="utf-8"))
    return data


def published_rows(kind: str, section: str = "clean") -> list[Row]:
    """Quoted rows for benchmark `kind`; `section` is `clean` or `weather`. Empty if the paper has none."""
    rows = _load()[section].get(find_benchmark(kind).kind, [])
    return [Row(row["method"] + _venue(row), row["values"], row["params"], row["source"]) for row in rows]


def _venue(row: dict[str, Any]) -> str:
    return "" if row["venue"] is None else f" ({row['venue']})"


def short_title(dataset: Dataset) -> str:
    """The data set's name, or its folder and origin if it is not the published set; for figures and provenance."""
    if _needs_no_remark(dataset):
        return dataset.name
    return f"{dataset.root.resolve().name} ({_origin(dataset)} like {dataset.name})"


def dataset_title(dataset: Dataset) -> str:
    """The data set's name; the title of a reduced or rendered set says that quoted rows do not compare with it."""
    if _needs_no_remark(dataset):
        return dataset.name
    folder, origin = dataset.root.resolve().name, _origin(dataset)
    return f"{folder} ({origin}, laid out like {dataset.name}; quoted rows are of the real one)"


def _needs_no_remark(dataset: Dataset) -> bool:
    """Whether the data set is the published one, or there is no published one to confuse it with."""
    benchmark = find_benchmark(dataset.kind)
    return not benchmark.published_tests or benchmark.is_published(dataset)


def training_data(kind: str, name: str, dataset: Dataset) -> str:
    """What a model was trained on, to hold against the kind of `dataset`.

    The kind of its data set; the name of a rendered world, unless `dataset` is rendered too.
    """
    return name if "(rendered like " in name and not is_rendered(dataset.root) else kind


def _origin(dataset: Dataset) -> str:
    return "rendered" if is_rendered(dataset.root) else "reduced"
