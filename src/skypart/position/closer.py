"""A closer look at the places the vote found: the map is cut out there and matched with the photo patch by patch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import distance_m
from skypart.images.decode import RgbImage
from skypart.maps.index import MapIndex
from skypart.maps.store import Hit
from skypart.position.fix import Hints, Peak
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


@dataclass(frozen=True)
class Look:
    """A square of ground as it is matched with a photo. onto: the homography from the unit square of the picture shown
    to that of the ground's, None: the ground is shown as it is."""

    ground: Footprint
    onto: Homography | None = None


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
                turned = [replace(place, rotation=turn % 360) for turn in turns]
                found = self._match(photo, [_look(each, tilt, photo.shape, hints.fov_deg) for each in turned])
                if found is not None:
                    found = self._laid(photo, found)
                    best = found if best is None else max(best, found, key=_worth)
                if best is not None and best.fit.inliers >= max(least, enough):
                    return best
        return best if best is not None and best.fit.inliers >= least else None

    def _laid(self, photo: Tokens, found: Refinement) -> Refinement:
        """A refinement made better: the map is laid as it lies in the photo and matched again. In the photo's own
        perspective many more patches of the right place agree, and hardly more of a wrong one."""
        for _ in range(self.options.laid):
            ground = Footprint(
                latitude=found.latitude,
                longitude=found.longitude,
                metres=LAID_WIDTHS * found.ground_m,
                rotation=found.heading_deg,
            )
            again = self._match(photo, [Look(ground, between(found.footprint, ground) @ found.fit.matrix)])
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

    def _match(self, photo: Tokens, looks: Sequence[Look]) -> Refinement | None:
        """The best refinement over looks at the map; all are matched patch by patch."""
        seen = [(look, picture) for look in looks if (picture := self._picture(look)) is not None]
        if not seen:
            return None
        found = []
        views = self.tokens_of([picture for _, picture in seen])
        for (look, _), view in zip(seen, views, strict=True):
            fitted = fit(photo, view)
            if fitted is not None and look.onto is not None:
                fitted = replace(fitted, matrix=look.onto @ fitted.matrix)
            found.append(None if fitted is None else refine(fitted, look.ground))
        return max((each for each in found if each is not None), key=_worth, default=None)

    def _picture(self, look: Look) -> RgbImage | None:
        """What a look shows, (size, size, 3); None where the maps are missing."""
        size = self.tokens_of.embedder.size
        if look.onto is None:
            return self.index.view(look.ground, size)
        view = self.index.view(look.ground, LAID_PIXELS * size)
        return None if view is None else laid(view, look.onto, size)


def _look(place: Footprint, tilt: float, shape: float, fov: float | None) -> Look:
    """A place as a photo of a `shape` (height over width) shows it from `tilt` degrees below the horizon."""
    if tilt >= STEEP:
        return Look(place)
    ground = replace(place, metres=LAID_WIDTHS / WIDER * place.metres)
    return Look(ground, perspective(tilt, fov or FOV, shape, LAID_WIDTHS))


def _tilts(hints: Hints) -> list[float]:
    """From where the map is looked at: as the photo was taken, if that is known, then from straight above."""
    if hints.tilt_deg is None or hints.tilt_deg >= STEEP:
        return [90.0]
    return [max(hints.tilt_deg, LOWEST), 90.0]


def _worth(found: Refinement) -> tuple[int, float]:
    """By which refinements are compared: patches that agree, then how alike those on each other are."""
    return found.fit.inliers, found.fit.alignment
