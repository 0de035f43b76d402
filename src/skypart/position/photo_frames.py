"""A folder of photos as the frames of a flight."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.images.decode import list_photos, open_image, read_rgb
from skypart.images.exif import read_camera_facts
from skypart.position.frame import Frame
from skypart.position.hints import hints_of


class PhotoFrames:
    """All photos of a folder, by the time of their EXIF if every readable one has it, else by name, `interval_s` apart.

    What EXIF and XMP say of the camera comes with each, as for `skypart locate`. Where there are times, photos whose
    header cannot be read come last, and have none in `times`.
    """

    def __init__(self, folder: Path, interval_s: float) -> None:
        self.folder = folder
        self.skipped = 0
        self.fps: float | None = None
        self.note = ""
        self.start: datetime | None = None
        photos = sorted(list_photos([folder]), key=lambda photo: natural(photo.relative_to(folder)))
        facts = {photo: read_camera_facts(photo) for photo in photos}
        self._hints = {photo: hints_of(each) for photo, each in facts.items()}
        stamps = {photo: each.time for photo, each in facts.items() if each.time is not None}
        damaged = [photo for photo in photos if photo not in stamps and not _opens(photo)]
        timeless = len(photos) - len(damaged) - len(stamps)
        if stamps and not timeless:
            self.start, ordered = _by_time(stamps)
        else:
            ordered, damaged = [(photo, index * interval_s) for index, photo in enumerate(photos)], []
        if timeless:
            told = f"{timeless} of {len(photos)} photos say no time: all are taken by name, {interval_s:g} s apart"
            self.note = f"{told} (--interval)"
        self.times = {photo.relative_to(folder).as_posix(): seconds for photo, seconds in ordered}
        self._ordered = ordered + [(photo, ordered[-1][1]) for photo in damaged]

    def __len__(self) -> int:
        """How many photos there are."""
        return len(self._ordered)

    def __iter__(self) -> Iterator[Frame]:
        """Yield photos; those that cannot be read are counted in `skipped`."""
        self.skipped = 0
        for photo, seconds in self._ordered:
            try:
                image = read_rgb(photo)
            except SkyPartError:
                self.skipped += 1
                continue
            yield Frame(seconds, image, str(photo), self._hints[photo])


def natural(path: Path) -> list[list[str | int]]:
    """A key that sorts numbers in the names of folders and files by their value: frame2 before frame10."""
    parts = [re.split("([0-9]+)", part) for part in path.parts]
    return [[int(piece) if number % 2 else piece for number, piece in enumerate(pieces)] for pieces in parts]


def _opens(photo: Path) -> bool:
    try:
        open_image(photo).close()
    except (SkyPartError, OSError):
        return False
    return True


def _by_time(stamps: dict[Path, datetime]) -> tuple[datetime, list[tuple[Path, float]]]:
    """The first time, and photos with seconds from it; photos of one second are spread over it, in their order."""
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
