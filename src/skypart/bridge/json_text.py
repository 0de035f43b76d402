"""Fixes as JSON: every field, with a version of the layout."""

import json
from collections.abc import Sequence
from typing import Any

from skypart.bridge.output_format import OutputFormat
from skypart.bridge.values import to_plain
from skypart.position.fix import Fix

VERSION = 1
"""Of the layout; written as `format`."""


def fix_to_dict(fix: Fix) -> dict[str, Any]:
    """All fields of a fix, and `found`. The best guess is written into `evidence`, which is empty if there is none."""
    values = to_plain(fix)
    del values["best_guess"]
    values["evidence"] = evidence_to_dict(fix)
    return {"found": values["latitude"] is not None and values["longitude"] is not None, **values}


def evidence_to_dict(fix: Fix) -> dict[str, float | None]:
    """The evidence of a fix, with latitude and longitude of the best guess."""
    values: dict[str, float | None] = {} if fix.evidence is None else to_plain(fix.evidence)
    if fix.best_guess is not None:
        values |= to_plain(fix.best_guess._asdict())
    return values


def fixes_to_json(fixes: Sequence[Fix]) -> str:
    """`{"format": 1, "fixes": [...]}`."""
    content = {"format": VERSION, "fixes": [fix_to_dict(fix) for fix in fixes]}
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


FORMAT = OutputFormat(name="json", fixes=fixes_to_json)
