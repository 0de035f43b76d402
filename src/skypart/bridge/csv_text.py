"""CSV: one row per photo, with empty cells for unknown values."""

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from skypart.bridge.output_format import OutputFormat
from skypart.bridge.values import fix_values, point_values
from skypart.position.fix import Fix
from skypart.position.track import TrackPoint

_FIX, _POINT = Fix(photo=""), TrackPoint(time_s=0.0)


def fixes_to_csv(fixes: Sequence[Fix]) -> str:
    """Columns photo, latitude, longitude, radius_m, confidence, heading_deg, reason and more."""
    return _to_csv(list(fix_values(_FIX)), [fix_values(fix) for fix in fixes])


def track_to_csv(points: Sequence[TrackPoint], start: datetime | None = None) -> str:
    """Columns time_s, latitude, longitude, radius_m, confidence, state, time, photo, raw_latitude, raw_longitude."""
    return _to_csv(list(point_values(_POINT, None)), [point_values(point, start) for point in points])


def _to_csv(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(row[name]) for name in names} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


FORMAT = OutputFormat(name="csv", fixes=fixes_to_csv, track=track_to_csv)
