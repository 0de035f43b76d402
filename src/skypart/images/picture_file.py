"""Pictures to files: whole or not at all, in the format that the file's name asks for."""

import os
from pathlib import Path

from PIL import Image

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Refuse a name that stands for no picture format; for those who would work long before they write."""
    suffix = Path(path).suffix.lower()
    if suffix not in Image.registered_extensions():
        raise SkyPartError(f"{path}: no picture format has the suffix {suffix!r}; use .png or .jpg")


def save_picture(picture: Image.Image, path: str | os.PathLike[str]) -> None:
    """Write `picture` to `path`, atomically, in the format its suffix names."""
    check_suffix(path)
    with atomic_path(path) as temporary:
        picture.save(temporary)
