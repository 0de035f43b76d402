"""What GPX and KML share: elements with text, written as a document."""

from typing import Any
from xml.etree import ElementTree

from skypart.bridge.plain import plain_text
from skypart.version import __version__

CREATOR = f"SkyPart {__version__}"


def child(parent: ElementTree.Element, tag: str, text: object = None, **attributes: str) -> ElementTree.Element:
    """Append an element; `text` may be of any kind."""
    element = ElementTree.SubElement(parent, tag, attributes)
    if text is not None:
        element.text = plain_text(str(text))
    return element


def document(root: ElementTree.Element) -> str:
    """The document as text, indented."""
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def degrees(value: float) -> str:
    """Degrees to a millimetre, never in powers of ten."""
    return f"{value:.8f}"


def told(values: dict[str, Any]) -> str:
    """A sentence on how good a position is."""
    parts = []
    if values.get("radius_m") is not None:
        parts.append(f"within {values['radius_m']:.0f} m with 95 % probability")
    if values.get("confidence") is not None:
        parts.append(f"confidence {values['confidence']:.2f}")
    if values.get("heading_deg") is not None:
        parts.append(f"heading {values['heading_deg']:.0f} degrees")
    if values.get("drone_latitude") is not None:
        parts.append(f"drone at {degrees(values['drone_latitude'])}, {degrees(values['drone_longitude'])}")
    return ", ".join(parts)
