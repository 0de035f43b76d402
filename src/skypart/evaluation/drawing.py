"""What all figures share: colours, fonts, and files that appear whole."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from skypart.atomic import atomic_path
from skypart.images.picture_file import check_suffix

AMBER, BLUE = "#F5A300", "#0061B5"
"""Right and wrong, also told apart by colour-blind readers."""

# Okabe and Ito's colours, yellow left out for its faintness on white.
COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#666666", "#332288", "#999933")

STYLE: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """Refuse a name that no picture can have; to be asked before long work begins."""
    check_suffix(path, PICTURE_SUFFIXES)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a matplotlib figure, atomically."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)
