"""Where the best views agree: hits vote for places, near ones for the same."""

from collections.abc import Sequence

import numpy as np

from skypart.geo.geodesy import LocalFrame
from skypart.maps.store import Hit
from skypart.position.fix import Peak

TEMPERATURE = 0.05
"""Cosine by which a hit's vote falls to 1/e of the best one's."""
REACH = 0.25
"""Standard deviation of a vote, as a share of the view's edge."""
SAME = 0.5
"""Share of its vote that a view must give to a peak to stand for no other place: what lies further off may be one."""
PEAKS = 5


def find_peaks(hits: Sequence[Hit]) -> list[Peak]:
    """The places that hits (best first) agree on, strongest first; at most PEAKS."""
    if not hits:
        return []
    frame = LocalFrame(latitude=hits[0].footprint.latitude, longitude=hits[0].footprint.longitude)
    spots = frame.to_metres(
        latitude=np.array([hit.footprint.latitude for hit in hits]),
        longitude=np.array([hit.footprint.longitude for hit in hits]),
    )
    points = np.stack([spots.x, spots.y], axis=1)
    reach = REACH * np.array([hit.footprint.metres for hit in hits])
    scores = np.array([hit.score for hit in hits])
    votes = np.exp((scores - scores.max()) / TEMPERATURE)
    total = float(votes.sum())
    squared = ((points[:, None] - points[None]) ** 2).sum(-1)
    kernel = np.exp(-0.5 * squared / np.maximum(reach[:, None], reach[None]) ** 2)
    peaks: list[Peak] = []
    left = np.ones(len(hits), dtype=bool)
    while left.any() and len(peaks) < PEAKS:
        support = (kernel * (votes * left)[None]).sum(axis=1) * left
        best = int(support.argmax())
        pull = votes * left * kernel[best] / reach  # small views know better where they are
        centre = (points * pull[:, None]).sum(axis=0) / pull.sum()
        near = left & (kernel[best] > SAME)
        off = ((points - centre) ** 2).sum(axis=1)
        spread = float(np.sqrt((off * pull)[near].sum() / pull[near].sum() + (0.5 * reach[best]) ** 2))
        place = frame.to_degrees(np.array([centre[0]]), np.array([centre[1]]))
        peaks.append(
            Peak(
                latitude=float(place.latitude[0]),
                longitude=float(place.longitude[0]),
                weight=float(votes[near].sum()) / total,
                spread_m=spread,
            )
        )
        left &= ~near
    return peaks
