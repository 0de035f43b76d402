"""What all figures share: colours, fonts, and files that appear whole."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from skypart.atomic import atomic_path

AMBER, BLUE = "#F5A300", "#0061B5"
"""Right and wrong, also told apart by colour-blind readers."""

# Okabe and Ito's colours, yellow left out for its faintness on white.
COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#666666", "#332288", "#999933")

STYLE: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def save_figure(figure: Figure, path: Path) -> None:
    """Write a matplotlib figure, atomically."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)
