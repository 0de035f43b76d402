"""Apply one weather condition to a folder of photos. Keeps the folder tree and EXIF, skips finished files."""

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
from skypart.images.weather.conditions import RENDERING, check_condition, check_profile, severity_steps
from skypart.progress import with_progress

RECORD = "weather.json"
"""File in the output folder that records which weather was applied."""

# TIFF tags that describe the pixel layout of the source file. They do not apply to the new file, which is upright.
_LAYOUT_TAGS = (
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
_SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    ".jpg": {"quality": _QUALITY, "subsampling": 0},
    ".jpeg": {"quality": _QUALITY, "subsampling": 0},
    ".webp": {"quality": _QUALITY},
    ".png": {"compress_level": 3},
}


@dataclass(frozen=True)
class FolderResult:
    """Number of files written, and of files that existed already."""

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

    The key of an image is its relative path with forward slashes, so a subfolder on its own gets other random weather
    than as part of the tree. Files are written atomically and existing files are skipped, so the same command resumes.
    Raises if the output folder has images with another kind of weather.
    """
    check_condition(condition)
    check_profile(profile)
    if severity is not None:
        severity_steps(condition, severity)  # raises on a bad severity before anything is written
    root, out = Path(source), Path(target)
    photos = _find_photos(root, out)
    record = {"condition": condition, "profile": profile, "seed": seed, "severity": severity, "rendering": RENDERING}
    _write_or_check_record(out / RECORD, record, [out / photo.relative_to(root) for photo in photos])
    todo = [photo for photo in photos if not (out / photo.relative_to(root)).exists()]
    with closing(with_progress(todo, f"Weather: {condition}")) as photos_left:
        for photo in photos_left:
            relative = photo.relative_to(root)
            _corrupt_file(photo, out / relative, relative.as_posix(), condition, profile, seed, severity)
    return FolderResult(written=len(todo), skipped=len(photos) - len(todo))


def _find_photos(root: Path, out: Path) -> list[Path]:
    """The images below `root`, sorted; raises if the folders cannot be used."""
    if not root.is_dir():
        raise SkyPartError(f"{root}: no such folder; check the path")
    inside, outside = root.resolve(), out.resolve()
    if outside == inside or outside.is_relative_to(inside):
        raise SkyPartError(f"{out}: is inside {root} and would mix with its photos; choose a folder outside it")
    if out.exists() and not out.is_dir():
        raise SkyPartError(f"{out}: is a file, not a folder; choose another path")
    photos = images_below(root)
    if not photos:
        raise SkyPartError(f"{root}: has no images ({', '.join(sorted(IMAGE_SUFFIXES))}); check the path")
    return photos


def _write_or_check_record(path: Path, record: dict[str, Any], targets: Sequence[Path]) -> None:
    """Write the record of a new folder, or raise if its images have another kind of weather, or an unknown one."""
    if not path.exists():
        existing = next((target for target in targets if target.exists()), None)
        if existing is not None:
            raise SkyPartError(f"{existing}: exists already, without a {path.name}; choose another folder")
        write_text(path, json.dumps(record, indent=2) + "\n")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkyPartError(f"{path}: cannot be read ({error}); remove the folder or choose another one") from error
    if found != record:
        raise SkyPartError(
            f"{path.parent}: has images made with {found}, not with {record}; choose another folder or remove it"
        )


def _corrupt_file(
    photo: Path, target: Path, key: str, condition: str, profile: str, seed: int, severity: float | None
) -> None:
    """Corrupt one file. Its EXIF and colour profile are kept; its pixels are turned upright."""
    with open_image(photo) as opened:
        pixels = to_rgb(opened, str(photo))
        exif, icc_profile = _copy_exif(opened), opened.info.get("icc_profile")
        colour_mode = opened.mode
    options = dict(_SAVE_OPTIONS.get(target.suffix.lower(), {}))
    if exif is not None:
        options["exif"] = exif
    # The profile of a grey or CMYK image does not describe the RGB pixels written here.
    if icc_profile and colour_mode in ("RGB", "RGBA", "P"):
        options["icc_profile"] = icc_profile
    with atomic_path(target) as temporary:
        Image.fromarray(corrupt(pixels, condition, profile, seed, key, severity)).save(temporary, **options)


def _copy_exif(image: Image.Image) -> Image.Exif | None:
    """The EXIF of an image without layout tags; None if there is none or it is damaged."""
    try:
        exif = image.getexif()
        for tag in _LAYOUT_TAGS:
            exif.pop(tag, None)
        exif.tobytes()
    except Exception:  # Pillow raises anything on damaged EXIF; the pixels are fine
        return None
    return exif if len(exif) else None
