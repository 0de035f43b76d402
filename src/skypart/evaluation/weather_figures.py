"""Radar of the ten conditions, drop from the clean score, and the severity curve."""

from pathlib import Path
from typing import cast

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes
from numpy.typing import NDArray

from skypart.datasets.records import ARROWS
from skypart.drawing.files import save_figure
from skypart.drawing.style import COLOURS, STYLE
from skypart.evaluation.weather import WeatherResult
from skypart.images.weather import CONDITIONS, LABELS


def draw_weather_figures(folder: Path, result: WeatherResult) -> None:
    """Write weather-radar.png, weather-drop.png and, if severities were run, weather-severity.png."""
    with mpl.rc_context(STYLE):
        save_figure(_radar(result), folder / "weather-radar.png")
        save_figure(_drop(result), folder / "weather-drop.png")
        if result.severities:
            save_figure(_severity(result), folder / "weather-severity.png")


def _short_name(result: WeatherResult) -> str:
    return result.dataset.split(" (")[0]


def _title(result: WeatherResult) -> str:
    return f"{result.model} on {_short_name(result)}, weather profile {result.protocol.weather}"


def weather_axes(figure: Figure) -> tuple[PolarAxes, NDArray[np.float64]]:
    """Polar axes with one labelled spoke per condition, 0 to 100 percent, and the angles (10,) of the spokes."""
    axes = cast(PolarAxes, figure.add_subplot(projection="polar"))
    angles = np.linspace(0, 2 * np.pi, len(CONDITIONS), endpoint=False)
    axes.set_xticks(angles, [LABELS[condition] for condition in CONDITIONS])
    for text, angle in zip(axes.get_xticklabels(), angles, strict=True):
        side = np.sin(angle)
        text.set_horizontalalignment("center" if abs(side) < 0.1 else "left" if side > 0 else "right")
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_ylim(0, 100)
    return axes, angles


def _radar(result: WeatherResult) -> Figure:
    figure = Figure(figsize=(7, 7), layout="constrained")
    axes, angles = weather_axes(figure)
    for colour, direction in zip(COLOURS, result.directions, strict=False):
        values = [result.conditions[condition][direction]["R@1"] for condition in CONDITIONS]
        label = f"{ARROWS[direction]}, mean {result.mean(direction, 'R@1'):.1f}"
        axes.plot([*angles, angles[0]], [*values, values[0]], color=colour, marker="o", linewidth=2, label=label)
        axes.fill(angles, values, color=colour, alpha=0.12)
    axes.set_rlabel_position(18)
    axes.set_title(f"{_title(result)}\nR@1 in percent", pad=24)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.16), ncol=2, frameon=False)
    return figure


def _drop(result: WeatherResult) -> Figure:
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    corrupted = CONDITIONS[1:]
    width = 0.8 / len(result.directions)
    for i, direction in enumerate(result.directions):
        clean = result.conditions["normal"][direction]["R@1"]
        drops = [result.conditions[condition][direction]["R@1"] - clean for condition in corrupted]
        positions = np.arange(len(corrupted)) + (i - (len(result.directions) - 1) / 2) * width
        bars = axes.bar(positions, drops, width, color=COLOURS[i], label=f"{ARROWS[direction]}, clean {clean:.1f}")
        axes.bar_label(bars, fmt="%+.1f", fontsize=8, padding=2)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.margins(y=0.15)
    axes.set_xticks(np.arange(len(corrupted)), [LABELS[condition] for condition in corrupted], rotation=20)
    axes.set_ylabel("change of R@1, points")
    axes.set_title(f"{_title(result)}: drop from clean")
    axes.legend(frameon=False)
    return figure


def _severity(result: WeatherResult) -> Figure:
    count = len(result.directions)
    figure = Figure(figsize=(5.5 * count + 1.5, 4.8), layout="constrained")
    panels = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for axes, direction in zip(panels, result.directions, strict=True):
        clean = result.conditions["normal"][direction]["R@1"]
        steps = sorted(result.severities)
        for i, condition in enumerate(CONDITIONS[1:]):
            values = [result.severities[step][condition][direction]["R@1"] for step in steps]
            style = "-" if i < 5 else "--"
            colour = COLOURS[i % len(COLOURS)]
            axes.plot([0, *steps], [clean, *values], style, marker="o", color=colour, label=LABELS[condition])
        axes.set_xlabel("severity (0 = clean)")
        axes.set_title(ARROWS[direction])
        axes.set_ylim(0, 102)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("R@1, percent")
    figure.suptitle(f"{result.model} on {_short_name(result)}: R@1 against severity")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure
