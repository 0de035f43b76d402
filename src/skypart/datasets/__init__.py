"""University-1652, SUES-200, DenseUAV and own folders, all read into one record type."""

from skypart.datasets.benchmark import Benchmark
from skypart.datasets.records import Dataset, Direction, Position, Record, TestSplit, View
from skypart.datasets.registry import KINDS, find_benchmark, open_dataset, recognise, register

__all__ = [
    "KINDS",
    "Benchmark",
    "Dataset",
    "Direction",
    "Position",
    "Record",
    "TestSplit",
    "View",
    "find_benchmark",
    "open_dataset",
    "recognise",
    "register",
]
