"""Fixes on their map: each with its 95 % circle and a line to where the photo truly was."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from skypart.drawing.style import AMBER, BLUE, STYLE
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage
from skypart.position.fix import Fix
from skypart.position.labelled import LabelledPhoto


def draw_fixes(
    picture: RgbImage, bounds: Bounds, fixes: Sequence[Fix], truth: Sequence[LabelledPhoto], title: str = ""
) -> Figure:
    """Draw located photos over a map picture (h, w, 3), north up, rows and columns even in degrees over `bounds`.

    truth: of the same photos, in the same order.
    """
    frame = bounds.frame
    corner = frame.to_metres(latitude=[bounds.south, bounds.north], longitude=[bounds.west, bounds.east])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 8), layout="constrained")
        axes = figure.subplots()
        axes.imshow(picture, extent=(corner.x[0], corner.x[1], corner.y[0], corner.y[1]), alpha=0.85)
        seen: list[tuple[float, float]] = []
        for number, (fix, photo) in enumerate(zip(fixes, truth, strict=True), start=1):
            true = _metres(frame, photo.latitude, photo.longitude)
            found = _metres(frame, fix.latitude, fix.longitude)
            if true is not None:
                axes.plot(*true, marker="+", color="#1B1B1B", markersize=9, markeredgewidth=1.8, zorder=4)
                seen.append(true)
            if found is not None and fix.radius_m is not None:
                seen.append(found)
                axes.add_patch(Circle(found, fix.radius_m, facecolor=BLUE, edgecolor=BLUE, alpha=0.22, zorder=2))
                axes.plot(*found, marker="o", color=BLUE, markersize=5, zorder=5)
                if true is not None:
                    axes.plot(*zip(found, true, strict=True), color=BLUE, linewidth=1.2, zorder=3)
            at = found or true
            if at is not None:
                colour = BLUE if found is not None else AMBER
                axes.annotate(
                    str(number), at, xytext=(6, 5), textcoords="offset points", color="white", fontsize=9,
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": colour, "edgecolor": "none"}, zorder=6,
                )  # fmt: skip
        _frame(axes, np.array(seen), title)
    return figure


def _metres(frame: LocalFrame, latitude: float | None, longitude: float | None) -> tuple[float, float] | None:
    if latitude is None or longitude is None:
        return None
    spot = frame.to_metres(latitude=latitude, longitude=longitude)
    return float(spot.x), float(spot.y)


def _frame(axes: mpl.axes.Axes, seen: np.ndarray, title: str) -> None:
    """Limits around what is shown, a title, and metres along the edges."""
    if len(seen):
        low, high = seen.min(axis=0) - 150, seen.max(axis=0) + 150
        middle, half = (low + high) / 2, float((high - low).max()) / 2
        axes.set_xlim(middle[0] - half, middle[0] + half)
        axes.set_ylim(middle[1] - half, middle[1] + half)
    axes.set(xlabel="metres east", ylabel="metres north", aspect="equal")
    axes.set_title(title or "blue: fix and 95 % circle; cross: truth; amber number: no fix", fontsize=11)
