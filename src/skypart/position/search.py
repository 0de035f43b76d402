"""Search for the place of a photo: the best views vote for places, and the photo is matched with the map there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame, distance_m
from skypart.images.decode import RgbImage
from skypart.maps.index import MapIndex
from skypart.maps.store import Hit
from skypart.position.fix import Hints, Peak
from skypart.position.homography import (
    Homography,
    between_footprints,
    oblique_homography,
    turn_homography,
    turn_image,
    warp,
)
from skypart.position.matching import ImagePatches, PatchReader, Refinement, match_patches, refine_position

VOTE_TEMPERATURE = 0.05
"""Difference in cosine similarity at which a vote falls to 1/e of the best one."""
VOTE_REACH = 0.25
"""Standard deviation of a vote's position, as a share of the view's edge."""
SAME_PLACE = 0.5
"""A view belongs to a peak if the vote of the peak's best view is more than this share of its maximum there."""
MAX_PEAKS = 5

MATCH_MARGIN = 1.2
"""Edge of the ground that a photo is matched with, in edges of the view that resembles it."""
WARP_EXTENT = 3.0
"""Edge of the ground that is warped into a photo's perspective, in widths of the ground across the photo's centre."""
WARP_OVERSAMPLING = 2
"""Edge of the image of that ground, in edges of the model's input."""

NADIR_TILT = 70.0
"""From this tilt on, in degrees below the horizon, a photo is matched with the map as seen from straight above."""
MIN_TILT = 20.0
"""Photos with a smaller tilt are matched as if taken at this one: the map shows little of what they show."""
DEFAULT_FOV = 55.0
"""Field of view across the photo's width, in degrees, if the lens is unknown."""


TURNS = (((0.0, 180.0, 90.0, 270.0), 2), ((45.0, 225.0, 135.0, 315.0), 1))
"""Angles by which a photo of unknown heading is turned, clockwise, and how many of the matches at all places are
repeated in the photo's perspective. The second group is tried only if the first fails."""


@dataclass(frozen=True)
class LocateOptions:
    """Settings of the search.

    views: how many views vote. places: how many places are matched with the photo. headings: directions tried if the
    photo's heading is unknown; 0 turns matching off. min_inlier_share: share of the photo's patches that must be
    inliers for a match to count; wrong places rarely reach it, and below it the vote is more often right.
    stop_inlier_share: share that ends the search. rewarp_rounds: how often the map is warped into the photo's
    perspective and matched again, as long as the match improves. turn_photo: if the heading is unknown, turn the photo,
    once for all places, instead of the map at every place. follow: in a flight, match the ground around the photo
    before first, in its perspective, and search only if that fails. enough_inlier_share: share from which a match is
    not warped again. The default calibration was fitted to the defaults; see FAST for the others.
    """

    views: int = 48
    places: int = 4
    headings: int = 8
    min_inlier_share: float = 0.11
    stop_inlier_share: float = 0.2
    rewarp_rounds: int = 2
    turn_photo: bool = False
    follow: bool = False
    enough_inlier_share: float = 1.0


FAST = LocateOptions(turn_photo=True, follow=True, enough_inlier_share=0.3)
"""A search with few forward passes. No shipped calibration was fitted to its evidence: off by default."""


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


@dataclass(frozen=True)
class GroundView:
    """A square of ground as it is shown to the matcher.

    homography: from the image shown to the image of `ground`; None if the ground is shown as it is.
    """

    ground: Footprint
    homography: Homography | None = None


