"""Fixes and tracks in the format that is asked for."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from skypart.atomic import write_text
from skypart.bridge.csv_rows import fixes_to_csv, track_to_csv
from skypart.bridge.geojson import fixes_to_features, to_text, track_to_features
from skypart.bridge.gpx import fixes_to_gpx, track_to_gpx
from skypart.bridge.json_text import fixes_to_json
from skypart.bridge.kml import fixes_to_kml, track_to_kml
from skypart.bridge.table import fix_table, table_text
from skypart.errors import SkyPartError
from skypart.position.fix import Fix
from skypart.position.track_point import TrackPoint

TrackWriter: TypeAlias = Callable[[Sequence[TrackPoint], datetime | None], str]

FIX_FORMATS: dict[str, Callable[[Sequence[Fix]], str]] = {
    "table": lambda fixes: table_text(fix_table(fixes)),
    "json": fixes_to_json,
    "geojson": lambda fixes: to_text(fixes_to_features(fixes)),
    "csv": fixes_to_csv,
    "kml": fixes_to_kml,
    "gpx": fixes_to_gpx,
}
TRACK_SUFFIXES: dict[str, TrackWriter] = {
    ".gpx": track_to_gpx,
    ".geojson": lambda points, start: to_text(track_to_features(points, start)),
    ".csv": track_to_csv,
    ".kml": track_to_kml,
}


def write_fixes(fixes: Sequence[Fix], format: str) -> str:
    """Fixes as text in one of FIX_FORMATS."""
    writer = FIX_FORMATS.get(format.lower())
    if writer is None:
        raise SkyPartError(f"unknown format {format!r}; choose one of {', '.join(FIX_FORMATS)}")
    return writer(fixes)


def track_writer(path: Path) -> TrackWriter:
    """The writer that the suffix of `path` asks for; to be asked before long work begins."""
    writer = TRACK_SUFFIXES.get(path.suffix.lower())
    if writer is None:
        raise SkyPartError(
            f"{path}: {path.suffix or 'no suffix'} is not a format of tracks; end the name in one of "
            f"{', '.join(TRACK_SUFFIXES)}"
        )
    return writer


def write_track(points: Sequence[TrackPoint], path: Path, start: datetime | None = None) -> None:
    """Write a track in the format of the suffix of `path`, atomically. start: when the flight began."""
    write_text(path, track_writer(path)(points, start))
