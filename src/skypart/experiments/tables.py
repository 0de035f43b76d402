"""The tables of a comparison: headline, altitudes, weather, differences with their intervals."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skypart.datasets.records import ARROWS
from skypart.evaluation.published import dataset_title, published_rows
from skypart.evaluation.tables import Row
from skypart.experiments.measure import CLEAN, RowScores
from skypart.experiments.plan import RowPlan
from skypart.experiments.run import Comparison
from skypart.experiments.sheet import Cell, Mark, Sheet
from skypart.experiments.statistics import Difference, paired_bootstrap, spread
from skypart.experiments.wrappers import EMBEDDING_WRAPPERS
from skypart.images.weather import CONDITIONS, LABELS
from skypart.model.cost import Cost, measure_cost
from skypart.model.storage import load_model

CATASTROPHIC, LARGE = 10.0, 2.0
"""Drops in points from which the paper shades a row red, and blue."""


def build_sheets(found: Comparison) -> list[Sheet]:
    """All tables of a comparison."""
    sheets = [headline_sheet(found)]
    directions = _first(found).directions()
    if found.plan.quoted:
        sheets += [details_sheet(found, direction) for direction in directions]
    if len(found.seeds) > 1:
        sheets.append(seeds_sheet(found))
    sheets += [splits_sheet(found, direction) for direction in directions if _altitudes(found, direction)]
    for profile in dict.fromkeys(c.split("/")[0] for c in _first(found).conditions if c != CLEAN):
        for metric in ("R@1", "AP"):
            sheets += [weather_sheet(found, profile, direction, metric) for direction in directions]
    if _has_reference(found):
        sheets.append(differences_sheet(found))
    weights = kendall_sheet(found)
    return [*sheets, weights] if weights is not None else sheets


def row_plans(found: Comparison) -> list[RowPlan]:
    """The rows of a comparison, in order."""
    return found.plan.all_rows(found.preset)


def headline_sheet(found: Comparison) -> Sheet:
    """R@1 and AP in both directions, parameters and multiply-adds; deltas to the reference; quoted rows below."""
    directions = _first(found).directions()
    headings = ["method", "params (M)", "GMACs"]
    for direction in directions:
        headings += [f"{ARROWS[direction]} R@1", f"{ARROWS[direction]} AP"]
        if _has_reference(found):
            headings.append(f"Δ {ARROWS[direction]} R@1")
    rows: list[list[Cell]] = []
    blocks: dict[int, str] = {}
    for number, plan in enumerate(row_plans(found)):
        _start_block(blocks, number, plan)
        cost = model_cost(found, plan)
        single_pass = plan.wrapper in ("", *EMBEDDING_WRAPPERS)
        macs = f"{cost.giga_macs:.2f}" if single_pass else ""
        cells = [Cell(plan.name), Cell(f"{cost.total_parameters / 1e6:.2f}"), Cell(macs)]
        for direction in directions:
            cells += [_spread_cell(found, plan.name, CLEAN, direction, metric) for metric in ("R@1", "AP")]
            if _has_reference(found):
                cells.append(_delta_cell(found, plan, lambda s, d=direction: s.headline(CLEAN, d)))  # type: ignore[misc]
        rows.append(cells)
    rows += _quoted(found, directions)
    caption = f"{found.plan.title}. {_data_words(found)}; {_seed_words(found)}; AP official"
    return Sheet("headline", caption, headings, rows, blocks)


def details_sheet(found: Comparison, direction: str) -> Sheet:
    """Every metric of one direction: R@k, R@top1, both APs, and SDM@k where positions are known; quoted rows below."""
    metrics = _first(found).metrics
    rows: list[list[Cell]] = []
    blocks: dict[int, str] = {}
    for number, plan in enumerate(row_plans(found)):
        _start_block(blocks, number, plan)
        rows.append([Cell(plan.name), *(_spread_cell(found, plan.name, CLEAN, direction, m) for m in metrics)])
    for row in _published(found):
        values = [row.values.get(f"{direction}/{m}", row.values.get(f"{direction} mean/{m}")) for m in metrics]
        rows += _quoted_values(row, values)
    caption = f"{found.plan.title}: {ARROWS[direction]}, every metric. {_data_words(found)}; AP official"
    return Sheet(f"details-{direction}", caption, ["method", *metrics], rows, blocks)


def seeds_sheet(found: Comparison) -> Sheet:
    """R@1 of each seed, their mean and their standard deviation, in both directions."""
    headings = ["method"]
    for direction in _first(found).directions():
        headings += [f"{ARROWS[direction]} seed {seed}" for seed in found.seeds]
        headings += [f"{ARROWS[direction]} mean", f"{ARROWS[direction]} deviation"]
    rows: list[list[Cell]] = []
    blocks: dict[int, str] = {}
    for number, plan in enumerate(row_plans(found)):
        _start_block(blocks, number, plan)
        cells = [Cell(plan.name)]
        for direction in _first(found).directions():
            values = [s.headline(CLEAN, direction) for s in found.rows[plan.name]]
            over = spread(values)
            cells += [Cell(f"{value:.2f}") for value in (*values, over.mean, over.deviation)]
        rows.append(cells)
    return Sheet("seeds", f"{found.plan.title}: R@1 of each seed. {_data_words(found)}", headings, rows, blocks)


def splits_sheet(found: Comparison, direction: str) -> Sheet:
    """R@1 and AP of one direction at each altitude or height, and the mean of R@1; quoted rows below."""
    splits = _altitudes(found, direction)
    columns = [(split, metric) for split in splits for metric in ("R@1", "AP")]
    rows: list[list[Cell]] = []
    blocks: dict[int, str] = {}
    for number, plan in enumerate(row_plans(found)):
        _start_block(blocks, number, plan)
        scores = [s.conditions[CLEAN] for s in found.rows[plan.name]]
        values = [[each[split].metric(metric).mean() for each in scores] for split, metric in columns]
        means = [np.mean([each[split].metric("R@1").mean() for split in splits]) for each in scores]
        rows.append([Cell(plan.name), *(Cell(str(spread(each))) for each in (*values, means))])
    for row in _published(found):
        quoted = [row.values.get(f"{split}/{metric}") for split, metric in columns]
        rows += _quoted_values(row, [*quoted, row.values.get(f"{direction} mean/R@1")])
    headings = ["method", *(f"{split.split()[1]} {metric}" for split, metric in columns), "mean R@1"]
    caption = f"{found.plan.title}: {ARROWS[direction]} at each altitude. {_data_words(found)}; AP official"
    return Sheet(f"altitudes-{direction}", caption, headings, rows, blocks)


def weather_sheet(found: Comparison, profile: str, direction: str, metric: str = "R@1") -> Sheet:
    """A metric under each condition, the mean over conditions, and the mean drop from clean."""
    conditions = [f"{profile}/{condition}" for condition in CONDITIONS]
    headings = ["method", *(LABELS[c] for c in CONDITIONS), "mean", "drop from clean"]
    if _has_reference(found):
        headings.append("Δ mean")
    rows: list[list[Cell]] = []
    blocks: dict[int, str] = {}
    for number, plan in enumerate(row_plans(found)):
        _start_block(blocks, number, plan)
        cells = [Cell(plan.name), *(_spread_cell(found, plan.name, c, direction, metric) for c in conditions)]
        means = [weather_mean(s, profile, direction, metric) for s in found.rows[plan.name]]
        clean = [s.headline(CLEAN, direction, metric) for s in found.rows[plan.name]]
        cells += [Cell(str(spread(means))), Cell(f"{np.mean(clean) - np.mean(means):.2f}")]
        if _has_reference(found):
            cells.append(_delta_cell(found, plan, lambda s: weather_mean(s, profile, direction, metric)))
        rows.append(cells)
    for row in published_rows(found.dataset.kind, "weather") if found.plan.quoted and profile == "paper" else []:
        values = [row.values.get(f"{direction} {c}/{metric}") for c in (*CONDITIONS, "mean")]
        drop = None if values[0] is None or values[-1] is None else values[0] - values[-1]
        rows += [[*cells, *[Cell("")] * (len(headings) - len(cells))] for cells in _quoted_values(row, [*values, drop])]
    words = f"{ARROWS[direction]} {metric} in ten weathers, profile {profile}"
    name = "weather" if metric == "R@1" else f"weather{metric}"
    return Sheet(
        f"{name}-{profile}-{direction}",
        f"{found.plan.title}: {words}. {_data_words(found)}",
        headings,
        rows,
        blocks,
        found.dataset.root.resolve().name,
    )


def weather_summary(tables: Sequence[dict[str, Any]]) -> list[Sheet]:
    """Weather tables of several data sets (`Sheet.to_data`) side by side: R@1 without weather, mean, drop.

    One sheet per profile and direction of which there are at least two data sets. A method without a number somewhere
    has empty cells there, and no mean over data sets.
    """
    sheets = []
    for name in dict.fromkeys(table["name"] for table in tables if str(table["name"]).startswith("weather-")):
        chosen = [table for table in tables if table["name"] == name]
        titles = _distinct([str(table.get("data", "")) or f"data {n}" for n, table in enumerate(chosen, start=1)])
        if len(chosen) < 2:
            continue
        columns = [(LABELS["normal"], "normal"), ("mean", "mean"), ("drop from clean", "drop")]
        headings = ["method", *(f"{title}, {short}" for title in titles for _, short in columns), "mean of means"]
        rows = []
        for method in dict.fromkeys(row[0]["text"] for table in chosen for row in table["rows"]):
            cells = [Cell(method, "quoted" if method.endswith("(quoted)") else "")]
            means: list[str] = []
            for table in chosen:
                row = next((row for row in table["rows"] if row[0]["text"] == method), None)
                cells += [
                    Cell("" if row is None else row[table["headings"].index(heading)]["text"], cells[0].mark)
                    for heading, _ in columns
                ]
                means.append(cells[-2].text)
            total = f"{np.mean([float(text.split()[0]) for text in means]):.2f}" if all(means) else ""
            rows.append([*cells, Cell(total, cells[0].mark)])
        _, profile, direction = name.split("-")
        caption = f"Ten weathers over {len(chosen)} data sets: {ARROWS[direction]} R@1, profile {profile}"
        sheets.append(Sheet(f"summary-{profile}-{direction}", caption, headings, rows))
    return sheets


def _distinct(titles: Sequence[str]) -> list[str]:
    """Titles with a number behind those that occur twice."""
    return [f"{title} {n}" if titles.count(title) > 1 else title for n, title in enumerate(titles, start=1)]


def weather_mean(scores: RowScores, profile: str, direction: str, metric: str = "R@1") -> float:
    """Mean of a metric over the ten conditions, in percent."""
    return float(np.mean([scores.headline(f"{profile}/{c}", direction, metric) for c in CONDITIONS]))


def differences_sheet(found: Comparison) -> Sheet:
    """Each row against its reference: difference of R@1 with 95 % intervals over queries and over places."""
    headings = ["comparison", "test", "Δ R@1", "95 % over places", "p", "95 % over queries", "real"]
    rows = []
    for plan in row_plans(found):
        reference = reference_of(found, plan)
        if reference is None:
            continue
        for label, over_places, over_queries in differences(found, plan.name, reference):
            rows.append(
                [
                    Cell(f"{plan.name} - {reference}"),
                    Cell(label),
                    Cell(f"{over_places.mean:+.2f}"),
                    Cell(f"{over_places.low:+.2f} to {over_places.high:+.2f}"),
                    Cell(f"{over_places.p:.4f}"),
                    Cell(f"{over_queries.low:+.2f} to {over_queries.high:+.2f}"),
                    Cell("yes" if over_places.is_real else "no"),
                ]
            )
    caption = (
        f"{found.plan.title}: paired bootstrap of R@1 in points, 10,000 resamples. Queries of one place are not "
        f"independent: `real` asks the interval over places. {_seed_words(found)}, averaged query by query"
    )
    return Sheet("differences", caption, headings, rows)


def differences(found: Comparison, row: str, reference: str) -> list[tuple[str, Difference, Difference]]:
    """(test, over places, over queries) of two rows: clean, and the mean over the weathers of each profile."""
    one, two = found.rows[row], found.rows[reference]
    results = []
    profiles = list(dict.fromkeys(c.split("/")[0] for c in one[0].conditions if c != CLEAN))
    for direction in one[0].directions():
        tests = [(f"{ARROWS[direction]} clean", [CLEAN])]
        tests += [(f"{ARROWS[direction]} weather, {p}", [f"{p}/{c}" for c in CONDITIONS]) for p in profiles]
        for label, conditions in tests:
            mine, theirs = (
                np.stack([np.mean([s.queries(c, direction)[0] for c in conditions], axis=0) for s in scores])
                for scores in (one, two)
            )
            places = one[0].queries(conditions[0], direction)[1]
            results.append((label, paired_bootstrap(mine, theirs, places), paired_bootstrap(mine, theirs)))
    return results


def kendall_sheet(found: Comparison) -> Sheet | None:
    """The converged Kendall weights exp(-s_g) of each run that has several loss groups."""
    groups = ("align", "part", "distill", "alt")
    rows = []
    for run in found.plan.all_runs(found.preset):
        folders = [path.parent for name, path in found.models.items() if _run_of(found, name) == run.name]
        weights = [_last_weights(folder) for folder in folders[:1]]
        if weights and len(weights[0]) > 1:
            rows.append([Cell(run.name), *(Cell(f"{weights[0][g]:.2f}" if g in weights[0] else "") for g in groups)])
    if not rows:
        return None
    caption = f"{found.plan.title}: Kendall weights exp(-s_g) at the end of training, first seed"
    return Sheet("kendall", caption, ["run", *groups], rows)


def _last_weights(folder: Path) -> dict[str, float]:
    """The group weights of the last logged step of a run."""
    try:
        lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    steps = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    last = steps[-1] if steps else {}
    return {key.removeprefix("weight_"): value for key, value in last.items() if key.startswith("weight_")}


def _run_of(found: Comparison, row: str) -> str:
    return next(plan.run for plan in row_plans(found) if plan.name == row)


def reference_of(found: Comparison, plan: RowPlan) -> str | None:
    """The row that a row is compared with: its own, the plan's, or the first; None for a reference itself.

    Where heads are compared on each backbone (`lift`), rows without a reference of their own have none.
    """
    first = "" if found.plan.lift else row_plans(found)[0].name
    reference = plan.reference or found.plan.reference or first
    return reference if reference and reference != plan.name else None


def model_cost(found: Comparison, plan: RowPlan) -> Cost:
    """Parameters and multiply-adds of a row's model, at its own input size."""
    return measure_cost(load_model(found.models[plan.name]))


