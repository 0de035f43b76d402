"""Frames of a video."""

import math
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import cv2
import numpy as np

from skypart.errors import SkyPartError
from skypart.images.decode import MAX_PIXELS, RgbImage
from skypart.position.frame import Frame

VIDEO_SUFFIXES = frozenset({".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts"})
_PATIENCE = 50
"""Frames in a row that cannot be read before a video of unknown length is taken to have ended."""
os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "8")  # what is wrong with a video is told in our own sentence


class VideoFrames:
    """Frames of a video file at about `rate_hz` a second, with the container's own time stamps."""

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
            raise SkyPartError(f"{path}: frames of {size:,.0f} pixels are more than {MAX_PIXELS:,}; scale it down")

    def _open(self) -> cv2.VideoCapture:
        if self.path.stat().st_size == 0:
            raise SkyPartError(f"{self.path}: the file is empty (0 bytes); copy it again from its source")
        capture = cv2.VideoCapture(str(self.path.resolve()), cv2.CAP_FFMPEG)
        if not capture.isOpened():
            raise SkyPartError(
                f"{self.path}: the video cannot be opened, it is damaged, cut short or no video; copy it again, or "
                "convert it to MP4 with H.264"
            )
        return capture

    def __len__(self) -> int:
        """How many frames are expected, by what the container says of its length."""
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
        while missed < _PATIENCE or number + 1 < self._count:
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
        if short > max(2, 0.01 * self._count):  # containers' counts are a little off where nothing is wrong
            self.skipped += short

    def _time(self, capture: cv2.VideoCapture, number: int, last: float) -> float:
        """Seconds by the container; where it does not tell, or tells a time before the last one, by the frame rate."""
        told = _finite(capture.get(cv2.CAP_PROP_POS_MSEC), -1.0) / 1000.0
        if told > last and told >= 0.0:
            return told
        if self.fps is None:
            raise SkyPartError(
                f"{self.path}: the video has neither time stamps nor a frame rate; convert it to MP4 with H.264"
            )
        return number / self.fps if last == -math.inf else last + 1.0 / self.fps


def _finite(value: float, otherwise: float = 0.0) -> float:
    return float(value) if math.isfinite(value) else otherwise
