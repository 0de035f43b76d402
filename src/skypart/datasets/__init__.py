"""University-1652, SUES-200, DenseUAV and own folders, all read into one record type."""

from skypart.datasets.recognise import KINDS, open_dataset, recognise
from skypart.datasets.records import Dataset, Direction, Position, Record, TestSplit, View

__all__ = [
    "KINDS",
    "Dataset",
    "Direction",
    "Position",
    "Record",
    "TestSplit",
    "View",
    "open_dataset",
    "recognise",
]
