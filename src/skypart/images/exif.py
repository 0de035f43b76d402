"""Camera metadata from EXIF and XMP: when and how a photo was taken. Always optional."""

import io
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from PIL import Image

from skypart.images.decode import open_image
from skypart.images.xmp import CameraPose, read_pose

_EXIF_IFD, _GPS_IFD = 0x8769, 0x8825
_ORIENTATION, _DATE_TIME, _XMP = 0x0112, 0x0132, 700
_ORIGINAL, _SUBSECOND, _OFFSET = 0x9003, 0x9291, 0x9011
_FOCAL, _FOCAL_35MM, _ZOOM = 0x920A, 0xA405, 0xA404
_WIDTH, _HEIGHT = 0xA002, 0xA003
_PLANE_X, _PLANE_Y, _PLANE_UNIT = 0xA20E, 0xA20F, 0xA210
_NORTH, _DIRECTION = 16, 17
_UNIT_MM = {2: 25.4, 3: 10.0, 4: 1.0}
_MAX_CHUNKS = 4_096
MAX_CHUNK_BYTES = 1 << 20
"""Of a PNG; larger chunks of metadata are skipped."""
_DIAGONAL_35MM = math.hypot(36.0, 24.0)


@dataclass(frozen=True, kw_only=True)
class CameraFacts:
    """What a photo's EXIF and XMP say; None where they say nothing.

    The GPS position is not read. time: with a time zone if the camera wrote one. fov_deg: horizontal field of view of
    the upright photo. heading_deg: compass direction of the photo's upper edge. turn_deg: its clockwise offset from
    where the camera points, if any. tilt_deg: of the optical axis below the horizon, 90 = straight down.
    relative_altitude_m: above the take-off point or the ground, depending on the manufacturer.
    """

    time: datetime | None = None
    fov_deg: float | None = None
    heading_deg: float | None = None
    turn_deg: float | None = None
    tilt_deg: float | None = None
    relative_altitude_m: float | None = None


def read_camera_facts(source: str | os.PathLike[str] | io.BytesIO) -> CameraFacts:
    """Read EXIF and XMP without decoding any pixels.

    Never raises: missing or damaged values are None, and all values are None if the file is not an image.
    """
    try:
        with open_image(source) as image:
            return _facts(image)
    except Exception:  # of Pillow, on damaged directories and texts; facts are only hints
        return CameraFacts()


def _facts(image: Image.Image) -> CameraFacts:
    main, shot, gps = _tags(image)
    pose = read_pose(_xmp_packet(image))
    orientation = main.get(_ORIENTATION, 1)
    yaw = pose.yaw if pose.yaw is not None else _direction(gps)
    turn = 0.0 if orientation in (2, 3, 4, 5, 6, 7, 8) else _roll_turn(pose)
    return CameraFacts(
        time=_time(main, shot),
        fov_deg=_field_of_view(shot, image.size, orientation in (5, 6, 7, 8)),
        heading_deg=None if yaw is None else (yaw + turn) % 360.0,
        turn_deg=turn or None,
        tilt_deg=pose.tilt,
        relative_altitude_m=pose.relative_altitude_m,
    )


