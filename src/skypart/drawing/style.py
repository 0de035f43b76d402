"""The style that all figures share: colours and fonts."""

from typing import Any

AMBER, BLUE = "#F5A300", "#0061B5"
"""Correct and incorrect; colour-blind readers can tell them apart."""

# The palette of Okabe and Ito without its yellow, which is too faint on white.
COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#666666", "#332288", "#999933")

STYLE: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
"""Settings for `matplotlib.rc_context`."""
