"""Figures of a comparison: weather radar and drop, accuracy against size, parts under weather."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.ticker import LogFormatter
from PIL import Image, ImageDraw, ImageFont

from skypart.datasets.records import ARROWS
from skypart.drawing.files import save_figure, save_image
from skypart.drawing.style import BLUE, COLOURS, STYLE
from skypart.embedding import Embedder, load
from skypart.embedding.parts_figure import part_overlay
from skypart.evaluation.published import published_rows
from skypart.evaluation.tables import Row
from skypart.evaluation.weather_figures import weather_axes
from skypart.experiments.measure import CLEAN
from skypart.experiments.plan import slug
from skypart.experiments.run import Comparison
from skypart.experiments.tables import model_cost, row_plans, weather_mean
from skypart.images.decode import read_rgb
from skypart.images.weather import CONDITIONS, LABELS, corrupt

_EDGE, _GAP, _HEAD = 150, 6, 24
_VENUE = re.compile(r" \([^()]*'\d\d\)$")
"""The venue behind a quoted method's name."""


def draw_figures(folder: Path, found: Comparison) -> list[Path]:
    """Draw the figures that the plan asks for; their paths."""
    written: list[Path] = []
    first = next(iter(found.rows.values()))[0]
    with mpl.rc_context(STYLE):
        if "weather" in found.plan.figures:
            for profile in dict.fromkeys(c.split("/")[0] for c in first.conditions if c != CLEAN):
                for direction in first.directions():
                    written.append(folder / f"radar-{profile}-{direction}.png")
                    save_figure(weather_radar(found, profile, direction), written[-1])
                    written.append(folder / f"drop-{profile}-{direction}.png")
                    save_figure(weather_drop(found, profile, direction), written[-1])
        if "pareto" in found.plan.figures:
            written.append(folder / "pareto.png")
            save_figure(pareto(found), written[-1])
    if "parts" in found.plan.figures:
        written += _parts_sheets(folder, found)
    return written


def weather_radar(found: Comparison, profile: str, direction: str) -> Figure:
    """R@1 under the ten conditions, one line per row, mean over seeds."""
    figure = Figure(figsize=(8, 7.4), layout="constrained")
    axes, angles = weather_axes(figure)
    for number, (name, scores) in enumerate(found.rows.items()):
        values = [np.mean([s.headline(f"{profile}/{c}", direction) for s in scores]) for c in CONDITIONS]
        label = f"{name}, mean {np.mean(values):.1f}"
        style = "-" if number < len(COLOURS) else "--"
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            [*angles, angles[0]], [*values, values[0]], style, color=colour, marker="o", markersize=4, label=label
        )
    for number, row in enumerate(_weather_baselines(found, profile, direction)):
        quoted = [row.values[f"{direction} {c}/R@1"] for c in CONDITIONS]
        label = f"{row.method} (quoted), mean {np.mean(quoted):.1f}"
        colour = COLOURS[(len(found.rows) + number) % len(COLOURS)]
        axes.plot([*angles, angles[0]], [*quoted, quoted[0]], ":", color=colour, linewidth=1, label=label)
    axes.set_title(f"{ARROWS[direction]} R@1 in percent, weather profile {profile}", pad=24)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncol=2, frameon=False)
    return figure


def _weather_baselines(found: Comparison, profile: str, direction: str) -> list[Row]:
    """The paper's rows under all ten conditions; they are of the profile `paper`."""
    if not found.plan.quoted or profile != "paper":
        return []
    rows = published_rows(found.dataset.kind, "weather")
    return [row for row in rows if all(f"{direction} {c}/R@1" in row.values for c in CONDITIONS)]


def weather_drop(found: Comparison, profile: str, direction: str) -> Figure:
    """Clean R@1, mean R@1 in weather, and the drop between them, one pair of bars per row."""
    figure = Figure(figsize=(max(6.0, 1.1 * len(found.rows) + 2), 4.6), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(found.rows))
    clean = [np.mean([s.headline(CLEAN, direction) for s in scores]) for scores in found.rows.values()]
    wet = [np.mean([weather_mean(s, profile, direction) for s in scores]) for scores in found.rows.values()]
    axes.bar(places - 0.2, clean, 0.4, color=COLOURS[0], label="clean")
    bars = axes.bar(places + 0.2, wet, 0.4, color=COLOURS[1], label="mean of ten weathers")
    axes.bar_label(bars, [f"{w - c:+.1f}" for w, c in zip(wet, clean, strict=True)], fontsize=9, padding=2)
    axes.set_xticks(places, list(found.rows), rotation=25, ha="right")
    axes.set_ylabel("R@1, percent")
    axes.set_ylim(0, 108)
    axes.set_title(f"{ARROWS[direction]}, weather profile {profile}: drop from clean, points")
    axes.legend(frameon=False, ncol=2)
    return figure


