"""The photos of a flight in the order of time: frames of a video, or a folder of photos."""

import math
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol

from skypart.errors import SkyPartError
from skypart.images.decode import IMAGE_SUFFIXES
from skypart.position.frame import Frame
from skypart.position.photo_frames import PhotoFrames
from skypart.position.video_frames import VIDEO_SUFFIXES, VideoFrames


class Frames(Protocol):
    """The photos of a flight. `len` is what is expected; `skipped` how many could not be read so far.

    times: seconds by file name, for photos. fps: frames a second, for a video. start: when the flight began. note: what
    the user should know of them, if anything.
    """

    skipped: int
    times: dict[str, float]
    fps: float | None
    start: datetime | None
    note: str

    def __len__(self) -> int:
        """How many frames are expected."""

    def __iter__(self) -> Iterator[Frame]:
        """The frames, in the order of time."""


def open_frames(source: str | os.PathLike[str], *, rate_hz: float = 1.0, interval_s: float = 1.0) -> Frames:
    """Frames of a video at `rate_hz` a second, or all photos of a folder.

    interval_s: seconds between photos whose EXIF does not say when they were taken.
    """
    path = Path(source)
    for name, value in (("rate", rate_hz), ("interval", interval_s)):
        if not (math.isfinite(value) and value > 0):
            raise SkyPartError(f"the {name} of frames must be a positive number, not {value}")
    if path.is_dir():
        return PhotoFrames(path, interval_s)
    if not path.is_file():
        raise SkyPartError(f"{path}: no such file or folder; name a video or a folder of photos")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise SkyPartError(f"{path}: is one photo; use `skypart locate`, or name the folder of a flight's photos")
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        raise SkyPartError(
            f"{path}: not a video this program reads; convert it to one of {', '.join(sorted(VIDEO_SUFFIXES))}"
        )
    return VideoFrames(path, rate_hz)
