"""A closer look at the places the vote found: the map is cut out there and matched with the photo patch by patch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skypart.images.decode import RgbImage
from skypart.maps.footprint import Footprint
from skypart.maps.index import MapIndex
from skypart.maps.store import Hit
from skypart.position.fix import Hints, Peak
from skypart.position.geodesy import distance_m
from skypart.position.refine import Homography, Refinement, TokenReader, Tokens, between, fit, laid, perspective, refine

WIDER = 1.2
"""How much wider than the view that resembles a photo the ground is that it is matched with."""
LAID_WIDTHS = 3.0
"""Edge of the ground that is laid into a photo's perspective, in widths of the ground across the photo's middle."""
LAID_PIXELS = 2
"""Edge of its picture, in edges of the model's."""

STEEP = 70.0
"""Tilt, in degrees below the horizon, from which a photo is compared with the map as seen from straight above."""
LOWEST = 20.0
"""A photo taken at less is looked at as from here: of most of it the map shows nothing."""
FOV = 55.0
"""Degrees across a photo whose lens is not known."""


@dataclass(frozen=True)
class LocateOptions:
    """views: how many the vote counts. refine_views: places that are looked at closely. turns: directions tried for a
    photo of unknown heading; 0: no refinement. least, enough: shares of the photo's patches that must agree on a place
    for it to be believed, and that end the search; of a wrong place hardly ever as many as `least` do, and what the
    vote says is then more often right. laid: how often the map is laid into the photo's perspective and matched once
    more, while that agrees better.
    """

    views: int = 48
    refine_views: int = 4
    turns: int = 8
    least: float = 0.11
    enough: float = 0.2
    laid: int = 2


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
        least, enough = (share * len(photo.patches) for share in (self.options.least, self.options.enough))
        places = self._places(hits, peaks)
        best: Refinement | None = None
        for tilt in _tilts(hints):
            for place in places:
                found = self._match(photo, [_turned(place, turn) for turn in turns], tilt, hints)
                if found is not None:
                    found = self._laid(photo, found)
                    best = found if best is None else max(best, found, key=_worth)
                if best is not None and best.inliers >= max(least, enough):
                    return best
        return best if best is not None and best.inliers >= least else None

    def _laid(self, photo: Tokens, found: Refinement) -> Refinement:
        """A refinement made better: the map is laid as it lies in the photo and matched again. In the photo's own
        perspective many more patches of the right place agree, and hardly more of a wrong one."""
        size = self.tokens_of.embedder.size
        for _ in range(self.options.laid):
            ground = Footprint(
                latitude=found.latitude,
                longitude=found.longitude,
                metres=LAID_WIDTHS * found.ground_m,
                rotation=found.heading_deg,
            )
            view = self.index.view(ground, LAID_PIXELS * size)
            if view is None:
                break
            onto = between(found.footprint, ground) @ found.fit.matrix
            fitted = fit(photo, self.tokens_of([laid(view, onto, size)])[0])
            again = None if fitted is None else refine(replace(fitted, matrix=onto @ fitted.matrix), ground)
            if again is None or _worth(again) <= _worth(found):
                break
            found = again
        return found

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
            places.append(Footprint(latitude=peak.latitude, longitude=peak.longitude, metres=WIDER * metres))
        return places

    def _match(self, photo: Tokens, footprints: Sequence[Footprint], tilt: float, hints: Hints) -> Refinement | None:
        """The best refinement over footprints, looked at from `tilt` degrees; all are matched patch by patch."""
        size = self.tokens_of.embedder.size
        seen: list[tuple[Footprint, Homography, RgbImage]] = []
        for each in footprints:
            if tilt >= STEEP:
                picture = self.index.view(each, size)
                onto = np.eye(3)
            else:
                each = replace(each, metres=LAID_WIDTHS / WIDER * each.metres)
                onto = perspective(tilt, hints.fov_deg or FOV, photo.shape, LAID_WIDTHS)
                view = self.index.view(each, LAID_PIXELS * size)
                picture = None if view is None else laid(view, onto, size)
            if picture is not None:
                seen.append((each, onto, picture))
        if not seen:
            return None
        views = self.tokens_of([picture for _, _, picture in seen])
        fits = [(fit(photo, view), onto, each) for view, (each, onto, _) in zip(views, seen, strict=True)]
        found = [refine(replace(got, matrix=onto @ got.matrix), each) for got, onto, each in fits if got is not None]
        return max((each for each in found if each is not None), key=_worth, default=None)


def _tilts(hints: Hints) -> list[float]:
    """From where the map is looked at: as the photo was taken, if that is known, then from straight above."""
    if hints.tilt_deg is None or hints.tilt_deg >= STEEP:
        return [90.0]
    return [max(hints.tilt_deg, LOWEST), 90.0]


def _turned(footprint: Footprint, degrees: float) -> Footprint:
    return Footprint(
        latitude=footprint.latitude, longitude=footprint.longitude, metres=footprint.metres, rotation=degrees % 360
    )


def _worth(found: Refinement) -> tuple[int, float]:
    """By which refinements are compared: patches that agree, then how alike those on each other are."""
    return found.inliers, found.alignment
