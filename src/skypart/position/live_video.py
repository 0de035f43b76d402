"""Frames as they come: a camera, a network stream or a file played at its own speed, with reconnection."""

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from skypart.errors import SkyPartError
from skypart.images.decode import MAX_PIXELS, RgbImage
from skypart.position.frames import Frame

os.environ.setdefault("OPENCV_FFMPEG_CAPTURE_OPTIONS", "rtsp_transport;tcp")  # UDP loses frames and shows grey ones
OPEN_TIMEOUT_MS = 5000
READ_TIMEOUT_MS = 3000
RETRY_S = (0.5, 1.0, 2.0, 3.0)
"""Pauses between attempts to open a stream again; the last one repeats."""


def is_stream(source: str) -> bool:
    """Whether a source is a camera's number or an address, not a file."""
    return source.isdecimal() or "://" in source or source.startswith("/dev/video")


def redact_source(source: str) -> str:
    """An address without its password."""
    scheme, mark, rest = source.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else source


class LiveVideo:
    """Reads a source in its own thread and keeps the newest frame only.

    clock: seconds since the start of the flight. realtime: a file is played at its own speed; its frames have the
    file's times, counted from when it began. latency_s: from exposure until a frame arrives; subtracted from its time.
    seen, dropped: frames read, and those that nobody took. broken: why no frame comes now; empty while they come.
    reconnections: how often a broken stream came back. ended: a file is over.
    """

    def __init__(self, source: str, clock: Callable[[], float], *, latency_s: float = 0.0) -> None:
        self.source, self.name = source, redact_source(source)
        self._clock, self._latency = clock, latency_s
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # a broken stream is said in our words
        self._stream = is_stream(source)
        if not self._stream and not Path(source).is_file():
            raise SkyPartError(
                f"{source}: no such video; give a file, a camera's number, or an address such as rtsp://..."
            )
        self.seen = self.dropped = self.reconnections = 0
        self.broken, self.ended = "", False
        self.shape: tuple[int, int] | None = None
        self._newest: Frame | None = None
        self._lock, self._fresh, self._stop = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="video", daemon=True)
        self._thread.start()

    def take(self, timeout_s: float) -> Frame | None:
        """The newest frame that was not taken before; None if none comes in time."""
        if not self._fresh.wait(timeout_s):
            return None
        with self._lock:
            frame, self._newest = self._newest, None
            self._fresh.clear()
        return frame

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(2 * READ_TIMEOUT_MS / 1000)

    def _open(self) -> Any:
        if self.source.isdecimal():
            return cv2.VideoCapture(int(self.source))
        if self.source.startswith("/dev/video"):
            return cv2.VideoCapture(self.source)
        options = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, OPEN_TIMEOUT_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, READ_TIMEOUT_MS]
        return cv2.VideoCapture(self.source, cv2.CAP_FFMPEG, options)

    def _run(self) -> None:
        attempt = 0
        while not self._stop.is_set():
            capture = self._open()
            try:
                frames = self._read(capture) if capture.isOpened() else 0
            finally:
                capture.release()
            if self._stop.is_set():
                return
            if not self._stream:
                self.broken = "" if frames else "the file cannot be decoded"
                self.ended = True
                self._fresh.set()
                return
            attempt = 0 if frames else attempt + 1
            self.broken = "the stream broke off" if self.seen else "the stream does not start"
            self._stop.wait(RETRY_S[min(attempt, len(RETRY_S) - 1)])

    def _read(self, capture: Any) -> int:
        """Read until the source ends or breaks; the number of frames."""
        began, count, last = self._clock(), 0, -math.inf
        while not self._stop.is_set():
            if not capture.grab():
                return count
            if self._stream:
                time_s = self._clock() - self._latency
            else:
                shown = float(capture.get(cv2.CAP_PROP_POS_MSEC)) / 1000.0
                time_s = began + (shown if math.isfinite(shown) and shown > last else last + 0.04)
                last = time_s - began
                while (wait := time_s - self._clock()) > 0 and not self._stop.is_set():
                    self._stop.wait(min(wait, 0.2))
            decoded, pixels = capture.retrieve()
            if not decoded or pixels is None or pixels.ndim != 3 or pixels.shape[0] * pixels.shape[1] > MAX_PIXELS:
                continue
            count += 1
            if self.broken and self.seen:
                self.reconnections += 1
            self.broken = ""
            self.shape = pixels.shape[:2]
            image: RgbImage = np.ascontiguousarray(pixels[:, :, ::-1])
            with self._lock:
                self.dropped += self._newest is not None
                self._newest = Frame(time_s, image, f"{Path(self.name).name}#{self.seen}")
                self.seen += 1
                self._fresh.set()
        return count


def wait_for_start(video: LiveVideo, seconds: float, total_s: float) -> Frame:
    """The first frame of a source; raises if none comes within `seconds`. total_s: how long was waited in all."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not video.ended:
        frame = video.take(0.1)
        if frame is not None:
            return frame
    reason = video.broken or "no frame came"
    raise SkyPartError(
        f"{video.name}: {reason} within {total_s:.0f} s; check the address, the cable and that nobody else uses it"
    )
