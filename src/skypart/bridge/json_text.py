"""Fixes as JSON: every field, with the version of the layout."""

import json
from collections.abc import Sequence
from typing import Any

from skypart.bridge.plain import plain
from skypart.position.fix import Fix

FORMAT = 1


def fix_to_dict(fix: Fix) -> dict[str, Any]:
    """All fields of a fix, and whether it is one."""
    values = plain(fix)
    return {"found": values["latitude"] is not None and values["longitude"] is not None, **values}


def fixes_to_json(fixes: Sequence[Fix]) -> str:
    """`{"format": 1, "fixes": [...]}`."""
    content = {"format": FORMAT, "fixes": [fix_to_dict(fix) for fix in fixes]}
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
