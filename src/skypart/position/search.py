"""Search for the place of a photo: lay it on the views most similar to it, then match it with the map there."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skypart.embedding.keypoints import (
    ImageKeypoints,
    KeypointDetector,
    detector_shape,
    resize_for_detector,
    shipped_keypoints,
)
from skypart.embedding.patches import ImagePatches, PatchReader, compact_tokens, expand_tokens, project_tokens
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import distance_m
from skypart.images.decode import RgbImage
from skypart.maps.index import MapIndex
from skypart.maps.store import Hit
from skypart.position.fix import Hints
from skypart.position.homography import Homography, between_footprints, warp
from skypart.position.layouts import DEFAULT_FOV, LayoutRange, find_layout, pool_tokens, turns_near
from skypart.position.matching import Match, Refinement, match_keypoints, refine_position

MIN_EXTENT, MAX_EXTENT = 1.1, 3.0
"""Limits of the edge of the ground that is warped into a photo's perspective, in widths of the ground across the
photo's centre. An oblique photo shows more, towards the horizon."""
WARP_OVERSAMPLING = 1.5
"""Edge of the image of that ground, in edges of the image whose keypoints are matched."""
ELSEWHERE = 0.7
"""Distance from which two places show different ground, in widths of that ground."""
ALIKE_DISTANCE, ALIKE_DEGREES = 0.25, 20.0
"""Two layouts are alike if their places differ by less than this, in widths of the ground, and so do their headings."""
NEAR_VIEWS = 0.3
"""Views whose centres are closer than this, in edges of the better one, count as views of one place."""
NADIR_TILT = 70.0
"""From this tilt on, in degrees below the horizon, a photo is laid on the map as if taken straight down."""
MIN_TILT = 20.0
"""Photos with a smaller tilt are laid as if taken at this one: the map shows little of what they show."""
MAX_REMATCHES = 3
"""Times that the map is warped by a match and matched again, as long as the inliers grow."""
REMATCH_GROWTH = 1.1
"""Factor by which the inliers must grow for the map to be warped and matched once more."""
CACHED_VIEWS = 2048
"""Views of which compact tokens are kept in memory where the index has none."""


@dataclass(frozen=True)
class LocateOptions:
    """Settings of the search.

    views: how many views vote. aligned: how many of the best views the photo is laid on; 0 turns matching off.
    per_place: how many of them may show one place, so that others are compared. matched: how many layouts are matched
    with the map in the photo's perspective, at most; doubtful: the same for a photo that resembles its best view less
    than photos of the calibration did. tried_again: how many of these matches are tried again in their own perspective,
    if none is convincing. edge: of the images whose keypoints are matched, in pixels; they have the area of such a
    square. min_inliers: inliers that a match needs to count; below it the vote is more often right. stop_inliers:
    inliers that end the search once other ground was compared. enough_inliers: inliers that end it
    at once; no wrong place has so many. weak_inliers: inliers below which a match is not tried again in its own
    perspective; from enough_inliers on it need not be. promising_inliers: inliers from which the first match is tried
    again before other layouts are matched: it may then be enough. follow_inliers: in a flight, the ground around the
    photo before is matched first, and so many inliers there make a search unnecessary; 0 searches for every photo. The
    default calibration was fitted to the defaults.
    """

    views: int = 48
    aligned: int = 8
    per_place: int = 3
    matched: int = 8
    doubtful: int = 2
    tried_again: int = 2
    edge: int = 320
    min_inliers: int = 18
    stop_inliers: int = 40
    enough_inliers: int = 150
    weak_inliers: int = 14
    promising_inliers: int = 30
    follow_inliers: int = 80


@dataclass(frozen=True)
class GroundView:
    """A square of ground, shown to the matcher in a photo's perspective.

    homography: from the photo to the image of `ground`.
    """

    ground: Footprint
    homography: Homography


