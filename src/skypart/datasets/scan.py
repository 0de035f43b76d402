"""List folders of images in a fixed order, independent of the file system."""

import os
from collections.abc import Iterator
from pathlib import Path

from skypart.datasets.records import Position, Record, View
from skypart.errors import SkyPartError
from skypart.images.decode import is_image


def folders_in(folder: Path) -> list[Path]:
    """Visible sub-folders of `folder`, sorted by name; none if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return [folder / name for name in sorted(e.name for e in entries if e.is_dir() and e.name[0] != ".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SkyPartError(f"cannot list {folder}: {error.strerror}; check its permissions") from error


def images_in(folder: Path) -> list[Path]:
    """Image files directly inside `folder`, sorted by name; none if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return [folder / name for name in sorted(e.name for e in entries if is_image(e.name) and e.is_file())]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SkyPartError(f"cannot list {folder}: {error.strerror}; check its permissions") from error


def read_classes(
    folder: Path,
    view: View,
    altitude: float | None = None,
    digits: int = 4,
    positions: dict[str, Position] | None = None,
) -> Iterator[Record]:
    """Records of `folder/<id>/*`; ids are numbers, written with `digits` digits (0001 and 1 are the same)."""
    for location_folder in folders_in(folder):
        if not location_folder.name.isdigit():
            continue
        location = f"{int(location_folder.name):0{digits}d}"
        position = positions.get(location) if positions else None
        for path in images_in(location_folder):
            yield Record(path, view, location, altitude, position)


def abbreviate(names: set[str], shown: int = 5) -> str:
    """The number of `names` and the first few of them: `7 (0001, 0002, ...)`."""
    listed = sorted(names)[:shown]
    return f"{len(names):,} ({', '.join(listed)}{', ...' if len(names) > shown else ''})"
