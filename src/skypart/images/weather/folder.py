"""A whole folder of photos under one condition: same tree, EXIF kept, finished files skipped."""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from skypart.atomic import atomic_path, write_text
from skypart.errors import SkyPartError
from skypart.images.decode import IMAGE_SUFFIXES, images_below, open_image, to_rgb
from skypart.images.weather.apply import corrupt
from skypart.images.weather.names import RENDERING, check_condition, check_profile
from skypart.images.weather.severity import severity_steps
from skypart.progress import with_progress

RECORD = "weather.json"
"""File in the target folder that says which weather its images are under."""

# Tags that say how the pixels of the source lie in its file; those of the new file are others. The pixels are upright.
_STRUCTURE = (
    254,
    256,
    257,
    258,
    259,
    262,
    266,
    273,
    274,
    277,
    278,
    279,
    284,
    317,
    320,
    322,
    323,
    324,
    325,
    330,
    338,
    339,
)
_QUALITY = 95
_OPTIONS: dict[str, dict[str, Any]] = {
    ".jpg": {"quality": _QUALITY, "subsampling": 0},
    ".jpeg": {"quality": _QUALITY, "subsampling": 0},
    ".webp": {"quality": _QUALITY},
    ".png": {"compress_level": 3},
}


@dataclass(frozen=True)
class FolderResult:
    """How many files were written now, and how many stood there from before."""

    written: int
    skipped: int


def corrupt_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    condition: str,
    profile: str = "paper",
    seed: int = 0,
    severity: float | None = None,
) -> FolderResult:
    """Write every image under `source` to the same relative path under `target`, corrupted.

    The key of an image is its relative path with forward slashes, so a part of the tree gives other draws than the
    whole. Files appear whole, and files that exist are skipped: the same command goes on where it stopped.
    A folder that holds another kind of weather is refused.
    """
    check_condition(condition)
    check_profile(profile)
    if severity is not None:
        severity_steps(condition, severity)  # refuses what is no severity before anything is written
    root, out = Path(source), Path(target)
    photos = _photos(root, out)
    made = {"condition": condition, "profile": profile, "seed": seed, "severity": severity, "rendering": RENDERING}
    _keep_record(out / RECORD, made, [out / photo.relative_to(root) for photo in photos])
    todo = [photo for photo in photos if not (out / photo.relative_to(root)).exists()]
    with closing(with_progress(todo, f"Weather: {condition}")) as photos_left:
        for photo in photos_left:
            relative = photo.relative_to(root)
            _corrupt_file(photo, out / relative, relative.as_posix(), condition, profile, seed, severity)
    return FolderResult(written=len(todo), skipped=len(photos) - len(todo))


def _photos(root: Path, out: Path) -> list[Path]:
    """The images under `root` in sorted order, or a clear sentence."""
    if not root.is_dir():
        raise SkyPartError(f"{root}: no such folder; check the path")
    inside, outside = root.resolve(), out.resolve()
    if outside == inside or outside.is_relative_to(inside):
        raise SkyPartError(f"{out}: lies within {root}, whose photos it would mix with; choose a folder beside it")
    if out.exists() and not out.is_dir():
        raise SkyPartError(f"{out}: is a file where a folder is wanted; choose another place")
    photos = images_below(root)
    if not photos:
        raise SkyPartError(f"{root}: holds no images ({', '.join(sorted(IMAGE_SUFFIXES))}); check the path")
    return photos


def _keep_record(path: Path, wanted: dict[str, Any], targets: Sequence[Path]) -> None:
    """Write the record of a new folder; refuse to mix two kinds of weather in one, or pictures of which nothing is
    known with weather."""
    if not path.exists():
        known = next((target for target in targets if target.exists()), None)
        if known is not None:
            raise SkyPartError(f"{known}: is there, and no {path.name} tells how it was made; choose another folder")
        write_text(path, json.dumps(wanted, indent=2) + "\n")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkyPartError(f"{path}: cannot be read ({error}); remove the folder or choose another place") from error
    if found != wanted:
        raise SkyPartError(
            f"{path.parent}: holds images made with {found}, not with {wanted}; choose another folder or remove it"
        )


def _corrupt_file(
    photo: Path, target: Path, key: str, condition: str, profile: str, seed: int, severity: float | None
) -> None:
    """Corrupt one file; its EXIF and colour profile go along, turned upright."""
    with open_image(photo) as opened:
        pixels = to_rgb(opened, str(photo))
        exif, colours = _kept_exif(opened), opened.info.get("icc_profile")
        colour_mode = opened.mode
    options = dict(_OPTIONS.get(target.suffix.lower(), {}))
    if exif is not None:
        options["exif"] = exif
    # A profile of grey or CMYK values does not describe the RGB pixels written here.
    if colours and colour_mode in ("RGB", "RGBA", "P"):
        options["icc_profile"] = colours
    with atomic_path(target) as temporary:
        Image.fromarray(corrupt(pixels, condition, profile, seed, key, severity)).save(temporary, **options)


def _kept_exif(image: Image.Image) -> Image.Exif | None:
    """The EXIF of an image but for what describes its pixels; None where there is none, or it is damaged."""
    try:
        exif = image.getexif()
        for tag in _STRUCTURE:
            exif.pop(tag, None)
        exif.tobytes()
    except Exception:  # whatever Pillow meets in a damaged header, the pixels are good
        return None
    return exif if len(exif) else None
