"""The places that the views most similar to a photo agree on."""

from collections.abc import Sequence

import numpy as np

from skypart.geo.geodesy import LocalFrame
from skypart.maps.store import Hit
from skypart.position.fix import Peak

VOTE_TEMPERATURE = 0.05
"""Difference in cosine similarity at which a vote falls to 1/e of the best one."""
VOTE_REACH = 0.25
"""Standard deviation of a vote's position, as a share of the view's edge."""
SAME_PLACE = 0.5
"""A view belongs to a peak if the vote of the peak's best view is more than this share of its maximum there."""
MAX_PEAKS = 5


def find_peaks(hits: Sequence[Hit]) -> list[Peak]:
    """Places that hits (best first) agree on, strongest first, at most MAX_PEAKS."""
    if not hits:
        return []
    frame = LocalFrame(latitude=hits[0].footprint.latitude, longitude=hits[0].footprint.longitude)
    metres = frame.to_metres(
        latitude=np.array([hit.footprint.latitude for hit in hits]),
        longitude=np.array([hit.footprint.longitude for hit in hits]),
    )
    points = np.stack([metres.x, metres.y], axis=1)
    reach = VOTE_REACH * np.array([hit.footprint.metres for hit in hits])
    scores = np.array([hit.score for hit in hits])
    votes = np.exp((scores - scores.max()) / VOTE_TEMPERATURE)
    total = float(votes.sum())
    squared = ((points[:, None] - points[None]) ** 2).sum(-1)
    kernel = np.exp(-0.5 * squared / np.maximum(reach[:, None], reach[None]) ** 2)
    peaks: list[Peak] = []
    left = np.ones(len(hits), dtype=bool)
    while left.any() and len(peaks) < MAX_PEAKS:
        support = (kernel * (votes * left)[None]).sum(axis=1) * left
        best = int(support.argmax())
        pull = votes * left * kernel[best] / reach  # small views are more precise
        centre = (points * pull[:, None]).sum(axis=0) / pull.sum()
        near = left & (kernel[best] > SAME_PLACE)
        squared_offsets = ((points - centre) ** 2).sum(axis=1)
        variance = (squared_offsets * pull)[near].sum() / pull[near].sum()
        place = frame.to_degrees(np.array([centre[0]]), np.array([centre[1]]))
        peaks.append(
            Peak(
                latitude=float(place.latitude[0]),
                longitude=float(place.longitude[0]),
                weight=float(votes[near].sum()) / total,
                spread_m=float(np.sqrt(variance + (0.5 * reach[best]) ** 2)),
            )
        )
        left &= ~near
    return peaks
