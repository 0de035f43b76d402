"""Download public aerial data from its original sources, verify it, and make maps for rendering worlds."""

from skypart.datasets.fetch.run import fetch, print_sets
from skypart.datasets.fetch.sets import SETS

__all__ = ["SETS", "fetch", "print_sets"]
