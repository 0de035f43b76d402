"""Write figures and images to files, atomically, in the format of the file's suffix."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".svg", ".pdf")


def check_suffix(path: str | os.PathLike[str], suffixes: Collection[str] = ()) -> None:
    """Raise if the suffix of `path` is not an image format that can be written. Call this before long work.

    suffixes: the allowed ones; by default all that Pillow can write.
    """
    suffix = Path(path).suffix.lower()
    can = suffix in suffixes if suffixes else Image.registered_extensions().get(suffix) in Image.SAVE
    if not can:
        raise SkyPartError(
            f"{path}: {suffix or 'no suffix'} is not an image format that can be written; end the name in "
            f"{', '.join(suffixes) or '.png or .jpg'}"
        )


def check_figure_path(path: Path) -> None:
    """Raise if `path` does not end in one of FIGURE_SUFFIXES. Call this before long work."""
    check_suffix(path, FIGURE_SUFFIXES)


def save_image(image: Image.Image, path: str | os.PathLike[str]) -> None:
    """Write a Pillow image to `path`, atomically, in the format of its suffix."""
    check_suffix(path)
    with atomic_path(path) as temporary:
        image.save(temporary)


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a matplotlib figure to `path`, atomically."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)
