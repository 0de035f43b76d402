"""`skypart info`: parameters, multiply-adds in every convention, recipe, provenance."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skypart.model.cost import measure_cost
from skypart.model.embedder import model_file
from skypart.model.storage import load_model, read_metadata


def describe_model(name: str, size: int | None = None) -> dict[str, Any]:
    """Everything that `skypart info` shows about a model, as a dict."""
    file = model_file(name)
    header = read_metadata(file)
    model = load_model(file)
    cost = measure_cost(model, size)
    training_only: dict[str, int] = header["provenance"].get("training_only_parameters", {})
    return {
        "file": str(file),
        "megabytes": round(file.stat().st_size / 1e6, 1),
        "format_version": int(header["format_version"]),
        "skypart_version": header["skypart_version"],
        "parameters": cost.parameters,
        "deployed_parameters": cost.total_parameters,
        "training_only_parameters": training_only,
        "input_size": cost.size,
        "giga_operations": {key: round(value, 3) for key, value in cost.conventions().items()},
        "head": header["head"],
        "backbone": header["backbone"],
        "preprocessing": header["preprocessing"],
        "recipe": header["recipe"],
        "provenance": header["provenance"],
    }


def print_description(description: dict[str, Any], as_json: bool = False) -> None:
    """Print the result of `describe_model` as tables or as JSON."""
    if as_json:
        print(json.dumps(description, indent=2))
        return
    console = Console()
    file = escape(description["file"])
    console.print(f"[bold]{escape(Path(description['file']).name)}[/]  {description['megabytes']} MB, {file}")
    parameters = Table("module", "parameters", title="Parameters")
    for module, count in description["parameters"].items():
        parameters.add_row(module, f"{count:,}")
    parameters.add_section()
    parameters.add_row("deployed", f"{description['deployed_parameters']:,}")
    training_only = description["training_only_parameters"]
    for module, count in training_only.items():
        parameters.add_row(f"training only: {module}", f"{count:,}")
    if not training_only:
        parameters.add_row("training only", "none recorded")
    console.print(parameters)
    arithmetic = Table("convention", "giga", title=f"Arithmetic at {description['input_size']} px")
    for convention, value in description["giga_operations"].items():
        arithmetic.add_row(convention, f"{value:.2f}")
    console.print(arithmetic)
    for title in ("backbone", "head", "preprocessing", "recipe", "provenance"):
        rows = Table("field", "value", title=title)
        for key, value in _flat(description[title]):
            rows.add_row(key, value)
        if rows.row_count:
            console.print(rows)
        else:
            console.print(f"{title}: not recorded")


def _flat(fields: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested fields as rows (dotted name, value)."""
    rows: list[tuple[str, str]] = []
    for key, value in fields.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", str(value)))
    return rows
