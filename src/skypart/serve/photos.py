"""From an uploaded photo to pixels, and from pixels to a picture the page can show; runs in a worker thread."""

import hashlib
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage, read_rgb
from skypart.images.weather import corrupt
from skypart.serve.forms import PhotoForm
from skypart.serve.problems import RefusedError

PREVIEW_EDGE = 1280


def is_allowed(photo: bytes) -> bool:
    """Whether the first bytes are those of a JPEG, PNG, WebP or TIFF file; no other decoder is tried."""
    if photo.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\x00", b"MM\x00*")):
        return True
    return photo[:4] == b"RIFF" and photo[8:12] == b"WEBP"


def read_photo(photo: bytes, form: PhotoForm, max_pixels: int) -> RgbImage:
    """Decode an upload within `max_pixels` and put it under the weather that was asked for.

    The draw of the weather depends on the photo's bytes, not on its name: the same photo always gets the same drops.
    """
    if not is_allowed(photo):
        raise RefusedError(415, "this is not a JPEG, PNG, WebP or TIFF file; convert the photo to one of them")
    try:
        image = read_rgb(io.BytesIO(photo), max_pixels)
    except SkyPartError as error:
        raise RefusedError(422, str(error)) from None
    if form.weather == "normal":
        return image
    key = hashlib.sha256(photo).hexdigest()
    return corrupt(image, form.weather, form.profile, form.seed, key)


def jpeg(image: RgbImage, edge: int = PREVIEW_EDGE, quality: int = 88) -> bytes:
    """A JPEG of `image`, scaled down to at most `edge` pixels."""
    picture = Image.fromarray(image)
    picture.thumbnail((edge, edge), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality)
    return out.getvalue()


def png(image: NDArray[np.uint8]) -> bytes:
    """A PNG of (h, w, 3) or (h, w, 4) pixels."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG", compress_level=4)
    return out.getvalue()
