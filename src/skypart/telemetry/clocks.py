"""Join two clocks by the motion that both have seen."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

RATE_HZ = 10.0
MIN_OVERLAP_S = 8.0
"""Seconds that two records must share at an offset."""
MIN_CORRELATION = 0.6
"""Correlation at the best offset below which nothing is estimated."""
MIN_LEAD = 0.1
"""The best offset must be this much better correlated than any that is more than a second away."""


def estimate_offset(
    video_s: ArrayLike, video_rate: ArrayLike, data_s: ArrayLike, data_rate: ArrayLike, max_offset_s: float = 60.0
) -> float | None:
    """Seconds to add to times of the video to get times of the flight data; None if their motion does not tell.

    video_rate, data_rate: the same quantity seen by both, such as the turn rate in degrees per second, at rising times.
    """
    first_times, first = _finite(video_s, video_rate)
    second_times, second = _finite(data_s, data_rate)
    if len(first) < 10 or len(second) < 10:
        return None
    grid = np.arange(first_times[0], first_times[-1], 1.0 / RATE_HZ)
    seen = np.interp(grid, first_times, first)
    offsets = np.arange(-max_offset_s, max_offset_s + 1e-9, 1.0 / RATE_HZ)
    scores = np.full(len(offsets), -1.0)
    for number, offset in enumerate(offsets):
        inside = (grid + offset >= second_times[0]) & (grid + offset <= second_times[-1])
        if inside.sum() < MIN_OVERLAP_S * RATE_HZ:
            continue
        scores[number] = _correlation(seen[inside], np.interp(grid[inside] + offset, second_times, second))
    best = int(np.argmax(scores))
    far = np.abs(offsets - offsets[best]) > 1.0
    runner_up = float(scores[far].max()) if far.any() else -1.0
    if scores[best] < MIN_CORRELATION or scores[best] - runner_up < MIN_LEAD:
        return None
    return float(offsets[best] + _peak_shift(scores, best) / RATE_HZ)


def turn_rate(times_s: ArrayLike, heading_deg: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times between samples, and degrees per second clockwise."""
    times, heading = _finite(times_s, heading_deg)
    if len(times) < 2:
        return np.zeros(0), np.zeros(0)
    unwrapped = np.unwrap(heading, period=360.0)
    step = np.diff(times)
    return times[:-1] + step / 2, np.diff(unwrapped) / np.maximum(step, 1e-3)


def _finite(times: ArrayLike, values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    table = np.stack([np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)])
    table = table[:, np.isfinite(table).all(axis=0)]
    return table[0], table[1]


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    one, other = one - one.mean(), other - other.mean()
    scale = math.sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / scale if scale > 1e-9 * len(one) else -1.0


def _peak_shift(scores: NDArray[np.float64], best: int) -> float:
    """Where a parabola through the peak has its top, in steps from it."""
    if not 0 < best < len(scores) - 1:
        return 0.0
    left, top, right = scores[best - 1 : best + 2]
    bend = left - 2 * top + right
    return 0.0 if bend >= 0 else float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5))
