"""Decode photos to upright 8-bit RGB within size limits, with clear errors for files that cannot be read."""

import io
import math
import os
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from skypart.errors import SkyPartError

RgbImage: TypeAlias = NDArray[np.uint8]
"""(height, width, 3) uint8, sRGB."""

ImageLike: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | NDArray[np.generic]
"""A path, the bytes of an image file, a PIL image, or pixels."""

FORMATS = ("JPEG", "PNG", "TIFF", "WEBP", "BMP", "GIF", "PPM", "JPEG2000")
MAX_PIXELS = 200_000_000
MAX_SIDE = 65_535
"""Pixels along the longer side; also the limit of JPEG."""
MAX_RATIO, RATIO_FROM = 100, 4_096
"""Longer by shorter side, of images with a side above RATIO_FROM pixels: no camera takes narrower ones."""
STRIP_PIXELS = 4 << 20
"""Pixels converted at once, so that an image is not held in memory in several modes."""
LARGE_PIXELS = 3_000_000
"""Pixels from which `read_photo` lets the JPEG decoder scale."""
MIN_OVERSAMPLING = 1.5
"""Smallest edge that `read_photo` returns, in edges of the model input."""
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".jp2"})

# EXIF orientation -> how to turn the stored pixels upright.
_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# `open_image` checks its own limit from the header, before it decodes any pixel.
Image.MAX_IMAGE_PIXELS = None


