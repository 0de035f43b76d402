"""The Python API: build or open an index, locate photos, follow flights, and see the results in a notebook.

    index = skypart.build_index(["town.tif"], "town.skyindex")
    fix = index.locate("photo.jpg", heading_deg=90)
    print(fix.latitude, fix.longitude, fix.radius_m) if fix.found else print(fix.reason)

Nothing here prints: warnings go through `logging`, under the name `skypart`. Bad input raises `SkyPartError`.
"""

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from PIL import Image

from skypart.bridge.formats import TrackFile, write_fixes
from skypart.bridge.json_text import fix_to_dict
from skypart.embedding import Embedder, load
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.images.decode import ImageLike, RgbImage, read_rgb
from skypart.images.exif import CameraFacts, read_camera_facts
from skypart.maps.build import build_index as build_index_folder
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions, view_options
from skypart.position.camera import hints_from_facts, merge_hints
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.flight import follow_flight
from skypart.position.fly import join_clocks
from skypart.position.html_map import fix_html, show_html, track_html
from skypart.position.locate import Locator
from skypart.position.photos import check_prior, check_prior_order, open_locator, read_hints
from skypart.position.score import TrackScore
from skypart.position.track import TrackOptions, TrackPoint
from skypart.telemetry.source import read_telemetry

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, repr=False)
class PhotoFix(Fix):
    """The result for one photo: a `Fix` that can draw itself.

    In a notebook it shows as a map. Without a fix, `found` is False and `reason` says why.
    """

    index: "Index | None" = field(default=None, compare=False)
    image: RgbImage | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """One line: position, radius and confidence, or the reason why there is no fix."""
        if self.latitude is None or self.longitude is None or self.radius_m is None:
            return f"<no fix for {self.photo}: {self.reason}>"
        return (
            f"<fix of {self.photo}: {self.latitude:.6f}, {self.longitude:.6f}, 95 % within {self.radius_m:.0f} m, "
            f"confidence {self.confidence:.2f}>"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, as in the JSON of `skypart locate --format json`."""
        return fix_to_dict(self._plain())

    def to_text(self, format: str = "json") -> str:
        """The fix as text: json, geojson, csv, kml, gpx or table."""
        return write_fixes([self._plain()], format)

    def show(self) -> None:
        """Show the fix on its map: in the notebook, else in the web browser."""
        show_html(self._repr_html_(), f"{Path(self.photo).stem or 'photo'}-fix")

    def _repr_html_(self) -> str:
        """The map around the fix with its 95 % circle, and the photo; needs no network."""
        index = self.index
        return fix_html(self, None if index is None else index.draw_map, self.image)

    def _plain(self) -> Fix:
        return Fix(**{each.name: getattr(self, each.name) for each in fields(Fix)})


@dataclass(frozen=True, kw_only=True, repr=False)
class Track:
    """The track of a flight: one point per frame, in the order of time.

    start: when the flight began, if that is known. skipped: frames that could not be read. scores: of the raw fixes and
    of the track, if true positions were given.
    """

    source: str
    points: tuple[TrackPoint, ...]
    start: datetime | None
    skipped: int
    scores: dict[str, TrackScore]
    index: "Index | None" = field(default=None, compare=False)

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.points)

    def __iter__(self) -> Iterator[TrackPoint]:
        """The points."""
        return iter(self.points)

    def __repr__(self) -> str:
        """One line: frames, how many have a fix, how many a position."""
        fixed = sum(point.state == "tracking" for point in self.points)
        placed = sum(point.latitude is not None for point in self.points)
        return f"<track of {self.source}: {len(self)} frames, {placed} with a position, {fixed} with a fix>"

    def save(self, path: StrPath) -> None:
        """Write the track in the format of the suffix: .gpx, .geojson, .csv or .kml."""
        TrackFile(Path(path)).write(self.points, self.start)

    def show(self) -> None:
        """Show the track on its map: in the notebook, else in the web browser."""
        show_html(self._repr_html_(), f"{Path(self.source).stem}-track")

    def _repr_html_(self) -> str:
        """The map around the track; needs no network."""
        return track_html(self.points, repr(self)[1:-1], None if self.index is None else self.index.draw_map)


@dataclass
class _Collector:
    """Takes the place of a track file, and keeps the points in memory."""

    path: Path
    points: Sequence[TrackPoint] = ()
    start: datetime | None = None

    def write(self, points: Sequence[TrackPoint], start: datetime | None) -> None:
        self.points, self.start = points, start


class Index:
    """An index of maps with the model it was made with. Open one with `skypart.open_index` or `skypart.build_index`."""

    def __init__(self, locator: Locator) -> None:
        self._locator = locator

    @property
    def folder(self) -> Path:
        """The folder of the index."""
        return self._locator.index.folder

    @property
    def maps(self) -> list[str]:
        """The names of its maps."""
        return [entry.name for entry in self._locator.index.manifest.maps]

    @property
    def bounds(self) -> Bounds:
        """The bounding box of its maps: south, west, north, east in WGS 84 degrees."""
        return self._locator.index.bounds

    @property
    def model(self) -> Embedder:
        """The model."""
        return self._locator.embedder

    @property
    def calibrated(self) -> bool:
        """Whether confidence and radius were fitted to this index with `skypart calibrate`."""
        return self._locator.calibrated

    def __len__(self) -> int:
        """Number of views."""
        return self._locator.index.store.stats().views

    def __repr__(self) -> str:
        """One line: folder, maps, views and calibration."""
        names = ", ".join(self.maps[:3]) + (f" and {len(self.maps) - 3} more" if len(self.maps) > 3 else "")
        state = "calibrated" if self.calibrated else "default calibration"
        return f"<index {self.folder}: {len(self):,} views of {names}; {state}>"

    def __enter__(self) -> Self:
        """Use as a context manager: the index is closed at the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the index."""
        self.close()

    def close(self) -> None:
        """Release the files of the index."""
        self._locator.index.store.close()

    def locate(
        self,
        photo: ImageLike,
        *,
        near: tuple[float, float] | None = None,
        radius_m: float | None = None,
        heading_deg: float | None = None,
        altitude_m: float | None = None,
        tilt_deg: float | None = None,
        fov_deg: float | None = None,
        exif: bool = True,
        name: str | None = None,
    ) -> PhotoFix:
        """Find where a photo was taken.

        photo: a path, the bytes of an image file, a PIL image, or pixels (h, w, 3) uint8. near, radius_m: search only
        within this distance (default 1000 m) of (latitude, longitude). heading_deg: compass direction that is up in the
        photo. altitude_m: above ground. tilt_deg: of the camera below the horizon, 90 = straight down. fov_deg:
        horizontal field of view. exif: whether the EXIF and XMP of a file may complete these; its GPS position is never
        read. name: for messages; by default the file's name.
        """
        prior = _prior(near, radius_m)
        check_prior_order(prior, self.bounds)
        given = _hints(heading_deg, altitude_m, tilt_deg, fov_deg)
        facts = _camera_facts(photo) if exif else CameraFacts()
        image = read_rgb(photo)
        label = name or (str(Path(photo)) if isinstance(photo, str | os.PathLike) else "photo")
        fix = self._locator.locate(image, name=label, prior=prior, hints=merge_hints(given, hints_from_facts(facts)))
        return PhotoFix(
            **{each.name: getattr(fix, each.name) for each in fields(Fix)}, index=self, image=_thumbnail(image)
        )

    def track(
        self,
        flight: StrPath,
        *,
        rate_hz: float = 1.0,
        interval_s: float = 1.0,
        max_speed: float = 25.0,
        telemetry: StrPath | None = None,
        offset_s: float | Literal["auto"] = 0.0,
        truth: StrPath | None = None,
        near: tuple[float, float] | None = None,
        radius_m: float | None = None,
        heading_deg: float | None = None,
        altitude_m: float | None = None,
        tilt_deg: float | None = None,
        fov_deg: float | None = None,
    ) -> Track:
        """Follow a flight: locate the frames of a video or the photos of a folder, and filter the fixes into one path.

        rate_hz: frames per second to use from a video. interval_s: seconds between photos that have no time. max_speed:
        of the drone, m/s. telemetry: flight data (.srt, .csv or .tlog). offset_s: how far its clock is ahead of the
        video's, in seconds; `auto` estimates it from turns. truth: a CSV of true positions, to score the track. The
        others are those of `locate`.
        """
        source = Path(flight)
        collector = _Collector(source)
        data = None if telemetry is None else read_telemetry(Path(telemetry), fixed_tilt=tilt_deg)
        if data is not None:
            join_clocks(source, data, str(offset_s))
        followed = follow_flight(
            self._locator,
            source,
            collector,
            TrackOptions(max_speed=max_speed),
            rate_hz=rate_hz,
            interval_s=interval_s,
            truth=None if truth is None else Path(truth),
            prior=_prior(near, radius_m),
            telemetry=data,
            hints=_hints(heading_deg, altitude_m, tilt_deg, fov_deg),
        )
        return Track(
            source=source.name,
            points=tuple(collector.points),
            start=collector.start,
            skipped=followed.skipped,
            scores=followed.scores,
            index=self,
        )

    def draw_map(self, bounds: Bounds | None = None, edge: int = 640) -> RgbImage | None:
        """An image of the maps within `bounds` (default: all), north up, its longer edge at most `edge` pixels.

        None if no map can be read any more.
        """
        return self._locator.index.render(edge, bounds) if self._locator.index.sources else None


def open_index(
    folder: StrPath, *, model: StrPath | Embedder | None = None, device: str = "cpu", network: bool = False
) -> Index:
    """Open an index that `build_index` or `skypart index` made.

    model: if the model file has moved since; a loaded model can be passed to share it between indexes. device: such as
    `cpu` or `cuda:1`. network: whether maps may be read over the network.
    """
    if isinstance(model, str | os.PathLike | None):
        return Index(open_locator(Path(folder), "" if model is None else os.fspath(model), device, network=network))
    return Index(Locator(MapIndex(Path(folder), network=network), model))


def build_index(
    maps: StrPath | Sequence[StrPath],
    folder: StrPath,
    *,
    model: StrPath = "default",
    device: str = "cpu",
    sizes_m: Sequence[float] | None = None,
    overlap: float | None = None,
    rotations: int | None = None,
    network: bool = False,
    tokens: bool = True,
) -> Index:
    """Cut maps into views, embed them into the index in `folder`, and open it.

    An existing index is extended; maps that are in it already are skipped. Interrupted work is resumed. maps: GeoTIFFs,
    images with a world file, tile folders or archives, CSV tables. sizes_m: edges of the views in metres. overlap: of
    neighbouring views, 0 to 1. rotations: that each view is embedded at. tokens: keep patch tokens of the views, with
    which photos are located several times faster. The other arguments are those of `open_index`.
    """
    listed = [maps] if isinstance(maps, str | os.PathLike) else list(maps)
    if not listed:
        raise SkyPartError("no maps to index; give at least one file")
    name = os.fspath(model)
    embedder = load(name, device)
    options = _view_options(sizes_m, overlap, rotations)
    files = [os.fspath(path) for path in listed]
    build_index_folder(files, Path(folder), embedder, name, options, network, tokens=tokens)
    return open_index(folder, model=embedder, network=network)


def _view_options(sizes_m: Sequence[float] | None, overlap: float | None, rotations: int | None) -> ViewOptions | None:
    """The options of the views; None if none is given, so that an existing index keeps its own."""
    return view_options(",".join(f"{size:g}" for size in sizes_m or ()), overlap, rotations)


def _prior(near: tuple[float, float] | None, radius_m: float | None) -> Prior | None:
    if near is None:
        if radius_m is not None:
            raise SkyPartError("radius_m needs near=(latitude, longitude); give both")
        return None
    try:
        latitude, longitude = (float(value) for value in near)
    except (TypeError, ValueError) as error:
        raise SkyPartError(f"near={near!r}: give (latitude, longitude) in degrees") from error
    return check_prior(latitude, longitude, radius_m, f"near={near!r}")


def _hints(heading_deg: float | None, altitude_m: float | None, tilt_deg: float | None, fov_deg: float | None) -> Hints:
    """What the caller knows about the camera, after a check of types and ranges."""
    given = {"heading_deg": heading_deg, "altitude_m": altitude_m, "tilt_deg": tilt_deg, "fov_deg": fov_deg}
    for name, value in given.items():
        if value is not None and not isinstance(value, int | float | np.integer | np.floating):
            raise SkyPartError(f"{name}={value!r}: give a number")
    return read_hints(heading_deg, altitude_m, tilt_deg, fov_deg, options=False)


def _camera_facts(photo: ImageLike) -> CameraFacts:
    """EXIF and XMP of a path or of bytes; nothing is known about pixels."""
    if isinstance(photo, bytes):
        return read_camera_facts(io.BytesIO(photo))
    return read_camera_facts(photo) if isinstance(photo, str | os.PathLike) else CameraFacts()


def _thumbnail(image: RgbImage, edge: int = 320) -> RgbImage:
    """The image, at most `edge` pixels wide and high."""
    small = Image.fromarray(image)
    small.thumbnail((edge, edge))
    return np.asarray(small)
