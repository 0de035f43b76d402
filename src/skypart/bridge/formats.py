"""The registry of output formats: `skypart locate` and `skypart track` write those listed here."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from skypart.atomic import check_writable, write_text
from skypart.bridge import csv_text, geo_text, geojson, gpx, json_text, kml, table
from skypart.bridge.output_format import OutputFormat, TrackToText
from skypart.errors import SkyPartError
from skypart.position.fix import Fix
from skypart.position.track import TrackPoint

BUILT_IN = (
    table.FORMAT,
    json_text.FORMAT,
    geojson.FORMAT,
    csv_text.FORMAT,
    kml.FORMAT,
    gpx.FORMAT,
    geo_text.FORMAT,
)
DEFAULT = table.FORMAT
_formats: dict[str, OutputFormat] = {format.name: format for format in BUILT_IN}


def register(format: OutputFormat) -> None:
    """Make a format available to `locate` and `track`. A format of the same name is replaced."""
    _formats[format.name] = format


def format_names() -> list[str]:
    """Names of all formats; each can hold fixes."""
    return list(_formats)


def track_suffixes() -> list[str]:
    """Suffixes, with a dot, of the formats that can hold a track."""
    return [f".{name}" for name, each in _formats.items() if each.track is not None]


def find_format(name: str) -> OutputFormat:
    """The format of this name, in upper or lower case."""
    found = _formats.get(name.lower())
    if found is None:
        raise SkyPartError(f"unknown format {name!r}; choose one of {', '.join(_formats)}")
    return found


def choose_format(name: str, output: Path | None) -> OutputFormat:
    """The format for `--format` and `-o`: the named one, else the one of the file's suffix, else a table.

    Suffixes that belong to no format are ignored. A suffix of another format than the named one raises an error.
    """
    named = find_format(name) if name else None
    suffix = output.suffix.lower().removeprefix(".") if output is not None else ""
    if suffix not in _formats or (named is not None and suffix in named.other_suffixes):
        return named or DEFAULT
    if named is not None and named.name != suffix:
        raise SkyPartError(
            f"{output}: its suffix means {suffix}, but --format is {named.name}; omit --format or rename the file"
        )
    return _formats[suffix]


def write_fixes(fixes: Sequence[Fix], format: str) -> str:
    """Fixes as text in the format of this name."""
    return find_format(format).fixes(fixes)


@dataclass(frozen=True)
class TrackFile:
    """A file for a track, in the format of its suffix. Raises if the format is unknown or the file is not writable."""

    path: Path

    def __post_init__(self) -> None:
        """Check the file before long work begins."""
        self._writer()
        check_writable(self.path)

    def write(self, points: Sequence[TrackPoint], start: datetime | None = None) -> None:
        """Write a track, atomically. start: when the flight began."""
        write_text(self.path, self._writer()(points, start))

    def _writer(self) -> TrackToText:
        suffix = self.path.suffix.lower()
        found = _formats.get(suffix.removeprefix(".")) if suffix else None
        if found is None or found.track is None:
            raise SkyPartError(
                f"{self.path}: {self.path.suffix or 'no suffix'} is not a track format; end the name in one of "
                f"{', '.join(track_suffixes())}"
            )
        return found.track
