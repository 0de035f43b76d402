"""Coloured point clouds published for the web: Entwine's EPT and Potree 1.x, both uncompressed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError

_POTREE_NAMED = {"POSITION_CARTESIAN": "3<i4", "COLOR_PACKED": "4u1", "RGBA_PACKED": "4u1", "RGBA": "4u1"}
_EPT_TYPES = {"signed": "i", "unsigned": "u", "float": "f"}


class Points(NamedTuple):
    """n points: x, y, z (n,) in the cloud's own units, rgb (n, 3) uint8."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    z: NDArray[np.float64]
    rgb: NDArray[np.uint8]


@dataclass(frozen=True)
class Potree:
    """cloud.js of a Potree 1.x octree. low: lowest corner of the root cube; edge: of that cube; scale: of one step."""

    low: tuple[float, float, float]
    edge: float
    scale: float
    record: np.dtype[Any]
    points: int

    @classmethod
    def read(cls, file: Path) -> "Potree":
        """Read a cloud.js."""
        header = _json(file)
        try:
            box = header["boundingBox"]
            low = (float(box["lx"]), float(box["ly"]), float(box["lz"]))
            record = np.dtype([_potree_field(i, attribute) for i, attribute in enumerate(header["pointAttributes"])])
            if not {"position", "colour"} <= set(record.names or ()):
                raise ValueError("its points have no position or no colour")
            return cls(low, float(box["ux"]) - low[0], float(header["scale"]), record, int(header["points"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SkyPartError(f"{file}: not a Potree cloud in plain binary form ({error})") from error

    def node_cube(self, node: str) -> tuple[tuple[float, float, float], float]:
        """Lowest corner and edge of the cube of a node such as `r024`; bits 4, 2, 1 of a digit mean upper x, y, z."""
        (x, y, z), edge = self.low, self.edge
        for digit in map(int, node.removeprefix("r")):
            edge /= 2
            x, y, z = x + edge * (digit >> 2 & 1), y + edge * (digit >> 1 & 1), z + edge * (digit & 1)
        return (x, y, z), edge

    def read_points(self, file: Path) -> Points:
        """The points of a node's file; steps count from the corner of its cube, which the file name gives."""
        stored = _records(file, self.record)
        (x, y, z), _ = self.node_cube(file.stem)
        steps = stored["position"].astype(np.float64) * self.scale
        return Points(steps[:, 0] + x, steps[:, 1] + y, steps[:, 2] + z, np.ascontiguousarray(stored["colour"][:, :3]))


def _potree_field(index: int, attribute: Any) -> tuple[str, str]:
    """Name and numpy type of an attribute: a name up to version 1.7, an object with its size since 1.8."""
    name = attribute if isinstance(attribute, str) else str(attribute["name"])
    if name == "POSITION_CARTESIAN":
        return "position", _POTREE_NAMED[name]
    if name in _POTREE_NAMED:
        return "colour", _POTREE_NAMED[name]
    if isinstance(attribute, str):
        raise ValueError(f"unknown attribute {name}")
    return f"other{index}", f"V{int(attribute['size'])}"


@dataclass(frozen=True)
class Ept:
    """ept.json of an Entwine point tile set with plain binary nodes. axes: (scale, offset) of x, y, z."""

    axes: tuple[tuple[float, float], ...]
    record: np.dtype[Any]
    points: int

    @classmethod
    def read(cls, file: Path) -> "Ept":
        """Read an ept.json."""
        header = _json(file)
        try:
            if header["dataType"] != "binary":
                raise ValueError(f"its nodes are {header['dataType']}, not binary")
            fields = {each["name"]: each for each in header["schema"]}
            if not {"X", "Y", "Z", "Red", "Green", "Blue"} <= set(fields):
                raise ValueError("its points have no position or no colour")
            record = np.dtype(
                [(name, f"<{_EPT_TYPES[each['type']]}{int(each['size'])}") for name, each in fields.items()]
            )
            axes = tuple((float(fields[a].get("scale", 1)), float(fields[a].get("offset", 0))) for a in "XYZ")
            return cls(axes, record, int(header["points"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SkyPartError(f"{file}: not a coloured point tile set in plain binary form ({error})") from error

    def read_points(self, file: Path) -> Points:
        """The points of a node's file."""
        stored = _records(file, self.record)
        x, y, z = (stored[name] * scale + offset for name, (scale, offset) in zip("XYZ", self.axes, strict=True))
        rgb = np.stack([stored[name] for name in ("Red", "Green", "Blue")], axis=1)
        if rgb.size and int(rgb.max()) > 255:  # 16 bits per colour
            rgb = rgb >> 8
        return Points(x, y, z, rgb.astype(np.uint8))


def _records(file: Path, record: np.dtype[Any]) -> NDArray[Any]:
    """The records of a node's file."""
    content = file.read_bytes()
    if len(content) % record.itemsize:
        raise SkyPartError(f"{file}: {len(content)} bytes are not a whole number of points; delete it and fetch again")
    return np.frombuffer(content, record)


def _json(file: Path) -> dict[str, Any]:
    """Read one JSON object."""
    try:
        header = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkyPartError(f"{file}: is not valid JSON ({error}); delete it and fetch again") from error
    if not isinstance(header, dict):
        raise SkyPartError(f"{file}: is not a JSON object; delete it and fetch again")
    return header
