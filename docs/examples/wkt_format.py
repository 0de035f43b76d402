"""Well-known text (WKT): one POINT per photo, one LINESTRING per track. A worked example for docs/extending.md."""

from collections.abc import Sequence
from datetime import datetime

from skypart.bridge.geometry import place_or_none, split_path
from skypart.bridge.output_format import OutputFormat
from skypart.bridge.values import fix_values, point_values
from skypart.position.fix import Fix, Place
from skypart.position.track import TrackPoint


def fixes_to_wkt(fixes: Sequence[Fix]) -> str:
    """One line per photo; `POINT EMPTY` if there is no fix."""
    places = [place_or_none(values["latitude"], values["longitude"]) for values in map(fix_values, fixes)]
    return "".join("POINT EMPTY\n" if place is None else f"POINT ({_text(place)})\n" for place in places)


def track_to_wkt(points: Sequence[TrackPoint], start: datetime | None = None) -> str:
    """The path, split where the flight was lost and at the antimeridian."""
    rows = [point_values(point, start) for point in points]
    lines = split_path([place_or_none(row["latitude"], row["longitude"]) for row in rows])
    texts = [f"({', '.join(map(_text, line))})" for line in lines]
    return f"MULTILINESTRING ({', '.join(texts)})\n" if texts else "MULTILINESTRING EMPTY\n"


def _text(place: Place) -> str:
    return f"{place.longitude:.8f} {place.latitude:.8f}"


FORMAT = OutputFormat(name="wkt", fixes=fixes_to_wkt, track=track_to_wkt)
