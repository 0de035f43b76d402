"""`--figures`: retrieval sheets, a rank histogram, and error maps if positions are known."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from skypart.atomic import atomic_path
from skypart.datasets.records import Dataset
from skypart.drawing.files import save_figure
from skypart.drawing.style import AMBER, COLOURS, STYLE
from skypart.embedding import Embedder
from skypart.evaluation.distance import match_errors
from skypart.evaluation.protocol import EvaluationResult, Vectors, positions
from skypart.evaluation.published import short_title
from skypart.evaluation.sheets import Retrieval, choose_queries, draw_sheet, retrieve
from skypart.progress import with_progress

_EDGES = np.array([0, 1, 2, 5, 10, 20, 50, 100, 1_000, 10_000, 10**9])
_BINS = ("1", "2", "3-5", "6-10", "11-20", "21-50", "51-100", "101-1k", "1k-10k", ">10k")


def draw_figures(
    out: Path, dataset: Dataset, vectors: Vectors, result: EvaluationResult, embedder: Embedder
) -> list[Path]:
    """Write all figures into `out/figures`; returns their paths."""
    folder = out / "figures"
    written: list[Path] = []
    retrievals: list[Retrieval] = []
    shown = short_title(dataset)
    has_whole_test = any(split.altitude is None for split in dataset.tests)
    for split in with_progress(dataset.tests, "drawing"):
        retrieval = retrieve(split, vectors, result.protocol.gallery)
        retrievals.append(retrieval)
        title = f"{result.model} on {shown}, {split.name}, gallery of {len(split.gallery):,}"
        name = split.name.replace(" ", "-")
        sheet = draw_sheet(retrieval, choose_queries(retrieval), title, embedder)
        written.append(folder / f"retrieval-{name}.png")
        with atomic_path(written[-1]) as temporary:
            sheet.save(temporary)
        figure = error_map(retrieval, title) if split.altitude is None or not has_whole_test else None
        if figure is not None:
            written.append(folder / f"errors-{name}.png")
            save_figure(figure, written[-1])
    written.append(folder / "ranks.png")
    save_figure(rank_histogram(retrievals, f"{result.model} on {shown}"), written[-1])
    return written


def rank_histogram(retrievals: list[Retrieval], title: str) -> Figure:
    """Share of queries by the rank of their first positive: one panel per direction, one bar per split."""
    with mpl.rc_context(STYLE):
        directions = list(dict.fromkeys(r.split.direction for r in retrievals))
        figure = Figure(figsize=(6 * len(directions), 4.4), layout="constrained")
        panels = figure.subplots(1, len(directions), sharey=True, squeeze=False)[0]
        for axes, direction in zip(panels, directions, strict=True):
            own = [r for r in retrievals if r.split.direction == direction]
            width = 0.84 / len(own)
            deepest = max(int(r.first.max()) for r in own)
            used = int(np.searchsorted(_EDGES, deepest, side="right"))
            for i, retrieval in enumerate(own):
                share = 100 * np.histogram(retrieval.first, _EDGES)[0][:used] / len(retrieval.first)
                bars_at = np.arange(used) + (i - (len(own) - 1) / 2) * width
                bars = axes.bar(bars_at, share, width, color=COLOURS[i], label=retrieval.split.name)
                if len(own) == 1:
                    axes.bar_label(bars, fmt="%.1f", fontsize=9)
            axes.set_xticks(np.arange(used), _BINS[:used], rotation=30 if used > 6 else 0)
            axes.set_xlabel("rank of the first positive")
            axes.legend(frameon=False)
        panels[0].set_ylabel("queries, percent")
        figure.suptitle(title)
    return figure


def error_map(retrieval: Retrieval, title: str) -> Figure | None:
    """Query positions and their matches, coloured by error in metres; None if positions are unknown."""
    query, gallery = positions(retrieval.split.query), positions(retrieval.split.gallery)
    if query is None or gallery is None:
        return None
    error = match_errors(query, gallery, retrieval.best)
    matched = gallery[retrieval.best[:, 0]]
    far = error > 1.0
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 5.6), layout="constrained")
        axes, curve = figure.subplots(1, 2, width_ratios=(1.5, 1))
        axes.scatter(*gallery.T, c="#CCCCCC", s=6)
        lines = LineCollection([*np.stack([query[far], matched[far]], axis=1)], colors="#999999", linewidths=0.6)
        axes.add_collection(lines)
        norm = LogNorm(1.0, max(10.0, float(error.max())))
        shown = axes.scatter(*query.T, c=np.maximum(error, 1.0), s=18, norm=norm, cmap="cividis", zorder=2)
        figure.colorbar(shown, ax=axes, label="distance to the first match, m (1 or less: darkest)")
        # A degree of longitude is shorter than one of latitude.
        axes.set_aspect(1 / np.cos(np.radians(float(query[:, 1].mean()))), adjustable="datalim")
        axes.ticklabel_format(useOffset=False)
        axes.tick_params(axis="x", rotation=20)
        axes.set_xlabel("longitude, degrees")
        axes.set_ylabel("latitude, degrees")
        axes.set_title("queries, with a line to where each was put (grey: gallery)")
        steps = np.sort(np.maximum(error, 0.1))
        curve.step(steps, 100 * np.arange(1, len(steps) + 1) / len(steps), where="post", color=AMBER, linewidth=2)
        curve.set_xscale("log")
        curve.set_ylim(0, 101)
        curve.grid(alpha=0.3)
        curve.set_xlabel("error, m")
        curve.set_ylabel("queries nearer than that, percent")
        curve.set_title(f"median {np.median(error):.1f} m")
        figure.suptitle(title)
    return figure
