"""The commands index, locate, calibrate, track and maps on a synthetic map, with an embedder that needs no training."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
from PIL import Image

from skypart import embedding
from skypart.geo.geodesy import distance_m
from skypart.maps.index import MapIndex
from skypart.maps.manifest import IndexManifest
from skypart.position import photos
from skypart.position.fix import Fix, Hints, Prior
from tests.conftest import Run
from tests.images.photos_with_metadata import packet
from tests.position.stand_in import SURE, ColourEmbedder, Shot, make_index, quilt, write_quilt
from tests.position.test_calibrate import labelled_photos

HERE = Shot(120.0, -90.0, 90.0, 100.0)
KML = "{http://www.opengis.net/kml/2.2}"
GPX = "{http://www.topografix.com/GPX/1/1}"


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--model colours` loads ColourEmbedder."""

    def load(name: str, device: str = "cpu", size: int | None = None) -> ColourEmbedder:
        assert name == "colours"
        return ColourEmbedder()

    monkeypatch.setattr(embedding, "load", load)
    monkeypatch.setattr(photos, "load_fastest", load)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with a calibration that trusts many inliers."""
    folder = tmp_path_factory.mktemp("town")
    index = make_index(folder / "town.skyindex", [write_quilt(folder / "town.tif")])
    replace(index.manifest, calibration=SURE.to_dict()).write(index.folder)
    return index.folder


def save(path: Path, shot: Shot = HERE, ground: int = 1, second: int | None = None, heading: bool = False) -> Path:
    """Save a photo, with a time in EXIF if `second` is given, and with its heading in XMP if `heading`."""
    exif = Image.Exif()
    if second is not None:
        exif.get_ifd(0x8769)[0x9003] = f"2024:05:06 07:08:{second:02}"
    xmp = f'drone-dji:GimbalYawDegree="{shot.heading:+.1f}"' if heading else ""
    Image.fromarray(shot.photo(quilt(ground), 200)).save(path, quality=95, exif=exif, xmp=packet(xmp))
    return path


def off(latitude: float, longitude: float, shot: Shot = HERE) -> float:
    """Metres to the centre of a shot."""
    north, east = shot.place
    return float(distance_m(latitude=latitude, longitude=longitude, to_latitude=north, to_longitude=east))


def test_index_creates_an_index_and_adds_new_maps(run: Run, tmp_path: Path) -> None:
    first = write_quilt(tmp_path / "first.tif", edge=200)
    second = write_quilt(tmp_path / "second.tif", seed=2, edge=150, east=900.0)
    out = tmp_path / "both.skyindex"
    command = ("index", first, "-o", out, "--model", "colours")
    code, out_text, _ = run(*command, "--sizes", "100,150", "--overlap", 0.4, "--rotations", 2)
    views = MapIndex(out).manifest.maps[0].views
    assert code == 0 and out_text.startswith(f"indexed first: {views} views\npatch tokens: 1,8") and views > 10
    options = MapIndex(out).manifest.options
    assert (options.sizes_m, options.overlap, options.rotations) == ((100.0, 150.0), 0.4, 2)
    assert run(*command)[:2] == (0, f"{out} already contains these maps\n")
    code, out_text, _ = run("index", first, second, "-o", out, "--model", "colours")
    assert code == 0 and out_text.startswith("indexed second: ") and "first" not in out_text
    assert [entry.name for entry in MapIndex(out).manifest.maps] == ["first", "second"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.tif"], "missing.tif: no such file"),
        (["https://maps.example/town.tif"], "or allow network access with --network"),
        (["letter.tif"], "letter.tif: is not a supported map"),
        (["town.tif", "--sizes", "wide"], "--sizes wide: give metres"),
        (["town.tif", "--overlap", "1"], "--overlap must be between"),
        (["town.tif", "--rotations", "0"], "--rotations must be between"),
    ],
)
def test_index_errors_are_one_line(
    words: list[str], message: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letter.tif").write_text("dear map")
    write_quilt(tmp_path / "town.tif", edge=120)
    code, out, err = run("index", *words, "-o", "i", "--model", "colours")
    assert (code, out) == (2, "") and err.startswith("skypart: ") and len(err.splitlines()) == 1 and message in err
    assert not (tmp_path / "i").exists()


def place(text: str, format: str) -> tuple[float, float]:
    """Latitude and longitude of the only photo in the output."""
    if format == "table":
        found = re.search(r"(-?\d+\.\d{6})\s+(-?\d+\.\d{6})\s+(\d+) m\s+[01]\.\d\d\s+\d+°", text)
        assert found is not None, text
        return float(found[1]), float(found[2])
    if format == "json":
        (fix,) = json.loads(text)["fixes"]
        assert fix["found"] and fix["refined"] and fix["calibrated"]
        return fix["latitude"], fix["longitude"]
    if format == "geojson":
        longitude, latitude = json.loads(text)["features"][0]["geometry"]["coordinates"]
        return latitude, longitude
    if format == "csv":
        (row,) = csv.DictReader(text.splitlines())
        return float(row["latitude"]), float(row["longitude"])
    root = ElementTree.fromstring(text)
    if format == "gpx":
        point = root.find(f"{GPX}wpt")
        assert point is not None
        return float(point.get("lat", "nan")), float(point.get("lon", "nan"))
    longitude, latitude = root.findtext(f".//{KML}Point/{KML}coordinates", "").split(",")[:2]
    return float(latitude), float(longitude)


@pytest.mark.parametrize("format", ["table", "json", "geojson", "csv", "kml", "gpx"])
def test_locate_prints_the_position_in_every_format(format: str, run: Run, town: Path, tmp_path: Path) -> None:
    photo = save(tmp_path / "photo.jpg")
    code, out, err = run("locate", town, photo, "--heading", 90, "--format", format)
    assert code == 0, err
    assert off(*place(out, format)) < 10


@pytest.mark.parametrize("suffix", ["txt", "json", "geojson", "csv", "kml", "gpx"])
def test_locate_writes_a_file_in_the_format_of_its_suffix(suffix: str, run: Run, town: Path, tmp_path: Path) -> None:
    photo, written = save(tmp_path / "photo.jpg", heading=True), tmp_path / f"fixes.{suffix}"
    code, out, err = run("locate", town, photo, "-o", written)
    assert (code, out) == (0, ""), err
    assert off(*place(written.read_text(), "table" if suffix == "txt" else suffix)) < 10


@pytest.mark.parametrize("format", ["table", "json", "geojson", "csv", "kml"])
def test_a_photo_without_a_fix_has_a_reason_and_exit_code_3(
    format: str, run: Run, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a short name leaves room for the other columns of the table
    Image.new("RGB", (60, 60)).save("black.png")
    code, out, _ = run("locate", town, "black.png", "--format", format)
    assert code == 3
    assert "the photo is almost black; nothing can be seen in it" in out and (format != "table" or "no fix: " in out)


def test_the_file_is_written_even_if_one_photo_has_no_fix(run: Run, town: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    save(folder / "a.jpg", heading=True)
    save(folder / "b.jpg", ground=88, heading=True)
    code, out, _ = run("locate", town, folder, "--format", "csv", "-o", tmp_path / "out" / "fixes.csv")
    assert (code, out) == (3, "")
    with (tmp_path / "out" / "fixes.csv").open() as file:
        here, elsewhere = csv.DictReader(file)
    assert off(float(here["latitude"]), float(here["longitude"])) < 10 and here["reason"] == ""
    assert elsewhere["latitude"] == "" and elsewhere["reason"]


def test_near_and_radius_limit_the_search(run: Run, town: Path, tmp_path: Path) -> None:
    photo = save(tmp_path / "photo.jpg", heading=True)
    north, east = HERE.place
    code, out, _ = run("locate", town, photo, "--near", f"{north},{east}", "--radius", 150, "--format", "json")
    (fix,) = json.loads(out)["fixes"]
    assert code == 0 and off(fix["latitude"], fix["longitude"]) < 10
    assert all(off(view["footprint"]["latitude"], view["footprint"]["longitude"]) <= 150 for view in fix["candidates"])
    code, out, _ = run("locate", town, photo, "--near", f"{north + 1},{east}", "--radius", 150, "--format", "json")
    assert code == 3 and json.loads(out)["fixes"][0]["reason"] == "the map has no view within the given radius"


def test_altitude_and_tilt_give_the_position_of_the_drone(run: Run, town: Path, tmp_path: Path) -> None:
    photo = save(tmp_path / "photo.jpg", heading=True)
    code, out, _ = run("locate", town, photo, "--altitude", 80, "--tilt", 45, "--format", "json")
    (fix,) = json.loads(out)["fixes"]
    assert code == 0 and off(fix["drone_latitude"], fix["drone_longitude"]) == pytest.approx(80, abs=10)


def test_all_options_of_locate_are_passed_on(
    run: Run, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Any] = []

    def locate_photos(locator: Any, sources: list[Path], prior: Prior | None, hints: Hints, exif: bool) -> list[Fix]:
        received.extend([sources, prior, hints, exif])
        return [Fix(photo="a", latitude=1.0, longitude=2.0)]

    monkeypatch.setattr(photos, "locate_photos", locate_photos)
    words = ["--near", "48.5,-9.25", "--radius", 250, "--heading", -90, "--altitude", 80, "--tilt", 60, "--fov", 70]
    assert run("locate", town, "a.jpg", "b", *words)[0] == 0
    hints = Hints(heading_deg=270.0, altitude_m=80.0, tilt_deg=60.0, fov_deg=70.0)
    assert received == [[Path("a.jpg"), Path("b")], Prior(latitude=48.5, longitude=-9.25, radius_m=250.0), hints, True]
    assert run("locate", town, "a.jpg", "--no-exif")[0] == 0
    assert received[4:] == [[Path("a.jpg")], None, Hints(), False]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "shp"], "unknown format 'shp'"),
        (["--format", "csv", "-o", "fixes.geojson"], "fixes.geojson: its suffix means geojson, but --format is csv"),
        (["--near", "48.1"], "--near 48.1: give latitude and longitude"),
        (["--near", "48.1,11.5", "--radius", "0"], "--radius must be"),
        (["--tilt", "95"], "--tilt 95 is out of range"),
        (["--model", "other"], "was made with the model colours"),
    ],
)
def test_locate_errors_are_one_line(
    words: list[str], message: str, run: Run, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photos, "load_fastest", lambda name, device, size: ColourEmbedder(name))
    code, out, err = run("locate", town, save(tmp_path / "a.jpg"), *words)
    assert (code, out) == (2, "") and err.startswith("skypart: ") and len(err.splitlines()) == 1 and message in err


def test_a_folder_that_is_not_an_index_raises_with_a_remedy(run: Run, tmp_path: Path) -> None:
    for verb in ("locate", "calibrate", "track", "serve"):
        words = {"locate": ["a.jpg"], "calibrate": ["a.csv"], "track": ["a.mp4", "-o", "a.gpx"], "serve": []}[verb]
        code, _, err = run(verb, tmp_path / "none.skyindex", *words)
        assert code == 2 and "no map index; create one with `skypart index" in err


@pytest.mark.slow
def test_calibrate_writes_a_report_and_stores_the_calibration(run: Run, tmp_path: Path) -> None:
    index = make_index(tmp_path / "town.skyindex", [write_quilt(tmp_path / "town.tif")]).folder
    labelled = labelled_photos(tmp_path / "photos", 32, 6)
    (tmp_path / "strangers").mkdir()
    for number in range(4):
        shot = Shot(30.0 * number, -20.0, 40.0 * number, 100.0)
        save(tmp_path / "strangers" / f"{number}.jpg", shot, 55, heading=True)
    figure = tmp_path / "out" / "calibration.png"
    code, out, err = run("calibrate", index, labelled, "--outside", tmp_path / "strangers", "-o", figure)
    assert code == 0, err
    assert "calibrated on 32 photos of the map and 10 from outside" in out and "false accepts" in out
    assert f"diagrams: {figure}" in out
    with Image.open(figure) as drawn:
        assert drawn.width > 1000
    report = json.loads(figure.with_suffix(".json").read_text())
    assert IndexManifest.read(index).calibration == report["calibration"]
    photo = save(tmp_path / "photo.jpg", heading=True)
    code, out, _ = run("locate", index, photo)
    assert code == 0 and "not calibrated" not in out
    code, _, err = run("calibrate", index, tmp_path / "none", "-o", figure)
    assert code == 2 and "none: no such file" in err


ALONG = [Shot(-60.0 + 12.0 * step, 30.0, 60.0, 100.0) for step in range(8)]


def check_track(text: str, suffix: str) -> None:
    """Check that a track has all photos of ALONG, near their true positions."""
    if suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines()))
        places = [(float(row["latitude"]), float(row["longitude"])) for row in rows]
    elif suffix == ".geojson":
        points = [f for f in json.loads(text)["features"] if f["properties"]["role"] == "position"]
        places = [tuple(point["geometry"]["coordinates"][::-1]) for point in points]
    else:
        root = ElementTree.fromstring(text)
        if suffix == ".gpx":
            places = [(float(p.get("lat", "nan")), float(p.get("lon", "nan"))) for p in root.iter(f"{GPX}trkpt")]
        else:
            found = [point.findtext(f"{KML}coordinates", "").split(",") for point in root.iter(f"{KML}Point")]
            places = [(float(each[1]), float(each[0])) for each in found]
    assert len(places) == len(ALONG)
    assert max(off(*each, shot) for each, shot in zip(places, ALONG, strict=True)) < 25


@pytest.mark.parametrize(
    "suffix", [".gpx", *(pytest.param(each, marks=pytest.mark.slow) for each in (".geojson", ".csv", ".kml"))]
)
def test_track_writes_a_folder_of_photos_in_every_format(suffix: str, run: Run, town: Path, tmp_path: Path) -> None:
    folder = tmp_path / "flight"
    folder.mkdir()
    lines = ["file,latitude,longitude"]
    for step, shot in enumerate(ALONG):
        save(folder / f"{7 - step}.jpg", shot, second=2 * step, heading=True)  # names in reverse order of time
        lines.append(f"{7 - step}.jpg,{shot.place[0]:.8f},{shot.place[1]:.8f}")
    (tmp_path / "truth.csv").write_text("\n".join(lines))
    written = tmp_path / "out" / f"track{suffix}"
    more = ["--picture", tmp_path / "out" / "track.png"] if suffix == ".gpx" else []
    code, out, err = run("track", town, folder, "-o", written, "--truth", tmp_path / "truth.csv", *more)
    assert code == 0, err
    assert (
        re.search(r"8 photos: [678] with a fix, [012] carried on, 0 without a position", out)
        and f"wrote {written}" in out
    )
    score = re.search(r"^track: median error (\d+) m, 90 % below (\d+) m, 100 % within 50 m, 0 % without", out, re.M)
    assert score is not None and int(score[2]) < 15, out
    check_track(written.read_text(), suffix)
    if suffix == ".gpx":
        assert "2024-05-06T07:08:14" in written.read_text()
        with Image.open(tmp_path / "out" / "track.png") as drawn:
            assert min(drawn.size) > 300


def test_track_follows_a_video(run: Run, town: Path, tmp_path: Path) -> None:
    film = tmp_path / "flight.avi"
    writer = cv2.VideoWriter(str(film), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"MJPG"), 2.0, (200, 200))
    lines = ["frame,latitude,longitude"]
    for number in range(10):
        shot = replace(ALONG[0], east=ALONG[0].east + 6.0 * number)
        writer.write(np.ascontiguousarray(shot.photo(quilt(1), 200)[:, :, ::-1]))
        lines.append(f"{number},{shot.place[0]:.8f},{shot.place[1]:.8f}")
    writer.release()
    (tmp_path / "truth.csv").write_text("\n".join(lines))
    written = tmp_path / "track.csv"
    code, out, err = run("track", town, film, "-o", written, "--truth", tmp_path / "truth.csv", "--rate", 1)
    assert code == 0, err
    assert "5 photos: 5 with a fix" in out and "100 % within 50 m" in out
    rows = list(csv.DictReader(written.read_text().splitlines()))
    assert [float(row["time_s"]) for row in rows] == pytest.approx([0, 1, 2, 3, 4], abs=0.05)
    assert {row["state"] for row in rows} == {"tracking"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "track.shp"], "is not a track format"),
        (["-o", "track.gpx", "--truth", "none.csv"], "none.csv: no such file"),
        (["-o", "track.gpx", "--max-speed", "0"], "max_speed must be a positive number"),
        (["-o", "track.gpx", "--interval", "0"], "interval"),
    ],
)
def test_track_errors_are_one_line_and_write_nothing(
    words: list[str], message: str, run: Run, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flight").mkdir()
    save(tmp_path / "flight" / "a.jpg")
    code, out, err = run("track", town, "flight", *words)
    assert (code, out) == (2, "") and err.startswith("skypart: ") and len(err.splitlines()) == 1 and message in err
    assert [path.name for path in tmp_path.iterdir()] == ["flight"]


def two_maps(folder: Path) -> Path:
    """An index of two maps, east and west."""
    maps = [write_quilt(folder / "east.tif"), write_quilt(folder / "west.tif", seed=2)]
    return make_index(folder / "both.skyindex", maps).folder


def test_maps_lists_the_maps_of_an_index(tmp_path: Path, run: Run) -> None:
    index = two_maps(tmp_path)
    (tmp_path / "west.tif").unlink()
    code, text, _ = run("maps", index, "--verify")
    assert code == 0
    rows = {line.split()[1]: line for line in text.splitlines() if "│" in line}
    assert "there" in rows["east"] and "missing" in rows["west"]
    assert "all files match their checksums" in text


def test_maps_removes_a_map(tmp_path: Path, run: Run) -> None:
    index = two_maps(tmp_path)
    views = {entry.name: entry.views for entry in IndexManifest.read(index).maps}
    code, text, _ = run("maps", index, "--remove", "west")
    assert code == 0 and f"removed west: {views['west']} views" in text
    assert [entry.name for entry in IndexManifest.read(index).maps] == ["east"]
    assert MapIndex(index).store.stats().views == views["east"]
    code, _, error = run("maps", index, "--remove", "east")
    assert code == 2 and "only map" in error
    assert MapIndex(index).store.stats().views == views["east"]


def test_maps_reports_unknown_maps_and_damaged_files(tmp_path: Path, run: Run) -> None:
    index = two_maps(tmp_path)
    code, _, error = run("maps", index, "--remove", "north")
    assert code == 2 and "there is no map north in this index; it has east, west" in error
    code, _, error = run("maps", tmp_path / "none", "--remove", "x")
    assert code == 2 and "no map index" in error and not (tmp_path / "none").exists()
    vectors = max((index / "store").iterdir(), key=lambda file: file.stat().st_size)
    content = bytearray(vectors.read_bytes())
    content[100] ^= 1
    vectors.write_bytes(content)
    code, _, error = run("maps", index, "--verify")
    assert code == 2 and vectors.name in error
