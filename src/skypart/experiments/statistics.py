"""Whether a difference between two models is real: a paired bootstrap over queries or over places."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError

Floats = NDArray[np.float64]
_CHUNK = 2_000_000
"""Bootstrap weights held at a time."""


@dataclass(frozen=True)
class Difference:
    """The mean difference of two models on the same queries, in the unit of the scores.

    low, high: 95 % interval of the bootstrap. p: two-sided, how often a resample has the other sign.
    resampled: number of independent units (queries or places) that were resampled.
    """

    mean: float
    low: float
    high: float
    p: float
    resampled: int

    @property
    def is_real(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def paired_bootstrap(
    scores: ArrayLike, other: ArrayLike, groups: ArrayLike | None = None, draws: int = 10_000, seed: int = 0
) -> Difference:
    """Bootstrap the mean of `scores` - `other`, both (q,) for the same queries, or (seeds, q) averaged over seeds.

    groups: (q,) the place of each query. Queries of one place are not independent, so whole places are resampled;
    None resamples queries.
    """
    one, two = (_by_query(values) for values in (scores, other))
    if one.shape != two.shape or len(one) == 0:
        raise SkyPartError(f"a paired comparison needs the same queries twice, not {one.shape} and {two.shape}")
    difference = one - two
    labels = np.arange(len(difference)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if labels.shape != difference.shape:
        raise SkyPartError(f"{len(difference)} queries have {labels.shape} places; give one for each")
    sums = np.asarray(np.bincount(labels, weights=difference), dtype=np.float64)
    counts = np.bincount(labels).astype(np.float64)
    means = _resampled_means(sums, counts, draws, np.random.default_rng(seed))
    low, high = np.quantile(means, [0.025, 0.975])
    tail = min(float(np.mean(means <= 0)), float(np.mean(means >= 0)))
    return Difference(
        mean=float(difference.mean()),
        low=float(low),
        high=float(high),
        p=min(1.0, 2 * max(tail, 1 / draws)),
        resampled=len(sums),
    )


def _by_query(values: ArrayLike) -> Floats:
    """(q,) scores, averaged over seeds if there are several."""
    array = np.asarray(values, dtype=np.float64)
    return array.mean(axis=0) if array.ndim == 2 else array


def _resampled_means(sums: Floats, counts: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """(draws,) means over queries of resamples of units with these sums and counts."""
    units = len(sums)
    means = np.empty(draws)
    rows = max(1, _CHUNK // units)
    for first in range(0, draws, rows):
        size = min(rows, draws - first)
        weights = rng.multinomial(units, np.full(units, 1 / units), size=size)
        means[first : first + size] = (weights @ sums) / (weights @ counts)
    return means


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds. deviation: NaN for a single seed."""

    mean: float
    deviation: float
    seeds: int

    def __str__(self) -> str:
        """`91.2 ± 0.4`, or the mean alone."""
        return f"{self.mean:.2f}" if self.seeds < 2 else f"{self.mean:.2f} ± {self.deviation:.2f}"


def spread(values: ArrayLike) -> Spread:
    """Spread of one number per seed."""
    array = np.asarray(values, dtype=np.float64)
    deviation = float(array.std(ddof=1)) if len(array) > 1 else float("nan")
    return Spread(float(array.mean()), deviation, len(array))