class MatchSearch:
    """Matches photos with the maps of one index."""

    def __init__(self, index: MapIndex, reader: PatchReader, options: LocateOptions) -> None:
        self.index, self.reader, self.options = index, reader, options

    def find(
        self,
        photo: ImagePatches,
        hits: Sequence[Hit],
        peaks: Sequence[Peak],
        hints: Hints,
        image: RgbImage | None = None,
        last: Refinement | None = None,
    ) -> Refinement | None:
        """The best refinement over places, tilts and headings; None if no match has enough inliers.

        image: (h, w, 3) the photo itself, which `turn_photo` needs. last: of the photo before, which `follow` needs.
        """
        if self.options.follow and last is not None:
            found = self.match_views(photo, [_around(last)])
            shares = self.options.min_inlier_share, self.options.stop_inlier_share
            if found is not None and found.match.inliers >= max(shares) * len(photo.tokens):
                return found
        if self.options.turn_photo and image is not None and _can_turn(hints):
            return self._find_by_turns(photo, image, self._places(hits, peaks))
        if hints.heading_deg is not None:
            headings = [hints.heading_deg]
        else:
            headings = [360.0 * number / self.options.headings for number in range(self.options.headings)]
        shares = self.options.min_inlier_share, self.options.stop_inlier_share
        needed, sufficient = (share * len(photo.tokens) for share in shares)
        places = self._places(hits, peaks)
        best: Refinement | None = None
        for tilt in tilts_to_try(hints):
            for place in places:
                rotated = [replace(place, rotation=heading % 360) for heading in headings]
                views = [tilted_view(each, tilt, photo.aspect, hints.fov_deg) for each in rotated]
                found = self.match_views(photo, views)
                if found is not None:
                    found = self._rewarp(photo, found)
                    best = found if best is None else max(best, found, key=match_quality)
                if best is not None and best.match.inliers >= max(needed, sufficient):
                    return best
        return best if best is not None and best.match.inliers >= needed else None

    def _find_by_turns(self, photo: ImagePatches, image: RgbImage, places: Sequence[Footprint]) -> Refinement | None:
        """The best refinement over places and turns of the photo, coarse to fine.

        Every place passes through the network once, north up, and every turn of the photo once. The best place is
        matched turn by turn, and a good match ends the search. Then the other places are matched with the same turns;
        of all matches the best few are repeated in the photo's own perspective. Eighths of a turn come last.
        """
        shares = self.options.min_inlier_share, self.options.stop_inlier_share
        needed, sufficient = (share * len(photo.tokens) for share in shares)
        square = self.reader.embedder.preprocessing.resize(image)
        views: dict[Footprint, ImagePatches | None] = {}
        best: Refinement | None = None
        for angles, count in TURNS:
            turned: list[tuple[float, ImagePatches]] = []
            candidates: list[Refinement] = []
            for number, place in enumerate(places):
                if place not in views:
                    rendered = self._render(GroundView(place))
                    views[place] = None if rendered is None else self.reader.read([rendered])[0]
                view = views[place]
                for turn, angle in enumerate(angles):
                    if turn == len(turned):
                        patches = self.reader.read([turn_image(square, angle)])[0] if angle else photo
                        turned.append((angle, patches))
                    found = None if view is None else _match_turn(*turned[turn], view, place)
                    if found is None:
                        continue
                    if number == 0 and found.match.inliers >= needed:
                        found = self._rewarp(photo, found)
                        if found.match.inliers >= sufficient:
                            return found
                        best = found if best is None else max(best, found, key=match_quality)
                    else:
                        candidates.append(found)
            for found in sorted(candidates, key=match_quality, reverse=True)[:count]:
                again = self._rewarp(photo, found)
                best = again if best is None else max(best, again, key=match_quality)
                if best.match.inliers >= max(needed, sufficient):
                    return best
        return best if best is not None and best.match.inliers >= needed else None

    def match_views(self, photo: ImagePatches, views: Sequence[GroundView]) -> Refinement | None:
        """The best refinement over several views of the map; views without map data are skipped."""
        shown = [(view, image) for view in views if (image := self._render(view)) is not None]
        if not shown:
            return None
        found = []
        patches = self.reader.read([image for _, image in shown])
        for (view, _), view_patches in zip(shown, patches, strict=True):
            match = match_patches(photo, view_patches)
            if match is not None and view.homography is not None:
                match = replace(match, homography=view.homography @ match.homography)
            found.append(None if match is None else refine_position(match, view.ground))
        return max((each for each in found if each is not None), key=match_quality, default=None)

    def _rewarp(self, photo: ImagePatches, found: Refinement) -> Refinement:
        """Warp the map into the photo's perspective and match again, as long as the match improves.

        In the photo's own perspective many more patches of the right place match, and hardly more of a wrong one.
        """
        for round in range(self.options.rewarp_rounds):
            if round and found.match.inliers >= self.options.enough_inlier_share * len(photo.tokens):
                break
            again = self.match_views(photo, [_around(found)])
            if again is None or match_quality(again) <= match_quality(found):
                break
            found = again
        return found

    def _places(self, hits: Sequence[Hit], peaks: Sequence[Peak]) -> list[Footprint]:
        """A footprint at each of the best peaks, sized after the best view near it."""
        places = []
        for peak in peaks[: self.options.places]:
            distances = distance_m(
                latitude=peak.latitude,
                longitude=peak.longitude,
                to_latitude=[hit.footprint.latitude for hit in hits],
                to_longitude=[hit.footprint.longitude for hit in hits],
            )
            near = [hit for hit, metres in zip(hits, distances, strict=True) if metres < hit.footprint.metres]
            metres = (near or hits)[0].footprint.metres
            places.append(Footprint(latitude=peak.latitude, longitude=peak.longitude, metres=MATCH_MARGIN * metres))
        return places

    def _render(self, view: GroundView) -> RgbImage | None:
        """The image of a view, (size, size, 3); None where map data is missing."""
        size = self.reader.embedder.size
        if view.homography is None:
            return self.index.view(view.ground, size)
        image = self.index.view(view.ground, WARP_OVERSAMPLING * size)
        return None if image is None else warp(image, view.homography, size)


