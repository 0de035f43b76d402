"""Figures: a flight and located photos on their map, and the quality of a calibration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from skypart.drawing.style import AMBER, BLUE, STYLE
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import FloatArray, LocalFrame
from skypart.images.decode import RgbImage
from skypart.position.confidence import CORRECT_WITHIN_M
from skypart.position.fix import Fix
from skypart.position.labelled import LabelledPhoto
from skypart.position.score import Truth
from skypart.position.track import TrackPoint

DrawMap: TypeAlias = Callable[[Bounds], RgbImage]
"""Returns an image (h, w, 3) of a part of the map, north up, rows and columns evenly spaced in degrees."""

_MARGIN, _MIN_HALF_EDGE_M = 0.15, 150.0
_CIRCLES = 12
_FIXES_MARGIN_M = 150.0
_Point: TypeAlias = tuple[float, float]
_TRUTH = "#1B1B1B"
_HALO = [withStroke(linewidth=4, foreground="white")]


@dataclass(frozen=True)
class MapBackground:
    """The map behind a track: its bounds, and a function that returns an image of any part of them."""

    bounds: Bounds
    draw: DrawMap


def draw_track(
    background: MapBackground, points: Sequence[TrackPoint], truth: Truth | None = None, title: str = ""
) -> Figure:
    """Draw raw fixes, the track and the truth over a map.

    The figure shows the part of the map around the track and the truth; raw fixes outside it are counted in the legend.
    """
    bounds = background.bounds
    frame = bounds.frame
    path, raw, used = _track_metres(points, frame)
    known = None if truth is None else _metres(frame, truth.latitude, truth.longitude)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 8), layout="constrained")
        axes = figure.subplots()
        box = _square_around([path[np.isfinite(path[:, 0])], known if known is not None else raw], bounds, frame)
        part = _visible_part(box, bounds, frame)
        _draw_map(axes, background.draw(part), part, frame)
        if known is not None:
            axes.plot(*known.T, color=_TRUTH, lw=1.8, ls=(0, (4, 2)), path_effects=_HALO, label="truth", zorder=3)
        inside = ((raw >= box[0]) & (raw <= box[1])).all(axis=1) if len(raw) else np.zeros(0, dtype=bool)
        note = f", {int((~inside).sum())} outside the figure" if len(raw) and not inside.all() else ""
        style = {"s": 26, "linewidths": 1.4, "zorder": 4}
        axes.scatter(*raw[used].T, marker="o", facecolors="none", edgecolors=BLUE, label="raw fix, used", **style)  # type: ignore[arg-type]
        axes.scatter(*raw[~used].T, marker="x", color=BLUE, label=f"raw fix, not used{note}", **style)  # type: ignore[arg-type]
        _draw_path(axes, path, points)
        _finish_track(axes, box, title)
    return figure


def _draw_path(axes: Axes, path: FloatArray, points: Sequence[TrackPoint]) -> None:
    """The track, dotted where it coasts, with the 95 % radius of about a dozen of its points."""
    reported = np.flatnonzero(np.isfinite(path[:, 0])).tolist()
    for i in reported[:: max(1, len(reported) // _CIRCLES)]:
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
    """(n, 2) metres east and north of the frame's centre."""
    metres = frame.to_metres(latitude=latitude, longitude=longitude)
    return np.stack([metres.x, metres.y], axis=-1)


def _track_metres(
    points: Sequence[TrackPoint], frame: LocalFrame
) -> tuple[FloatArray, FloatArray, "np.ndarray[tuple[int], np.dtype[np.bool_]]"]:
    """(n, 2) metres of the track with NaN in gaps, (m, 2) of raw fixes, and (m,) whether the track used them."""
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


def _draw_map(axes: Axes, image: RgbImage, bounds: Bounds, frame: LocalFrame) -> None:
    """The map, brightened; over a few kilometres, steps in degrees are even in metres."""
    corner = _metres(frame, np.array([bounds.south, bounds.north]), np.array([bounds.west, bounds.east]))
    pale = (image * 0.75 + 64).astype(np.uint8)
    axes.imshow(pale, extent=(corner[0, 0], corner[1, 0], corner[0, 1], corner[1, 1]), interpolation="bilinear")


