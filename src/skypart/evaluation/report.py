"""Turn evaluation results into the paper's table shapes and write them in every format."""

import json
from pathlib import Path
from typing import Any

from skypart.atomic import write_text
from skypart.datasets import denseuav, sues200
from skypart.evaluation.protocol import EvaluationResult
from skypart.evaluation.published import published_rows
from skypart.evaluation.tables import Column, Row, Table, to_csv, to_latex, to_markdown

ARROWS = {"D2S": "D→S", "S2D": "S→D"}


def main_table(result: EvaluationResult) -> Table:
    """The paper's table for this data set: ours with AP official and AP standard, then the quoted rows."""
    return Table(
        f"{result.dataset}: {result.protocol.words()}", _columns(result), [*our_rows(result), *_quoted(result)]
    )


def detail_table(result: EvaluationResult) -> Table:
    """Every metric of every split, one row a split."""
    metrics = list(dict.fromkeys(name for split in result.splits for name in split.metrics))
    rows = [
        Row(f"{_arrow(split.name)} ({split.queries:,} against {split.gallery:,})", split.metrics)
        for split in result.splits
    ]
    if any(split.altitude is not None for split in result.splits):
        whole = {split.direction for split in result.splits if split.altitude is None}
        means = {d: m for d, m in result.headline.items() if d not in whole}
        rows += [Row(f"{_arrow(direction)} mean over altitudes", values) for direction, values in means.items()]
    return Table(
        f"{result.dataset}, all metrics: {result.protocol.words()}",
        [Column("", m, m, "distance" if m[:2] in ("SD", "MA") else "") for m in metrics],
        rows,
    )


def our_rows(result: EvaluationResult) -> list[Row]:
    """This model under both AP conventions."""
    values = result.values()
    standard = {key.removesuffix(" standard"): value for key, value in values.items() if key.endswith("/AP standard")}
    return [
        Row(f"{result.model} (AP official)", values),
        Row(f"{result.model} (AP standard)", {**values, **standard}),
    ]


def write_tables(folder: Path, name: str, table: Table) -> None:
    """Write `name.csv`, `name.md` and `name.tex` into `folder`."""
    write_text(folder / f"{name}.csv", to_csv(table))
    write_text(folder / f"{name}.md", to_markdown(table))
    write_text(folder / f"{name}.tex", to_latex(table))


def write_json(path: Path, result: dict[str, Any], quoted: list[Row]) -> None:
    """Write the result and the quoted rows, kept apart."""
    rows = [{"method": row.method, "source": row.source, "params": row.params, "values": row.values} for row in quoted]
    write_text(path, json.dumps({**result, "quoted from the paper": rows}, indent=1, ensure_ascii=False) + "\n")


def write_result(folder: Path, result: EvaluationResult) -> None:
    """Write result.json, table.{csv,md,tex} and details.{csv,md,tex}."""
    data = {**result.as_json(), "caption": result.protocol.words()}
    write_json(folder / "result.json", data, _quoted(result))
    write_tables(folder, "table", main_table(result))
    write_tables(folder, "details", detail_table(result))


def _quoted(result: EvaluationResult) -> list[Row]:
    return published_rows(result.kind)


def _arrow(name: str) -> str:
    return ARROWS[name[:3]] + name[3:]


def _columns(result: EvaluationResult) -> list[Column]:
    directions = list(dict.fromkeys(split.direction for split in result.splits))
    if result.kind == sues200.KIND:
        columns = []
        for direction in directions:
            mine = [split for split in result.splits if split.direction == direction]
            columns += [
                Column(_arrow(s.name), metric, f"{s.name}/{metric}", direction)
                for s in mine
                for metric in ("R@1", "AP")
            ]
            columns.append(Column(f"{ARROWS[direction]} mean", "R@1", f"{direction} mean/R@1", direction))
        return columns
    metrics = ["R@1", "AP"]
    if result.kind == denseuav.KIND:
        metrics = ["R@1", "R@5", "R@top1", "AP", "SDM@1", "SDM@3", "SDM@5"]
    known = result.values()
    return [
        Column(ARROWS[direction], metric, f"{direction}/{metric}", direction)
        for direction in directions
        for metric in metrics
        if f"{direction}/{metric}" in known
    ]
