"""The numbers printed in the paper, quoted beside ours; `published.json` names the table of each row."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from skypart.evaluation.tables import Row


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