def _tags(image: Image.Image) -> tuple[Mapping[int, Any], Mapping[int, Any], Mapping[int, Any]]:
    """The main, Exif and GPS directories; empty if damaged."""
    found: list[Mapping[int, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for ifd in (None, _EXIF_IFD, _GPS_IFD):
            try:
                exif = _exif(image)
                found.append(dict(exif) if ifd is None else dict(exif.get_ifd(ifd)))
            except Exception:  # Pillow raises anything on damaged EXIF
                found.append({})
    return found[0], found[1], found[2]


def _exif(image: Image.Image) -> Image.Exif:
    """The EXIF directory. For a PNG, Pillow would decode all pixels to look for it behind them."""
    if image.format != "PNG":
        return image.getexif()
    if "exif" not in image.info and "Raw profile type exif" not in image.info:
        packet = _late_chunk(image, b"eXIf")
        if packet is not None:
            image.info["exif"] = b"Exif\0\0" + packet
    return Image.Image.getexif(image)


def _late_chunk(image: Image.Image, kind: bytes, start: bytes = b"") -> bytes | None:
    """The content of the first PNG chunk of a kind that begins with `start`; skips over the pixels."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    if file is None:
        return None
    before = file.tell()
    try:
        file.seek(8)
        for _ in range(_MAX_CHUNKS):
            head = file.read(8)
            if len(head) < 8:
                return None
            length = int.from_bytes(head[:4], "big")
            if head[4:] == kind and length <= MAX_CHUNK_BYTES:
                content = bytes(file.read(length))
                if content.startswith(start):
                    return content
                file.seek(4, os.SEEK_CUR)
            else:
                file.seek(length + 4, os.SEEK_CUR)
        return None
    finally:
        file.seek(before)


def _late_xmp(image: Image.Image) -> bytes | None:
    """The XMP packet of a PNG that stores it behind its pixels."""
    found = _late_chunk(image, b"iTXt", b"XML:com.adobe.xmp\0")
    # keyword, NUL, whether compressed, method, language, NUL, translated keyword, NUL, text
    if found is None or found[18:19] != b"\0":
        return None
    return found[20:].split(b"\0", 2)[-1]


def _xmp_packet(image: Image.Image) -> bytes | str | None:
    """The XMP packet, wherever the file format stores it."""
    packet = image.info.get("xmp", image.info.get("XML:com.adobe.xmp"))
    if packet is None and image.format == "PNG":
        packet = _late_xmp(image)
    if packet is None:
        packet = getattr(image, "tag_v2", {}).get(_XMP)
    return packet if isinstance(packet, bytes | str) else None


def _number(value: Any) -> float | None:
    """`value` as a finite float; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return number if math.isfinite(number) else None


def _positive(value: Any) -> float | None:
    """`value` if a camera could mean it, as a length, a number of pixels or a zoom; None for anything else."""
    number = _number(value)
    return number if number is not None and 1e-6 <= number <= 1e9 else None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    return value.strip("\0 ") if isinstance(value, str) else ""


def _time(main: Mapping[int, Any], shot: Mapping[int, Any]) -> datetime | None:
    """Time of exposure, or else of writing the file."""
    text = _text(shot.get(_ORIGINAL)) or _text(main.get(_DATE_TIME))
    part = _text(shot.get(_SUBSECOND))
    if part.isascii() and part.isdigit():
        text += f".{part[:6]:0<6}"
    else:
        text += ".000000"
    zone = _text(shot.get(_OFFSET))
    for value, pattern in ((text + zone, "%Y:%m:%d %H:%M:%S.%f%z"), (text, "%Y:%m:%d %H:%M:%S.%f")):
        try:
            return datetime.strptime(value, pattern)
        except ValueError:
            continue
    return None


def _roll_turn(pose: CameraPose) -> float:
    """Degrees by which the gimbal's roll turns the upper edge of a photo that EXIF does not turn upright.

    Looking straight down, the full roll; at the horizon, only half turns; in between, as for the ground at the centre.
    """
    roll, tilt = math.radians(pose.roll or 0.0), math.radians(max(pose.tilt or 0.0, 0.0))
    return math.degrees(math.atan2(math.sin(roll) * math.sin(tilt), math.cos(roll)))


def _direction(gps: Mapping[int, Any]) -> float | None:
    """Where the camera points, degrees 0 to 360 from true north; None unless the tags say true north."""
    degrees = _number(gps.get(_DIRECTION))
    if degrees is None or not 0.0 <= degrees <= 360.0 or _text(gps.get(_NORTH)).upper() != "T":
        return None
    return degrees % 360.0


def _field_of_view(shot: Mapping[int, Any], size: tuple[int, int], swapped: bool) -> float | None:
    """Horizontal field of view of the upright photo in degrees: from the sensor size, or the 35-mm equivalent.

    If the two differ by more than a fifth, the photo was resized but kept its sensor's pixels per millimetre; then the
    equivalent is used. None if it was cropped or zoomed in a way that the tags do not resolve.
    """
    width, height = _positive(shot.get(_WIDTH)) or size[0], _positive(shot.get(_HEIGHT)) or size[1]
    if abs(width * size[1] / (height * size[0]) - 1.0) > 0.02:
        return None
    focal, equivalent = _positive(shot.get(_FOCAL)), _positive(shot.get(_FOCAL_35MM))
    zoom = max(_positive(shot.get(_ZOOM)) or 1.0, 1.0)
    pitch = _positive(shot.get(_PLANE_Y if swapped else _PLANE_X))
    unit = _UNIT_MM.get(shot.get(_PLANE_UNIT, 2))
    across = height if swapped else width
    half = other = None
    if focal and pitch and unit:
        half = across / pitch * unit / (2.0 * focal * zoom)
    if equivalent and zoom == 1.0:
        other = across / math.hypot(width, height) * _DIAGONAL_35MM / (2.0 * equivalent)
    if half is None or (other is not None and abs(half / other - 1.0) > 0.2):
        half = other
    if half is None:
        return None
    fov = math.degrees(2.0 * math.atan(half))
    return fov if 1.0 <= fov <= 170.0 else None
