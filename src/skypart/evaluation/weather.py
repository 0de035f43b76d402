"""The weather benchmark: ten conditions on the drone images, both directions, satellites clean and embedded once."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from skypart.datasets import sues200
from skypart.datasets.records import Dataset
from skypart.evaluation.embedding import Corruption, ImageSource
from skypart.evaluation.protocol import EvaluationResult, Protocol, embed_dataset, evaluate
from skypart.evaluation.published import dataset_title, published_rows
from skypart.evaluation.report import ARROWS, write_json, write_tables
from skypart.evaluation.tables import Column, Row, Table, print_table, terminal
from skypart.images.weather import CONDITIONS, LABELS, check_profile

METRICS = ("R@1", "AP")


@dataclass(frozen=True)
class WeatherResult:
    """Headline metrics per condition: `conditions[condition][direction][metric]` in percent.

    severities: the same for each severity of the curve, keyed `severity -> condition`. altitudes: the metrics of each
    condition at each altitude, keyed `D2S 150 m`, where there are any.
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
        """Flat `D2S fog/R@1` -> percent, with `mean`; AP from the key `ap`."""
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
        return {**asdict(self), "mean over conditions": means, "caption": self.protocol.words()}


def run_weather(
    source: ImageSource,
    dataset: Dataset,
    out: Path,
    model: str,
    protocol: Protocol,
    severities: Sequence[float] = (),
    console: Console | None = None,
) -> WeatherResult:
    """Evaluate under all ten conditions, print one table a direction, write tables and figures under `out`."""
    from skypart.evaluation.weather_figures import draw_weather_figures  # matplotlib: only when it is drawn with

    check_profile(protocol.weather or "")
    console = console or terminal()
    root, digest = str(dataset.root.resolve()), source.embedder.digest
    result = WeatherResult(dataset_title(dataset), dataset.kind, root, model, digest, protocol, {})
    for condition in CONDITIONS:
        found = _run(source, dataset, protocol, condition, None)
        result.conditions[condition] = found.headline
        result.altitudes[condition] = {
            f"{split.direction} {split.altitude:g} m": split.metrics
            for split in found.splits
            if split.altitude is not None
        }
    for severity in severities:
        result.severities[severity] = {
            condition: _run(source, dataset, protocol, condition, severity).headline for condition in CONDITIONS[1:]
        }
    write_json(out / "weather.json", result.as_json(), published_rows(dataset.kind, "weather"))
    for direction in result.directions:
        table = weather_table(result, direction)
        write_tables(out, f"weather-{direction}", table)
        print_table(console, table)
    draw_weather_figures(out / "figures", result)
    console.print(source.account, soft_wrap=True, markup=False)
    console.print(f"wrote {out}/: weather.json, weather-*.csv .md .tex, figures/", soft_wrap=True, markup=False)
    return result


def _run(
    source: ImageSource, dataset: Dataset, protocol: Protocol, condition: str, severity: float | None
) -> EvaluationResult:
    corruption = Corruption(condition, protocol.weather or "paper", protocol.seed, severity)
    vectors = embed_dataset(dataset, source, corruption, protocol.flip)
    return evaluate(dataset, vectors, protocol)


def weather_table(result: WeatherResult, direction: str) -> Table:
    """The paper's weather table of one direction: R@1 and AP per condition and in the mean, quoted rows below."""
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
    over = ", mean over altitudes" if result.kind == sues200.KIND else ""
    return Table(
        f"{result.dataset} {ARROWS[direction]} in ten weathers{over}: {result.protocol.words()}", columns, rows
    )
