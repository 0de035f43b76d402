"""The pose of a drone's camera, from the XMP packet of its photo."""

import math
import re
from dataclasses import dataclass
from xml.etree import ElementTree

MAX_BYTES = 256 * 1024
"""Of a packet; drones write 2 to 60 kB."""

# Names without prefix, in order of preference. DJI and newer Autel: Gimbal*, Flight*. Parrot: Camera*Degree. Skydio: a
# structure CameraOrientationNED of Yaw and Pitch. Pix4D's plain Camera:Pitch is ignored: some makers measure it from
# straight down, others from the horizon.
_YAW = ("GimbalYawDegree", "CameraYawDegree", "CameraOrientationNED/Yaw")
_PITCH = ("GimbalPitchDegree", "CameraPitchDegree", "CameraOrientationNED/Pitch")
_ROLL = ("GimbalRollDegree", "CameraRollDegree", "CameraOrientationNED/Roll")
_BODY_YAW = ("FlightYawDegree", "DroneYawDegree")
_HEIGHT = ("RelativeAltitude", "AboveGroundAltitude")
_NUMBER = re.compile(r"\s*([+-]?\d{1,15}(?:\.\d{0,15})?)(?:/(\d{1,15}))?\s*(?:m|deg|°)?\s*")


@dataclass(frozen=True, kw_only=True)
class CameraPose:
    """Angles in degrees and height in metres; None if the packet does not have them.

    yaw: compass direction of the camera, 0 to 360; that of the airframe if the camera's own is missing.
    tilt: of the optical axis below the horizon, 90 = straight down. roll: about the optical axis, clockwise as the
    camera sees it.
    relative_altitude_m: above the take-off point (DJI, Autel) or the ground (Parrot).
    """

    yaw: float | None = None
    tilt: float | None = None
    roll: float | None = None
    relative_altitude_m: float | None = None


def read_pose(packet: bytes | str | None) -> CameraPose:
    """Read an XMP packet. Never raises: a packet that is damaged, too long or has a DOCTYPE gives only None."""
    values = _numbers(packet)
    yaw = _first(values, _YAW, 360.0)
    if yaw is None:
        yaw = _first(values, _BODY_YAW, 360.0)
    pitch = _first(values, _PITCH, 180.0)
    roll = _first(values, _ROLL, 180.0)
    height = _first(values, _HEIGHT, 20_000.0)
    return CameraPose(
        yaw=None if yaw is None else yaw % 360.0,
        tilt=None if pitch is None else -pitch,
        roll=roll,
        relative_altitude_m=height,
    )


def _first(values: dict[str, float], names: tuple[str, ...], limit: float) -> float | None:
    for name in names:
        if name in values and abs(values[name]) <= limit:
            return values[name]
    return None


def _numbers(packet: bytes | str | None) -> dict[str, float]:
    """All numbers of the packet by name without prefix, or `Structure/Name` inside a structure."""
    if packet is None or len(packet) > MAX_BYTES:
        return {}
    try:
        text = packet.decode("utf-8-sig") if isinstance(packet, bytes) else packet
        text = text.strip("\ufeff\0 \t\r\n")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            return {}  # what is parsed next is short, and refers to nothing
        root = ElementTree.fromstring(text)  # nosec B314
    except (UnicodeDecodeError, ElementTree.ParseError, ValueError):
        return {}
    found: dict[str, float] = {}
    for node in root.iter():
        if _local_name(node.tag) == "Description":
            _collect(node, "", found)
        elif _local_name(node.tag) == "CameraOrientationNED":
            for inner in (node, *node):  # its own numbers, or those of the Description in it; no deeper
                _collect(inner, "CameraOrientationNED/", found)
    return found


def _collect(parent: ElementTree.Element, prefix: str, found: dict[str, float]) -> None:
    """Add the numbers among the attributes and child elements of `parent` to `found`."""
    pairs = list(parent.attrib.items())
    pairs += [(child.tag, child.text or "") for child in parent]
    for name, value in pairs:
        number = _number(value)
        if number is not None:
            found.setdefault(prefix + _local_name(name), number)


def _local_name(name: object) -> str:
    """A tag without its namespace."""
    return name.rpartition("}")[2] if isinstance(name, str) else ""


def _number(text: str) -> float | None:
    """`+12.5`, `12500/1000`, `12.5 m`; None for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    below = float(match[2]) if match[2] else 1.0
    value = float(match[1]) / below if below else math.nan
    return value if math.isfinite(value) else None
