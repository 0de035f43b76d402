"""Locate a photo: embed, rank, vote, refine, and say how far to trust it."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.maps.footprint import Footprint
from skypart.maps.index import MapIndex
from skypart.maps.store import Circle, Hit
from skypart.model.embedder import Embedder
from skypart.position.confidence import Calibration, default_calibration
from skypart.position.fix import Candidate, Fix, Hints, Peak, Prior
from skypart.position.geodesy import distance_m, offset
from skypart.position.refine import Refinement, TokenReader, Tokens, refine
from skypart.position.vote import find_peaks


@dataclass(frozen=True)
class LocateOptions:
    """views: how many the vote counts. refine_views: places that are looked at closely. turns: directions tried for a
    photo of unknown heading; 0: no refinement. min_inliers: matches below which a refinement is not believed. enough:
    share of the photo's patches that, agreeing on one place, end the search; by chance less than half as many do.
    """

    views: int = 48
    refine_views: int = 3
    turns: int = 8
    min_inliers: int = 8
    enough: float = 0.12


class Locator:
    """Answers photos from one index with one model."""

    def __init__(self, index: MapIndex, embedder: Embedder, options: LocateOptions | None = None) -> None:
        index.check_model(embedder.digest)
        self.index, self.embedder = index, embedder
        self.tokens_of = TokenReader(embedder)
        self.options = options or LocateOptions()
        stored = index.manifest.calibration
        self.calibrated = stored is not None
        self.calibration = Calibration.from_dict(stored) if stored is not None else default_calibration()

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
        refined = self._refine(photo, hits, peaks, hints or Hints()) if self.options.turns else None
        fix = self._judge(name, hits, peaks, refined, hints or Hints())
        return replace(fix, seconds=time.monotonic() - started)

    def _rank(self, embedding: NDArray[np.float32], prior: Prior | None, hints: Hints) -> list[Hit]:
        """The best views; those much wider or narrower than a known camera can see are left out."""
        within = None
        if prior is not None:
            within = Circle(latitude=prior.latitude, longitude=prior.longitude, radius_m=prior.radius_m)
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

    def _refine(self, photo: Tokens, hits: Sequence[Hit], peaks: Sequence[Peak], hints: Hints) -> Refinement | None:
        """Look closely at the best places, in all directions the photo may have been taken in."""
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
        pairs = [(each, self.index.view(each, self.embedder.size)) for each in footprints]
        seen = [(each, picture) for each, picture in pairs if picture is not None]
        if not seen:
            return None
        views = self.tokens_of([picture for _, picture in seen])
        share = 1 / math.sqrt(len(photo.patches))
        found = [refine(photo, view, each, share) for view, (each, _) in zip(views, seen, strict=True)]
        return max((each for each in found if each is not None), key=_worth, default=None)

    def _judge(
        self, name: str, hits: Sequence[Hit], peaks: Sequence[Peak], refined: Refinement | None, hints: Hints
    ) -> Fix:
        """Evidence, confidence and radius; a fix if the confidence is high enough."""
        evidence = {
            "similarity": hits[0].score,
            "agreement": peaks[0].weight,
            "inliers": float(refined.inliers) if refined else 0.0,
            "inlier_share": refined.share if refined else 0.0,
            "alignment": refined.alignment if refined else 0.0,
            "scale_m": 3.6 * refined.ground_m / refined.inliers if refined else peaks[0].spread_m,
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
        if confidence < self.calibration.threshold or not math.isfinite(radius):
            return replace(common, reason="no place in this map resembles the photo clearly enough")
        camera = _camera(latitude, longitude, refined.heading_deg if refined else hints.heading_deg, hints)
        return replace(
            common,
            latitude=latitude,
            longitude=longitude,
            radius_m=radius,
            refined=refined is not None,
            heading_deg=refined.heading_deg if refined else None,
            ground_m=refined.ground_m if refined else None,
            drone_latitude=camera[0] if camera else None,
            drone_longitude=camera[1] if camera else None,
        )


def unusable(image: RgbImage) -> str:
    """Why nothing can be seen in a photo; empty if something can."""
    small = cv2.resize(image, (112, 112), interpolation=cv2.INTER_AREA)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    level = float(grey.mean())
    if float(grey.std()) < 4.0:
        shade = "black" if level < 40 else "white" if level > 215 else "of one colour"
        return f"the photo is almost {shade}; nothing can be seen in it"
    if float(cv2.Laplacian(grey, cv2.CV_32F).std()) < 3.0:  # thick fog leaves 7, sky with its noise 2
        return "the photo is blurred or shows sky only; no ground can be made out in it"
    return ""


def ground_width(hints: Hints) -> float | None:
    """Metres of ground across the middle of a photo, if altitude and lens are known."""
    if hints.altitude_m is None or hints.fov_deg is None:
        return None
    tilt = math.radians(hints.tilt_deg if hints.tilt_deg is not None else 60.0)
    return 2 * hints.altitude_m / math.sin(max(tilt, 0.2)) * math.tan(math.radians(hints.fov_deg) / 2)


def _camera(latitude: float, longitude: float, heading: float | None, hints: Hints) -> tuple[float, float] | None:
    """Where the drone is, if its height and the direction it looks in are known."""
    if hints.altitude_m is None or hints.tilt_deg is None or (heading is None and hints.tilt_deg < 89):
        return None
    if hints.tilt_deg < 15:
        return None
    back = hints.altitude_m / math.tan(math.radians(hints.tilt_deg)) if hints.tilt_deg < 90 else 0.0
    place = offset(latitude=latitude, longitude=longitude, bearing=(heading or 0.0) + 180.0, metres=back)
    return float(place.latitude), float(place.longitude)


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


def _turned(footprint: Footprint, degrees: float) -> Footprint:
    return Footprint(
        latitude=footprint.latitude, longitude=footprint.longitude, metres=footprint.metres, rotation=degrees % 360
    )


def _turn(first: float, second: float) -> float:
    """Degrees from one compass direction to another, -180..180."""
    return (second - first + 180) % 360 - 180


def _worth(found: Refinement) -> tuple[int, float]:
    """By which refinements are compared: patches that agree, then how alike those on each other are."""
    return found.inliers, found.alignment
