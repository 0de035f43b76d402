"""Locate a photo: embed it, rank the views, let them vote, match patches, and judge how reliable the result is."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

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
from skypart.position.search import LocateOptions, MatchSearch
from skypart.position.votes import find_peaks

UNKNOWN_MODEL = (
    "the index was made with another model or input size than the default calibration, so the accuracy of its results "
    "is unknown; run `skypart calibrate` with photos of known position"
)
MIN_WIDTH_RATIO, MAX_WIDTH_RATIO = 0.4, 3.5
"""Edges of the views that a photo can show, in widths of the ground that its camera sees."""
SCALE_PER_INLIER = 3.6
"""Expected error of a match, in ground widths per inlier."""
MAX_CANDIDATES = 5
CANDIDATE_DISTANCE = 0.3
"""Distance between two candidates, in edges of the better one; closer ones show nearly the same ground."""
MIN_CONTRAST = 4.0
"""Standard deviation of the grey levels, 0..255, below which a photo counts as uniform."""
BLACK_BELOW, WHITE_ABOVE = 40, 215
"""Mean grey levels of uniform photos that are called black or white."""
MIN_DETAIL = 3.0
"""Standard deviation of the Laplacian below which a photo shows no ground. Thick fog leaves 7, noise in the sky 2."""


class Locator:
    """Locates photos in one index with one model."""

    def __init__(self, index: MapIndex, embedder: Embedder, options: LocateOptions | None = None) -> None:
        index.check_model(embedder.weights_digest)
        self.index, self.embedder = index, embedder
        self.reader = PatchReader(embedder)
        self.options = options or LocateOptions()
        self.search = MatchSearch(index, self.reader, self.options)
        self.calibration = default_calibration()
        self.calibrated = False
        self.outdated = ""  # why the index's own calibration is not used
        if index.manifest.calibration is not None:
            if matching_of(index.manifest.calibration) != MATCHING_VERSION:
                self.outdated = "was made for another version of the matching"
            elif not index.manifest.calibration_fits:
                self.outdated = "was made before its maps changed"
            else:
                self.calibration, self.calibrated = Calibration.from_dict(index.manifest.calibration), True

    @property
    def unknown_model(self) -> bool:
        """Whether there is no calibration for the model of the index."""
        return not self.calibrated and self.calibration.model not in ("", self.embedder.weights_digest)

    def locate(
        self, image: RgbImage, *, name: str = "photo", prior: Prior | None = None, hints: Hints | None = None
    ) -> Fix:
        """Locate one photo (h, w, 3) uint8. Without a fix the result has a reason."""
        return self.locate_next(image, None, name=name, prior=prior, hints=hints)[0]

    def locate_next(
        self,
        image: RgbImage,
        last: Refinement | None,
        *,
        name: str = "photo",
        prior: Prior | None = None,
        hints: Hints | None = None,
    ) -> tuple[Fix, Refinement | None]:
        """`locate` for a photo of a flight. last: the match of the photo before; returned is that of this photo.

        Both are None if there is no match, or it gave no fix. `LocateOptions.follow` says whether it is used.
        """
        started = time.monotonic()
        hints = hints or Hints()
        reason = unusable_reason(image)
        if reason:
            seconds = time.monotonic() - started
            return Fix(photo=name, reason=reason, calibrated=self.calibrated, seconds=seconds), None
        embedding, photo = self.reader.read_photo(image)
        hits = self.rank_views(embedding, prior, hints)
        if not hits:
            where = "within the given radius" if prior else "in this index"
            seconds = time.monotonic() - started
            reason = f"the map has no view {where}"
            return Fix(photo=name, reason=reason, calibrated=self.calibrated, seconds=seconds), None
        peaks = find_peaks(hits)
        refined = self.search.find(photo, hits, hints, last) if self.options.aligned else None
        fix = self._judge(name, hits, peaks, refined, hints)
        return replace(fix, seconds=time.monotonic() - started), refined if fix.found else None

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
        self, name: str, hits: Sequence[Hit], peaks: Sequence[Peak], refined: Refinement | None, hints: Hints
    ) -> Fix:
        """Compute evidence, confidence and radius; the result is a fix if the confidence is high enough."""
        evidence = gather_evidence(hits, peaks, refined, hints)
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
        if confidence < self.calibration.threshold or not math.isfinite(radius):
            reason = "no place in this map resembles the photo clearly enough"
            if refined is None and hits[0].map_name in self.index.missing:
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


def gather_evidence(
    hits: Sequence[Hit], peaks: Sequence[Peak], refined: Refinement | None, hints: Hints | None = None
) -> Evidence:
    """Evidence for the best place, from the best view, the vote and the match.

    The tilt is the smaller of the one known and the one that the match shows: errors grow towards the horizon.
    """
    known = (hints or Hints()).tilt_deg
    if refined is None:
        return Evidence(
            similarity=hits[0].score,
            agreement=peaks[0].weight,
            inliers=0.0,
            inlier_share=0.0,
            alignment=0.0,
            scale_m=peaks[0].spread_m,
            uniqueness=0.0,
            tilt_deg=ASSUMED_TILT if known is None else known,
            ground_m=hits[0].footprint.metres,
        )
    return Evidence(
        similarity=hits[0].score,
        agreement=peaks[0].weight,
        inliers=float(refined.match.inliers),
        inlier_share=refined.match.inlier_share,
        alignment=refined.match.alignment,
        scale_m=SCALE_PER_INLIER * refined.ground_m / refined.match.inliers,
        uniqueness=refined.uniqueness,
        layout=refined.layout,
        tilt_deg=refined.tilt_deg if known is None else min(known, refined.tilt_deg),
        ground_m=refined.ground_m,
    )


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
