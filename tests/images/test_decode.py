"""Photos of every kind decode correctly; bad ones raise a one-line error with the file and the remedy."""

import io
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from PIL import Image

from skypart.errors import SkyPartError
from skypart.images.decode import MIN_OVERSAMPLING, list_photos, open_image, read_photo, read_rgb
from skypart.images.preprocess import Preprocessing

Pixels = NDArray[np.uint8]


def sample_image(height: int = 40, width: int = 60) -> Pixels:
    """An image whose four corners differ, smooth enough for JPEG."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([255 * x // width, 255 * y // height, 255 * (x + y) // (height + width)], axis=-1).astype(np.uint8)


def assert_rejected(source: Path, *words: str) -> str:
    """Check that reading `source` fails with one line that has its name and `words`; return the message."""
    with pytest.raises(SkyPartError) as caught:
        read_rgb(source)
    text = str(caught.value)
    assert source.name in text
    assert "\n" not in text
    for word in words:
        assert word in text
    return text


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour_type: int, compressed: bytes) -> bytes:
    """A PNG file around a compressed stream of filtered rows."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", compressed) + chunk(b"IEND", b"")


def png_bomb(edge: int = 60_000) -> bytes:
    """A whole, valid 1-bit PNG of edge x edge black pixels in a file of about half a megabyte."""
    row = 1 + (edge + 7) // 8
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    # A fully flushed piece can be repeated; the checksum of zeros depends only on their number.
    piece = packer.compress(bytes(row * 1000)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = (((row * edge) % 65521) << 16) | 1
    stream = b"\x78\xda" + piece * (edge // 1000) + b"\x03\x00" + struct.pack(">I", checksum)
    return png(edge, edge, 1, 0, stream)


# --- supported images -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "webp", "jp2", "ppm"])
def test_lossless_formats(suffix: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"lossless": True} if suffix == "webp" else {}
    Image.fromarray(sample_image()).save(tmp_path / f"a.{suffix}", **options)
    found = read_rgb(tmp_path / f"a.{suffix}")
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, sample_image())


def test_jpeg_and_wrong_suffix(tmp_path: Path) -> None:
    Image.fromarray(sample_image()).save(tmp_path / "a.jpg", quality=95)
    assert np.abs(read_rgb(tmp_path / "a.jpg").astype(int) - sample_image()).max() < 12
    (tmp_path / "b.png").write_bytes((tmp_path / "a.jpg").read_bytes())
    np.testing.assert_array_equal(read_rgb(tmp_path / "b.png"), read_rgb(tmp_path / "a.jpg"))


UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("suffix", ["png", "tif", "jpg"])
def test_exif_orientation(orientation: int, suffix: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = tmp_path / f"turned.{suffix}"
    Image.fromarray(sample_image()).save(file, exif=exif)
    found, expected = read_rgb(file), UPRIGHT[orientation](sample_image())
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= (16 if suffix == "jpg" else 0)


def test_damaged_exif_leaves_the_image_as_stored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker"
    Image.fromarray(sample_image()).save(tmp_path / "a.png", exif=exif)
    whole = (tmp_path / "a.png").read_bytes()
    start = whole.index(b"eXIf")
    size = struct.unpack(">I", whole[start - 4 : start])[0]
    for data in (b"MM", b"II*\0" + b"\xff" * (size - 4), b"x" * size, b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02"):
        broken = whole[: start - 4] + chunk(b"eXIf", data) + whole[start + 8 + size :]
        (tmp_path / "a.png").write_bytes(broken)
        np.testing.assert_array_equal(read_rgb(tmp_path / "a.png"), sample_image())


def test_sixteen_bit_grey(tmp_path: Path) -> None:
    deep = np.linspace(0, 65535, 60 * 40).reshape(40, 60).astype(np.uint16)
    expected = np.round(deep / 257.0)
    for name in ("deep.png", "deep.tif"):
        Image.fromarray(deep).save(tmp_path / name)
        found = read_rgb(tmp_path / name)
        assert found.shape == (40, 60, 3)
        np.testing.assert_array_equal(found[..., 0], expected)
        np.testing.assert_array_equal(found[..., 0], found[..., 2])
    dim = np.full((4, 4), 200, dtype=np.uint16)
    Image.fromarray(dim).save(tmp_path / "dim.png")
    assert read_rgb(tmp_path / "dim.png").max() == 1, "a dark 16-bit image stays dark"


def test_sixteen_bit_colour(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (8, 9, 3), dtype=np.uint16)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in deep)
    (tmp_path / "deep.png").write_bytes(png(9, 8, 16, 2, zlib.compress(rows)))
    for interleave, compress in (("pixel", "none"), ("pixel", "lzw"), ("band", "deflate"), ("band", "none")):
        with rasterio.open(
            tmp_path / f"{interleave}_{compress}.tif", "w", driver="GTiff", width=9, height=8, count=3, dtype="uint16",
            photometric="RGB", interleave=interleave, compress=compress, transform=rasterio.Affine(1, 0, 5, 0, -1, 9),
        ) as file:  # fmt: skip
            file.write(deep.transpose(2, 0, 1))
    for name in ("deep.png", "pixel_none.tif", "pixel_lzw.tif", "band_deflate.tif"):
        # Pillow keeps the high byte, which is at most one step from the rounded value.
        assert np.abs(read_rgb(tmp_path / name).astype(int) - deep / 257.0).max() <= 1.0
    # Pillow 13 reads this kind as noise, so it is rejected.
    assert_rejected(tmp_path / "band_none.tif", "separate planes", "gdal_translate")


def test_palette_and_transparency(tmp_path: Path) -> None:
    indexed = Image.fromarray(sample_image()).quantize(32)
    indexed.save(tmp_path / "palette.png")
    np.testing.assert_array_equal(read_rgb(tmp_path / "palette.png"), np.asarray(indexed.convert("RGB")))
    clear = np.asarray(indexed) == 3
    assert clear.any() and not clear.all()
    indexed.save(tmp_path / "clear.png", transparency=3)
    found = read_rgb(tmp_path / "clear.png")
    assert (found[clear] == 0).all(), "transparent pixels become black"
    np.testing.assert_array_equal(found[~clear], np.asarray(indexed.convert("RGB"))[~clear])


def test_alpha_is_composited_over_black(tmp_path: Path) -> None:
    alpha = np.tile(np.asarray([0, 128, 255], dtype=np.uint8), (40, 20))
    rgba = np.dstack([sample_image(), alpha])
    Image.fromarray(rgba).save(tmp_path / "rgba.png")
    expected = sample_image() * (alpha[..., None] / 255.0)
    assert np.abs(read_rgb(tmp_path / "rgba.png") - expected).max() <= 1
    assert np.abs(read_rgb(rgba) - expected).max() <= 1
    grey = Image.fromarray(np.dstack([sample_image()[..., 0], alpha]))
    assert grey.mode == "LA"
    grey.save(tmp_path / "la.png")
    assert np.abs(read_rgb(tmp_path / "la.png")[..., 1] - sample_image()[..., 0] * (alpha / 255.0)).max() <= 1


def test_cmyk_grey_and_bilevel(tmp_path: Path) -> None:
    Image.new("CMYK", (32, 32), (0, 255, 255, 0)).save(tmp_path / "cmyk.jpg")
    red = read_rgb(tmp_path / "cmyk.jpg").reshape(-1, 3).mean(axis=0)
    assert red[0] > 245 and red[1:].max() < 10
    Image.fromarray(sample_image()[..., 0]).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(read_rgb(tmp_path / "grey.png"), np.repeat(sample_image()[..., :1], 3, axis=2))
    Image.fromarray(sample_image()[..., 0] > 100).save(tmp_path / "bilevel.png")
    np.testing.assert_array_equal(read_rgb(tmp_path / "bilevel.png")[..., 0], 255 * (sample_image()[..., 0] > 100))


def test_first_frame_of_animations_and_mpo(tmp_path: Path) -> None:
    red, blue = (Image.new("RGB", (20, 10), colour) for colour in ((255, 0, 0), (0, 0, 255)))
    red.save(tmp_path / "moving.gif", save_all=True, append_images=[blue])
    assert (read_rgb(tmp_path / "moving.gif") == [255, 0, 0]).all()
    red.save(tmp_path / "both.mpo", save_all=True, append_images=[blue])
    (tmp_path / "drone.jpg").write_bytes((tmp_path / "both.mpo").read_bytes())
    found = read_rgb(tmp_path / "drone.jpg")
    assert found.shape == (10, 20, 3)
    assert found[..., 0].min() > 245 and found[..., 2].max() < 10


def test_float_images_are_stretched_over_their_range(tmp_path: Path) -> None:
    for low, high in ((0.0, 1.0), (-40.0, 12.0), (312.0, 900.0)):
        values = np.linspace(low, high, 256, dtype=np.float32).reshape(16, 16)
        Image.fromarray(values).save(tmp_path / "heights.tif")
        np.testing.assert_allclose(read_rgb(tmp_path / "heights.tif")[..., 0].ravel(), np.arange(256), atol=1)
    values[0, :3] = np.nan, np.inf, -np.inf
    Image.fromarray(values).save(tmp_path / "holes.tif")
    found = read_rgb(tmp_path / "holes.tif")[..., 0].ravel()
    assert found[:3].tolist() == [0, 255, 0]
    np.testing.assert_allclose(found[3:], np.arange(3, 256), atol=3)
    Image.fromarray(np.full((4, 4), np.nan, dtype=np.float32)).save(tmp_path / "nothing.tif")
    assert read_rgb(tmp_path / "nothing.tif").max() == 0


def test_bytes_pil_images_and_arrays() -> None:
    buffer = io.BytesIO()
    Image.fromarray(sample_image()).save(buffer, "PNG")
    np.testing.assert_array_equal(read_rgb(buffer), sample_image())
    np.testing.assert_array_equal(read_rgb(Image.fromarray(sample_image())), sample_image())
    np.testing.assert_array_equal(read_rgb(sample_image()), sample_image())
    np.testing.assert_array_equal(read_rgb(sample_image().astype(np.uint16) * 257), sample_image())
    for grey in (sample_image()[..., 0], sample_image()[..., :1]):
        np.testing.assert_array_equal(read_rgb(grey), np.repeat(sample_image()[..., :1], 3, axis=2))


# --- images that must be rejected ------------------------------------------------------------------------------------


def test_text_named_jpg(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("this is not a photo")
    assert_rejected(tmp_path / "photo.jpg", "not a supported image", "convert it to 8-bit")


def test_empty_missing_and_folder(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    assert_rejected(tmp_path / "empty.jpg", "0 bytes", "copy it again")
    assert_rejected(tmp_path / "absent.jpg", "no such file", "check the path")
    (tmp_path / "folder.jpg").mkdir()
    assert_rejected(tmp_path / "folder.jpg", "is a folder")


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp", "jp2", "bmp"])
def test_truncated(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"cut.{suffix}"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(file)
    whole = file.read_bytes()
    for share in (0.5, 0.9):
        file.write_bytes(whole[: int(len(whole) * share)])
        text = assert_rejected(file)
        assert "copy the file again" in text or "convert it first" in text
    file.write_bytes(whole[:6])
    assert_rejected(file)


def test_a_png_bomb_is_rejected_from_its_header(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.png"
    bomb.write_bytes(png_bomb())
    assert bomb.stat().st_size < 1_000_000
    assert_rejected(bomb, "60000 x 60000 pixels exceed the limit of 200,000,000", "scale it down")
    # Memory does not grow: nothing is decoded.
    script = (
        "import resource, sys\n"
        "from skypart.errors import SkyPartError\n"
        "from skypart.images.decode import read_rgb\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    read_rgb(sys.argv[1])\n"
        "except SkyPartError:\n    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(bomb)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000, "kibibytes"


def test_a_small_bomb_is_a_valid_image(tmp_path: Path) -> None:
    (tmp_path / "small.png").write_bytes(png_bomb(2_000))
    assert read_rgb(tmp_path / "small.png").shape == (2000, 2000, 3)


def test_the_limit_can_be_changed(tmp_path: Path) -> None:
    Image.fromarray(sample_image()).save(tmp_path / "a.png")
    assert open_image(tmp_path / "a.png", max_pixels=2400).size == (60, 40)
    with pytest.raises(SkyPartError, match="60 x 40 pixels exceed the limit of 2,399"):
        open_image(tmp_path / "a.png", max_pixels=2399)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 4, 3), dtype=np.float32), "must be uint8 or uint16, not float32; scale it"),
        (np.zeros((4, 4, 3), dtype=np.int64), "not int64"),
        (np.zeros((4, 4), dtype=bool), "not bool"),
        (np.zeros((4, 4, 2), dtype=np.uint8), r"not \(4, 4, 2\); reshape it"),
        (np.zeros((3, 4, 4, 3), dtype=np.uint8), r"not \(3, 4, 4, 3\)"),
        (np.zeros((3, 40, 40), dtype=np.uint8), r"not \(3, 40, 40\)"),
        (np.zeros((0, 4, 3), dtype=np.uint8), r"not \(0, 4, 3\)"),
        (np.zeros(5, dtype=np.uint8), r"not \(5,\)"),
    ],
)
def test_arrays_that_are_not_images_raise(array: NDArray[np.generic], message: str) -> None:
    with pytest.raises(SkyPartError, match=message):
        read_rgb(array)


def test_random_damage_raises_no_other_error(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker"
    exif.get_ifd(0x8825)[1] = "N"
    rng = random.Random(0)
    for suffix in ("jpg", "png", "webp", "gif", "bmp", "jp2"):
        file = tmp_path / f"damaged.{suffix}"
        options: dict[str, Any] = {"exif": exif} if suffix in ("jpg", "png", "webp") else {}
        Image.fromarray(sample_image()).save(file, **options)
        whole = file.read_bytes()
        for trial in range(60):
            content = bytearray(whole)
            for _ in range(rng.randint(1, 6)):
                content[rng.randrange(len(content) if trial % 2 else min(len(content), 400))] = rng.randrange(256)
            file.write_bytes(content[: rng.randrange(1, len(content))] if trial % 5 == 0 else content)
            with suppress(SkyPartError):
                assert read_rgb(file, max_pixels=1_000_000).ndim == 3


def test_listing_photos(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("z.JPG", "b/a.png", "b/notes.txt", "a.tif"):
        (tmp_path / name).touch()
    found = list_photos([tmp_path / "b" / "notes.txt", tmp_path])
    assert [p.relative_to(tmp_path).as_posix() for p in found] == ["b/notes.txt", "a.tif", "b/a.png", "z.JPG"]
    with pytest.raises(SkyPartError, match="no images in the empty list"):
        list_photos([])


def test_hidden_files_and_folders_are_skipped(tmp_path: Path) -> None:
    for name in ("b.jpg", "._b.jpg", ".b.tmp-01ab.jpg", ".trash/c.jpg", "a/d.PNG", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.relative_to(tmp_path).as_posix() for path in list_photos([tmp_path])] == ["a/d.PNG", "b.jpg"]
    assert list_photos([tmp_path / "._b.jpg"]) == [tmp_path / "._b.jpg"], "a file named explicitly is read"


def test_32_bit_images_need_little_extra_memory(tmp_path: Path) -> None:
    values = np.arange(3000 * 2000, dtype=np.int32).reshape(3000, 2000) + 2_000_000_000
    Image.fromarray(values).save(tmp_path / "wide.tif")
    tracemalloc.start()
    seen = read_rgb(tmp_path / "wide.tif")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * values.size, "bytes per pixel allocated by numpy"
    expected = np.round((values - float(values.min())) / (values.size - 1) * 255)
    assert np.array_equal(seen[..., 1], expected)


def large_photo(path: Path, orientation: int = 1) -> Path:
    """A JPEG of 2400 x 1600 pixels with structure of all sizes."""
    rng = np.random.default_rng(3)
    total = np.full((1600, 2400, 3), 120.0, np.float32)
    for cells, strength in ((12, 40), (100, 20), (600, 10)):
        coarse = rng.normal(0, strength, (cells, cells, 3)).astype(np.float32)
        total += cv2.resize(coarse, (2400, 1600), interpolation=cv2.INTER_CUBIC)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.clip(total, 0, 255).astype(np.uint8)).save(path, quality=92, exif=exif)
    return path


@pytest.mark.parametrize("size", [224, 392, 448])
def test_a_large_jpeg_scaled_by_the_decoder_is_within_a_grey_level_of_the_training_path(
    tmp_path: Path, size: int
) -> None:
    file = large_photo(tmp_path / "large.jpg")
    whole, reduced = read_rgb(file), read_photo(file, size)
    assert reduced.shape[0] < whole.shape[0] and min(reduced.shape[:2]) >= MIN_OVERSAMPLING * size
    preprocessing = Preprocessing(size=size)
    expected = preprocessing.resize(whole).astype(np.float64)
    assert np.abs(preprocessing.resize(reduced) - expected).mean() < 1.0
    np.testing.assert_array_equal(preprocessing(file), preprocessing(reduced))


def test_a_large_jpeg_stays_upright(tmp_path: Path) -> None:
    upright, turned = large_photo(tmp_path / "a.jpg"), large_photo(tmp_path / "b.jpg", 6)
    np.testing.assert_array_equal(read_photo(turned, 100), np.rot90(read_photo(upright, 100), -1))


@pytest.mark.slow
def test_small_photos_and_other_formats_are_decoded_whole(tmp_path: Path) -> None:
    image = read_rgb(large_photo(tmp_path / "large.jpg"))
    Image.fromarray(image).save(tmp_path / "large.png")
    Image.fromarray(image[:800]).save(tmp_path / "small.jpg")
    for file in (tmp_path / "large.png", tmp_path / "small.jpg"):
        np.testing.assert_array_equal(read_photo(file, 56), read_rgb(file))
    assert read_photo(image, 56) is image