def _square_around(groups: Sequence[FloatArray], bounds: Bounds, frame: LocalFrame) -> tuple[FloatArray, FloatArray]:
    """Lower and upper corner (2,) of a square around all places; the whole map if there are none."""
    places = np.concatenate(groups)
    corner = _metres(frame, np.array([bounds.south, bounds.north]), np.array([bounds.west, bounds.east]))
    if len(places) == 0:
        return corner[0], corner[1]
    low, high = places.min(axis=0), places.max(axis=0)
    half = max(_MIN_HALF_EDGE_M, float((high - low).max()) * (0.5 + _MARGIN))
    centre = (low + high) / 2
    return centre - half, centre + half


def _visible_part(box: tuple[FloatArray, FloatArray], bounds: Bounds, frame: LocalFrame) -> Bounds:
    """The part of `bounds` inside a square in metres; all of it if that is empty or crosses the antimeridian."""
    low, high = (frame.to_degrees(x=corner[0], y=corner[1]) for corner in box)
    south, north = max(float(low.latitude), bounds.south), min(float(high.latitude), bounds.north)
    west, east = max(float(low.longitude), bounds.west), min(float(high.longitude), bounds.east)
    return Bounds(south=south, west=west, north=north, east=east) if south < north and west < east else bounds


def _finish_track(axes: Axes, box: tuple[FloatArray, FloatArray], title: str) -> None:
    """Axis limits, a scale bar and the legend."""
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


def draw_fixes(
    background: MapBackground, fixes: Sequence[Fix], truth: Sequence[LabelledPhoto], title: str = ""
) -> Figure:
    """Draw located photos over the part of the map around them, numbered in their order.

    Each fix has its 95 % circle and a line to the true position. truth: of the same photos, in the same order. The axes
    are metres from the lower left corner of the figure, which the labels name.
    """
    bounds = background.bounds
    low, high = _square_around_fixes(_places_metres(bounds.frame, fixes, truth), bounds, bounds.frame)
    corner = bounds.frame.to_degrees(x=low[0], y=low[1])
    frame = LocalFrame(latitude=float(corner.latitude), longitude=float(corner.longitude))
    box = np.zeros(2), high - low
    places = [
        (_point_metres(frame, fix.latitude, fix.longitude), _point_metres(frame, photo.latitude, photo.longitude))
        for fix, photo in zip(fixes, truth, strict=True)
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 9.6), layout="constrained")
        axes = figure.subplots()
        part = _visible_part(box, bounds, frame)
        _draw_map(axes, background.draw(part), part, frame)
        for number, (fix, (found, true)) in enumerate(zip(fixes, places, strict=True), start=1):
            _draw_fix(axes, number, fix.radius_m, found, true)
        _finish_fixes(
            figure, axes, box, frame, title or f"{sum(fix.found for fix in fixes)} of {len(fixes)} photos have a fix"
        )
    return figure


def _draw_fix(axes: Axes, number: int, radius_m: float | None, found: _Point | None, true: _Point | None) -> None:
    """One photo: true position, fix with circle and error, and its number."""
    if true is not None:
        axes.plot(
            *true, marker="+", color=_TRUTH, markersize=10, markeredgewidth=2, path_effects=_HALO, ls="", zorder=4
        )
    if found is not None and radius_m is not None:
        axes.add_patch(Circle(found, radius_m, facecolor=BLUE, edgecolor=BLUE, alpha=0.25, zorder=2))
        axes.plot(*found, marker="o", color=BLUE, markeredgecolor="white", markersize=6, ls="", zorder=5)
        if true is not None:
            axes.plot(*zip(found, true, strict=True), color=BLUE, linewidth=1.4, zorder=3)
    at = found or true
    if at is not None:
        axes.annotate(
            str(number), at, xytext=(7, 6), textcoords="offset points",
            color="white" if found else "black", fontsize=10,
            bbox={"boxstyle": "round,pad=0.18", "facecolor": BLUE if found else AMBER, "edgecolor": "white"}, zorder=6,
        )  # fmt: skip


def _places_metres(frame: LocalFrame, fixes: Sequence[Fix], truth: Sequence[LabelledPhoto]) -> FloatArray:
    """(n, 2) metres of all fixes and true positions."""
    places = [(fix.latitude, fix.longitude) for fix in fixes] + [(photo.latitude, photo.longitude) for photo in truth]
    found = [_point_metres(frame, *place) for place in places]
    return np.array([place for place in found if place is not None]).reshape(-1, 2)


