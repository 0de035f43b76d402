"""What the page of a live flight shows: the newest report, the path so far, and the last located frame."""

import threading
from collections import deque
from typing import Any

from skypart.bridge.json_text import fix_to_dict
from skypart.bridge.live_sink import report_values
from skypart.images.decode import RgbImage
from skypart.position.fix import Fix
from skypart.position.frames import Frame
from skypart.position.live import Report

PATH_POINTS = 3000
"""Points of the path that are kept."""


class FlyBoard:
    """A sink that keeps what the page asks for. Safe to read from other threads."""

    def __init__(self) -> None:
        self.problem = ""
        self._lock = threading.Lock()
        self._report: dict[str, Any] | None = None
        self._path: deque[tuple[int, float | None, float | None, str]] = deque(maxlen=PATH_POINTS)
        self._number = 0
        self._frame: RgbImage | None = None
        self._fix: dict[str, Any] | None = None
        self._frame_number = 0
        self._ended = False

    def send(self, report: Report) -> None:
        """Keep a report."""
        values = report_values(report)
        with self._lock:
            self._report = values
            self._number += 1
            self._path.append((self._number, values["latitude"], values["longitude"], values["state"]))

    def show_frame(self, frame: Frame, fix: Fix) -> None:
        """Keep a located frame and the answer for it."""
        values = fix_to_dict(fix)
        with self._lock:
            self._frame, self._fix, self._frame_number = frame.image, values, self._frame_number + 1

    def close(self) -> None:
        """The flight is over."""
        with self._lock:
            self._ended = True

    def snapshot(self, after: int) -> dict[str, Any]:
        """The newest report, and the path after the point of this number."""
        with self._lock:
            return {
                "flying": self._report is not None and not self._ended,
                "ended": self._ended,
                "report": self._report,
                "path": [list(point) for point in self._path if point[0] > after],
                "frame": self._frame_number,
                "fix": self._fix,
            }

    @property
    def frame(self) -> RgbImage | None:
        """The last located frame."""
        with self._lock:
            return self._frame