@dataclass(frozen=True)
class PhotoKeypoints:
    """A photo that is matched with the map: its keypoints and the shape of its image for the detector."""

    keypoints: ImageKeypoints
    shape: tuple[int, int]
    aspect: float


class _Tally:
    """The matches of one search: of each layout when it was first matched, those tried again, and the best one."""

    def __init__(self, options: LocateOptions) -> None:
        self.options = options
        self.first: list[tuple[Refinement, Refinement | None]] = []
        self.again: list[Refinement] = []
        self.best: Refinement | None = None

    def add(self, layout: Refinement, found: Refinement | None) -> None:
        """Consider the match of a layout."""
        if found is not None:
            found = replace(found, layout=layout.layout)
            self.improve(found)
        self.first.append((layout, found))

    def improve(self, found: Refinement) -> None:
        """Keep a match if it is the best so far."""
        if self.best is None or match_quality(found) > match_quality(self.best):
            self.best = found

    @property
    def is_sufficient(self) -> bool:
        """Whether the best match ends the search."""
        needed = self.options.stop_inliers if len(self.first) > 1 else self.options.enough_inliers
        return self.best is not None and self.best.match.inliers >= needed

    def worth_another_try(self) -> list[Refinement]:
        """Matches that may gain inliers in their own perspective: the best one, or several if none is convincing."""
        found = sorted((match for _, match in self.first if match is not None), key=match_quality, reverse=True)
        tried = found[: 1 if self.is_sufficient else self.options.tried_again]
        return [
            match
            for match in tried
            if match.match.inliers >= self.options.weak_inliers and not any(match is other for other in self.again)
        ]

    def result(self) -> Refinement | None:
        """The best match with its uniqueness; None if it has too few inliers."""
        best = self.best
        if best is None or best.match.inliers < self.options.min_inliers:
            return None
        others = [match for layout, match in self.first if match is not None and is_elsewhere(layout, best)]
        rival = max((match.match.inliers for match in others), default=0)
        return replace(best, uniqueness=max(0.0, 1.0 - rival / best.match.inliers))


