"""Random numbers that depend on names alone: no global state, no order of calls, no worker."""

import hashlib
from typing import TypeAlias

import numpy as np

Range: TypeAlias = tuple[float, float]
"""Bounds of a uniform draw; equal bounds fix the value."""


def generator(*names: object) -> np.random.Generator:
    """A fresh generator whose stream is a function of `names` (their text, in order) alone."""
    digest = hashlib.blake2b("\0".join(map(str, names)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest, "little")))


def uniform(rng: np.random.Generator, bounds: Range) -> float:
    """One value between the bounds."""
    return bounds[0] + (bounds[1] - bounds[0]) * float(rng.random())