def _first(found: Comparison) -> RowScores:
    return next(iter(found.rows.values()))[0]


def _has_reference(found: Comparison) -> bool:
    return any(reference_of(found, plan) for plan in row_plans(found))


def _spread_cell(found: Comparison, row: str, condition: str, direction: str, metric: str) -> Cell:
    return Cell(str(spread([s.headline(condition, direction, metric) for s in found.rows[row]])))


def _delta_cell(found: Comparison, plan: RowPlan, value: Callable[[RowScores], float]) -> Cell:
    """Difference to the reference in points, shaded as in the paper: by how much the row is worse."""
    reference = reference_of(found, plan)
    if reference is None:
        return Cell("")
    one, two = (float(np.mean([value(s) for s in found.rows[name]])) for name in (plan.name, reference))
    drop = two - one
    mark: Mark = "catastrophic" if drop > CATASTROPHIC else "large" if drop > LARGE else "minor"
    return Cell(f"{one - two:+.2f}", mark)


def _quoted(found: Comparison, directions: Sequence[str]) -> list[list[Cell]]:
    """The paper's rows, marked as quoted."""
    return [_quoted_row(row, directions, _has_reference(found)) for row in _published(found)]


def _published(found: Comparison) -> list[Row]:
    """The paper's rows in clear weather, of its transfer table for a transfer; none unless the plan quotes them."""
    if not found.plan.quoted:
        return []
    return published_rows(found.dataset.kind, "transfer" if found.plan.transfer else "clean")


