"""Public aerial data from its original sources: downloaded, checked, and made into maps to render worlds from."""

from skypart.datasets.fetch.run import fetch, print_sets
from skypart.datasets.fetch.sets import SETS

__all__ = ["SETS", "fetch", "print_sets"]
