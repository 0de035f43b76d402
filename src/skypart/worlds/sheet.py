"""Contact sheets of made data: a row a location, its satellite tile beside drone views of it."""

from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from skypart.drawing.files import save_image
from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage, is_image, read_rgb

PATTERNS = (
    ("satellite/{}/*", "drone/{}/*", "satellite"),
    ("satellite-view/{}/*", "drone_view_512/{}/*/*", "satellite-view"),
    ("t*/satellite/{}/*", "t*/drone/{}/*", "train/satellite"),
    ("test/gallery_satellite/{}/*", "test/gallery_drone/{}/*", "test/gallery_satellite"),
)


def write_sheet(root: Path, out: Path, rows: int = 8, start: int = 0, columns: int = 5, size: int = 224) -> None:
    """Draw `rows` locations of the data set `root`, one satellite tile and up to `columns` drone views each."""
    lines = []
    for satellites, drones, listing in PATTERNS:
        folder = root / listing
        names = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
        for name in names[start : start + rows]:
            tiles, views = (_pictures(root, each.format(name)) for each in (satellites, drones))
            chosen = [views[i] for i in np.linspace(0, len(views) - 1, min(columns, len(views))).astype(int)]
            lines.append([_cell(path, size) for path in tiles[:1] + chosen])
        if lines:
            break
    if not lines:
        raise SkyPartError(f"{root}: no locations found; give a folder made by skypart world make")
    width = max(len(line) for line in lines)
    blank = np.full((size, size, 3), 255, dtype=np.uint8)
    sheet = np.vstack([np.hstack(line + [blank] * (width - len(line))) for line in lines])
    save_image(Image.fromarray(sheet), out)


def _pictures(root: Path, pattern: str) -> list[Path]:
    """The images of a pattern, sorted."""
    return sorted(path for path in root.glob(pattern) if is_image(path.name))


def _cell(path: Path, size: int) -> RgbImage:
    """A picture at the sheet's size with a thin white frame."""
    picture: RgbImage = cv2.resize(read_rgb(path), (size - 4, size - 4), interpolation=cv2.INTER_AREA)
    framed: RgbImage = cv2.copyMakeBorder(picture, 2, 2, 2, 2, cv2.BORDER_CONSTANT, value=(255, 255, 255))
    return framed
