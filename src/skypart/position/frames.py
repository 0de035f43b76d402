"""The photos of a flight in order of time: frames of a video, or a folder of photos."""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np

from skypart.errors import SkyPartError
from skypart.images.decode import IMAGE_SUFFIXES, MAX_PIXELS, RgbImage, list_photos, open_image, read_rgb
from skypart.images.exif import read_camera_facts
from skypart.position.camera import hints_from_facts
from skypart.position.fix import Hints

VIDEO_SUFFIXES = frozenset({".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts"})
MAX_FAILED_READS = 50
"""Consecutive frames that cannot be read before a video of unknown length counts as ended."""
TEXT_BYTES = 4096
"""A file whose first bytes have no zero among them is no video: every container has binary numbers there."""
os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "8")  # errors of a video are reported by SkyPart


@dataclass(frozen=True)
class Frame:
    """One photo of a flight.

    time_s: seconds from the start of the flight. image: (h, w, 3). name: its path, or video name and frame number.
    hints: about the camera, from the file.
    """

    time_s: float
    image: RgbImage
    name: str
    hints: Hints = field(default_factory=Hints)


class Frames(Protocol):
    """The photos of a flight. `len` is the expected number.

    skipped: photos that could not be read so far. times: seconds by file name, for photos. fps: frames per second, for
    a video. start: when the flight began. note: a warning for the user, or empty.
    """

    skipped: int
    times: dict[str, float]
    fps: float | None
    start: datetime | None
    note: str

    def __len__(self) -> int:
        """How many frames are expected; 0 if unknown."""

    def __iter__(self) -> Iterator[Frame]:
        """The frames in order of time."""


def open_frames(source: str | os.PathLike[str], *, rate_hz: float = 1.0, interval_s: float = 1.0) -> Frames:
    """Open a video, of which `rate_hz` frames per second are used, or a folder of photos.

    interval_s: seconds between photos whose EXIF has no time.
    """
    path = Path(source)
    for name, value in (("rate", rate_hz), ("interval", interval_s)):
        if not (math.isfinite(value) and value > 0):
            raise SkyPartError(f"the {name} of frames must be a positive number, not {value}")
    if path.is_dir():
        return PhotoFrames(path, interval_s)
    if not path.is_file():
        raise SkyPartError(f"{path}: no such file or folder; give a video or a folder of photos")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise SkyPartError(f"{path}: is one photo; use `skypart locate`, or give the folder of a flight's photos")
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        raise SkyPartError(
            f"{path}: not a supported video format; convert it to one of {', '.join(sorted(VIDEO_SUFFIXES))}"
        )
    return VideoFrames(path, rate_hz)


class PhotoFrames:
    """All photos of a folder, with hints about the camera from EXIF and XMP.

    They are ordered by EXIF time if every readable photo has one, else by name and `interval_s` apart. When ordered by
    time, photos whose header cannot be read come last and are not in `times`.
    """

    def __init__(self, folder: Path, interval_s: float) -> None:
        self.folder = folder
        self.skipped = 0
        self.fps: float | None = None
        self.note = ""
        self.start: datetime | None = None
        photos = sorted(list_photos([folder]), key=lambda photo: natural_sort_key(photo.relative_to(folder)))
        facts = {photo: read_camera_facts(photo) for photo in photos}
        self._hints = {photo: hints_from_facts(each) for photo, each in facts.items()}
        stamps = {photo: each.time for photo, each in facts.items() if each.time is not None}
        damaged = [photo for photo in photos if photo not in stamps and not _can_open(photo)]
        timeless = len(photos) - len(damaged) - len(stamps)
        if stamps and not timeless:
            self.start, ordered = _order_by_time(stamps)
        else:
            ordered, damaged = [(photo, index * interval_s) for index, photo in enumerate(photos)], []
        if timeless:
            self.note = (
                f"{timeless} of {len(photos)} photos have no EXIF time: all are ordered by name, "
                f"{interval_s:g} s apart (--interval)"
            )
        self.times = {photo.relative_to(folder).as_posix(): seconds for photo, seconds in ordered}
        self._ordered = ordered + [(photo, ordered[-1][1]) for photo in damaged]

    def __len__(self) -> int:
        """How many photos there are."""
        return len(self._ordered)

    def __iter__(self) -> Iterator[Frame]:
        """Yield the photos; those that cannot be read are counted in `skipped`."""
        self.skipped = 0
        for photo, seconds in self._ordered:
            try:
                image = read_rgb(photo)
            except SkyPartError:
                self.skipped += 1
                continue
            yield Frame(seconds, image, str(photo), self._hints[photo])


def natural_sort_key(path: Path) -> list[list[str | int]]:
    """A sort key that compares numbers in names by value: frame2 comes before frame10."""
    parts = [re.split("([0-9]+)", part) for part in path.parts]
    return [[int(piece) if number % 2 else piece for number, piece in enumerate(pieces)] for pieces in parts]


def _can_open(photo: Path) -> bool:
    try:
        open_image(photo).close()
    except (SkyPartError, OSError):
        return False
    return True