def pareto(found: Comparison) -> Figure:
    """R@1 (mean of both directions) against parameters; bubble area is proportional to multiply-adds.

    Multiply-adds of one image with attention products, for ours and peers measured here. Quoted methods, whose
    multiply-adds follow other conventions, are hollow and of one size.
    """
    figure = Figure(figsize=(8.4, 5.4), layout="constrained")
    axes = figure.add_subplot()
    directions = next(iter(found.rows.values()))[0].directions()
    labels = []
    for number, plan in enumerate(row_plans(found)):
        cost = model_cost(found, plan)
        score = np.mean([s.headline(CLEAN, d) for s in found.rows[plan.name] for d in directions])
        size = cost.total_parameters / 1e6
        colour = COLOURS[number % len(COLOURS)]
        axes.scatter(size, score, s=40 * cost.giga_macs, color=colour, alpha=0.65, edgecolor="black", linewidth=0.6)
        labels.append(_label(axes, f"{plan.name} ({cost.giga_macs:.1f})", size, float(score)))
    for row in published_rows(found.dataset.kind) if found.plan.quoted else []:
        values = [row.values.get(f"{d}/R@1", row.values.get(f"{d} mean/R@1")) for d in directions]
        if row.params is not None and all(value is not None for value in values):
            size = float(row.params.split()[0])
            score = np.mean([value for value in values if value is not None])
            axes.scatter(size, score, s=40, facecolor="none", edgecolor=BLUE)
            labels.append(_label(axes, f"{_VENUE.sub('', row.method)} (quoted)", size, float(score)))
    low, high = axes.get_xlim()
    axes.set_xscale("log" if low <= 0 or high > 3 * low else "linear")  # close values need ticks of their own
    if axes.get_xscale() == "log":  # 30 instead of 3 x 10^1
        axes.xaxis.set_major_formatter(LogFormatter())
        axes.xaxis.set_minor_formatter(LogFormatter())
    axes.set_xlabel("parameters, millions")
    axes.set_ylabel("R@1, mean of both directions, percent")
    axes.set_title("Accuracy against size (in brackets: GMACs per image, attention included)")
    axes.grid(alpha=0.3)
    spread_labels(figure, labels)
    return figure


def _label(axes: Any, text: str, x: float, y: float) -> Annotation:
    """A label to the right of a point, with a line to it."""
    line = {"arrowstyle": "-", "linewidth": 0.5, "color": "gray"}
    note = axes.annotate(text, (x, y), xytext=(10, 0), textcoords="offset points", fontsize=9, arrowprops=line)
    assert isinstance(note, Annotation)
    return note


def spread_labels(figure: Figure, labels: Sequence[Annotation]) -> None:
    """Move labels down, from the highest to the lowest, until none covers another."""
    figure.draw_without_rendering()
    placed: list[Any] = []
    for label in sorted(labels, key=lambda each: -float(each.xy[1])):
        start, moved = Text.get_window_extent(label), 0.0  # moved: points
        box = start
        while any(box.overlaps(other) for other in placed):
            moved -= 2
            box = start.translated(0, moved * figure.dpi / 72)
        label.xyann = (label.xyann[0], label.xyann[1] + moved)
        placed.append(box)


def _parts_sheets(folder: Path, found: Comparison) -> list[Path]:
    """One contact sheet per row whose model has parts: drone photos in all weathers with the parts found in them."""
    written = []
    drones = [r for r in found.dataset.tests[0].query if r.view == "drone"]
    chosen = drones[:: max(1, len(drones) // 3)][:3]
    for plan in row_plans(found):
        embedder = load(found.models[plan.name], readout=plan.readout or None)
        if embedder.can_explain and chosen:
            photos = [(record.path, f"{record.location}/{record.path.name}") for record in chosen]
            written.append(folder / f"parts-{slug(plan.name)}.png")
            save_image(parts_under_weather(embedder, photos, found.plan.presets[found.preset].weather), written[-1])
    return written


def parts_under_weather(embedder: Embedder, photos: Sequence[tuple[Path, str]], profiles: Sequence[str]) -> Image.Image:
    """Photos in rows, conditions in columns, each tinted by the part that holds a patch."""
    profile = profiles[0] if profiles else "paper"
    step = _EDGE + _GAP
    canvas = Image.new("RGB", (_GAP + len(CONDITIONS) * step, _HEAD + len(photos) * step), "white")
    draw = ImageDraw.Draw(canvas)
    for column, condition in enumerate(CONDITIONS):
        draw.text((_GAP + column * step, 5), LABELS[condition], fill="black", font=ImageFont.load_default(13))
        for row, (path, key) in enumerate(photos):
            image = read_rgb(path)
            worn = image if condition == "normal" else corrupt(image, condition, profile, 0, key)
            overlay = part_overlay(worn, embedder.explain(worn), _EDGE)
            canvas.paste(overlay, (_GAP + column * step, _HEAD + row * step))
    return canvas
