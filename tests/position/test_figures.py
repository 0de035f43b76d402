"""Figures show what they should: flights with path and truth, located photos, and the quality of a calibration."""

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage
from skypart.position.figures import MapBackground, draw_calibration, draw_fixes, draw_track
from skypart.position.fix import Fix
from skypart.position.labelled import LabelledPhoto
from skypart.position.score import Truth
from skypart.position.track import TrackPoint


def flight(frame: LocalFrame, far: bool = False) -> tuple[list[TrackPoint], Truth]:
    """Ten points going east, each with its fix; if `far`, the last fix is far away."""
    x = np.linspace(-300, 300, 10)
    spots = frame.to_degrees(x, np.zeros(10))
    points = []
    for i in range(10):
        latitude, longitude = float(spots.latitude[i]), float(spots.longitude[i])
        wrong = far and i == 9
        fix = Fix(photo="a", latitude=latitude + 0.5 * wrong, longitude=longitude, radius_m=20.0, confidence=0.9)
        points.append(
            TrackPoint(
                time_s=i,
                latitude=latitude,
                longitude=longitude,
                radius_m=20.0,
                state="coasting" if wrong else "tracking",
                raw=fix,
            )
        )
    return points, Truth(time_s=np.arange(10.0), latitude=spots.latitude, longitude=spots.longitude)


def background(frame: LocalFrame) -> MapBackground:
    spots = frame.to_degrees([-1000.0, 1000.0], [-800.0, 800.0])
    (south, north), (west, east) = spots.latitude, spots.longitude
    return MapBackground(Bounds(south=float(south), west=float(west), north=float(north), east=float(east)), grey)


def labels(figure: Figure) -> list[str]:
    legend = figure.axes[0].get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def grey(part: Bounds) -> RgbImage:
    return np.full((80, 100, 3), 120, dtype=np.uint8)


@pytest.mark.parametrize("longitude", [16.4, 180.0, -179.999])
def test_path_truth_and_fixes_are_drawn_at_their_places(longitude: float) -> None:
    frame = LocalFrame(latitude=-17.0, longitude=longitude)
    points, truth = flight(frame)
    axes = draw_track(background(frame), points, truth, "a flight").axes[0]
    assert axes.get_title() == "a flight"
    for line in axes.get_lines()[:2]:  # truth, path
        drawn = np.asarray(line.get_xydata(), dtype=np.float64)
        np.testing.assert_allclose(drawn[:, 0], np.linspace(-300, 300, 10), atol=1.0)
        np.testing.assert_allclose(drawn[:, 1], 0.0, atol=1.0)
    used = next(each for each in axes.collections if isinstance(each, PathCollection))
    assert len(np.asarray(used.get_offsets())) == 10
    left, right = axes.get_xlim()
    assert -700 < left < -300 and 300 < right < 700
    whole = [-1000, 1000, -800, 800]  # across the antimeridian; elsewhere only the visible part
    shown = whole if abs(longitude) > 179 else [left, right, *axes.get_ylim()]
    np.testing.assert_allclose(axes.get_images()[0].get_extent(), shown, atol=1.0)


def test_distant_fixes_are_counted_and_do_not_zoom_out() -> None:
    frame = LocalFrame(latitude=48.0, longitude=16.0)
    points, truth = flight(frame, far=True)
    figure = draw_track(background(frame), points, truth)
    assert figure.axes[0].get_xlim()[1] < 700
    assert any("1 outside the figure" in text for text in labels(figure))


def test_a_lost_flight_shows_the_whole_map() -> None:
    frame = LocalFrame(latitude=48.0, longitude=16.0)
    axes = draw_track(background(frame), [TrackPoint(time_s=0.0), TrackPoint(time_s=1.0)]).axes[0]
    assert axes.get_xlim() == pytest.approx((-1000, 1000), abs=1)


def test_fixes_are_drawn_with_circle_error_line_and_number() -> None:
    frame = LocalFrame(latitude=48.0, longitude=16.0)
    place = frame.to_degrees(100.0, 50.0)
    found = Fix(photo="a", latitude=float(place.latitude), longitude=float(place.longitude), radius_m=40.0)
    truth = [LabelledPhoto(path=Path(name), latitude=48.0, longitude=16.0) for name in ("a.jpg", "b.jpg")]
    behind = background(frame)
    figure = draw_fixes(behind, [found, Fix(photo="b", reason="dark")], truth, "two")
    axes = figure.axes[0]
    (circle,) = (patch for patch in axes.patches if isinstance(patch, Circle))
    assert circle.get_radius() == 40.0 and circle.get_center() == pytest.approx((250.0, 225.0), abs=0.3)
    lines = [np.asarray(line.get_xydata()) for line in axes.get_lines() if len(np.asarray(line.get_xydata())) == 2]
    np.testing.assert_allclose(lines[0], [[250.0, 225.0], [150.0, 175.0]], atol=0.3)
    assert [text.get_text() for text in axes.texts] == ["1", "2"] and axes.get_title() == "two"
    assert axes.get_xlim() == pytest.approx((0.0, 400.0), abs=1.0), "a margin of 150 m"
    corner = frame.to_degrees(-150.0, -175.0)
    assert axes.get_xlabel() == f"metres east of {float(corner.latitude):.5f}° N, {float(corner.longitude):.5f}° E"
    (legend,) = figure.legends
    assert "true position" in [text.get_text() for text in legend.get_texts()]
    figure.draw_without_rendering()  # places the legend
    assert figure.bbox.x0 <= legend.get_window_extent().x0 and figure.bbox.y0 <= legend.get_window_extent().y0
    assert legend.get_window_extent().x1 <= figure.bbox.x1, "not cut off"


def test_calibration_figures_have_reliability_risk_and_errors() -> None:
    """Four photos: by falling confidence correct, wrong, correct, and wrong from outside without a radius."""
    errors = np.array([5.0, 200.0, 20.0, math.inf])
    confidence = np.array([0.95, 0.85, 0.45, 0.05])
    radius = np.array([10.0, 20.0, 30.0, math.inf])
    reliability, risk, scatter = draw_calibration(errors, confidence, radius).axes
    dots = [tuple(np.asarray(each.get_offsets())[0]) for each in reliability.collections]
    assert sorted(dots) == [(0.05, 0.0), (0.45, 1.0), (0.85, 0.0), (0.95, 1.0)]
    np.testing.assert_allclose(
        np.asarray(risk.get_lines()[0].get_xydata()), [[25.0, 0.0], [50.0, 50.0], [75.0, 100 / 3], [100.0, 50.0]]
    )
    shown = np.asarray(scatter.collections[0].get_offsets())
    np.testing.assert_allclose(shown, [[10, 5], [20, 200], [30, 20]])
