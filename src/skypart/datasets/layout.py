"""Where the images of each data set kind belong, and how many the published release has of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skypart.datasets import denseuav, folders, sues200, university1652

WORLD_FILE = "world.json"
"""Stands in rendered data sets, beside the folder `maps` of the whole ground."""


@dataclass(frozen=True)
class Part:
    """A folder of location folders.

    folder: relative to the root, such as `test/query_drone`.
    inner: name of the folder between location and image (raw SUES-200's altitude), or None.
    official: (locations, images) of the published release, or None where nothing is fixed.
    used: False for folders that neither direction reads.
    """

    folder: str
    inner: str | None = None
    official: tuple[int, int] | None = None
    used: bool = True

    @property
    def name(self) -> str:
        """How the part is called in reports."""
        return self.folder if self.inner is None else f"{self.folder}/*/{self.inner}"


def parts_of(kind: str, root: Path) -> list[Part]:
    """The parts that a data set of `kind` in `root` consists of."""
    if kind == university1652.KIND:
        unused = [Part(name, used=False) for name in university1652.UNUSED_PARTS]
        return _fixed(university1652.OFFICIAL_COUNTS) + unused
    if kind == denseuav.KIND:
        return _fixed(denseuav.OFFICIAL_COUNTS)
    if kind == folders.KIND:
        views = [folders.view_folder(root, "drone"), folders.view_folder(root, "satellite")]
        return [Part(folder.name) for folder in views if folder is not None]
    raw = sues200.raw_folders(root)
    if raw is None:
        return _fixed(
            {name.format(h=h): count for h in sues200.ALTITUDES for name, count in sues200.SPLIT_COUNTS.items()}
        )
    drone, satellite = raw
    images = sues200.LOCATIONS * sues200.IMAGES_PER_ALTITUDE
    levels = [Part(drone.name, str(h), (sues200.LOCATIONS, images)) for h in sues200.ALTITUDES]
    return [*levels, Part(satellite.name, official=(sues200.LOCATIONS, sues200.LOCATIONS))]


def _fixed(counts: Mapping[str, tuple[int, int]]) -> list[Part]:
    return [Part(folder, official=official) for folder, official in counts.items()]


def place(parts: list[Part], relative: str, loose: bool) -> tuple[Part | None, str, str]:
    """Find the part and the location of an image, given its path relative to the root, with slashes.

    loose: whether images may lie directly in the part's folder or deeper (own folders).
    Returns (part or None, location, complaint or "").
    """
    inside = [part for part in parts if relative.startswith(part.folder + "/")]
    if not inside:
        return None, "", ""
    words = relative[len(inside[0].folder) + 1 :].split("/")
    if loose:
        return inside[0], words[0] if len(words) > 1 else Path(words[0]).stem, ""
    if len(words) == 1:
        return inside[0], "", "lies directly in the part's folder; it belongs into a location folder"
    if not words[0].isdigit():
        return inside[0], "", f"its folder {words[0]!r} is not a location number"
    for part in inside:
        if words[1:-1] == ([] if part.inner is None else [part.inner]):
            return part, words[0], ""
    if inside[0].inner is not None:
        levels = ", ".join(part.inner or "" for part in inside)
        return inside[0], "", f"lies in {'/'.join(words[:-1])}, not in an altitude folder ({levels})"
    return inside[0], "", "lies one folder too deep"