def open_image(source: str | os.PathLike[str] | io.BytesIO, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Open an image lazily: read the header and check format and size, but decode no pixels."""
    name = "the uploaded image" if isinstance(source, io.BytesIO) else str(source)
    if not isinstance(source, io.BytesIO):
        path = Path(source)
        if not path.exists():
            raise SkyPartError(f"{name}: no such file; check the path")
        if path.is_dir():
            raise SkyPartError(f"{name}: is a folder, not an image; name a file in it")
        if path.stat().st_size == 0:
            raise SkyPartError(f"{name}: the file is empty (0 bytes); copy it again from its source")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(source, formats=FORMATS)
    except MemoryError as error:
        raise SkyPartError(f"{name}: decoding it takes too much memory; scale it down or save it as JPEG") from error
    except UnidentifiedImageError:
        raise SkyPartError(f"{name}: not a supported image; convert it to 8-bit JPEG, PNG or TIFF first") from None
    except (OSError, ValueError, SyntaxError) as error:
        raise SkyPartError(f"{name}: the image header cannot be read ({error}); copy the file again") from error
    if _is_misread_by_pillow(image):
        raise SkyPartError(
            f"{name}: uncompressed 16-bit TIFF with separate planes is not supported; "
            "convert it with `gdal_translate -co INTERLEAVE=PIXEL`"
        )
    width, height = image.size
    if width * height > max_pixels:
        raise SkyPartError(
            f"{name}: {width} x {height} pixels exceed the limit of {max_pixels:,}; "
            "scale it down, or index it as a georeferenced map"
        )
    longer, shorter = max(width, height), max(min(width, height), 1)
    if longer > MAX_SIDE or (longer > RATIO_FROM and longer > MAX_RATIO * shorter):
        raise SkyPartError(
            f"{name}: {width} x {height} pixels are too long or too narrow for a photo; crop it, or index it as a "
            "georeferenced map"
        )
    return image


def _is_misread_by_pillow(image: Image.Image) -> bool:
    """Whether Pillow would silently read the two bytes of each sample as two pixels."""
    tags = getattr(image, "tag_v2", {})
    planes = image.format == "TIFF" and tags.get(284) == 2 and max(tags.get(258, (8,))) > 8
    tiles = getattr(image, "tile", [])
    return planes and len(image.getbands()) > 1 and bool(tiles) and tiles[0].codec_name == "raw"


def to_rgb(image: Image.Image, name: str = "image") -> RgbImage:
    """Decode `image`, turn it upright by its EXIF orientation, and convert it to (height, width, 3) uint8.

    Palette, grey, CMYK and alpha images are converted (transparent pixels over black). 16-bit grey is
    divided by 257, so that 65535 becomes 255. 32-bit and float images are stretched over their own range.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.load()
    except MemoryError as error:
        raise SkyPartError(f"{name}: decoding it takes too much memory; scale it down or save it as JPEG") from error
    except (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, struct.error) as error:
        raise SkyPartError(f"{name}: the image data is damaged or truncated ({error}); copy the file again") from error
    upright = _turn_upright(image)
    if upright.mode.startswith(("I", "F")):
        return np.repeat(_wide_to_byte(np.asarray(upright), upright.mode)[:, :, None], 3, axis=2)
    if upright.mode == "RGB" and "transparency" not in upright.info:
        return np.asarray(upright)
    rgb = np.empty((upright.height, upright.width, 3), dtype=np.uint8)
    rows = max(STRIP_PIXELS // upright.width, 1)
    for top in range(0, upright.height, rows):
        strip = upright.crop((0, top, upright.width, min(top + rows, upright.height)))
        if strip.mode in ("RGBA", "LA", "PA") or "transparency" in strip.info:
            layered = strip.convert("RGBA")
            strip = Image.alpha_composite(Image.new("RGBA", layered.size, (0, 0, 0, 255)), layered)
        rgb[top : top + rows] = np.asarray(strip.convert("RGB"))
    return rgb


def _turn_upright(image: Image.Image) -> Image.Image:
    """Turn a decoded image upright by its EXIF orientation; if the EXIF is damaged, return it as stored."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            orientation = image.getexif().get(0x0112)
    except Exception:  # Pillow raises anything on damaged EXIF; the pixels are fine
        return image
    return image.transpose(_TRANSPOSES[orientation]) if orientation in _TRANSPOSES else image


def read_rgb(source: ImageLike | io.BytesIO, max_pixels: int = MAX_PIXELS) -> RgbImage:
    """Read a path, bytes of a file, PIL image or array as (height, width, 3) uint8 RGB.

    Arrays may be (h, w), (h, w, 1), (h, w, 3) or (h, w, 4), of uint8 or uint16.
    """
    if isinstance(source, np.ndarray):
        return array_to_rgb(source)
    if isinstance(source, Image.Image):
        return to_rgb(source)
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    name = "the uploaded image" if isinstance(source, io.BytesIO) else str(source)
    with open_image(source, max_pixels) as image:
        return to_rgb(image, name)


def read_photo(source: ImageLike | io.BytesIO, edge: int, max_pixels: int = MAX_PIXELS) -> RgbImage:
    """`read_rgb` of a photo that will be resized to (edge, edge): a large JPEG is decoded at a fraction of its size.

    The decoder leaves out the high frequencies (by 2, 4 or 8), so that 12 megapixels take about a third of the time.
    The result is at least MIN_OVERSAMPLING * edge pixels wide and high; resized, it differs from the whole image by
    less than 1/255 on average. Images below LARGE_PIXELS are decoded whole.
    """
    if isinstance(source, np.ndarray | Image.Image):
        return read_rgb(source, max_pixels)
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    name = "the uploaded image" if isinstance(source, io.BytesIO) else str(source)
    with open_image(source, max_pixels) as image:
        if image.format == "JPEG" and image.width * image.height >= LARGE_PIXELS:
            least = round(MIN_OVERSAMPLING * edge)
            image.draft(None, (least, least))
        return to_rgb(image, name)


def array_to_rgb(array: NDArray[np.generic]) -> RgbImage:
    """Convert a uint8 or uint16 array of (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) to (h, w, 3) uint8."""
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise SkyPartError(
            f"an image array must be (height, width) or (height, width, 1, 3 or 4), not {array.shape}; reshape it"
        )
    if array.dtype == np.uint16:
        array = ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if array.dtype != np.uint8:
        raise SkyPartError(f"an image array must be uint8 or uint16, not {array.dtype}; scale it to 0..255 first")
    pixels: RgbImage = np.asarray(array, dtype=np.uint8)
    if pixels.shape[2] == 1:
        return np.repeat(pixels, 3, axis=2)
    if pixels.shape[2] == 4:
        alpha = pixels[:, :, 3:].astype(np.uint16)
        return ((pixels[:, :, :3] * alpha + 127) // 255).astype(np.uint8)
    return pixels


def _wide_to_byte(values: NDArray[np.generic], mode: str) -> NDArray[np.uint8]:
    """Reduce a 16-bit, 32-bit or float grey image (h, w) to uint8, a few rows at a time to save memory."""
    rows = max((1 << 20) // max(values.shape[1], 1), 1)
    blocks = [values[start : start + rows] for start in range(0, len(values), rows)]
    low, high = _finite_range(blocks)
    base, span = low, max(high - low, 1e-12)
    if mode.startswith("I;16") or (mode != "F" and low >= 0 and 255 < high <= 65535):
        base, span = 0.0, 65535.0
    elif mode != "F" and low >= 0 and high <= 255:
        base, span = 0.0, 255.0
    reduced = np.empty(values.shape, dtype=np.uint8)
    for number, block in enumerate(blocks):
        wide = np.nan_to_num(block.astype(np.float64), nan=low, posinf=high, neginf=low)
        reduced[number * rows : (number + 1) * rows] = np.round((wide - base) / span * 255.0)
    return reduced


def _finite_range(blocks: Sequence[NDArray[np.generic]]) -> tuple[float, float]:
    """Smallest and largest finite value; 0 and 1 if there are none."""
    low, high = math.inf, -math.inf
    for block in blocks:
        known = block.astype(np.float64)
        known = known[np.isfinite(known)]
        if known.size:
            low, high = min(low, float(known.min())), max(high, float(known.max()))
    return (low, high) if low <= high else (0.0, 1.0)


def is_image(name: str) -> bool:
    """Whether a file name has an image suffix and is not hidden."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122 - speed


def images_below(folder: Path) -> list[Path]:
    """All image files below `folder`, sorted, without hidden files and folders."""
    found = (path for path in folder.rglob("*") if is_image(path.name) and path.is_file())
    return sorted(path for path in found if not is_hidden(path, folder))


def is_hidden(path: Path, root: Path) -> bool:
    """Whether `path`, or a folder between it and `root`, has a name that starts with a dot."""
    return any(part[0] == "." for part in path.relative_to(root).parts)


def list_photos(sources: Sequence[Path]) -> list[Path]:
    """All images in `sources`, which are files or folders to search; raises if there are none."""
    photos: list[Path] = []
    for source in sources:
        photos += images_below(source) if source.is_dir() else [source]
    if not photos:
        raise SkyPartError(
            f"no images in {', '.join(map(str, sources)) or 'the empty list'}; name photos or their folder"
        )
    return photos


def check_readable(photos: Sequence[Path], progress: str) -> None:
    """Check all image headers before long work; raise if one cannot be read. progress: what has been done so far."""
    broken = []
    for photo in photos:
        try:
            open_image(photo).close()
        except SkyPartError as error:
            broken.append(str(error))
    if broken:
        raise SkyPartError(unreadable_message(broken, progress))


def unreadable_message(broken: Sequence[str], progress: str) -> str:
    """One message about unreadable images. broken: an error message for each. progress: what has been done so far."""
    more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
    return f"{broken[0]}{more} ({progress}; fix the images, see `skypart data check --decode`, and start again)"


def check_own_name(name: str, where: str) -> None:
    """Raise unless `name` is that of a file below the folder of a table. where: the table, for messages."""
    parts = PurePath(name.replace("\\", "/")).parts
    if not parts or PurePath(name).is_absolute() or parts[0] == "/" or ".." in parts or "\0" in name:
        raise SkyPartError(
            f"{where}: the image {name[:120]!r} is not in the table's folder; copy it there and give its path relative "
            "to the folder"
        )


def check_own_file(path: Path, folder: Path, where: str) -> None:
    """Raise if `path` is a link that leaves the folder of a table."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SkyPartError(f"{where}: the image {path} is a link to outside the table's folder; copy it there")


def listed_file(folder: Path, name: str, where: str) -> Path:
    """Path of an image that a table in `folder` lists: in its subfolder `images`, or beside the table.

    Neither its name nor a link may leave the folder. where: the table and its line, for messages.
    """
    check_own_name(name, where)
    inside, beside = folder / "images" / name, folder / name
    try:
        found = inside if inside.exists() else beside
        found.exists()
    except OSError as error:  # a name that is too long, or a folder without permission
        raise SkyPartError(
            f"{folder}: a table there lists {name[:60]!r}, which cannot be opened ({error.strerror}); correct it"
        ) from error
    check_own_file(found, folder, where)
    return found
