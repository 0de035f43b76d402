"""Contact sheets of rendered data sets: one row per location, its satellite tile beside drone images of it."""

from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from skypart.datasets.registry import renderings
from skypart.drawing.files import save_image
from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage, is_image, read_rgb

_LEFT, _TOP = 64, 30
"""Room for labels, in pixels."""


def write_sheet(root: Path, out: Path, rows: int = 8, start: int = 0, columns: int = 5, size: int = 224) -> None:
    """Draw `rows` locations of the data set `root`, one satellite tile and up to `columns` drone images each."""
    lines, names = [], []
    pairs = [pair for rendering in renderings().values() for pair in rendering.view_folders]
    for satellite, drone in dict.fromkeys(pairs):
        level = satellite.split("/").index("{}")
        folders = sorted(folder for folder in root.glob(satellite.format("*")) if folder.is_dir())
        for folder in folders[start : start + rows]:
            location = folder.relative_to(root).parts[level]
            tiles, views = _images_below(folder), _images_below(root / drone.format(location))
            chosen = [views[i] for i in np.linspace(0, len(views) - 1, min(columns, len(views))).astype(int)]
            lines.append([_cell(path, size) for path in tiles[:1] + chosen])
            names.append(location)
        if lines:
            break
    if not lines:
        raise SkyPartError(f"{root}: no locations found; pass a folder made by `skypart world make`")
    width = max(len(line) for line in lines)
    blank = np.full((size, size, 3), 255, dtype=np.uint8)
    sheet = np.vstack([np.hstack(line + [blank] * (width - len(line))) for line in lines])
    save_image(_with_labels(sheet, names, size, width - 1), out)


def _with_labels(sheet: RgbImage, names: list[str], size: int, views: int) -> Image.Image:
    """The sheet with the columns' titles above and the locations' names at the left."""
    canvas = Image.new("RGB", (sheet.shape[1] + _LEFT, sheet.shape[0] + _TOP), (255, 255, 255))
    canvas.paste(Image.fromarray(sheet), (_LEFT, _TOP))
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(15)
    draw.text((_LEFT + size / 2, _TOP / 2), "satellite", fill=(30, 30, 30), font=font, anchor="mm")
    if views:
        middle = _LEFT + size + views * size / 2
        draw.text((middle, _TOP / 2), "drone views of the same place", fill=(30, 30, 30), font=font, anchor="mm")
    for row, name in enumerate(names):
        draw.text((_LEFT / 2, _TOP + (row + 0.5) * size), name, fill=(30, 30, 30), font=font, anchor="mm")
    return canvas


def _images_below(folder: Path) -> list[Path]:
    """The images in `folder` and its sub-folders, sorted."""
    return sorted(path for path in folder.rglob("*") if is_image(path.name))


def _cell(path: Path, size: int) -> RgbImage:
    """An image at the sheet's size with a thin white frame."""
    image: RgbImage = cv2.resize(read_rgb(path), (size - 4, size - 4), interpolation=cv2.INTER_AREA)
    framed: RgbImage = cv2.copyMakeBorder(image, 2, 2, 2, 2, cv2.BORDER_CONSTANT, value=(255, 255, 255))
    return framed
