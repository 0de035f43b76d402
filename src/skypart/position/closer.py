"""A closer look at the places the vote found: the map is cut out there and matched with the photo patch by patch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skypart.maps.footprint import Footprint
from skypart.maps.index import MapIndex
from skypart.maps.store import Hit
from skypart.position.fix import Hints, Peak
from skypart.position.geodesy import distance_m
from skypart.position.refine import Refinement, TokenReader, Tokens, refine


@dataclass(frozen=True)
class LocateOptions:
    """views: how many the vote counts. refine_views: places that are looked at closely. turns: directions tried for a
    photo of unknown heading; 0: no refinement. min_inliers: matches below which a refinement is not believed. enough:
    share of the photo's patches that, agreeing on one place, end the search; by chance less than half as many do.
    """

    views: int = 48
    refine_views: int = 4
    turns: int = 8
    min_inliers: int = 8
    enough: float = 0.12


class CloserLook:
    """Refines positions in one index."""

    def __init__(self, index: MapIndex, tokens_of: TokenReader, options: LocateOptions) -> None:
        self.index, self.tokens_of, self.options = index, tokens_of, options

    def __call__(self, photo: Tokens, hits: Sequence[Hit], peaks: Sequence[Peak], hints: Hints) -> Refinement | None:
        """The best refinement over the best places, in all directions the photo may have been taken in."""
        if hints.heading_deg is not None:
            turns = [hints.heading_deg]
        else:
            turns = [360.0 * turn / self.options.turns for turn in range(self.options.turns)]
        best, wide = None, 0.0
        for place in self._places(hits, peaks):
            found = self._match(photo, [_turned(place, turn) for turn in turns])
            if found is not None and (best is None or _worth(found) > _worth(best)):
                best, wide = found, place.metres
            if best is not None and best.inliers >= self.options.enough * len(photo.patches):
                break
        if best is None or best.inliers < self.options.min_inliers:
            return None
        # Once more from straight above the answer, at its own width and heading: more patches agree.
        metres = float(np.clip(1.3 * best.ground_m, 0.5 * wide, 2 * wide))
        centred = Footprint(latitude=best.latitude, longitude=best.longitude, metres=metres, rotation=best.heading_deg)
        again = self._match(photo, [centred])
        return again if again is not None and _worth(again) > _worth(best) else best

    def _places(self, hits: Sequence[Hit], peaks: Sequence[Peak]) -> list[Footprint]:
        """A footprint at each of the best peaks, as wide as the best view near it."""
        places = []
        for peak in peaks[: self.options.refine_views]:
            off = distance_m(
                latitude=peak.latitude,
                longitude=peak.longitude,
                to_latitude=[hit.footprint.latitude for hit in hits],
                to_longitude=[hit.footprint.longitude for hit in hits],
            )
            near = [hit for hit, metres in zip(hits, off, strict=True) if metres < hit.footprint.metres]
            metres = (near or hits)[0].footprint.metres
            places.append(Footprint(latitude=peak.latitude, longitude=peak.longitude, metres=1.2 * metres))
        return places

    def _match(self, photo: Tokens, footprints: Sequence[Footprint]) -> Refinement | None:
        """The best refinement over footprints; all are matched patch by patch."""
        pairs = [(each, self.index.view(each, self.tokens_of.embedder.size)) for each in footprints]
        seen = [(each, picture) for each, picture in pairs if picture is not None]
        if not seen:
            return None
        views = self.tokens_of([picture for _, picture in seen])
        share = 1 / math.sqrt(len(photo.patches))
        found = [refine(photo, view, each, share) for view, (each, _) in zip(views, seen, strict=True)]
        return max((each for each in found if each is not None), key=_worth, default=None)


def _turned(footprint: Footprint, degrees: float) -> Footprint:
    return Footprint(
        latitude=footprint.latitude, longitude=footprint.longitude, metres=footprint.metres, rotation=degrees % 360
    )


def _worth(found: Refinement) -> tuple[int, float]:
    """By which refinements are compared: patches that agree, then how alike those on each other are."""
    return found.inliers, found.alignment
