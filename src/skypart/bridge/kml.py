"""KML 2.2: place marks with their 95 % circles, and the path of a flight."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from skypart.bridge.plain import fix_values, point_values
from skypart.bridge.shapes import Place, circle, lines, place_of
from skypart.bridge.xml_text import child, degrees, document, told
from skypart.position.fix import Fix
from skypart.position.track_point import TrackPoint


def fixes_to_kml(fixes: Sequence[Fix]) -> str:
    """A place mark a photo (without a point where there is no fix) and its 95 % circle."""
    root, folder = _document("SkyPart fixes")
    for values in map(fix_values, fixes):
        mark = _mark(folder, values["photo"], values["reason"] or told(values), values)
        if values["latitude"] is None:
            continue
        _point(mark, values)
        if values["radius_m"] is not None:
            rings = circle(latitude=values["latitude"], longitude=values["longitude"], radius_m=values["radius_m"])
            if rings:
                _polygon(child(folder, "Placemark"), f"{values['photo']}: 95 % within", rings)
    return document(root)


def track_to_kml(points: Sequence[TrackPoint], start: datetime | None = None) -> str:
    """The path as a line, and a place mark a photo with its time; lost points are left out."""
    root, folder = _document("SkyPart track")
    told_points = [point_values(point, start) for point in points]
    known = [values for values in told_points if values["latitude"] is not None]
    parts = lines([place_of(values["latitude"], values["longitude"]) for values in told_points])
    if parts:
        mark = child(folder, "Placemark")
        child(mark, "name", "path")
        child(mark, "styleUrl", "#path")
        group = child(mark, "MultiGeometry")
        for part in parts:
            line = child(group, "LineString")
            child(line, "tessellate", 1)
            child(line, "coordinates", _coordinates(part))
    for values in known:
        mark = _mark(folder, f"{values['time_s']:.1f} s, {values['state']}", told(values), values, values["time"])
        _point(mark, values)
    return document(root)


def _document(name: str) -> tuple[ElementTree.Element, ElementTree.Element]:
    root = ElementTree.Element("kml", {"xmlns": "http://www.opengis.net/kml/2.2"})
    folder = child(root, "Document")
    child(folder, "name", name)
    for style, tag in (("path", "LineStyle"), ("circle", "LineStyle")):
        element = child(child(folder, "Style", id=style), tag)
        child(element, "color", "ff00a3f5")
        child(element, "width", 3 if style == "path" else 2)
    child(child(folder[-1], "PolyStyle"), "color", "2600a3f5")
    return root, folder


def _mark(
    folder: ElementTree.Element, name: str, text: str, values: dict[str, Any], time: str | None = None
) -> ElementTree.Element:
    """A place mark without geometry; what is known of it stands in its extended data."""
    mark = child(folder, "Placemark")
    child(mark, "name", name)
    child(mark, "description", text)
    if time:
        child(child(mark, "TimeStamp"), "when", time)
    data = child(mark, "ExtendedData")
    for key, value in values.items():
        if value is not None and value != "":
            child(child(data, "Data", name=key), "value", value)
    return mark


def _point(mark: ElementTree.Element, values: dict[str, Any]) -> None:
    child(child(mark, "Point"), "coordinates", _coordinates([Place(values["latitude"], values["longitude"])]))


def _polygon(mark: ElementTree.Element, name: str, rings: Sequence[Sequence[Place]]) -> None:
    child(mark, "name", name)
    child(mark, "styleUrl", "#circle")
    group = child(mark, "MultiGeometry")
    for ring in rings:
        outer = child(child(child(group, "Polygon"), "outerBoundaryIs"), "LinearRing")
        child(outer, "coordinates", _coordinates(ring))


def _coordinates(places: Sequence[Place]) -> str:
    return " ".join(f"{degrees(place.longitude)},{degrees(place.latitude)}" for place in places)
