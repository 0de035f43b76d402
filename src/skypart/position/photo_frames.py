"""A folder of photos as the frames of a flight."""

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.images.decode import list_photos, read_rgb
from skypart.images.exif import read_camera_facts
from skypart.position.frame import Frame
from skypart.position.hints import hints_of


class PhotoFrames:
    """All photos of a folder, by the time of their EXIF if every one has it, else by name, `interval_s` apart.

    What EXIF and XMP say of the camera comes with each, as for `skypart locate`.
    """

    def __init__(self, folder: Path, interval_s: float) -> None:
        self.folder = folder
        self.skipped = 0
        self.fps: float | None = None
        photos = list_photos([folder])
        facts = {photo: read_camera_facts(photo) for photo in photos}
        self._hints = {photo: hints_of(each) for photo, each in facts.items()}
        known = [each.time for each in facts.values() if each.time is not None]
        self.start: datetime | None = None
        self.dated = len(known) == len(photos)
        if self.dated:
            self.start, ordered = _by_time(photos, known)
        else:
            ordered = [(photo, index * interval_s) for index, photo in enumerate(photos)]
        self._ordered = ordered
        self.times = {photo.relative_to(folder).as_posix(): seconds for photo, seconds in ordered}

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


def _by_time(photos: list[Path], stamps: list[datetime]) -> tuple[datetime, list[tuple[Path, float]]]:
    """The first time, and photos with seconds from it; photos of one second are spread over it, by name."""
    if any(stamp.tzinfo is None for stamp in stamps):
        stamps = [stamp.replace(tzinfo=None) for stamp in stamps]
    first = min(stamps)
    pairs = sorted(((stamp - first).total_seconds(), photo) for stamp, photo in zip(stamps, photos, strict=True))
    groups = [(seconds, [photo for _, photo in group]) for seconds, group in groupby(pairs, key=lambda pair: pair[0])]
    ends = [seconds for seconds, _ in groups[1:]] + [groups[-1][0] + 1.0]
    ordered: list[tuple[Path, float]] = []
    for (seconds, same), end in zip(groups, ends, strict=True):
        room = min(1.0, end - seconds)
        ordered += [(photo, seconds + room * i / len(same)) for i, photo in enumerate(same)]
    return first, ordered
