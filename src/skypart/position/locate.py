"""Locate a photo: embed, rank, vote, refine, and say how far to trust it."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skypart.embedding import Embedder
from skypart.geo.geodesy import distance_m
from skypart.images.decode import RgbImage
from skypart.maps.index import MapIndex
from skypart.maps.store import Circle, Hit
from skypart.position.camera import drone_place, ground_width
from skypart.position.closer import CloserLook, LocateOptions
from skypart.position.confidence import MATCHING, Calibration, default_calibration
from skypart.position.fix import Candidate, Fix, Hints, Peak, Prior
from skypart.position.refine import Refinement, TokenReader
from skypart.position.usable import unusable
from skypart.position.vote import find_peaks

UNKNOWN_MODEL = (
    "the index is of another model or size than the default calibration, so nobody knows how far its answers can be "
    "trusted; fit them with `skypart calibrate` on photos of known position"
)


class Locator:
    """Answers photos from one index with one model."""

    def __init__(self, index: MapIndex, embedder: Embedder, options: LocateOptions | None = None) -> None:
        index.check_model(embedder.digest)
        self.index, self.embedder = index, embedder
        self.tokens_of = TokenReader(embedder)
        self.options = options or LocateOptions()
        self.closer = CloserLook(index, self.tokens_of, self.options)
        self.calibration = default_calibration()
        self.calibrated = False
        self.outdated = ""  # why the index's own calibration is not used
        if index.manifest.calibration is not None:
            own = Calibration.from_dict(index.manifest.calibration)
            if own.matching != MATCHING:
                self.outdated = "was made when photos were matched in another way"
            elif not index.manifest.calibration_fits:
                self.outdated = "was made before its maps changed"
            else:
                self.calibration, self.calibrated = own, True

    @property
    def unknown_model(self) -> bool:
        """Whether nothing was ever fitted for the model of the index."""
        return not self.calibrated and self.calibration.model not in ("", self.embedder.digest)

    def locate(
        self, image: RgbImage, *, name: str = "photo", prior: Prior | None = None, hints: Hints | None = None
    ) -> Fix:
        """The fix of one photo (h, w, 3) uint8, or a Fix that says why there is none."""
        started = time.monotonic()
        reason = unusable(image)
        if reason:
            return Fix(photo=name, reason=reason, calibrated=self.calibrated, seconds=time.monotonic() - started)
        embedding, photo = self.tokens_of.photo(image)
        hits = self._rank(embedding, prior, hints or Hints())
        if not hits:
            where = "within the given radius" if prior else "in this index"
            took = time.monotonic() - started
            return Fix(photo=name, reason=f"the map has no view {where}", calibrated=self.calibrated, seconds=took)
        peaks = find_peaks(hits)
        refined = self.closer(photo, hits, peaks, hints or Hints()) if self.options.turns else None
        fix = self._judge(name, hits, peaks, refined, hints or Hints())
        return replace(fix, seconds=time.monotonic() - started)

    def _rank(self, embedding: NDArray[np.float32], prior: Prior | None, hints: Hints) -> list[Hit]:
        """The best views; those much wider or narrower than a known camera can see are left out."""
        within = None
        if prior is not None:
            cut = self.index.manifest.options
            apart = (1 - cut.overlap) * max(cut.sizes_m) / math.sqrt(2)  # of a place from the nearest view's centre
            within = Circle(latitude=prior.latitude, longitude=prior.longitude, radius_m=prior.radius_m + apart)
        hits = self.index.search(embedding[None].astype(np.float32), 4 * self.options.views, within)[0]
        width = ground_width(hints)
        if width is not None:
            fitting = [hit for hit in hits if 0.4 < hit.footprint.metres / width < 3.5]
            hits = fitting or hits
        if hints.heading_deg is not None and self.index.manifest.options.rotations > 1:
            near = 180.0 / self.index.manifest.options.rotations + 1e-6
            turned = [hit for hit in hits if abs(_turn(hit.footprint.rotation, hints.heading_deg)) <= near]
            hits = turned or hits
        return hits[: self.options.views]

    def _judge(
        self, name: str, hits: Sequence[Hit], peaks: Sequence[Peak], refined: Refinement | None, hints: Hints
    ) -> Fix:
        """Evidence, confidence and radius; a fix if the confidence is high enough."""
        evidence = {
            "similarity": hits[0].score,
            "agreement": peaks[0].weight,
            "inliers": float(refined.fit.inliers) if refined else 0.0,
            "inlier_share": refined.fit.share if refined else 0.0,
            "alignment": refined.fit.alignment if refined else 0.0,
            "scale_m": 3.6 * refined.ground_m / refined.fit.inliers if refined else peaks[0].spread_m,
        }
        confidence = self.calibration.confidence(evidence)
        latitude, longitude = (
            (refined.latitude, refined.longitude) if refined else (peaks[0].latitude, peaks[0].longitude)
        )
        best = tuple(
            Candidate(footprint=hit.footprint, score=hit.score, map_name=hit.map_name) for hit in _distinct(hits)
        )
        common = Fix(
            photo=name,
            confidence=confidence,
            calibrated=self.calibrated,
            candidates=best,
            peaks=tuple(peaks),
            evidence={**evidence, "latitude": latitude, "longitude": longitude},
        )
        radius = self.calibration.radius(evidence)
        if self.unknown_model:
            return replace(common, confidence=0.0, reason=UNKNOWN_MODEL)
        if confidence < self.calibration.threshold or not math.isfinite(radius):
            unread = refined is None and hits[0].map_name in self.index.missing
            cannot = f"the map {hits[0].map_name} cannot be read to check the place"
            return replace(
                common, reason=cannot if unread else "no place in this map resembles the photo clearly enough"
            )
        heading = refined.heading_deg if refined else hints.heading_deg
        ground = refined.ground_m if refined else None
        camera = drone_place(latitude=latitude, longitude=longitude, heading=heading, ground_m=ground, hints=hints)
        return replace(
            common,
            latitude=latitude,
            longitude=longitude,
            radius_m=radius,
            map_error_m=self.calibration.floor_m,
            refined=refined is not None,
            heading_deg=refined.heading_deg if refined else None,
            ground_m=ground,
            drone_latitude=camera[0] if camera else None,
            drone_longitude=camera[1] if camera else None,
        )


def _distinct(hits: Sequence[Hit], count: int = 5) -> list[Hit]:
    """The best hits, without those that show nearly the same ground as a better one."""
    chosen: list[Hit] = []
    left = list(hits)
    while left and len(chosen) < count:
        best = left[0].footprint
        chosen.append(left[0])
        off = distance_m(
            latitude=best.latitude,
            longitude=best.longitude,
            to_latitude=[hit.footprint.latitude for hit in left],
            to_longitude=[hit.footprint.longitude for hit in left],
        )
        left = [hit for hit, metres in zip(left, off, strict=True) if metres > 0.3 * best.metres]
    return chosen


def _turn(first: float, second: float) -> float:
    """Degrees from one compass direction to another, -180..180."""
    return (second - first + 180) % 360 - 180
