"""Writers of small Potree and EPT clouds, after the formats' descriptions."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

POTREE_NEW = [("position", "3<i4"), ("colour", "4u1"), ("class", "u1"), ("time", "<f8"), ("intensity", "<u2")]
POTREE_OLD = POTREE_NEW[:2]


def potree(
    xyz: NDArray[np.float64],
    rgb: NDArray[np.uint8],
    low: tuple[float, float, float],
    edge: float,
    old: bool = False,
    leaf: int = 40,
) -> dict[str, bytes]:
    """An octree over points (n, 3): inner nodes keep a few, the rest goes down; paths as below pointclouds/NAME."""
    record = np.dtype(POTREE_OLD if old else POTREE_NEW)
    files: dict[str, bytes] = {}

    def put(name: str, chosen: NDArray[np.intp], corner: NDArray[np.float64], size: float) -> None:
        kept = chosen if len(chosen) <= leaf or len(name) > 6 else chosen[: leaf // 4]
        stored = np.zeros(len(kept), dtype=record)
        stored["position"] = np.rint((xyz[kept] - corner) / 0.001)
        stored["colour"][:, :3] = rgb[kept]
        stored["colour"][:, 3] = 255
        folder = "data/r" + (f"/{name[1:6]}" if len(name) > 5 else "")
        files[f"{folder}/{name}.bin"] = stored.tobytes()
        rest = chosen[len(kept) :]
        upper = xyz[rest] >= corner + size / 2
        for child in range(8):
            bits = np.array([child & 4, child & 2, child & 1], dtype=bool)
            inside = rest[(upper == bits).all(axis=1)]
            if len(inside):
                put(f"{name}{child}", inside, corner + bits * size / 2, size / 2)

    put("r", np.arange(len(xyz)), np.array(low), edge)
    attributes: list[Any] = ["POSITION_CARTESIAN", "COLOR_PACKED"]
    if not old:
        names = ("POSITION_CARTESIAN", "RGBA", "classification", "gps-time", "intensity")
        attributes = [{"name": n, "size": record[i].itemsize} for i, n in enumerate(names)]
    box = dict(zip(("lx", "ly", "lz", "ux", "uy", "uz"), (*low, *(each + edge for each in low)), strict=True))
    header = {"version": "1.8", "points": len(xyz), "boundingBox": box, "pointAttributes": attributes, "scale": 0.001}
    return files | {"cloud.js": json.dumps(header).encode(), "data/r/r.hrc": b"\0\0\0\0\0"}


def ept(xyz: NDArray[np.float64], rgb: NDArray[np.uint8], offset: tuple[float, ...], wide: bool) -> dict[str, bytes]:
    """A tile set of three nodes over points (n, 3); wide: sixteen bits a colour."""
    fields = [("X", "<i4"), ("Y", "<i4"), ("Z", "<i4"), ("Red", "<u2"), ("Green", "<u2"), ("Blue", "<u2"), ("O", "<u4")]
    stored = np.zeros(len(xyz), dtype=fields)
    for axis, name in enumerate("XYZ"):
        stored[name] = np.rint((xyz[:, axis] - offset[axis]) / 0.01)
    for band, name in enumerate(("Red", "Green", "Blue")):
        stored[name] = rgb[:, band].astype(np.uint16) * (257 if wide else 1)
    schema: list[dict[str, Any]] = [
        {"name": name, "size": int(kind[-1]), "type": "signed" if kind[1] == "i" else "unsigned"}
        for name, kind in fields
    ]
    for axis in range(3):
        schema[axis] |= {"scale": 0.01, "offset": offset[axis]}
    header = {"dataType": "binary", "points": len(xyz), "schema": schema, "version": "1.0.0"}
    nodes = {f"ept-data/1-0-0-{i}.bin": stored[i::3].tobytes() for i in range(3)}
    return nodes | {"ept.json": json.dumps(header).encode(), "ept-hierarchy/0-0-0-0.json": b"{}"}
