"""Contact sheets and folders, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from skypart.cli import app
from skypart.errors import SkyPartError
from skypart.images.decode import read_rgb
from skypart.images.weather import corrupt
from skypart.images.weather.folder import RECORD, corrupt_folder
from tests.images.weather.test_corrupt import sample_image

MAKE, ORIENTATION, GPS = 0x010F, 0x0112, 0x8825


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    (root / "a").mkdir(parents=True)
    exif = Image.Exif()
    exif[MAKE] = "Acme"
    exif[ORIENTATION] = 6
    exif.get_ifd(GPS)[1] = "N"
    exif.get_ifd(GPS)[2] = (48.0, 8.0, 30.0)
    Image.fromarray(sample_image()).save(root / "a" / "one.JPG", exif=exif, quality=95)
    Image.fromarray(sample_image(seed=2)).save(root / "two.png")
    Image.fromarray(sample_image(seed=3)[:, :, 0]).save(root / "grey.tif")
    (root / "notes.txt").write_text("no image")
    return root


def test_folder_keeps_tree_and_exif(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["weather", str(photos), str(out), "--condition", "fog_snow", "--seed", "7"])
    assert result.exit_code == 0, result.output
    assert "3 images written" in result.output
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()) == sorted(
        ["a/one.JPG", "two.png", "grey.tif", RECORD]
    )
    wanted = corrupt(read_rgb(photos / "two.png"), "fog_snow", "paper", 7, "two.png")
    assert np.array_equal(read_rgb(out / "two.png"), wanted)
    with Image.open(out / "a" / "one.JPG") as image:
        assert image.size == (96, 128)  # turned upright
        exif = image.getexif()
        assert exif[MAKE] == "Acme" and ORIENTATION not in exif
        assert exif.get_ifd(GPS)[1] == "N" and tuple(map(float, exif.get_ifd(GPS)[2])) == (48.0, 8.0, 30.0)


def test_folder_goes_on_where_it_stopped(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    corrupt_folder(photos, out, "rain")
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    (out / "two.png").unlink()
    stamp = (out / "grey.tif").stat().st_mtime_ns
    again = corrupt_folder(photos, out, "rain")
    assert (again.written, again.skipped) == (1, 2)
    assert (out / "grey.tif").stat().st_mtime_ns == stamp
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_a_damaged_photo_leaves_no_partial_file(photos: Path, tmp_path: Path) -> None:
    whole = (photos / "a" / "one.JPG").read_bytes()
    (photos / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "out"
    with pytest.raises(SkyPartError, match=r"cut\.jpg"):
        corrupt_folder(photos, out, "wind")
    assert sorted(p.name for p in out.rglob("*") if p.is_file()) == ["one.JPG", RECORD]


def test_two_kinds_of_weather_in_one_folder_raise(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    corrupt_folder(photos, out, "rain", "weatherprompt", 1)
    assert json.loads((out / RECORD).read_text())["profile"] == "weatherprompt"
    with pytest.raises(SkyPartError, match="choose another folder"):
        corrupt_folder(photos, out, "rain", "paper", 1)


def test_bad_folders(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SkyPartError, match="no such folder"):
        corrupt_folder(tmp_path / "missing", tmp_path / "out", "fog")
    with pytest.raises(SkyPartError, match="has no images"):
        corrupt_folder(tmp_path / "empty", tmp_path / "out", "fog")
    with pytest.raises(SkyPartError, match="is inside"):
        corrupt_folder(photos, photos / "out", "fog")
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(SkyPartError, match="is a file"):
        corrupt_folder(photos, tmp_path / "x.txt", "fog")


def test_contact_sheet(photos: Path, tmp_path: Path) -> None:
    target = tmp_path / "sheets" / "sheet.png"
    result = CliRunner().invoke(app, ["weather", str(photos / "two.png"), "-o", str(target)])
    assert result.exit_code == 0, result.output
    sheet = read_rgb(target)
    assert sheet.shape[0] > 2 * 2 * 240 and sheet.shape[1] > 5 * 320
    assert [p.name for p in target.parent.iterdir()] == ["sheet.png"]


@pytest.mark.parametrize(("extra", "words"), [([], "-o sheet.png"), (["--condition", "fog"], "-o sheet.png")])
def test_a_photo_without_a_sheet_raises(photos: Path, extra: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["weather", str(photos / "two.png"), *extra])
    assert isinstance(result.exception, SkyPartError) and words in str(result.exception)


def test_a_folder_without_a_condition_raises(photos: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["weather", str(photos), str(tmp_path / "out")])
    assert isinstance(result.exception, SkyPartError) and "--condition" in str(result.exception)


@pytest.mark.parametrize("kind", ["L", "I;16", "P", "CMYK", "RGB", "RGBA"])
def test_a_tiff_of_any_mode_is_read_back_unchanged(kind: str, tmp_path: Path) -> None:
    root, out = tmp_path / "photos", tmp_path / "out"
    root.mkdir()
    if kind == "I;16":
        Image.fromarray(sample_image(seed=4)[:, :, 0].astype(np.uint16) * 250).save(root / "one.tif")
    else:
        Image.fromarray(sample_image(seed=4)).convert(kind).save(root / "one.tif")
    corrupt_folder(root, out, "snow", seed=3)
    wanted = corrupt(read_rgb(root / "one.tif"), "snow", "paper", 3, "one.tif")
    assert np.array_equal(read_rgb(out / "one.tif"), wanted)


def test_a_bad_severity_leaves_the_folder_unused(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(SkyPartError, match="severity"):
        corrupt_folder(photos, out, "fog", severity=2.0)
    assert corrupt_folder(photos, out, "fog", severity=1.0).written == 3


def test_a_folder_of_another_rendering_version_is_not_resumed(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    corrupt_folder(photos, out, "rain")
    record = json.loads((out / RECORD).read_text())
    (out / RECORD).write_text(json.dumps(record | {"rendering": record["rendering"] - 1}))
    with pytest.raises(SkyPartError, match="choose another folder"):
        corrupt_folder(photos, out, "rain")


@pytest.mark.parametrize("name", ["sheet", "sheet.xyz"])
def test_a_sheet_without_an_image_suffix_raises_before_any_work(photos: Path, tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["weather", str(photos / "two.png"), "-o", str(tmp_path / name)])
    assert isinstance(result.exception, SkyPartError) and "end the name in .png or .jpg" in str(result.exception)
    assert not list(tmp_path.glob("sheet*"))


def test_existing_images_of_unknown_origin_raise(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    clean = (photos / "two.png").read_bytes()
    (out / "two.png").write_bytes(clean)
    with pytest.raises(SkyPartError, match=r"two\.png: exists already, without a weather\.json"):
        corrupt_folder(photos, out, "dark")
    assert (out / "two.png").read_bytes() == clean and not (out / RECORD).exists()


def test_damaged_exif_is_dropped(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    Image.fromarray(sample_image()).save(root / "a.png", exif=b"not a TIFF")
    (root / "._a.png").write_bytes(b"macOS resource fork")
    assert corrupt_folder(root, tmp_path / "out", "fog").written == 1
    assert read_rgb(tmp_path / "out" / "a.png").shape == sample_image().shape


@pytest.mark.parametrize(
    "extra", [["out"], ["--condition", "fog"], ["--severity", "1"], ["--profile", "weatherprompt"]]
)
def test_folder_options_raise_for_a_photo(photos: Path, tmp_path: Path, extra: list[str]) -> None:
    result = CliRunner().invoke(app, ["weather", str(photos / "two.png"), *extra, "-o", str(tmp_path / "s.png")])
    assert isinstance(result.exception, SkyPartError) and "are for folders of photos" in str(result.exception)
    result = CliRunner().invoke(app, ["weather", str(photos), str(tmp_path / "o"), "--condition", "fog", "-o", "s.png"])
    assert isinstance(result.exception, SkyPartError) and "no sheet" in str(result.exception)
