"""Labels of the Pareto figure."""

import itertools

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from skypart.experiments.figures import _VENUE, _label, spread_labels


def crowded() -> tuple[Figure, list[Annotation]]:
    figure = Figure(figsize=(6, 4))
    axes = figure.add_subplot()
    points = [(20.0, 95.0), (21.0, 95.2), (22.0, 94.9), (20.5, 95.1), (80.0, 40.0)]
    axes.scatter(*zip(*points, strict=True))
    return figure, [_label(axes, f"method number {n}", x, y) for n, (x, y) in enumerate(points)]


def covered(figure: Figure, labels: list[Annotation]) -> int:
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(label) for label in labels]
    return sum(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_labels_of_points_that_stand_close_do_not_cover_each_other() -> None:
    figure, labels = crowded()
    assert covered(figure, labels) >= 3
    spread_labels(figure, labels)
    assert covered(figure, labels) == 0
    assert labels[1].xyann == (10, 0) and labels[4].xyann == (10, 0), "the highest and the lonely one stay"


@pytest.mark.parametrize(
    ("method", "name"), [("LPN (TCSVT'22)", "LPN"), ("SkyPart (paper)", "SkyPart (paper)"), ("ViT-S (a)", "ViT-S (a)")]
)
def test_only_the_venue_is_left_out(method: str, name: str) -> None:
    assert _VENUE.sub("", method) == name
