"""Pictures to files: whole or not at all, in the format that the file's name asks for."""

import os
from collections.abc import Collection
from pathlib import Path

from PIL import Image

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError


def check_suffix(path: str | os.PathLike[str], suffixes: Collection[str] = ()) -> None:
    """Refuse a name that stands for no picture format; for those who would work long before they write.

    suffixes: those allowed, if not all that Pillow can write.
    """
    suffix = Path(path).suffix.lower()
    can = suffix in suffixes if suffixes else Image.registered_extensions().get(suffix) in Image.SAVE
    if not can:
        raise SkyPartError(
            f"{path}: {suffix or 'no suffix'} is not a format of pictures that can be written; end the name in "
            f"{', '.join(suffixes) or '.png or .jpg'}"
        )


def save_picture(picture: Image.Image, path: str | os.PathLike[str]) -> None:
    """Write `picture` to `path`, atomically, in the format its suffix names."""
    check_suffix(path)
    with atomic_path(path) as temporary:
        picture.save(temporary)
