"""Motion that the images themselves show: sparse optical flow between frames, and the velocity it means."""

import math
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.position.hypotheses import MeasuredVelocity

FLOW_WIDTH = 320
"""Width in pixels that frames are reduced to."""
MAX_CORNERS = 200
MIN_INLIERS = 25
"""Corners that must agree on one motion."""
MIN_INLIER_SHARE = 0.5
MAX_SECONDS = 1.5
"""Frames further apart in time are not compared."""
SCALE_ERROR = 0.06
"""Standard deviation of the scale of the ground, and of the heading in radians: shared by all velocities of a while."""
MIN_DRIFT, MIN_NOISE = 0.2, 0.3
"""m/s; of the error that velocities share, and of each one's own."""
PIXEL_ERROR = 0.3
"""Pixels of the reduced frame by which a motion is wrong."""
JITTER_MEMORY = 0.7
"""Weight of the past in the estimate of the jitter, from one motion to the next."""
TURN_ERROR_DEG = 0.15
"""Error of the turn between two frames."""
HEADING_ERROR_DEG = 4.0
"""Standard deviation of the heading of a match."""
HEADING_GATE = 3.5
"""Standard deviations above which a match's heading contradicts the filter's."""


@dataclass(frozen=True)
class ImageMotion:
    """How the content of the image moved from one frame to the next.

    seconds: between them. right, down: at the image's centre, in widths of the image. turn_deg: clockwise. zoom: a
    factor. jitter: standard deviation of right and down from one motion to the next, in widths; a shaking camera and
    weather make it large.
    """

    time_s: float
    seconds: float
    right: float
    down: float
    turn_deg: float
    zoom: float
    jitter: float = 0.0

    def camera_turn(self, tilt_deg: float) -> float:
        """Degrees, clockwise, by which a camera that looks this far below the horizon turned about the vertical."""
        return -self.turn_deg / _sine(tilt_deg)


class FlowTracker:
    """Compares each frame with the one before."""

    def __init__(self) -> None:
        self._grey: NDArray[np.uint8] | None = None
        self._time = 0.0
        self._last: ImageMotion | None = None
        self._jitter = 0.0  # variance of a motion's speed, (widths per second)^2

    def add(self, time_s: float, image: RgbImage) -> ImageMotion | None:
        """The motion since the last frame; None if it cannot be told."""
        height, width = image.shape[:2]
        size = (FLOW_WIDTH, max(16, round(height * FLOW_WIDTH / width)))
        grey: NDArray[np.uint8] = cv2.cvtColor(
            cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY
        )
        before, seconds = self._grey, time_s - self._time
        self._grey, self._time = grey, time_s
        if before is None or before.shape != grey.shape or not 0.0 < seconds <= MAX_SECONDS:
            return None
        corners = cv2.goodFeaturesToTrack(before, MAX_CORNERS, 0.01, 8)
        if corners is None or len(corners) < MIN_INLIERS:
            return None
        moved, found, _ = cv2.calcOpticalFlowPyrLK(before, grey, corners, None, winSize=(21, 21), maxLevel=4)
        kept = found.ravel() == 1
        old, new = corners.reshape(-1, 2)[kept], moved.reshape(-1, 2)[kept]
        if len(old) < MIN_INLIERS:
            return None
        centre = np.array([size[0] / 2, size[1] / 2], dtype=np.float32)
        cv2.setRNGSeed(0)
        matrix, mask = cv2.findHomography(old - centre, new - centre, cv2.RANSAC, 2.0)
        if matrix is None or mask.sum() < max(MIN_INLIERS, MIN_INLIER_SHARE * len(old)):
            return None
        moved_centre, change = _at_centre(matrix)
        # Sideways motion shears an oblique image, but only along its rows; so the turn is read off its columns.
        turn, zoom = math.degrees(math.atan2(change[1, 0], change[0, 0])), float(np.hypot(change[0, 0], change[1, 0]))
        right, down = (moved_centre / FLOW_WIDTH).tolist()
        last, self._last = self._last, ImageMotion(time_s, seconds, right, down, turn, zoom)
        if last is not None and time_s - last.time_s <= 2.0 * MAX_SECONDS:
            difference = math.hypot(
                right / seconds - last.right / last.seconds, down / seconds - last.down / last.seconds
            )
            # Two motions differ by the noise of both, in two directions.
            self._jitter = JITTER_MEMORY * self._jitter + (1.0 - JITTER_MEMORY) * difference**2 / 4.0
        self._last = replace(self._last, jitter=math.sqrt(self._jitter) * seconds)
        return self._last


