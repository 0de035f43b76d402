"""Turn evaluation results into tables like the paper's, and write them as JSON, CSV, Markdown and LaTeX."""

import json
from pathlib import Path
from typing import Any

from skypart.atomic import write_text
from skypart.datasets.benchmark import Column
from skypart.datasets.records import arrow_name
from skypart.datasets.registry import find_benchmark
from skypart.evaluation.protocol import EvaluationResult
from skypart.evaluation.published import published_rows
from skypart.evaluation.tables import Row, Table, to_csv, to_latex, to_markdown


def main_table(result: EvaluationResult) -> Table:
    """The paper's table for this benchmark: our rows with official and standard AP, then the quoted rows."""
    columns = find_benchmark(result.kind).main_columns(result.splits, result.values())
    rows = [*our_rows(result), *quoted_rows(result)]
    zero_shot = f", zero-shot: trained on {result.trained_on}" if result.zero_shot else ""
    return Table(f"{result.dataset}{zero_shot}: {result.protocol.caption()}", columns, rows)


def quoted_rows(result: EvaluationResult) -> list[Row]:
    """The paper's rows to compare with: those of its transfer table for a model trained on other data."""
    return published_rows(result.kind, "transfer" if result.zero_shot else "clean")


def detail_table(result: EvaluationResult) -> Table:
    """Every metric of every split, one row per split."""
    metrics = list(dict.fromkeys(name for split in result.splits for name in split.metrics))
    rows = [
        Row(f"{arrow_name(split.name)} ({split.queries:,} against {split.gallery:,})", split.metrics)
        for split in result.splits
    ]
    if any(split.altitude is not None for split in result.splits):
        whole = {split.direction for split in result.splits if split.altitude is None}
        means = {d: m for d, m in result.headline.items() if d not in whole}
        rows += [Row(f"{arrow_name(direction)} mean over altitudes", values) for direction, values in means.items()]
    return Table(
        f"{result.dataset}, all metrics: {result.protocol.caption()}",
        [Column("", m, m, "distance" if m[:2] in ("SD", "MA") else "") for m in metrics],
        rows,
    )


def our_rows(result: EvaluationResult) -> list[Row]:
    """The measured rows: this model with official and with standard AP."""
    values = result.values()
    standard = {key.removesuffix(" standard"): value for key, value in values.items() if key.endswith("/AP standard")}
    return [
        Row(f"{result.model} (AP official)", values, result.params or None),
        Row(f"{result.model} (AP standard)", {**values, **standard}, result.params or None),
    ]


def write_tables(folder: Path, name: str, table: Table) -> None:
    """Write `name.csv`, `name.md` and `name.tex` into `folder`."""
    write_text(folder / f"{name}.csv", to_csv(table))
    write_text(folder / f"{name}.md", to_markdown(table))
    write_text(folder / f"{name}.tex", to_latex(table))


def write_json(path: Path, result: dict[str, Any], quoted: list[Row]) -> None:
    """Write the result, and the quoted rows under a key of their own."""
    rows = [{"method": row.method, "source": row.source, "params": row.params, "values": row.values} for row in quoted]
    write_text(path, json.dumps({**result, "quoted from the paper": rows}, indent=1, ensure_ascii=False) + "\n")


def write_result(folder: Path, result: EvaluationResult) -> None:
    """Write result.json, table.{csv,md,tex} and details.{csv,md,tex}."""
    data = {**result.as_json(), "caption": result.protocol.caption()}
    write_json(folder / "result.json", data, quoted_rows(result))
    write_tables(folder, "table", main_table(result))
    write_tables(folder, "details", detail_table(result))
