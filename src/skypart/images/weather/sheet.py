"""A contact sheet: one photo in all ten conditions and both profiles."""

import os
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from skypart.drawing.files import check_suffix, save_image
from skypart.images.decode import RgbImage, read_rgb
from skypart.images.weather.apply import corrupt
from skypart.images.weather.conditions import CONDITIONS, LABELS, PROFILES

_COLUMNS = 5
_GAP = 14
_MARGIN = 28
_LABEL_HEIGHT = 30
_HEADING_HEIGHT = 58
_BACKGROUND, _TEXT, _MUTED = (250, 250, 248), (32, 36, 42), (112, 118, 126)
_TITLES = {
    "paper": "the parameters of the paper",
    "weatherprompt": "what the released code of MuSe-Net and WeatherPrompt applies",
}


def contact_sheet(photo: RgbImage, seed: int = 0, key: str = "", cell: int = 320) -> RgbImage:
    """Draw an (h, w, 3) uint8 photo in 2 x 10 cells. cell: longer side of each image on the sheet, in pixels.

    The photo is corrupted at its original size and then scaled down, as in the benchmarks.
    """
    height, width = photo.shape[:2]
    scale = cell / max(height, width)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    rows = -(-len(CONDITIONS) // _COLUMNS)
    step_x, step_y = max(size[0], 120) + _GAP, size[1] + _LABEL_HEIGHT + _GAP
    block = _HEADING_HEIGHT + rows * step_y
    sheet = Image.new("RGB", (2 * _MARGIN + _COLUMNS * step_x - _GAP, 2 * _MARGIN + len(PROFILES) * block), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for index, profile in enumerate(PROFILES):
        top = _MARGIN + index * block
        draw.text((_MARGIN, top), profile, fill=_TEXT, font=_font(26, bold=True))
        start = _MARGIN + draw.textlength(profile, font=_font(26, bold=True)) + 16
        draw.text((start, top + 9), _TITLES[profile], fill=_MUTED, font=_font(16))
        for number, condition in enumerate(CONDITIONS):
            left, upper = _MARGIN + number % _COLUMNS * step_x, top + _HEADING_HEIGHT + number // _COLUMNS * step_y
            image = Image.fromarray(corrupt(photo, condition, profile, seed, key))
            sheet.paste(
                image.resize(size, Image.Resampling.BOX if scale < 1.0 else Image.Resampling.BICUBIC), (left, upper)
            )
            draw.text((left, upper + size[1] + 4), LABELS[condition], fill=_TEXT, font=_font(17))
    return np.asarray(sheet)


def save_contact_sheet(photo: str | os.PathLike[str], target: str | os.PathLike[str], seed: int = 0) -> None:
    """Write the contact sheet of a photo. The photo's file name is its key."""
    check_suffix(target)
    save_image(Image.fromarray(contact_sheet(read_rgb(photo), seed, Path(photo).name)), target)


@lru_cache(maxsize=8)
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with matplotlib."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)
