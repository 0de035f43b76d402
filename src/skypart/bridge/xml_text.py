"""XML for GPX and KML: elements with text, and documents."""

from typing import Any
from xml.etree import ElementTree

from skypart.bridge.values import clean_text
from skypart.version import __version__

CREATOR = f"SkyPart {__version__}"


def add_child(parent: ElementTree.Element, tag: str, text: object = None, **attributes: str) -> ElementTree.Element:
    """Append an element to `parent`. `text` may have any type."""
    element = ElementTree.SubElement(parent, tag, attributes)
    if text is not None:
        element.text = clean_text(str(text))
    return element


def to_document(root: ElementTree.Element) -> str:
    """The XML document as indented text."""
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def format_degrees(value: float) -> str:
    """Degrees with eight decimals, a precision of about a millimetre."""
    return f"{value:.8f}"


def describe(values: dict[str, Any]) -> str:
    """A phrase about the accuracy of a position."""
    parts = []
    if values.get("radius_m") is not None:
        parts.append(f"within {values['radius_m']:.0f} m with 95 % probability")
    if values.get("confidence") is not None:
        parts.append(f"confidence {values['confidence']:.2f}")
    if values.get("heading_deg") is not None:
        parts.append(f"heading {values['heading_deg']:.0f} degrees")
    if values.get("drone_latitude") is not None:
        parts.append(
            f"drone at {format_degrees(values['drone_latitude'])}, {format_degrees(values['drone_longitude'])}"
        )
    return ", ".join(parts)
