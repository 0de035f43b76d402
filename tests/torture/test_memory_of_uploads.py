"""Small files that decode to much: within limits of memory and time, or refused."""

import io
import struct
import time
import zlib
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from PIL import Image

from skypart.errors import SkyPartError
from skypart.images.decode import open_image, read_photo, read_rgb, to_rgb
from skypart.images.exif import read_camera_facts
from skypart.serve.decoder import PhotoDecoder
from skypart.serve.errors import HttpError
from skypart.serve.photo_request import LocateForm, decode_photo, parse_form
from tests.serve.conftest import encoded
from tests.serve.fake_service import FakeService


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, extra: bytes = b"", late: bytes = b"", palette: bool = True) -> bytes:
    """A PNG of zeros: 8-bit palette with transparency, or grey."""
    row = b"\0" * (width + 1)
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(row * 64) for _ in range(height // 64)) + packer.compress(row * (height % 64))
    data += packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 3 if palette else 0, 0, 0, 0)
    tables = chunk(b"PLTE", bytes(range(6))) + chunk(b"tRNS", b"\x80\xff") if palette else b""
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + tables + extra + chunk(b"IDAT", data) + late + chunk(b"IEND", b"")
    )


@pytest.fixture
def decoder() -> Iterator[PhotoDecoder]:
    made = PhotoDecoder(1 << 30, 20.0)
    yield made
    made.close()


def child(decoder: PhotoDecoder) -> psutil.Process:
    assert decoder._child is not None
    return psutil.Process(decoder._child.pid)


@pytest.mark.parametrize(("width", "height"), [(1, 64_000_000), (64_000_000, 1), (70_000, 700), (5_000, 40)])
def test_long_and_narrow_images_are_refused_from_their_header(width: int, height: int) -> None:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    with pytest.raises(SkyPartError, match="too long or too narrow"):
        open_image(io.BytesIO(data))


@pytest.mark.parametrize("mode", ["P", "PA", "LA", "RGBA", "L", "1", "CMYK", "YCbCr", "HSV", "RGB"])
def test_strips_give_the_pixels_of_the_whole(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (50, 40, 4), dtype=np.uint8)
    image = Image.fromarray(noise, "RGBA").convert("RGB" if mode in ("CMYK", "YCbCr", "HSV") else "RGBA").convert(mode)
    if mode == "P":
        image.info["transparency"] = bytes(range(256))
    whole = to_rgb(image)
    monkeypatch.setattr("skypart.images.decode.STRIP_PIXELS", 280)
    assert np.array_equal(to_rgb(image), whole)
    layered = image.convert("RGBA") if mode in ("P", "PA", "LA", "RGBA") else None
    if layered is not None:
        black = Image.new("RGBA", layered.size, (0, 0, 0, 255))
        assert np.array_equal(whole, np.asarray(Image.alpha_composite(black, layered).convert("RGB")))


def test_a_transparent_palette_takes_little_more_than_its_pixels(decoder: PhotoDecoder) -> None:
    photo = png(8000, 8000)
    assert len(photo) < 100_000
    assert decoder.decode(photo, 64_000_000).shape == (8000, 8000, 3)
    assert child(decoder).memory_info().rss < 700e6
    memory = child(decoder).memory_full_info()
    assert memory.rss < 700e6


def test_the_child_decodes_as_this_process_does(decoder: PhotoDecoder) -> None:
    for kind in ("JPEG", "PNG", "TIFF", "WEBP"):
        buffer = io.BytesIO()
        Image.fromarray(FakeService().photo(300, 320)).save(buffer, kind)
        assert np.array_equal(decoder.decode(buffer.getvalue(), 10**6), read_rgb(io.BytesIO(buffer.getvalue())))


def test_a_large_jpeg_is_decoded_at_a_fraction_of_its_size(decoder: PhotoDecoder) -> None:
    buffer = io.BytesIO()
    Image.fromarray(FakeService().photo(300, 320)).resize((2400, 1800)).save(buffer, "JPEG")
    photo = buffer.getvalue()
    small = decoder.decode(photo, 10**7, 320)
    assert np.array_equal(small, read_photo(io.BytesIO(photo), 320)) and small.shape[:2] == (900, 1200)
    form = parse_form(LocateForm, {})
    assert decode_photo(photo, form, 10**7, decoder, 320).shape == decode_photo(photo, form, 10**7, None, 320).shape
    assert decode_photo(photo, parse_form(LocateForm, {"weather": "fog"}), 10**7, decoder, 320).shape == (1800, 2400, 3)
    with pytest.raises(HttpError, match="pixels"):
        decode_photo(photo, form, 10**6, decoder, 320)


def test_the_child_is_reused_and_replaced_when_it_dies(decoder: PhotoDecoder) -> None:
    photo = encoded(FakeService().photo(300, 320))
    decoder.decode(photo, 10**6)
    first = child(decoder).pid
    decoder.decode(photo, 10**6)
    assert child(decoder).pid == first
    child(decoder).kill()
    decoder_answers = []
    for _ in range(2):
        try:
            decoder_answers.append(decoder.decode(photo, 10**6).shape)
        except SkyPartError:
            continue
    assert decoder_answers


def test_too_much_memory_is_an_error_message() -> None:
    small = PhotoDecoder(400 << 20, 20.0)
    try:
        with pytest.raises(SkyPartError, match="too much memory"):
            small.decode(png(12_000, 12_000), 10**9)
        photo = encoded(FakeService().photo(300, 320))
        assert small.decode(photo, 10**6).shape[2] == 3  # the next photo is fine
    finally:
        small.close()


def test_too_much_time_is_an_error_message() -> None:
    hasty = PhotoDecoder(1 << 30, 0.02)
    try:
        start = time.monotonic()
        with pytest.raises(SkyPartError, match="too much memory or time"):
            hasty.decode(png(8000, 8000), 10**9)
        assert time.monotonic() - start < 60
    finally:
        hasty.close()


def test_errors_are_those_of_this_process(decoder: PhotoDecoder) -> None:
    for broken in (b"", b"\xff\xd8\xff" + bytes(100), png(100, 100)[:-60]):
        with pytest.raises(SkyPartError) as here:
            read_rgb(io.BytesIO(broken))
        with pytest.raises(SkyPartError) as there:
            decoder.decode(broken, 10**6)
        assert str(there.value) == str(here.value)


def exif_block() -> bytes:
    exif = Image.Exif()
    exif[0x0132] = "2024:05:06 07:08:09"
    return exif.tobytes()[6:]


@pytest.mark.parametrize("late", [False, True])
def test_camera_facts_decode_no_pixels(late: bool) -> None:
    block = chunk(b"eXIf", exif_block())
    xmp = b'<x><Description GimbalPitchDegree="-42"/></x>'
    block += chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp)
    photo = png(640, 480, extra=b"" if late else block, late=block if late else b"")
    with patch("PIL.ImageFile.ImageFile.load", side_effect=AssertionError("decoded")):
        facts = read_camera_facts(io.BytesIO(photo))
        assert read_camera_facts(io.BytesIO(png(640, 480))).time is None
    assert facts.time is not None and facts.time.year == 2024
    assert facts.tilt_deg == 42


def test_camera_facts_of_the_child(decoder: PhotoDecoder) -> None:
    photo = png(640, 480, extra=chunk(b"eXIf", exif_block()))
    assert decoder.camera_facts(photo) == read_camera_facts(io.BytesIO(photo))
    assert decoder.camera_facts(b"nothing").time is None
