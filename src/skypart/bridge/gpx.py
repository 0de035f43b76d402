"""GPX 1.1: one waypoint per fix, and tracks of segments; elements in the order of the schema."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from skypart.bridge.output_format import OutputFormat
from skypart.bridge.values import fix_values, point_values, timestamp
from skypart.bridge.xml_text import CREATOR, add_child, describe, format_degrees, to_document
from skypart.position.fix import Fix
from skypart.position.track import TrackPoint

_NAMESPACE = "skypart"


def fixes_to_gpx(fixes: Sequence[Fix]) -> str:
    """One waypoint per photo with a fix."""
    root = _root("fixes")
    for values in map(fix_values, fixes):
        if values["latitude"] is not None:
            point = _add_point(root, "wpt", values)
            add_child(point, "name", values["photo"])
            add_child(point, "desc", describe(values))
            _add_extensions(point, values, ("radius_m", "confidence", "heading_deg"))
    return to_document(root)


def track_to_gpx(points: Sequence[TrackPoint], start: datetime | None = None) -> str:
    """One track. A segment ends where the flight was lost; lost points are left out."""
    note = None
    if start is None:
        note = "the start of the flight is not known: the clock begins on 1970-01-01T00:00:00Z"
    elif start.tzinfo is None:
        note = "the camera's clock had no time zone and is taken for UTC"
        start = start.replace(tzinfo=UTC)
    root = _root("track", note)
    track = add_child(root, "trk")
    add_child(track, "name", "track")
    segment: ElementTree.Element | None = None
    for point in points:
        values = point_values(point, start)
        if values["latitude"] is None:
            segment = None
            continue
        if segment is None:
            segment = add_child(track, "trkseg")
        element = _add_point(segment, "trkpt", values)
        add_child(element, "time", timestamp(point, start))
        if values["photo"]:
            add_child(element, "name", values["photo"])
        add_child(element, "desc", describe(values))
        add_child(element, "type", values["state"])
        _add_extensions(element, values, ("radius_m", "confidence", "time_s"))
    return to_document(root)


def _root(name: str, note: str | None = None) -> ElementTree.Element:
    root = ElementTree.Element(
        "gpx",
        {
            "version": "1.1",
            "creator": CREATOR,
            "xmlns": "http://www.topografix.com/GPX/1/1",
            f"xmlns:{_NAMESPACE}": "urn:skypart:track:1",
        },
    )
    metadata = add_child(root, "metadata")
    add_child(metadata, "name", f"SkyPart {name}")
    if note:
        add_child(metadata, "desc", note)
    return root


def _add_point(parent: ElementTree.Element, tag: str, values: dict[str, Any]) -> ElementTree.Element:
    return add_child(parent, tag, lat=format_degrees(values["latitude"]), lon=format_degrees(values["longitude"]))


def _add_extensions(parent: ElementTree.Element, values: dict[str, Any], names: Sequence[str]) -> None:
    extensions = add_child(parent, "extensions")
    for name in names:
        if values[name] is not None:
            add_child(extensions, f"{_NAMESPACE}:{name}", values[name])


FORMAT = OutputFormat(name="gpx", fixes=fixes_to_gpx, track=track_to_gpx)
