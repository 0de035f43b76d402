"""Locate a photo: embed it, rank the views, let them vote, match keypoints, and judge how reliable the result is."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.embedding import Embedder
from skypart.embedding.patches import PatchReader
from skypart.geo.geodesy import distance_m
from skypart.images.decode import RgbImage
from skypart.maps.index import MapIndex
from skypart.maps.store import Circle, Hit
from skypart.position.camera import ASSUMED_TILT, drone_position, ground_width
from skypart.position.confidence import MATCHING_VERSION, Calibration, default_calibration, matching_of
from skypart.position.fix import Candidate, Evidence, Fix, Hints, Peak, Place, Prior
from skypart.position.ground import ground_homography
from skypart.position.matching import Refinement
from skypart.position.search import LocateOptions, MatchSearch, PhotoKeypoints
from skypart.position.votes import find_peaks

UNKNOWN_MODEL = (
    "the index was made with another model or input size than the default calibration, so the accuracy of its results "
    "is unknown; run `skypart calibrate` with photos of known position"
)
MIN_WIDTH_RATIO, MAX_WIDTH_RATIO = 0.4, 3.5
"""Edges of the views that a photo can show, in widths of the ground that its camera sees."""
SCALE_PER_MATCH = 0.1
"""Expected error of a match with a single inlier, in widths of the ground; it falls with the root of their number."""
MAX_CANDIDATES = 5
CANDIDATE_DISTANCE = 0.3
"""Distance between two candidates, in edges of the better one; closer ones show nearly the same ground."""
MIN_CONTRAST = 4.0
"""Standard deviation of the grey levels, 0..255, below which a photo counts as uniform."""
BLACK_BELOW, WHITE_ABOVE = 40, 215
"""Mean grey levels of uniform photos that are called black or white."""
MIN_DETAIL = 3.0
"""Standard deviation of the Laplacian below which a photo shows no ground. Thick fog leaves 7, noise in the sky 2."""


@dataclass(frozen=True)
class LastMatch:
    """The match of the photo before in a flight, around which the next one is looked for.

    evidence: for it.
    """

    match: Refinement
    evidence: Evidence


class Locator:
    """Locates photos in one index with one model.

    calibration: used instead of that of the index or the default one.
    """

    def __init__(
        self,
        index: MapIndex,
        embedder: Embedder,
        options: LocateOptions | None = None,
        *,
        calibration: Calibration | None = None,
    ) -> None:
        index.check_model(embedder.weights_digest)
        self.index, self.embedder = index, embedder
        self.reader = PatchReader(embedder)
        self.options = options or LocateOptions()
        self.search = MatchSearch(index, self.reader, self.options)
        self.calibration = calibration or default_calibration()
        self.calibrated = False
        self.outdated = ""  # why the index's own calibration is not used
        if calibration is None and index.manifest.calibration is not None:
            if matching_of(index.manifest.calibration) != MATCHING_VERSION:
                self.outdated = "was made for another version of the matching"
            elif not index.manifest.calibration_fits:
                self.outdated = "was made before its maps changed"
            else:
                self.calibration, self.calibrated = Calibration.from_dict(index.manifest.calibration), True

    @property
    def photo_edge(self) -> int:
        """Edge in pixels of the square that a photo is resized to at most; see `read_photo`."""
        return max(self.embedder.size, self.options.edge)

    @property
    def unknown_model(self) -> bool:
        """Whether there is no calibration for the model of the index."""
        return not self.calibrated and self.calibration.model not in ("", self.embedder.weights_digest)

    def thorough(self) -> "Locator":
        """The same without the shortcut for doubtful photos, for a calibration, which has to see all evidence."""
        options = replace(self.options, doubtful=self.options.matched)
        return Locator(self.index, self.embedder, options, calibration=self.calibration)

    def _is_doubtful(self, similarity: float) -> bool:
        """Whether a photo with this similarity to its best view is unlike the photos that were located for certain."""
        return not self.unknown_model and self.calibration.is_unlike(similarity)

    def locate(
        self, image: RgbImage, *, name: str = "photo", prior: Prior | None = None, hints: Hints | None = None
    ) -> Fix:
        """Locate one photo (h, w, 3) uint8. Without a fix the result has a reason."""
        return self.locate_next(image, None, name=name, prior=prior, hints=hints)[0]

    def locate_next(
        self,
        image: RgbImage,
        last: LastMatch | None,
        *,
        name: str = "photo",
        prior: Prior | None = None,
        hints: Hints | None = None,
    ) -> tuple[Fix, LastMatch | None]:
        """`locate` for a photo of a flight. last: the match of the photo before; returned is that of this photo.

        Both are None if there is no match, or it gave no fix. `LocateOptions.follow_inliers` says when it is used.
        """
        started = time.monotonic()
        hints = hints or Hints()
        reason = unusable_reason(image)
        if reason:
            seconds = time.monotonic() - started
            return Fix(photo=name, reason=reason, calibrated=self.calibrated, seconds=seconds), None
        keypoints = self.search.read_keypoints(image) if self.options.aligned else None
        if keypoints is not None and last is not None:
            fix, matched = self._follow(name, keypoints, last, prior, hints)
            if matched is not None:
                return replace(fix, seconds=time.monotonic() - started), matched
        embedding, photo = self.reader.read_photo(image)
        hits = self.rank_views(embedding, prior, hints)
        if not hits:
            where = "within the given radius" if prior else "in this index"
            seconds = time.monotonic() - started
            reason = f"the map has no view {where}"
            return Fix(photo=name, reason=reason, calibrated=self.calibrated, seconds=seconds), None
        peaks = find_peaks(hits)
        refined = None
        if keypoints is not None:
            layouts = self.search.lay_out(photo, hits, hints)
            refined = self.search.find(keypoints, layouts, doubtful=self._is_doubtful(hits[0].score))
        if refined is None:
            evidence = vote_evidence(hits, peaks, hints)
        else:
            evidence = match_evidence(refined, hints, hits[0].score, peaks[0].weight)
        fix = self._judge(name, evidence, refined, hints, hits, peaks)
        matched = LastMatch(refined, evidence) if refined is not None and fix.found else None
        return replace(fix, seconds=time.monotonic() - started), matched

    def _follow(
        self, name: str, photo: PhotoKeypoints, last: LastMatch, prior: Prior | None, hints: Hints
    ) -> tuple[Fix, LastMatch | None]:
        """Match a photo around the one before, without a search; the match is None if that gives no fix."""
        nothing = Fix(photo=name), None
        if not self.options.follow_inliers:
            return nothing
        found = self.search.follow(photo, last.match)
        if found is None or not (prior is None or _is_within(found, prior)):
            return nothing
        evidence = match_evidence(found, hints, last.evidence.similarity, last.evidence.agreement)
        fix = self._judge(name, evidence, found, hints)
        return (fix, LastMatch(found, evidence)) if fix.found else nothing

    def rank_views(self, embedding: NDArray[np.float32], prior: Prior | None, hints: Hints) -> list[Hit]:
        """The views most similar to an embedding (dim,), best first.

        Views that a known camera cannot show, by their size or heading, are left out unless none would remain.
        """
        within = None
        if prior is not None:
            cut = self.index.manifest.options
            spacing = (1 - cut.overlap) * max(cut.sizes_m) / math.sqrt(2)  # from a place to the nearest view's centre
            within = Circle(latitude=prior.latitude, longitude=prior.longitude, radius_m=prior.radius_m + spacing)
        hits = self.index.search(embedding[None].astype(np.float32), 4 * self.options.views, within)[0]
        width = ground_width(hints)
        if width is not None:
            fitting = [hit for hit in hits if MIN_WIDTH_RATIO < hit.footprint.metres / width < MAX_WIDTH_RATIO]
            hits = fitting or hits
        if hints.heading_deg is not None and self.index.manifest.options.rotations > 1:
            tolerance = 180.0 / self.index.manifest.options.rotations + 1e-6
            fitting = [
                hit for hit in hits if abs(angle_between(hit.footprint.rotation, hints.heading_deg)) <= tolerance
            ]
            hits = fitting or hits
        return hits[: self.options.views]

    def _judge(
        self,
        name: str,
        evidence: Evidence,
        refined: Refinement | None,
        hints: Hints,
        hits: Sequence[Hit] = (),
        peaks: Sequence[Peak] = (),
    ) -> Fix:
        """Compute confidence and radius; the result is a fix if the confidence is high enough.

        hits, peaks: of the search, without which there must be a match.
        """
        confidence, parts = self.calibration.confidence(evidence), self.calibration.error_parts(evidence)
        radius = parts.total_m
        best = refined or peaks[0]
        guess = Place(best.latitude, best.longitude)
        common = Fix(
            photo=name,
            confidence=confidence,
            calibrated=self.calibrated,
            candidates=tuple(
                Candidate(footprint=hit.footprint, score=hit.score, map_name=hit.map_name)
                for hit in distinct_hits(hits)
            ),
            peaks=tuple(peaks),
            evidence=evidence,
            best_guess=guess,
        )
        if self.unknown_model:
            return replace(common, confidence=0.0, reason=UNKNOWN_MODEL)
        if not self.calibration.accepts(evidence) or not math.isfinite(radius):
            reason = "no place in this map resembles the photo clearly enough"
            if refined is None and hits and hits[0].map_name in self.index.missing:
                reason = f"the map {hits[0].map_name} cannot be read to check the place"
            return replace(common, reason=reason)
        heading = refined.heading_deg if refined else hints.heading_deg
        ground = refined.ground_m if refined else None
        drone = drone_position(
            latitude=guess.latitude, longitude=guess.longitude, heading=heading, ground_m=ground, hints=hints
        )
        return replace(
            common,
            latitude=guess.latitude,
            longitude=guess.longitude,
            radius_m=radius,
            map_error_m=parts.map_m,
            error_parts=parts,
            refined=refined is not None,
            heading_deg=refined.heading_deg if refined else None,
            ground_m=ground,
            drone_latitude=drone.latitude if drone else None,
            drone_longitude=drone.longitude if drone else None,
            ground=ground_homography(refined) if refined else None,
        )


def vote_evidence(hits: Sequence[Hit], peaks: Sequence[Peak], hints: Hints) -> Evidence:
    """Evidence for the place that most views agree on, without a match."""
    return Evidence(
        similarity=hits[0].score,
        agreement=peaks[0].weight,
        inliers=0.0,
        inlier_share=0.0,
        evenness=0.0,
        scale_m=peaks[0].spread_m,
        uniqueness=0.0,
        tilt_deg=ASSUMED_TILT if hints.tilt_deg is None else hints.tilt_deg,
        ground_m=hits[0].footprint.metres,
    )


def match_evidence(refined: Refinement, hints: Hints, similarity: float, agreement: float) -> Evidence:
    """Evidence for a match.

    The tilt is the smaller of the one known and the one that the match shows: errors grow towards the horizon.
    """
    return Evidence(
        similarity=similarity,
        agreement=agreement,
        inliers=float(refined.match.inliers),
        inlier_share=refined.match.inlier_share,
        evenness=refined.match.evenness,
        scale_m=SCALE_PER_MATCH * refined.ground_m / math.sqrt(refined.match.inliers),
        uniqueness=refined.uniqueness,
        layout=refined.layout,
        tilt_deg=refined.tilt_deg if hints.tilt_deg is None else min(hints.tilt_deg, refined.tilt_deg),
        ground_m=refined.ground_m,
    )


def _is_within(found: Refinement, prior: Prior) -> bool:
    """Whether a match lies in the area that is searched."""
    here = {"latitude": found.latitude, "longitude": found.longitude}
    return float(distance_m(**here, to_latitude=prior.latitude, to_longitude=prior.longitude)) <= prior.radius_m


def distinct_hits(hits: Sequence[Hit], count: int = MAX_CANDIDATES) -> list[Hit]:
    """The best hits, without those that show nearly the same ground as a better one."""
    chosen: list[Hit] = []
    left = list(hits)
    while left and len(chosen) < count:
        best = left[0].footprint
        chosen.append(left[0])
        distances = distance_m(
            latitude=best.latitude,
            longitude=best.longitude,
            to_latitude=[hit.footprint.latitude for hit in left],
            to_longitude=[hit.footprint.longitude for hit in left],
        )
        far = CANDIDATE_DISTANCE * best.metres
        left = [hit for hit, metres in zip(left, distances, strict=True) if metres > far]
    return chosen


def angle_between(first: float, second: float) -> float:
    """Degrees from one compass direction to another, -180..180."""
    return (second - first + 180) % 360 - 180


def unusable_reason(image: RgbImage) -> str:
    """Why nothing can be seen in a photo (h, w, 3); empty if something can."""
    small = cv2.resize(image, (112, 112), interpolation=cv2.INTER_AREA)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    level = float(grey.mean())
    if float(grey.std()) < MIN_CONTRAST:
        shade = "black" if level < BLACK_BELOW else "white" if level > WHITE_ABOVE else "of one colour"
        return f"the photo is almost {shade}; nothing can be seen in it"
    if float(cv2.Laplacian(grey, cv2.CV_32F).std()) < MIN_DETAIL:
        return "the photo is blurred or shows only sky; no ground can be seen in it"
    return ""