def _at_centre(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where a homography moves (0, 0), (2,), and its (2, 2) derivative there."""
    point = matrix[:2, 2] / matrix[2, 2]
    return point, (matrix[:2, :2] - np.outer(point, matrix[2, :2])) / matrix[2, 2]


def ground_velocity(
    motion: ImageMotion, *, ground_m: float, heading_deg: float, tilt_deg: float = 90.0
) -> MeasuredVelocity:
    """The velocity of the ground at the image's centre. ground_m: metres across the image there."""
    sine = _sine(tilt_deg)
    right, ahead = -motion.right * ground_m / motion.seconds, motion.down * ground_m / sine / motion.seconds
    turn = math.radians(heading_deg)
    east = right * math.cos(turn) + ahead * math.sin(turn)
    north = -right * math.sin(turn) + ahead * math.cos(turn)
    speed = math.hypot(east, north)
    scale = ground_m / sine / motion.seconds
    noise = math.hypot(MIN_NOISE, PIXEL_ERROR / FLOW_WIDTH * scale, motion.jitter * scale)
    return MeasuredVelocity(np.array([east, north]), noise, MIN_DRIFT + SCALE_ERROR * speed)


def _sine(tilt_deg: float) -> float:
    """Of a tilt; at least 0.2, because near the horizon the image tells little about the ground."""
    return max(math.sin(math.radians(tilt_deg)), 0.2)


class HeadingFilter:
    """The camera's heading: a compass or the turn of the images, corrected by the headings of matches.

    The correction is a random walk; a match whose heading contradicts it is left out, until it is so uncertain that it
    no longer does.
    """

    def __init__(self) -> None:
        self._base: float | None = None
        self._correction, self._variance = 0.0, 180.0**2
        self._time: float | None = None

    def turn(self, time_s: float, degrees: float) -> None:
        """The camera turned by this angle, clockwise, since the last call, as the images show."""
        self._grow(time_s, 1.0)
        if self._base is not None:
            self._base = (self._base + degrees) % 360.0

    def compass(self, time_s: float, heading_deg: float) -> None:
        """The heading that the flight data state."""
        if self._base is None:
            self._variance = min(self._variance, 20.0**2)
        self._grow(time_s, 0.2)
        self._base = heading_deg % 360.0

    def match(self, time_s: float, heading_deg: float) -> None:
        """The heading of a match that the filter accepted."""
        self._grow(time_s, 0.2)
        if self._base is None:
            self._base, self._correction, self._variance = heading_deg % 360.0, 0.0, HEADING_ERROR_DEG**2
            return
        off = (heading_deg - self._base - self._correction + 180.0) % 360.0 - 180.0
        spread = self._variance + HEADING_ERROR_DEG**2
        if off**2 > HEADING_GATE**2 * spread:
            self._variance = min(self._variance * 1.5 + 4.0, 180.0**2)
            return
        gain = self._variance / spread
        self._correction += gain * off
        self._variance *= 1.0 - gain

    def _grow(self, time_s: float, rate: float) -> None:
        """rate: standard deviation in degrees after a second."""
        if self._time is not None and time_s > self._time:
            self._variance = min(self._variance + rate**2 * (time_s - self._time), 180.0**2)
        self._time = time_s if self._time is None else max(self._time, time_s)

    @property
    def heading_deg(self) -> float | None:
        """The corrected heading, 0..360; None if nothing is known."""
        return None if self._base is None else (self._base + self._correction) % 360.0

    @property
    def deviation_deg(self) -> float:
        """Its standard deviation."""
        return math.sqrt(self._variance)
