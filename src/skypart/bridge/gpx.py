"""GPX 1.1: a way point a fix, a track of segments; elements in the order of its schema."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from skypart.bridge.plain import fix_values, moment, point_values
from skypart.bridge.xml_text import CREATOR, child, degrees, document, told
from skypart.position.fix import Fix
from skypart.position.track_point import TrackPoint

_OWN = "skypart"


def fixes_to_gpx(fixes: Sequence[Fix]) -> str:
    """A way point a photo with a fix."""
    root = _root("fixes")
    for values in map(fix_values, fixes):
        if values["latitude"] is not None:
            point = _place(root, "wpt", values)
            child(point, "name", values["photo"])
            child(point, "desc", told(values))
            _extend(point, values, ("radius_m", "confidence", "heading_deg"))
    return document(root)


def track_to_gpx(points: Sequence[TrackPoint], start: datetime | None = None) -> str:
    """One track; a segment ends where the flight was lost, and lost points are left out."""
    note = None
    if start is None:
        note = "the start of the flight is not known: the clock begins on 1970-01-01T00:00:00Z"
    elif start.tzinfo is None:
        note = "the camera's clock had no time zone and is taken for UTC"
        start = start.replace(tzinfo=UTC)
    root = _root("track", note)
    track = child(root, "trk")
    child(track, "name", "track")
    segment: ElementTree.Element | None = None
    for point in points:
        values = point_values(point, start)
        if values["latitude"] is None:
            segment = None
            continue
        if segment is None:
            segment = child(track, "trkseg")
        element = _place(segment, "trkpt", values)
        child(element, "time", moment(point, start))
        if values["photo"]:
            child(element, "name", values["photo"])
        child(element, "desc", told(values))
        child(element, "type", values["state"])
        _extend(element, values, ("radius_m", "confidence", "time_s"))
    return document(root)


def _root(name: str, note: str | None = None) -> ElementTree.Element:
    root = ElementTree.Element(
        "gpx",
        {
            "version": "1.1",
            "creator": CREATOR,
            "xmlns": "http://www.topografix.com/GPX/1/1",
            f"xmlns:{_OWN}": "urn:skypart:track:1",
        },
    )
    metadata = child(root, "metadata")
    child(metadata, "name", f"SkyPart {name}")
    if note:
        child(metadata, "desc", note)
    return root


def _place(parent: ElementTree.Element, tag: str, values: dict[str, Any]) -> ElementTree.Element:
    return child(parent, tag, lat=degrees(values["latitude"]), lon=degrees(values["longitude"]))


def _extend(parent: ElementTree.Element, values: dict[str, Any], names: Sequence[str]) -> None:
    extensions = child(parent, "extensions")
    for name in names:
        if values[name] is not None:
            child(extensions, f"{_OWN}:{name}", values[name])