def _order_by_time(stamps: dict[Path, datetime]) -> tuple[datetime, list[tuple[Path, float]]]:
    """The first time, and photos with seconds from it. Photos of the same second are spread over it, in their order."""
    if any(stamp.tzinfo is None for stamp in stamps.values()):
        stamps = {photo: stamp.replace(tzinfo=None) for photo, stamp in stamps.items()}
    first = min(stamps.values())
    pairs = sorted((((stamp - first).total_seconds(), photo) for photo, stamp in stamps.items()), key=itemgetter(0))
    groups = [(seconds, [photo for _, photo in group]) for seconds, group in groupby(pairs, key=itemgetter(0))]
    ends = [seconds for seconds, _ in groups[1:]] + [groups[-1][0] + 1.0]
    ordered: list[tuple[Path, float]] = []
    for (seconds, same), end in zip(groups, ends, strict=True):
        room = min(1.0, end - seconds)
        ordered += [(photo, seconds + room * i / len(same)) for i, photo in enumerate(same)]
    return first, ordered


class VideoFrames:
    """About `rate_hz` frames per second of a video file, with the time stamps of its container."""

    def __init__(self, path: Path, rate_hz: float) -> None:
        self.path, self.rate_hz = path, rate_hz
        self.skipped = 0
        self.times: dict[str, float] = {}
        self.start: datetime | None = None
        capture = self._open()
        self._count = max(0, round(_finite(capture.get(cv2.CAP_PROP_FRAME_COUNT))))
        rate = _finite(capture.get(cv2.CAP_PROP_FPS))
        self.note = ""
        self.fps: float | None = rate if 0.1 <= rate <= 1000 else None
        size = _finite(capture.get(cv2.CAP_PROP_FRAME_WIDTH)) * _finite(capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
        capture.release()
        if size > MAX_PIXELS:
            raise SkyPartError(f"{path}: frames of {size:,.0f} pixels exceed the limit {MAX_PIXELS:,}; scale it down")

    def _open(self) -> cv2.VideoCapture:
        if self.path.stat().st_size == 0:
            raise SkyPartError(f"{self.path}: the file is empty (0 bytes); copy it again from its source")
        with self.path.open("rb") as file:
            if b"\0" not in file.read(TEXT_BYTES):  # FFmpeg would follow the names in it
                raise SkyPartError(
                    f"{self.path}: the video cannot be opened; it is text, perhaps a list of other files: give the "
                    "video itself"
                )
        capture = cv2.VideoCapture(str(self.path.resolve()), cv2.CAP_FFMPEG)
        if not capture.isOpened():
            raise SkyPartError(
                f"{self.path}: the video cannot be opened; it is damaged, truncated or not a video: copy it again, or "
                "convert it to MP4 with H.264"
            )
        return capture

    def __len__(self) -> int:
        """How many frames are expected, from the length that the container reports."""
        if not self._count or not self.fps:
            return 0
        return math.ceil(self._count * min(1.0, self.rate_hz / self.fps))

    def __iter__(self) -> Iterator[Frame]:
        """Yield frames; those that cannot be decoded are counted in `skipped`."""
        self.skipped = 0
        capture = self._open()
        try:
            yield from self._read(capture)
        finally:
            capture.release()

    def _read(self, capture: cv2.VideoCapture) -> Iterator[Frame]:
        every = 1.0 / self.rate_hz
        early = min(0.5 / self.fps, 0.25 * every) if self.fps else 0.0
        number, missed, time, due = -1, 0, -math.inf, -math.inf
        while missed < MAX_FAILED_READS or number + 1 < self._count:
            number += 1
            if not capture.grab():
                missed += 1
                continue
            self.skipped += missed
            time, missed = self._time(capture, number, time), 0
            if time < due - early:
                continue
            decoded, pixels = capture.retrieve()
            if not decoded or pixels is None or pixels.ndim != 3:
                self.skipped += 1
                continue
            due = due + every if due + every > time else time + every
            image: RgbImage = np.ascontiguousarray(pixels[:, :, ::-1])
            yield Frame(time, image, f"{self.path.name}#{number}")
        short = self._count - (number + 1 - missed)
        if short > max(2, 0.01 * self._count):  # the counts of intact containers are slightly off, too
            self.skipped += short

    def _time(self, capture: cv2.VideoCapture, number: int, last: float) -> float:
        """Seconds from the container; from the frame rate if it has none, or one that is not after the last."""
        seconds = _finite(capture.get(cv2.CAP_PROP_POS_MSEC), -1.0) / 1000.0
        if seconds > last and seconds >= 0.0:
            return seconds
        if self.fps is None:
            raise SkyPartError(
                f"{self.path}: the video has neither time stamps nor a frame rate; convert it to MP4 with H.264"
            )
        return number / self.fps if last == -math.inf else last + 1.0 / self.fps


def _finite(value: float, otherwise: float = 0.0) -> float:
    return float(value) if math.isfinite(value) else otherwise
