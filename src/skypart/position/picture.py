"""A flight on its map: raw fixes, the filtered path, and the truth where it is known."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke

from skypart.drawing.style import AMBER, BLUE, STYLE
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import FloatArray, LocalFrame
from skypart.images.decode import RgbImage
from skypart.position.track_point import TrackPoint
from skypart.position.truth import Truth

DrawMap: TypeAlias = Callable[[Bounds], RgbImage]
"""A picture (h, w, 3) of a part of the map, north up, rows and columns even in degrees."""

_MARGIN, _LEAST_M = 0.15, 150.0
_CIRCLES = 12
_TRUTH = "#1B1B1B"
_HALO = [withStroke(linewidth=4, foreground="white")]


def draw_track(
    draw_map: DrawMap, bounds: Bounds, points: Sequence[TrackPoint], truth: Truth | None = None, title: str = ""
) -> Figure:
    """Draw a flight over a map that covers `bounds`.

    Shown is the part of the map that the path and the truth lie in; raw fixes outside it are counted in the legend.
    """
    frame = bounds.frame
    path, raw, used = _paths(points, frame)
    known = None if truth is None else _metres(frame, truth.latitude, truth.longitude)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 8), layout="constrained")
        axes = figure.subplots()
        box = _box([path[np.isfinite(path[:, 0])], known if known is not None else raw], bounds, frame)
        part = _part(box, bounds, frame)
        _lay_map(axes, draw_map(part), part, frame)
        if known is not None:
            axes.plot(*known.T, color=_TRUTH, lw=1.8, ls=(0, (4, 2)), path_effects=_HALO, label="truth", zorder=3)
        inside = ((raw >= box[0]) & (raw <= box[1])).all(axis=1) if len(raw) else np.zeros(0, dtype=bool)
        note = f", {int((~inside).sum())} outside the picture" if len(raw) and not inside.all() else ""
        style = {"s": 26, "linewidths": 1.4, "zorder": 4}
        axes.scatter(*raw[used].T, marker="o", facecolors="none", edgecolors=BLUE, label="raw fix, used", **style)  # type: ignore[arg-type]
        axes.scatter(*raw[~used].T, marker="x", color=BLUE, label=f"raw fix, not used{note}", **style)  # type: ignore[arg-type]
        _draw_path(axes, path, points)
        _finish(axes, box, title)
    return figure


def _draw_path(axes: Axes, path: FloatArray, points: Sequence[TrackPoint]) -> None:
    """The track, dotted where it is carried on without fixes, with the 95 % radius of a dozen of its points."""
    told = np.flatnonzero(np.isfinite(path[:, 0])).tolist()
    for i in told[:: max(1, len(told) // _CIRCLES)]:
        radius = points[i].radius_m or 0.0
        axes.add_patch(Circle((path[i, 0], path[i, 1]), radius, fill=False, ec=AMBER, lw=1.2, alpha=0.8, zorder=2))
    axes.plot(*path.T, color=AMBER, lw=1.4, ls=":", path_effects=_HALO, zorder=5)
    fixed = np.array([point.state == "tracking" for point in points])
    axes.plot(
        *np.where(fixed[:, None], path, np.nan).T,
        color=AMBER,
        lw=2.6,
        path_effects=_HALO,
        label="track (dotted: without fixes), 95 % radius",
        zorder=5,
    )
    axes.plot(*path[fixed].T, color=AMBER, ls="", marker=".", ms=5, zorder=6)


def _metres(frame: LocalFrame, latitude: FloatArray, longitude: FloatArray) -> FloatArray:
    """(n, 2) metres."""
    spots = frame.to_metres(latitude=latitude, longitude=longitude)
    return np.stack([spots.x, spots.y], axis=-1)


def _paths(
    points: Sequence[TrackPoint], frame: LocalFrame
) -> tuple[FloatArray, FloatArray, "np.ndarray[tuple[int], np.dtype[np.bool_]]"]:
    """(n, 2) metres of the track with gaps of NaN, (m, 2) of raw fixes, and (m,) whether the track used them."""
    path = np.full((len(points), 2), np.nan)
    raw, used = [], []
    for i, point in enumerate(points):
        if point.latitude is not None and point.longitude is not None:
            path[i] = _metres(frame, np.array(point.latitude), np.array(point.longitude))
        fix = point.raw
        if fix is not None and fix.latitude is not None and fix.longitude is not None:
            raw.append(_metres(frame, np.array(fix.latitude), np.array(fix.longitude)))
            used.append(point.state == "tracking")
    return path, np.array(raw).reshape(-1, 2), np.array(used, dtype=bool)


def _lay_map(axes: Axes, picture: RgbImage, bounds: Bounds, frame: LocalFrame) -> None:
    """The picture, paled, between the corners of its bounds; over a few kilometres degrees are even in metres."""
    corner = _metres(frame, np.array([bounds.south, bounds.north]), np.array([bounds.west, bounds.east]))
    pale = (picture * 0.75 + 64).astype(np.uint8)
    axes.imshow(pale, extent=(corner[0, 0], corner[1, 0], corner[0, 1], corner[1, 1]), interpolation="bilinear")


def _box(groups: Sequence[FloatArray], bounds: Bounds, frame: LocalFrame) -> tuple[FloatArray, FloatArray]:
    """Lower and upper corner (2,) of a square around all places, at most the map if they all lie on it."""
    places = np.concatenate(groups)
    corner = _metres(frame, np.array([bounds.south, bounds.north]), np.array([bounds.west, bounds.east]))
    if len(places) == 0:
        return corner[0], corner[1]
    low, high = places.min(axis=0), places.max(axis=0)
    half = max(_LEAST_M, float((high - low).max()) * (0.5 + _MARGIN))
    centre = (low + high) / 2
    return centre - half, centre + half


def _part(box: tuple[FloatArray, FloatArray], bounds: Bounds, frame: LocalFrame) -> Bounds:
    """What a square in metres shows of `bounds`; all of them if it shows nothing, and over the antimeridian."""
    low, high = (frame.to_degrees(x=corner[0], y=corner[1]) for corner in box)
    south, north = max(float(low.latitude), bounds.south), min(float(high.latitude), bounds.north)
    west, east = max(float(low.longitude), bounds.west), min(float(high.longitude), bounds.east)
    return Bounds(south=south, west=west, north=north, east=east) if south < north and west < east else bounds


def _finish(axes: Axes, box: tuple[FloatArray, FloatArray], title: str) -> None:
    """Limits, a scale bar, the legend."""
    (left, bottom), (right, top) = box
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    wide = right - left
    bar = max(size for size in (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000) if size <= max(wide / 4, 10))
    x, y = left + 0.04 * wide, bottom + 0.04 * wide
    axes.plot([x, x + bar], [y, y], color="black", lw=3, path_effects=_HALO, solid_capstyle="butt", zorder=6)
    text = f"{bar} m" if bar < 1_000 else f"{bar // 1_000} km"
    axes.text(x + bar / 2, y + 0.012 * wide, text, ha="center", va="bottom", path_effects=_HALO, zorder=6)
    axes.set_title(title, fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.01), ncols=2, frameon=False)