class MatchSearch:
    """Matches photos with the maps of one index."""

    def __init__(
        self, index: MapIndex, reader: PatchReader, options: LocateOptions, detector: KeypointDetector | None = None
    ) -> None:
        self.index, self.reader, self.options = index, reader, options
        self._detector = detector
        self._cached: OrderedDict[Footprint, NDArray[np.int8] | None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def detector(self) -> KeypointDetector:
        """The keypoint detector; the shipped one if none was given."""
        if self._detector is None:
            self._detector = shipped_keypoints()
        return self._detector

    def read_keypoints(self, photo: RgbImage) -> PhotoKeypoints:
        """The keypoints of a photo (h, w, 3)."""
        aspect = photo.shape[0] / photo.shape[1]
        shape = detector_shape(aspect, self.options.edge)
        return PhotoKeypoints(self.detector.detect(resize_for_detector(photo, shape)), shape, aspect)

    def follow(self, photo: PhotoKeypoints, last: Refinement) -> Refinement | None:
        """The match of a photo with the ground around the match of the photo before; None if that may be elsewhere."""
        found = self.match(photo, around(last))
        if found is None or found.match.inliers < self.options.follow_inliers:
            return None
        return replace(found, layout=last.layout, uniqueness=last.uniqueness)

    def find(
        self, photo: PhotoKeypoints, layouts: Sequence[Refinement], *, doubtful: bool = False
    ) -> Refinement | None:
        """The best match of a photo with the map among layouts, best first; None if none has enough inliers.

        doubtful: whether the photo is probably of ground that the map does not show.
        """
        tally = _Tally(self.options)
        for layout in rival_second(layouts)[: self.options.doubtful if doubtful else self.options.matched]:
            tally.add(layout, self.match(photo, around(layout)))
            best = tally.best
            if len(tally.first) == 1 and best is not None and best.match.inliers >= self.options.promising_inliers:
                self._match_again(photo, best, tally)
            if tally.is_sufficient:
                break
        for start in tally.worth_another_try():
            self._match_again(photo, start, tally)
        return tally.result()

    def _match_again(self, photo: PhotoKeypoints, start: Refinement, tally: _Tally) -> None:
        """Warp the map by a match and match once more, as long as that finds more inliers.

        In the photo's own perspective many more keypoints of the right place match, and hardly more of a wrong one.
        """
        best = start
        tally.again.append(start)
        for _ in range(MAX_REMATCHES):
            if best.match.inliers >= self.options.enough_inliers:
                return
            again = self.match(photo, around(best))
            if again is None or again.match.inliers <= best.match.inliers:
                return
            grown = again.match.inliers >= REMATCH_GROWTH * best.match.inliers
            best = replace(again, layout=start.layout)
            tally.improve(best)
            if not grown:
                return

    def lay_out(self, photo: ImagePatches, hits: Sequence[Hit], hints: Hints) -> list[Refinement]:
        """The best layout of the photo on each of the best views, best first, without those that are alike.

        Their matches have no inliers yet.
        """
        pooled = pool_tokens(project_tokens(photo.tokens))
        chosen = spread_views(hits, self.options.aligned, self.options.per_place)
        found: list[tuple[float, Refinement]] = []
        for hit, tokens in zip(chosen, self._view_tokens(chosen), strict=True):
            if tokens is None:
                continue
            layout = find_layout(pooled, expand_tokens(tokens), photo.aspect, layouts_to_try(hints, hit.footprint))
            if layout is None:
                continue
            place = refine_position(Match(layout.homography), hit.footprint, photo.aspect)
            if place is not None:
                score = layout.score * hit.score
                found.append((score, replace(place, layout=score)))
        ordered = [place for _, place in sorted(found, key=lambda each: -each[0])]
        kept: list[Refinement] = []
        for place in ordered:
            if not any(_are_alike(place, other) for other in kept):
                kept.append(place)
        return kept

    def _view_tokens(self, hits: Sequence[Hit]) -> list[NDArray[np.int8] | None]:
        """Compact tokens (patches, k) of views: those of the index, or computed once; None where the map is missing."""
        found: dict[Footprint, NDArray[np.int8] | None] = {}
        found |= {hit.footprint: tokens for hit in hits if (tokens := self.index.view_tokens(hit)) is not None}
        with self._lock:
            for view in [hit.footprint for hit in hits if hit.footprint in self._cached]:
                self._cached.move_to_end(view)
                found.setdefault(view, self._cached[view])
        missing = [hit.footprint for hit in hits if hit.footprint not in found]
        if missing:
            computed = self._compute_tokens(missing)
            with self._lock:
                self._cached.update(computed)
                while len(self._cached) > CACHED_VIEWS:
                    self._cached.popitem(last=False)
            found |= computed
        return [found[hit.footprint] for hit in hits]

    def _compute_tokens(self, views: Sequence[Footprint]) -> dict[Footprint, NDArray[np.int8] | None]:
        """Compact tokens of views, in one batch."""
        size = self.reader.embedder.size
        shown = [(view, image) for view in views if (image := self.index.view(view, size)) is not None]
        found: dict[Footprint, NDArray[np.int8] | None] = dict.fromkeys(views)
        if shown:
            read = self.reader.read([image for _, image in shown])
            found |= {view: compact_tokens(patches.tokens) for (view, _), patches in zip(shown, read, strict=True)}
        return found

    def match(self, photo: PhotoKeypoints, view: GroundView) -> Refinement | None:
        """The match of a photo with a view of the map; None where there is none."""
        image = self.index.view(view.ground, round(WARP_OVERSAMPLING * self.options.edge))
        if image is None:
            return None
        shown = self.detector.detect(warp(image, view.homography, photo.shape))
        match = match_keypoints(photo.keypoints, shown)
        if match is None:
            return None
        match = replace(match, homography=view.homography @ match.homography)
        return refine_position(match, view.ground, photo.aspect)


def around(found: Refinement) -> GroundView:
    """The ground around a match or layout that the photo shows, in its perspective."""
    width = Footprint(
        latitude=found.latitude, longitude=found.longitude, metres=found.ground_m, rotation=found.heading_deg
    )
    onto = between_footprints(found.footprint, width) @ found.match.homography
    corners = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]) @ onto.T
    ahead = corners[:, 2] / float(onto[2] @ [0.5, 0.5, 1.0]) > 1e-3  # else it is above the horizon
    reach = np.abs(corners[ahead, :2] / corners[ahead, 2:] - 0.5).max() if ahead.all() else np.inf
    ground = replace(width, metres=found.ground_m * float(np.clip(2.1 * reach, MIN_EXTENT, MAX_EXTENT)))
    return GroundView(ground, between_footprints(found.footprint, ground) @ found.match.homography)


