"""The weather benchmark: drone images under ten conditions, satellite images clean, both directions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from skypart.datasets.benchmark import Column
from skypart.datasets.records import ARROWS, Dataset
from skypart.datasets.registry import find_benchmark
from skypart.evaluation.embedding import Corruption, ImageSource
from skypart.evaluation.protocol import EvaluationResult, Protocol, embed_dataset, evaluate
from skypart.evaluation.published import dataset_title, published_rows
from skypart.evaluation.tables import Row, Table
from skypart.images.weather import CONDITIONS, LABELS, check_profile

METRICS = ("R@1", "AP")


@dataclass(frozen=True)
class WeatherResult:
    """Headline metrics per condition: `conditions[condition][direction][metric]` in percent.

    severities: the same per severity, keyed `severity -> condition`.
    altitudes: the metrics per condition and altitude, keyed `D2S 150 m`; empty if the data set has no altitudes.
    """

    dataset: str
    kind: str
    root: str
    model: str
    digest: str
    protocol: Protocol
    conditions: dict[str, dict[str, dict[str, float]]]
    severities: dict[float, dict[str, dict[str, dict[str, float]]]] = field(default_factory=dict)
    altitudes: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def mean(self, direction: str, metric: str) -> float:
        """Mean over the ten conditions."""
        return float(np.mean([heads[direction][metric] for heads in self.conditions.values()]))

    @property
    def directions(self) -> list[str]:
        """`D2S`, `S2D`."""
        return list(self.conditions["normal"])

    def values(self, ap: str = "AP") -> dict[str, float]:
        """Flat `D2S fog/R@1` -> percent, with `mean` as a further condition. ap: the metric to report as AP."""
        flat = {}
        for direction in self.directions:
            for metric, key in (("R@1", "R@1"), ("AP", ap)):
                for condition, heads in self.conditions.items():
                    flat[f"{direction} {condition}/{metric}"] = heads[direction][key]
                flat[f"{direction} mean/{metric}"] = self.mean(direction, key)
        return flat

    def as_json(self) -> dict[str, Any]:
        """Plain data for a JSON file."""
        means = {d: {m: self.mean(d, m) for m in self.conditions["normal"][d]} for d in self.directions}
        return {**asdict(self), "mean over conditions": means, "caption": self.protocol.caption()}


def evaluate_weather(
    source: ImageSource, dataset: Dataset, model: str, protocol: Protocol, severities: Sequence[float] = ()
) -> WeatherResult:
    """Evaluate under all ten conditions and, for the severity curve, under nine at each of `severities` (0..1)."""
    check_profile(protocol.weather or "")
    root, digest = str(dataset.root.resolve()), source.embedder.digest
    result = WeatherResult(dataset_title(dataset), dataset.kind, root, model, digest, protocol, {})
    for condition in CONDITIONS:
        found = _evaluate_condition(source, dataset, protocol, condition, None)
        result.conditions[condition] = found.headline
        result.altitudes[condition] = {
            f"{split.direction} {split.altitude:g} m": split.metrics
            for split in found.splits
            if split.altitude is not None
        }
    for severity in severities:
        result.severities[severity] = {
            condition: _evaluate_condition(source, dataset, protocol, condition, severity).headline
            for condition in CONDITIONS[1:]
        }
    return result


def _evaluate_condition(
    source: ImageSource, dataset: Dataset, protocol: Protocol, condition: str, severity: float | None
) -> EvaluationResult:
    corruption = Corruption(condition, protocol.weather or "paper", protocol.seed, severity)
    vectors = embed_dataset(dataset, source, corruption, protocol.flip)
    return evaluate(dataset, vectors, protocol)


def weather_table(result: WeatherResult, direction: str) -> Table:
    """The paper's weather table of one direction: R@1 and AP per condition and their mean, quoted rows below."""
    columns = [
        Column(LABELS.get(condition, "Mean"), metric, f"{direction} {condition}/{metric}")
        for condition in (*CONDITIONS, "mean")
        for metric in METRICS
    ]
    rows = [
        Row(f"{result.model} (AP official)", result.values()),
        Row(f"{result.model} (AP standard)", result.values("AP standard")),
        *published_rows(result.kind, "weather"),
    ]
    over = ", mean over altitudes" if find_benchmark(result.kind).averages_altitudes else ""
    return Table(
        f"{result.dataset} {ARROWS[direction]} in ten weathers{over}: {result.protocol.caption()}", columns, rows
    )
