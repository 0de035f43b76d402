"""The Python API on a synthetic map, with an embedder that needs no training."""

import io
import re
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import skypart
from skypart import Index, SkyPartError, api
from skypart.geo.geodesy import distance_m
from skypart.position import html_map, photos
from skypart.position.fix import Hints, Prior
from skypart.position.flight import Flight
from skypart.position.track import TrackPoint
from skypart.telemetry.record import Telemetry
from tests.position.stand_in import OPTIONS, SURE, ColourEmbedder, Shot, make_index, quilt, write_quilt

HERE = Shot(120.0, -90.0, 90.0, 100.0)


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model `colours` is a ColourEmbedder."""

    def load(name: str, device: str = "cpu", size: int | None = None) -> ColourEmbedder:
        assert str(name) == "colours"
        return ColourEmbedder()

    monkeypatch.setattr(api, "load", load)
    monkeypatch.setattr(photos, "load_fastest", load)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with a calibration that trusts many inliers."""
    place = tmp_path_factory.mktemp("town")
    index = make_index(place / "town.skyindex", [write_quilt(place / "town.tif")])
    replace(index.manifest, calibration=SURE.to_dict()).write(index.folder)
    return index.folder


@pytest.fixture
def index(folder: Path) -> Iterator[Index]:
    with skypart.open_index(folder) as opened:
        yield opened


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    file = tmp_path / "photo.png"
    Image.fromarray(HERE.photo(quilt(1), 200)).save(file)
    return file


def metres_off(fix: skypart.PhotoFix) -> float:
    assert fix.latitude is not None and fix.longitude is not None
    north, east = HERE.place
    return float(distance_m(latitude=fix.latitude, longitude=fix.longitude, to_latitude=north, to_longitude=east))


def test_dir_lists_the_public_names() -> None:
    assert {"Index", "build_index", "load", "open_index", "SkyPartError"} <= set(dir(skypart))
    for name in dir(skypart):
        assert getattr(skypart, name) is not None


def test_build_index_opens_what_it_built(tmp_path: Path) -> None:
    town = write_quilt(tmp_path / "town.tif", edge=200)
    built = skypart.build_index(town, tmp_path / "town.skyindex", model="colours", sizes_m=[100, 150], overlap=0.4)
    assert built.maps == ["town"] and len(built) > 10
    assert repr(built) == f"<index {tmp_path}/town.skyindex: {len(built):,} views of town; default calibration>"
    assert built._locator.index.manifest.options.sizes_m == (100.0, 150.0)
    again = skypart.open_index(tmp_path / "town.skyindex", model=built.model)
    assert again.model is built.model and len(again) == len(built)
    with pytest.raises(SkyPartError, match="no maps to index"):
        skypart.build_index([], tmp_path / "none.skyindex", model="colours")


def test_a_photo_can_be_a_path_bytes_an_image_or_pixels(index: Index, photo: Path) -> None:
    pixels = np.asarray(Image.open(photo))
    kinds: list[Any] = [photo, str(photo), photo.read_bytes(), Image.open(photo), pixels]
    fixes = [index.locate(kind) for kind in kinds]
    assert all(fix.found and metres_off(fix) < 3 for fix in fixes)
    assert len({(fix.latitude, fix.longitude, fix.radius_m) for fix in fixes}) == 1
    assert [fix.photo for fix in fixes] == [str(photo), str(photo), "photo", "photo", "photo"]
    assert index.locate(pixels, name="frame 7").photo == "frame 7"


def test_hints_and_area_reach_the_locator(index: Index, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    locate = index._locator.locate

    def spy(image: Any, **arguments: Any) -> Any:
        seen.update(arguments)
        return locate(image, **arguments)

    monkeypatch.setattr(index._locator, "locate", spy)
    north, east = HERE.place
    index.locate(photo, near=(north, east), radius_m=200, heading_deg=-270, altitude_m=80, tilt_deg=90, fov_deg=60)
    assert seen["prior"] == Prior(latitude=north, longitude=east, radius_m=200)
    assert seen["hints"] == Hints(heading_deg=90.0, altitude_m=80, tilt_deg=90, fov_deg=60)


def test_exif_of_bytes_is_used_unless_refused(index: Index, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0xA405] = 28
    stream = io.BytesIO()
    Image.open(photo).save(stream, "JPEG", exif=exif, quality=95)
    hints: list[Any] = []
    locate = index._locator.locate

    def spy(image: Any, **given: Any) -> Any:
        hints.append(given["hints"])
        return locate(image, **given)

    monkeypatch.setattr(index._locator, "locate", spy)
    index.locate(stream.getvalue())
    index.locate(stream.getvalue(), exif=False)
    assert hints[0].fov_deg is not None and hints[1].fov_deg is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius_m": 10}, "radius_m needs near"),
        ({"near": (91, 0)}, "latitude comes first"),
        ({"near": "here"}, r"give \(latitude, longitude\)"),
        ({"near": (48, 9), "radius_m": -1}, "radius_m must be a positive"),
        ({"tilt_deg": 95}, "tilt_deg=95 is out of range"),
    ],
)
def test_impossible_arguments_are_named_as_in_the_call(
    arguments: dict[str, Any], message: str, index: Index, photo: Path
) -> None:
    with pytest.raises(SkyPartError, match=message):
        index.locate(photo, **arguments)


def test_a_swapped_point_is_recognised(index: Index, photo: Path) -> None:
    north, east = HERE.place
    with pytest.raises(SkyPartError, match="give latitude first"):
        index.locate(photo, near=(east, north))
    assert not index.locate(photo, near=(0.0, 0.0)).found, "outside either way round: no view, as before"