def is_elsewhere(place: Refinement, found: Refinement) -> bool:
    """Whether a layout is so far from a match that it shows other ground."""
    return _metres_between(place, found) > ELSEWHERE * max(found.ground_m, place.ground_m)


def rival_second(layouts: Sequence[Refinement]) -> list[Refinement]:
    """Layouts, best first, but the second is the best one of other ground, if there is one."""
    rival = next((number for number, each in enumerate(layouts) if is_elsewhere(each, layouts[0])), None)
    if rival is None:
        return list(layouts)
    return [layouts[0], layouts[rival], *layouts[1:rival], *layouts[rival + 1 :]]


def spread_views(hits: Sequence[Hit], count: int, per_place: int) -> list[Hit]:
    """The best `count` hits, at most `per_place` of one place."""
    chosen: list[Hit] = []
    for hit in hits:
        if len(chosen) == count:
            break
        near = 0
        if chosen:
            distances = distance_m(
                latitude=hit.footprint.latitude,
                longitude=hit.footprint.longitude,
                to_latitude=[other.footprint.latitude for other in chosen],
                to_longitude=[other.footprint.longitude for other in chosen],
            )
            edges = np.array([other.footprint.metres for other in chosen])
            near = int((np.asarray(distances) < NEAR_VIEWS * edges).sum())
        if near < per_place:
            chosen.append(hit)
    return chosen


def layouts_to_try(hints: Hints, view: Footprint) -> LayoutRange:
    """The layouts of a photo on a view that agree with what is known about the camera.

    The altitude is not used: files often have that above the sea or the take-off place instead of the ground.
    """
    every = LayoutRange()
    tilts = every.tilts
    if hints.tilt_deg is not None:
        tilts = (90.0,) if hints.tilt_deg >= NADIR_TILT else (max(hints.tilt_deg, MIN_TILT), 90.0)
    return LayoutRange(
        turns=every.turns if hints.heading_deg is None else turns_near(hints.heading_deg, view.rotation),
        tilts=tilts,
        fov=hints.fov_deg or DEFAULT_FOV,
    )


def match_quality(found: Refinement) -> tuple[int, float]:
    """Sort key of refinements: the number of inliers, then their evenness."""
    return found.match.inliers, found.match.evenness


def _are_alike(one: Refinement, other: Refinement) -> bool:
    """Whether two layouts would be matched with nearly the same image."""
    turned = abs((one.heading_deg - other.heading_deg + 180.0) % 360.0 - 180.0)
    return turned <= ALIKE_DEGREES and _metres_between(one, other) <= ALIKE_DISTANCE * other.ground_m


def _metres_between(one: Refinement, other: Refinement) -> float:
    """Distance between the places of two refinements."""
    return float(
        distance_m(
            latitude=one.latitude, longitude=one.longitude, to_latitude=other.latitude, to_longitude=other.longitude
        )
    )