def _point_metres(frame: LocalFrame, latitude: float | None, longitude: float | None) -> tuple[float, float] | None:
    if latitude is None or longitude is None:
        return None
    metres = frame.to_metres(latitude=latitude, longitude=longitude)
    return float(metres.x), float(metres.y)


def _square_around_fixes(known: FloatArray, bounds: Bounds, frame: LocalFrame) -> tuple[FloatArray, FloatArray]:
    """Lower and upper corner (2,) of a square around points (n, 2) with a margin; the whole map if there are none."""
    if not len(known):
        return _square_around([known], bounds, frame)
    low, high = known.min(axis=0) - _FIXES_MARGIN_M, known.max(axis=0) + _FIXES_MARGIN_M
    middle, half = (low + high) / 2, float((high - low).max()) / 2
    return middle - half, middle + half


def _finish_fixes(
    figure: Figure, axes: Axes, box: tuple[FloatArray, FloatArray], frame: LocalFrame, title: str
) -> None:
    """Axis limits, labels in metres from a named origin, and the legend."""
    axes.set_xlim(box[0][0], box[1][0])
    axes.set_ylim(box[0][1], box[1][1])
    north, east = "NS"[frame.latitude < 0], "EW"[frame.longitude < 0]
    origin = f"{abs(frame.latitude):.5f}° {north}, {abs(frame.longitude):.5f}° {east}"
    axes.set(xlabel=f"metres east of {origin}", ylabel=f"metres north of {origin}", aspect="equal")
    axes.set_title(title, fontsize=11)
    number = {"marker": "s", "ls": "", "markersize": 11, "markeredgecolor": "white"}
    handles = [
        Line2D([], [], marker="o", color=BLUE, markeredgecolor="white", ls="", label="fix, with its error as a line"),
        Line2D([], [], marker="o", color=BLUE, alpha=0.3, ls="", markersize=14, label="95 % circle"),
        Line2D([], [], marker="+", color=_TRUTH, ls="", markersize=10, markeredgewidth=2, label="true position"),
        Line2D([], [], color=AMBER, label="number of a photo without a fix", **number),  # type: ignore[arg-type]
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)


def draw_calibration(errors: FloatArray, confidence: FloatArray, radius: FloatArray) -> Figure:
    """Draw a reliability diagram, a risk-coverage curve, and errors against radii; (n,) each, metres and 0..1."""
    correct = errors <= CORRECT_WITHIN_M
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    left, middle, last = figure.subplots(1, 3)
    _draw_reliability(left, confidence, correct)
    order = np.argsort(-confidence, kind="stable")
    count = np.arange(1, len(order) + 1)
    middle.plot(100 * count / len(order), 100 * np.cumsum(~correct[order]) / count, color="#b3403a")
    middle.set(
        xlabel="photos accepted, most confident first (%)",
        ylabel=f"of them wrong by more than {CORRECT_WITHIN_M:.0f} m (%)",
    )
    middle.set_title("Risk and coverage")
    accepted = np.isfinite(radius) & np.isfinite(errors)
    last.scatter(radius[accepted], np.maximum(errors[accepted], 0.3), s=14, alpha=0.6, color="#2b6cb0")
    edge = max(float(radius[accepted].max()) if accepted.any() else 1.0, 1.0)
    last.plot([0.3, edge], [0.3, edge], color="#888888", linewidth=1)
    last.set(xscale="log", yscale="log", xlabel="95 % radius (m)", ylabel="error (m)", title="Error against radius")
    for axes in (left, middle, last):
        axes.grid(alpha=0.25)
    return figure


def _draw_reliability(axes: Axes, confidence: FloatArray, correct: NDArray[np.bool_]) -> None:
    """Confidence against the share of correct fixes in ten bins; dots grow with the number of photos in their bin."""
    bins = np.clip((confidence * 10).astype(int), 0, 9)
    for number in np.unique(bins):
        chosen = bins == number
        axes.scatter(
            confidence[chosen].mean(), correct[chosen].mean(), s=20 + 300 * chosen.mean(), color="#2b6cb0", alpha=0.8
        )
    axes.plot([0, 1], [0, 1], color="#888888", linewidth=1)
    axes.set(
        xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="confidence", ylabel=f"share within {CORRECT_WITHIN_M:.0f} m"
    )
    axes.set_title("Reliability")