def _around(found: Refinement) -> GroundView:
    """The ground around a match, in the perspective of its photo."""
    ground = Footprint(
        latitude=found.latitude,
        longitude=found.longitude,
        metres=WARP_EXTENT * found.ground_m,
        rotation=found.heading_deg,
    )
    return GroundView(ground, between_footprints(found.footprint, ground) @ found.match.homography)


def _can_turn(hints: Hints) -> bool:
    """Whether the photo has to be turned, and may be: an oblique one is matched with a tilted map instead."""
    return hints.heading_deg is None and tilts_to_try(hints) == [90.0]


def _match_turn(angle: float, turned: ImagePatches, view: ImagePatches, place: Footprint) -> Refinement | None:
    """The match of a place's north-up image with the photo turned by `angle`, as a match of the photo itself."""
    match = match_patches(turned, view)
    if match is None:
        return None
    return refine_position(replace(match, homography=match.homography @ turn_homography(angle)), place)


def tilted_view(place: Footprint, tilt: float, aspect: float, fov: float | None) -> GroundView:
    """A place as a photo with `aspect` (height over width) shows it from `tilt` degrees below the horizon."""
    if tilt >= NADIR_TILT:
        return GroundView(place)
    ground = replace(place, metres=WARP_EXTENT / MATCH_MARGIN * place.metres)
    return GroundView(ground, oblique_homography(tilt, fov or DEFAULT_FOV, aspect, WARP_EXTENT))


def tilts_to_try(hints: Hints) -> list[float]:
    """Tilts from which the map is shown: the photo's own if it is known and oblique, then straight down."""
    if hints.tilt_deg is None or hints.tilt_deg >= NADIR_TILT:
        return [90.0]
    return [max(hints.tilt_deg, MIN_TILT), 90.0]


def match_quality(found: Refinement) -> tuple[int, float]:
    """Sort key of refinements: the number of inliers, then the alignment."""
    return found.match.inliers, found.match.alignment
