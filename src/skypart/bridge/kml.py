"""KML 2.2: placemarks with their 95 % circles, and the path of a flight."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from skypart.bridge.geometry import circle_rings, place_or_none, split_path
from skypart.bridge.output_format import OutputFormat
from skypart.bridge.values import fix_values, point_values
from skypart.bridge.xml_text import add_child, describe, format_degrees, to_document
from skypart.position.fix import Fix, Place
from skypart.position.track import TrackPoint


def fixes_to_kml(fixes: Sequence[Fix]) -> str:
    """One placemark per photo (without a point if there is no fix), and its 95 % circle."""
    root, folder = _document("SkyPart fixes")
    for values in map(fix_values, fixes):
        mark = _add_placemark(folder, values["photo"], values["reason"] or describe(values), values)
        if values["latitude"] is None:
            continue
        _add_point(mark, values)
        if values["radius_m"] is not None:
            rings = circle_rings(Place(values["latitude"], values["longitude"]), values["radius_m"])
            if rings:
                _add_polygon(add_child(folder, "Placemark"), f"{values['photo']}: 95 % within", rings)
    return to_document(root)


def track_to_kml(points: Sequence[TrackPoint], start: datetime | None = None) -> str:
    """The path as lines, and one placemark per photo with its time; lost points are left out."""
    root, folder = _document("SkyPart track")
    rows = [point_values(point, start) for point in points]
    lines = split_path([place_or_none(row["latitude"], row["longitude"]) for row in rows])
    if lines:
        mark = add_child(folder, "Placemark")
        add_child(mark, "name", "path")
        add_child(mark, "styleUrl", "#path")
        group = add_child(mark, "MultiGeometry")
        for line in lines:
            element = add_child(group, "LineString")
            add_child(element, "tessellate", 1)
            add_child(element, "coordinates", _coordinates(line))
    for values in rows:
        if values["latitude"] is None:
            continue
        name = f"{values['time_s']:.1f} s, {values['state']}"
        mark = _add_placemark(folder, name, describe(values), values, values["time"])
        _add_point(mark, values)
    return to_document(root)


def _document(name: str) -> tuple[ElementTree.Element, ElementTree.Element]:
    root = ElementTree.Element("kml", {"xmlns": "http://www.opengis.net/kml/2.2"})
    folder = add_child(root, "Document")
    add_child(folder, "name", name)
    for style, tag in (("path", "LineStyle"), ("circle", "LineStyle")):
        element = add_child(add_child(folder, "Style", id=style), tag)
        add_child(element, "color", "ff00a3f5")
        add_child(element, "width", 3 if style == "path" else 2)
    add_child(add_child(folder[-1], "PolyStyle"), "color", "2600a3f5")
    return root, folder


def _add_placemark(
    folder: ElementTree.Element, name: str, text: str, values: dict[str, Any], time: str | None = None
) -> ElementTree.Element:
    """Add a placemark without geometry; all values are in its extended data."""
    mark = add_child(folder, "Placemark")
    add_child(mark, "name", name)
    add_child(mark, "description", text)
    if time:
        add_child(add_child(mark, "TimeStamp"), "when", time)
    data = add_child(mark, "ExtendedData")
    for key, value in values.items():
        if value is not None and value != "":
            add_child(add_child(data, "Data", name=key), "value", value)
    return mark


def _add_point(mark: ElementTree.Element, values: dict[str, Any]) -> None:
    add_child(add_child(mark, "Point"), "coordinates", _coordinates([Place(values["latitude"], values["longitude"])]))


def _add_polygon(mark: ElementTree.Element, name: str, rings: Sequence[Sequence[Place]]) -> None:
    add_child(mark, "name", name)
    add_child(mark, "styleUrl", "#circle")
    group = add_child(mark, "MultiGeometry")
    for ring in rings:
        outer = add_child(add_child(add_child(group, "Polygon"), "outerBoundaryIs"), "LinearRing")
        add_child(outer, "coordinates", _coordinates(ring))


def _coordinates(places: Sequence[Place]) -> str:
    return " ".join(f"{format_degrees(place.longitude)},{format_degrees(place.latitude)}" for place in places)


FORMAT = OutputFormat(name="kml", fixes=fixes_to_kml, track=track_to_kml)