def test_a_fix_describes_itself(index: Index, photo: Path) -> None:
    fix = index.locate(photo)
    assert re.fullmatch(r"<fix of .*photo\.png: 47\.\d{6}, 9\.\d{6}, 95 % within \d+ m, confidence 0\.\d\d>", repr(fix))
    assert fix.to_dict()["found"] is True and "index" not in fix.to_dict() and "image" not in fix.to_dict()
    assert '"latitude"' in fix.to_text() and "<kml" in fix.to_text("kml")
    page = fix._repr_html_()
    assert page.count("data:image/jpeg;base64,") == 2 and "<circle" in page and "confidence" in page
    assert "http" not in page and "<script" not in page, "it must work offline"


def test_no_fix_shows_the_reason_and_no_position(index: Index) -> None:
    fix = index.locate(np.zeros((90, 120, 3), np.uint8))
    assert not fix.found and repr(fix).startswith("<no fix for photo: the photo is almost black")
    page = fix._repr_html_()
    assert "almost black" in page and "<svg" not in page


def test_show_opens_a_page_outside_notebooks(index: Index, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(html_map, "in_notebook", lambda: False)
    index.locate(photo).show()
    (address,) = opened
    assert "confidence" in Path(address.removeprefix("file://")).read_text(encoding="utf-8")


def write_video(video: Path) -> Path:
    """Eight frames of a flight to the east, two a second."""
    ground = quilt(1)
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter.fourcc(*"MJPG"), 2.0, (200, 200))
    for step in range(8):
        shot = Shot(-80.0 + 15 * step, 20.0, 90.0, 100.0)
        writer.write(cv2.cvtColor(shot.photo(ground, 200), cv2.COLOR_RGB2BGR))
    writer.release()
    return video


def test_track_follows_a_video_and_saves_it(index: Index, tmp_path: Path) -> None:
    video = write_video(tmp_path / "flight.avi")
    track = index.track(video, rate_hz=2.0, heading_deg=90)
    assert len(track) == 8 and all(point.latitude is not None for point in track)
    assert repr(track) == "<track of flight.avi: 8 frames, 8 with a position, 8 with a fix>"
    track.save(tmp_path / "flight.gpx")
    assert (tmp_path / "flight.gpx").read_text().count("<trkpt") == 8
    assert all(re.fullmatch(r"<[\d.]+ s: \w+, -?[\d.]+, -?[\d.]+, 95 % within \d+ m>", repr(each)) for each in track)
    assert repr(TrackPoint(time_s=2.5)) == "<2.5 s: lost>"
    page = track._repr_html_()
    assert page.count("<circle") == 8 and "data:image/jpeg" in page
    with pytest.raises(SkyPartError, match="is not a track format"):
        track.save(tmp_path / "flight.doc")


def test_a_library_call_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from skypart import progress

    monkeypatch.setattr(progress, "_bars_shown", False)
    town = write_quilt(tmp_path / "town.tif", edge=200)
    index = skypart.build_index(town, tmp_path / "town.skyindex", model="colours", sizes_m=OPTIONS.sizes_m)
    index.locate(quilt(1, 200))
    assert capfd.readouterr() == ("", "")


def test_warnings_go_through_logging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    town = write_quilt(tmp_path / "town.tif", edge=200)
    skypart.build_index(town, tmp_path / "town.skyindex", model="colours", sizes_m=[100])
    town.unlink()
    skypart.open_index(tmp_path / "town.skyindex")
    assert "the map town was moved" in caplog.text


def test_hints_that_are_not_numbers_are_refused(index: Index, photo: Path) -> None:
    with pytest.raises(SkyPartError, match="heading_deg='north': give a number"):
        index.locate(photo, heading_deg="north")  # type: ignore[arg-type]


def test_models_say_what_they_are() -> None:
    model = ColourEmbedder()
    assert repr(model) == f"<model {model.digest[:8]}: {model.dim} numbers from {model.size} px, ColourEmbedder>"


def test_one_image_gives_one_vector(photo: Path) -> None:
    model = ColourEmbedder()
    pixels = np.asarray(Image.open(photo))
    expected = model.embed([photo])[0]
    for single in (photo, str(photo), photo.read_bytes(), Image.open(photo), pixels):
        assert np.array_equal(model.embed(single), expected)
    assert model.embed(np.stack([pixels, pixels])).shape == (2, model.dim)


def test_track_takes_flight_data(index: Index, tmp_path: Path) -> None:
    rows = "".join(f"{second},90.0\n" for second in range(6))
    (tmp_path / "flight.csv").write_text(f"time_s,heading_deg\n{rows}")
    video = write_video(tmp_path / "flight.avi")
    track = index.track(video, rate_hz=2.0, telemetry=tmp_path / "flight.csv")
    assert len(track) == 8 and all(point.latitude is not None for point in track)
    with pytest.raises(SkyPartError, match="no such file; give flight data"):
        index.track(video, telemetry=tmp_path / "none.srt")


def test_track_passes_on_the_offset_of_the_clock(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = []

    def follow(*_: object, telemetry: Telemetry, **__: object) -> Flight:
        offsets.append(telemetry.offset_s)
        return Flight(points=[], skipped=0, written=[], scores={})

    monkeypatch.setattr(api, "follow_flight", follow)
    flight = tmp_path / "flight.csv"
    flight.write_text("time_s,heading_deg\n0,90\n1,90\n")
    index.track("a.mp4", telemetry=flight)
    index.track("a.mp4", telemetry=flight, offset_s=-2.5)
    assert offsets == [0.0, -2.5]
    with pytest.raises(SkyPartError, match="offset"):
        index.track("a.mp4", telemetry=flight, offset_s="soon")  # type: ignore[arg-type]
