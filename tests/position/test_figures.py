"""The picture of a flight shows path and truth whatever the flight was like."""

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage
from skypart.position.fix import Fix
from skypart.position.figures import draw_track
from skypart.position.track import TrackPoint
from skypart.position.score import Truth


def flight(frame: LocalFrame, far: bool = False) -> tuple[list[TrackPoint], Truth]:
    """Ten points going east, each with its fix; the last fix lies `far` away."""
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


def bounds(frame: LocalFrame) -> Bounds:
    spots = frame.to_degrees([-1000.0, 1000.0], [-800.0, 800.0])
    (south, north), (west, east) = spots.latitude, spots.longitude
    return Bounds(south=float(south), west=float(west), north=float(north), east=float(east))


def labels(figure: Figure) -> list[str]:
    legend = figure.axes[0].get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def grey(part: Bounds) -> RgbImage:
    return np.full((80, 100, 3), 120, dtype=np.uint8)


@pytest.mark.parametrize("longitude", [16.4, 180.0, -179.999])
def test_path_truth_and_fixes_are_drawn_where_they_are(longitude: float) -> None:
    frame = LocalFrame(latitude=-17.0, longitude=longitude)
    points, truth = flight(frame)
    axes = draw_track(grey, bounds(frame), points, truth, "a flight").axes[0]
    assert axes.get_title() == "a flight"
    for line in axes.get_lines()[:2]:  # truth, path
        drawn = np.asarray(line.get_xydata(), dtype=np.float64)
        np.testing.assert_allclose(drawn[:, 0], np.linspace(-300, 300, 10), atol=1.0)
        np.testing.assert_allclose(drawn[:, 1], 0.0, atol=1.0)
    used = next(each for each in axes.collections if isinstance(each, PathCollection))
    assert len(np.asarray(used.get_offsets())) == 10
    left, right = axes.get_xlim()
    assert -700 < left < -300 and 300 < right < 700
    whole = [-1000, 1000, -800, 800]  # what is shown over the antimeridian; elsewhere the part in sight
    shown = whole if abs(longitude) > 179 else [left, right, *axes.get_ylim()]
    np.testing.assert_allclose(axes.get_images()[0].get_extent(), shown, atol=1.0)


def test_fixes_far_off_do_not_shrink_the_picture_but_are_counted() -> None:
    frame = LocalFrame(latitude=48.0, longitude=16.0)
    points, truth = flight(frame, far=True)
    figure = draw_track(grey, bounds(frame), points, truth)
    assert figure.axes[0].get_xlim()[1] < 700
    assert any("1 outside the picture" in text for text in labels(figure))


def test_a_lost_flight_shows_the_whole_map() -> None:
    frame = LocalFrame(latitude=48.0, longitude=16.0)
    axes = draw_track(grey, bounds(frame), [TrackPoint(time_s=0.0), TrackPoint(time_s=1.0)]).axes[0]
    assert axes.get_xlim() == pytest.approx((-1000, 1000), abs=1)
