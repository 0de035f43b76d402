"""A service without a model: a painted town, located by template matching, so that weather can make it fail."""

import io
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.geo.footprint import Footprint
from skypart.images.decode import RgbImage
from skypart.position.fix import Candidate, Evidence, Fix, Hints, Peak, Prior
from skypart.serve.service import Example, IndexInfo

LATITUDE, LONGITUDE = 48.137, 11.575
METRES_PER_DEGREE = 111_320.0
PHOTO_M = 160.0
GOOD_SCORE = 0.45
DARK = 24.0
"""Mean grey level between the `dark` conditions of the two profiles."""


def paint_town(seed: int, cells: int = 800) -> RgbImage:
    """A map of fields, streets, houses and trees, (cells, cells, 3)."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 1, (cells // 40, cells // 40)).astype(np.float32)
    shade = cv2.resize(coarse, (cells, cells), interpolation=cv2.INTER_CUBIC)[..., None]
    town = np.asarray([104, 124, 84], np.float32) + shade * 16 + rng.normal(0, 5, (cells, cells, 1))
    town = np.ascontiguousarray(np.clip(town, 0, 255).astype(np.uint8))
    for position in np.cumsum(rng.integers(55, 95, cells // 60)):
        grey = int(rng.integers(120, 165))
        cv2.line(town, (int(position), 0), (int(position + rng.integers(-40, 40)), cells), (grey,) * 3, 7)
        cv2.line(town, (0, int(position)), (cells, int(position + rng.integers(-40, 40))), (grey,) * 3, 7)
    for _ in range(cells * cells // 1100):
        x, y = (int(v) for v in rng.integers(0, cells, 2))
        if rng.random() < 0.5:
            colour = tuple(int(v) for v in rng.integers((110, 60, 45), (225, 190, 180)))
            box = cv2.boxPoints(((x, y), tuple(rng.uniform(9, 26, 2)), float(rng.uniform(0, 90)))).astype(np.int32)
            cv2.fillPoly(town, [box + 3], (48, 54, 50))
            cv2.fillPoly(town, [box], colour)
        else:
            cv2.circle(town, (x, y), int(rng.integers(3, 8)), tuple(int(v) for v in rng.integers(40, 90, 3)), -1)
    return town


class FakeService:
    """Photos are vertical, north up and 160 m wide. delay: seconds added to every call of `locate`."""

    photo_edge: int | None = None

    def __init__(self, town: RgbImage | None = None, gsd: float = 1.0, delay: float = 0.0) -> None:
        self.town = paint_town(7) if town is None else town
        self.gsd = gsd
        self.delay = delay
        self.calls: list[tuple[str, Prior | None, Hints | None]] = []
        self.other: Callable[[], RgbImage] = lambda: paint_town(1234, 400)
        self._shrink = 3
        size = (self.town.shape[1] // self._shrink, self.town.shape[0] // self._shrink)
        self._small = cv2.cvtColor(cv2.resize(self.town, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)

    def info(self) -> IndexInfo:
        south, east = self.degrees(self.town.shape[1], self.town.shape[0])
        bounds = {"south": south, "west": LONGITUDE, "north": LATITUDE, "east": east}
        return {
            "name": "painted town",
            "maps": ["town"],
            "views": 4096,
            "model": "0123456789abcdef",
            "bounds": bounds,  # type: ignore[typeddict-item]
            "attribution": "painted by <b>tests</b>",
            "calibrated": True,
            "gsd_m": self.gsd,
        }

    def degrees(self, x: float, y: float) -> tuple[float, float]:
        """Latitude and longitude of a pixel."""
        latitude = LATITUDE - y * self.gsd / METRES_PER_DEGREE
        return latitude, LONGITUDE + x * self.gsd / METRES_PER_DEGREE / math.cos(math.radians(LATITUDE))

    def pixels(
        self, latitude: float | NDArray[np.float64], longitude: float | NDArray[np.float64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Column and row of positions."""
        x = (np.asarray(longitude) - LONGITUDE) * METRES_PER_DEGREE * math.cos(math.radians(LATITUDE)) / self.gsd
        y = (LATITUDE - np.asarray(latitude)) * METRES_PER_DEGREE / self.gsd
        return x.astype(np.float32), y.astype(np.float32)

    def photo(self, x: float, y: float, size: int = 320) -> RgbImage:
        """A photo taken above a pixel of the map."""
        half = PHOTO_M / self.gsd / 2
        crop = self.town[round(y - half) : round(y + half), round(x - half) : round(x + half)]
        return _resized(crop, size)

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        start = time.perf_counter()
        self.calls.append((name, prior, hints))
        time.sleep(self.delay)
        sample = image[::4, ::4]
        if sample.std() < 1.5:
            return Fix(photo=name, reason="the photo shows nothing: it has one colour", calibrated=True)
        if sample.mean() < DARK:
            return Fix(photo=name, reason="the photo is too dark to show anything", calibrated=True)
        edge = round(PHOTO_M / self.gsd / self._shrink)
        grey = cv2.cvtColor(cv2.resize(image, (edge, edge), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
        scores = cv2.matchTemplate(self._small, grey, cv2.TM_CCOEFF_NORMED)
        if prior is not None:
            near = self._near(scores.shape, edge, prior)
            if not near.any():
                return Fix(photo=name, reason="the map has no view within the given radius", calibrated=True)
            scores = np.where(near, scores, -1.0).astype(np.float32)
        candidates = self._best(scores, edge)
        best = candidates[0]
        seconds = time.perf_counter() - start
        peaks = tuple(
            Peak(
                latitude=c.footprint.latitude,
                longitude=c.footprint.longitude,
                weight=max(0.0, min(1.0, c.score)) / 2,
                spread_m=20.0,
            )
            for c in candidates[:2]
        )
        common = {"photo": name, "candidates": tuple(candidates), "peaks": peaks, "calibrated": True}
        if best.score < GOOD_SCORE:
            reason = f"no view of this map resembles the photo (best score {best.score:.2f})"
            return Fix(reason=reason, seconds=seconds, **common)  # type: ignore[arg-type]
        drone: dict[str, float] = {}
        if hints is not None and hints.altitude_m is not None and hints.tilt_deg is not None:
            back = hints.altitude_m / math.tan(math.radians(max(hints.tilt_deg, 10.0)))
            drone = {
                "drone_latitude": best.footprint.latitude - back / METRES_PER_DEGREE,
                "drone_longitude": best.footprint.longitude,
            }
        return Fix(
            latitude=best.footprint.latitude,
            longitude=best.footprint.longitude,
            radius_m=10.0 + 60.0 * (1.0 - best.score),
            confidence=min(1.0, best.score),
            refined=True,
            heading_deg=0.0,
            ground_m=PHOTO_M,
            evidence=Evidence(
                similarity=best.score, agreement=0.5, inliers=0.0, inlier_share=0.0, evenness=0.0, scale_m=20.0
            ),
            seconds=seconds,
            **common,  # type: ignore[arg-type]
            **drone,  # type: ignore[arg-type]
        )

    def _near(self, shape: tuple[int, ...], edge: int, prior: Prior) -> NDArray[np.bool_]:
        """Mask of the matches within the prior."""
        x, y = self.pixels(prior.latitude, prior.longitude)
        rows, columns = np.mgrid[: shape[0], : shape[1]]
        away = np.hypot((columns + edge / 2) * self._shrink - float(x), (rows + edge / 2) * self._shrink - float(y))
        near: NDArray[np.bool_] = away * self.gsd <= prior.radius_m
        return near

    def _best(self, scores: NDArray[np.float32], edge: int) -> list[Candidate]:
        """The five best matches, at a distance from each other."""
        left = scores.copy()
        found = []
        for _ in range(5):
            row, column = np.unravel_index(int(left.argmax()), left.shape)
            centre = ((float(column) + edge / 2) * self._shrink, (float(row) + edge / 2) * self._shrink)
            latitude, longitude = self.degrees(*centre)
            footprint = Footprint(latitude=latitude, longitude=longitude, metres=PHOTO_M)
            found.append(Candidate(footprint=footprint, score=float(left[row, column]), map_name="town"))
            gap = edge // 3
            left[max(0, row - gap) : row + gap, max(0, column - gap) : column + gap] = -1.0
        return found

    def parts(self, image: RgbImage) -> bytes:
        """Patches tinted by their brightness."""
        small = cv2.resize(image, (32, 32), interpolation=cv2.INTER_AREA).mean(axis=2)
        levels = np.digitize(small, np.quantile(small, [0.2, 0.4, 0.6, 0.8]))
        palette = np.asarray([(230, 159, 0), (86, 180, 233), (0, 158, 115), (204, 121, 167), (0, 92, 230)])
        tint = cv2.resize(palette[levels].astype(np.uint8), (512, 512), interpolation=cv2.INTER_NEAREST)
        photo = cv2.resize(image, (512, 512), interpolation=cv2.INTER_AREA)
        out = io.BytesIO()
        Image.fromarray((0.5 * tint + 0.5 * photo).astype(np.uint8)).save(out, "PNG")
        return out.getvalue()

    def view(self, footprint: Footprint, size: int) -> RgbImage:
        step = (np.arange(size) + 0.5) / size - 0.5
        east, north = np.meshgrid(step * footprint.metres, -step * footprint.metres)
        turn = math.radians(footprint.rotation)
        x, y = self.pixels(footprint.latitude, footprint.longitude)
        columns = x + (east * math.cos(turn) + north * math.sin(turn)) / self.gsd
        rows = y - (north * math.cos(turn) - east * math.sin(turn)) / self.gsd
        return self._sample(columns, rows)[..., :3]

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8] | None:
        step = (np.arange(256) + 0.5) / 256
        longitude = (x + step) / 2**z * 360.0 - 180.0
        latitude = np.degrees(np.arctan(np.sinh(math.pi * (1 - 2 * (y + step) / 2**z))))
        columns, rows = self.pixels(*(grid.T for grid in np.meshgrid(latitude, longitude)))
        if columns.max() < 0 or rows.max() < 0 or columns.min() > self.town.shape[1] or rows.min() > self.town.shape[0]:
            return None
        return self._sample(columns, rows)

    def _sample(self, columns: NDArray[Any], rows: NDArray[Any]) -> NDArray[np.uint8]:
        """(h, w, 4) pixels of the map, transparent outside."""
        solid = np.dstack([self.town, np.full(self.town.shape[:2], 255, np.uint8)])
        sampled: NDArray[np.uint8] = cv2.remap(
            solid, columns.astype(np.float32), rows.astype(np.float32), cv2.INTER_LINEAR
        )
        return sampled

    def examples(self) -> list[Example]:
        height, width = self.town.shape[:2]
        found = []
        for number, (x, y) in enumerate(((0.3, 0.3), (0.6, 0.45), (0.4, 0.7))):
            latitude, longitude = self.degrees(x * width, y * height)
            title = ("by the crossing", "the long street", "south field")[number]
            load = partial(self.photo, x * width, y * height)
            example = Example(name=f"town-{number + 1}", title=title, load=load, latitude=latitude, longitude=longitude)
            found.append(example)
        return [*found, Example(name="elsewhere", title="another town", load=self.elsewhere)]

    def elsewhere(self) -> RgbImage:
        """A photo of a town that is not on the map."""
        other = self.other()
        return _resized(other[120:280, 120:280], 480)


def _resized(image: RgbImage, size: int) -> RgbImage:
    scaled: RgbImage = cv2.resize(image, (size, size), interpolation=cv2.INTER_CUBIC)
    return scaled