def _quoted_values(row: Row, values: Sequence[float | None]) -> list[list[Cell]]:
    """A quoted row of these values as a list of one; empty if the paper has none of them."""
    if all(value is None for value in values):
        return []
    cells = [Cell("" if value is None else f"{value:.2f}", "quoted") for value in values]
    return [[Cell(f"{row.method} (quoted)", "quoted"), *cells]]


def _start_block(blocks: dict[int, str], number: int, plan: RowPlan) -> None:
    """Note in `blocks` that a block starts before this row, if one does."""
    if plan.block and plan.block not in blocks.values():
        blocks[number] = plan.block


def _altitudes(found: Comparison, direction: str) -> list[str]:
    """The splits of a direction at one altitude or height each, such as `D2S 150m`."""
    return [name for name in _first(found).conditions[CLEAN] if name.startswith(f"{direction} ")]


def _quoted_row(row: Row, directions: Sequence[str], deltas: bool) -> list[Cell]:
    def value_text(direction: str, metric: str) -> str:
        value = row.values.get(f"{direction}/{metric}", row.values.get(f"{direction} mean/{metric}"))
        return "" if value is None else f"{value:.2f}"

    cells = [
        Cell(f"{row.method} (quoted)", "quoted"),
        Cell((row.params or "").replace(" M", ""), "quoted"),
        Cell("", "quoted"),
    ]
    for direction in directions:
        cells += [Cell(value_text(direction, metric), "quoted") for metric in ("R@1", "AP")]
        cells += [Cell("", "quoted")] if deltas else []
    return cells


def _data_words(found: Comparison) -> str:
    """The data set; with quoted rows also whether it is the real one."""
    if found.plan.quoted:
        return f"Data: {dataset_title(found.dataset)}"
    return f"Data: {found.dataset.root.resolve().name} ({found.dataset.kind})"


def _seed_words(found: Comparison) -> str:
    return f"seeds {', '.join(map(str, found.seeds))}"
