"""Every format is read back by an independent parser."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from xml.etree import ElementTree

import pytest

from skypart.bridge.formats import TrackFile, choose_format, format_names, track_suffixes, write_fixes
from skypart.errors import SkyPartError
from tests.bridge.examples import BAD, CROSSING, FIXES, GOOD, NAME, TRACK

GPX = "{http://www.topografix.com/GPX/1/1}"
KML = "{http://www.opengis.net/kml/2.2}"
# Order of the children of a point in the GPX 1.1 schema (wptType), as far as we write them.
GPX_ORDER = ["ele", "time", "name", "cmt", "desc", "src", "link", "sym", "type", "fix", "extensions"]


def refuse(word: str) -> float:
    raise AssertionError(f"{word} in JSON")


def strict(text: str) -> dict[str, object]:
    """JSON without NaN and infinity."""
    content = json.loads(text, parse_constant=refuse)
    assert isinstance(content, dict)
    return content


def track_text(tmp_path: Path, suffix: str, start: datetime | None = None) -> str:
    TrackFile(tmp_path / f"t{suffix}").write(TRACK, start)
    return (tmp_path / f"t{suffix}").read_text(encoding="utf-8")


def test_json_holds_every_field() -> None:
    content = strict(write_fixes(FIXES, "json"))
    assert content["format"] == 1
    fixes = content["fixes"]
    assert isinstance(fixes, list) and len(fixes) == 4
    good = fixes[0]
    assert set(good) == {*GOOD.__dataclass_fields__, "found"} - {"best_guess"}
    assert good["photo"] == NAME and good["found"] is True and good["latitude"] == GOOD.latitude
    assert good["candidates"][0]["footprint"]["metres"] == 200.0 and good["peaks"][0]["spread_m"] == 40.0
    assert list(good["evidence"].items()) == [
        ("similarity", 0.71),
        ("agreement", 0.6),
        ("inliers", 31.0),
        ("inlier_share", 0.4),
        ("evenness", None),
        ("scale_m", 20.9),
        ("uniqueness", 1.0),
        ("layout", 0.0),
        ("tilt_deg", 90.0),
        ("ground_m", 0.0),
        ("latitude", 48.20817),
        ("longitude", 16.37382),
    ]
    assert fixes[1]["evidence"] == {}
    assert fixes[1]["found"] is False and fixes[1]["latitude"] is None and fixes[1]["reason"] == BAD.reason
    assert fixes[3]["radius_m"] is None and fixes[3]["found"] is False


def test_geojson_has_points_and_circles() -> None:
    content = strict(write_fixes(FIXES, "geojson"))
    assert content["type"] == "FeatureCollection"
    features = content["features"]
    assert isinstance(features, list)
    points = [each for each in features if each["properties"]["role"] == "position"]
    circles = [each for each in features if each["properties"]["role"] != "position"]
    assert points[0]["geometry"] == {"type": "Point", "coordinates": [GOOD.longitude, GOOD.latitude]}
    assert points[0]["properties"]["heading_deg"] == 271.25 and points[0]["properties"]["photo"] == NAME
    assert points[1]["geometry"] is None and points[1]["properties"]["reason"] == BAD.reason
    assert points[3]["geometry"] is None
    assert [each["geometry"]["type"] for each in circles] == ["Polygon", "MultiPolygon"]


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(write_fixes(FIXES, "csv"))))
    assert [row["photo"] for row in rows] == [NAME, "nacht??.jpg", "fiji.jpg", "nan.jpg"]
    assert float(rows[0]["latitude"]) == GOOD.latitude and float(rows[0]["longitude"]) == GOOD.longitude
    assert (rows[0]["refined"], rows[0]["reason"], rows[1]["latitude"], rows[1]["reason"]) == (
        "true",
        "",
        "",
        BAD.reason,
    )
    assert rows[3]["latitude"] == rows[3]["longitude"] == rows[3]["radius_m"] == ""


def test_kml_reads_back() -> None:
    root = ElementTree.fromstring(write_fixes(FIXES, "kml"))
    marks = root.findall(f"{KML}Document/{KML}Placemark")
    names = [mark.findtext(f"{KML}name") for mark in marks]
    assert names == [NAME, f"{NAME}: 95 % within", "nacht??.jpg", "fiji.jpg", "fiji.jpg: 95 % within", "nan.jpg"]
    longitude, latitude = map(float, (marks[0].findtext(f"{KML}Point/{KML}coordinates") or "").split(","))
    assert (latitude, longitude) == pytest.approx((48.20817, 16.37382), abs=1e-8)
    ring = marks[1].findtext(f".//{KML}LinearRing/{KML}coordinates")
    assert ring is not None and ring.split()[0] == ring.split()[-1] and len(ring.split()) == 65
    assert len(marks[4].findall(f".//{KML}Polygon")) == 2
    assert marks[2].find(f"{KML}Point") is None and marks[2].findtext(f"{KML}description") == BAD.reason
    data = {each.get("name"): each.findtext(f"{KML}value") for each in marks[0].iter(f"{KML}Data")}
    assert data["confidence"] == "0.93" and data["heading_deg"] == "271.25"


def test_gpx_waypoints_read_back() -> None:
    root = ElementTree.fromstring(write_fixes(FIXES, "gpx"))
    points = root.findall(f"{GPX}wpt")
    assert [each.findtext(f"{GPX}name") for each in points] == [NAME, "fiji.jpg"]
    assert float(points[0].get("lat") or 0) == GOOD.latitude


def test_the_table_has_the_position_or_the_reason() -> None:
    text = write_fixes(FIXES[:2], "table")
    assert "48.208170" in text and "16.373820" in text and "24 m" in text and "271°" in text
    assert "no fix" in text and "almost black" in text
    assert "\x1b" not in text and "\x01" not in text
    assert "nan " not in write_fixes(FIXES, "table")


def test_square_brackets_in_names_are_not_markup() -> None:
    assert "[red]a.jpg" in write_fixes([replace(GOOD, photo="[red]a.jpg")], "table")


def test_gpx_track_has_segments_times_and_the_schema_order(tmp_path: Path) -> None:
    start = datetime(2024, 5, 6, 9, 0, tzinfo=timezone(timedelta(hours=2)))
    root = ElementTree.fromstring(track_text(tmp_path, ".gpx", start))
    assert root.get("version") == "1.1" and root.get("creator")
    segments = root.findall(f"{GPX}trk/{GPX}trkseg")
    assert [len(each) for each in segments] == [2, 2]  # the flight was lost in between
    points = root.findall(f".//{GPX}trkpt")
    assert [(float(p.get("lat") or 0), float(p.get("lon") or 0)) for p in points] == [
        (48.20, 16.30),
        (48.21, 16.31),
        (48.25, 16.40),
        (48.26, 16.41),
    ]
    times = [datetime.fromisoformat(p.findtext(f"{GPX}time") or "") for p in points]
    begin = datetime(2024, 5, 6, 7, 0, tzinfo=UTC)
    assert times == [begin + timedelta(seconds=s) for s in (1.0, 2.5, 4.0, 5.0)]
    for each in points:
        order = [GPX_ORDER.index(tag.tag.removeprefix(GPX)) for tag in each]
        assert order == sorted(order)
    assert points[1].findtext(f"{GPX}type") == "coasting" and points[0].findtext(f"{GPX}type") == "tracking"
    assert [tag.tag for tag in root] == [f"{GPX}metadata", f"{GPX}trk"]
    assert root.findtext(f"{GPX}metadata/{GPX}desc") is None


def test_gpx_notes_an_unknown_start_or_time_zone(tmp_path: Path) -> None:
    unknown = ElementTree.fromstring(track_text(tmp_path, ".gpx"))
    assert "not known" in (unknown.findtext(f"{GPX}metadata/{GPX}desc") or "")
    assert unknown.findtext(f".//{GPX}time") == "1970-01-01T00:00:01.000Z"
    naive = ElementTree.fromstring(track_text(tmp_path, ".gpx", datetime(2024, 5, 6, 7)))
    assert "UTC" in (naive.findtext(f"{GPX}metadata/{GPX}desc") or "")
    assert naive.findtext(f".//{GPX}time") == "2024-05-06T07:00:01.000Z"


@pytest.mark.parametrize("suffix", [".csv", ".kml", ".geojson"])
def test_times_without_a_zone_are_not_written_as_utc(tmp_path: Path, suffix: str) -> None:
    text = track_text(tmp_path, suffix, datetime(2024, 5, 6, 7))
    assert "2024-05-06T07:00:02.500" in text and "2024-05-06T07:00:02.500Z" not in text
    east = datetime(2024, 5, 6, 7, tzinfo=timezone(timedelta(hours=2)))
    assert "2024-05-06T05:00:02.500Z" in track_text(tmp_path, suffix, east)


def test_geojson_track(tmp_path: Path) -> None:
    features = strict(track_text(tmp_path, ".geojson"))["features"]
    assert isinstance(features, list) and len(features) == 1 + len(TRACK)
    path = features[0]["geometry"]
    assert path["type"] == "MultiLineString"
    assert path["coordinates"] == [[[16.30, 48.20], [16.31, 48.21]], [[16.40, 48.25], [16.41, 48.26]]]
    assert features[1]["geometry"] is None and features[1]["properties"]["state"] == "lost"
    assert features[2]["properties"]["radius_m"] == 12.0 and features[2]["properties"]["photo"] == NAME
    TrackFile(tmp_path / "short.geojson").write(TRACK[1:3])
    short = strict((tmp_path / "short.geojson").read_text(encoding="utf-8"))["features"]
    assert isinstance(short, list) and short[0]["geometry"]["type"] == "LineString"


def test_csv_track(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(track_text(tmp_path, ".csv", datetime(2024, 5, 6, tzinfo=UTC)))))
    assert [row["state"] for row in rows] == [point.state for point in TRACK]
    assert [float(row["time_s"]) for row in rows] == [point.time_s for point in TRACK]
    assert rows[0]["latitude"] == "" and float(rows[1]["raw_latitude"]) == GOOD.latitude
    assert rows[2]["time"] == "2024-05-06T00:00:02.500Z"


def test_kml_track(tmp_path: Path) -> None:
    root = ElementTree.fromstring(track_text(tmp_path, ".kml", datetime(2024, 5, 6, tzinfo=UTC)))
    lines = [(each.text or "").split() for each in root.findall(f".//{KML}LineString/{KML}coordinates")]
    assert [len(line) for line in lines] == [2, 2]
    assert tuple(map(float, lines[1][0].split(","))) == (16.40, 48.25)
    whens = [each.text for each in root.iter(f"{KML}when")]
    assert whens[0] == "2024-05-06T00:00:01.000Z" and len(whens) == 4


def test_tracks_across_the_antimeridian_are_split(tmp_path: Path) -> None:
    TrackFile(tmp_path / "a.geojson").write(CROSSING)
    features = strict((tmp_path / "a.geojson").read_text(encoding="utf-8"))["features"]
    assert isinstance(features, list)
    lines = features[0]["geometry"]["coordinates"]
    assert len(lines) == 2 and lines[0][-1][0] == 180.0 and lines[1][0][0] == -180.0
    assert lines[0][-1][1] == lines[1][0][1] == pytest.approx(-17.0 - 0.001 / 3)
    TrackFile(tmp_path / "a.kml").write(CROSSING)
    root = ElementTree.parse(tmp_path / "a.kml")
    for line in root.iter(f"{KML}LineString"):
        degrees = [float(c.split(",")[0]) for c in (line.findtext(f"{KML}coordinates") or "").split()]
        assert max(degrees) - min(degrees) < 1


@pytest.mark.parametrize("suffix", track_suffixes())
def test_a_track_without_positions_is_a_valid_file(tmp_path: Path, suffix: str) -> None:
    TrackFile(tmp_path / f"t{suffix}").write([TRACK[0], TRACK[3]])
    text = (tmp_path / f"t{suffix}").read_text(encoding="utf-8")
    if suffix in (".gpx", ".kml"):
        ElementTree.fromstring(text)
    elif suffix == ".geojson":
        features = strict(text)["features"]
        assert isinstance(features, list) and features[0]["geometry"] is None
    else:
        assert len(text.splitlines()) == 3


@pytest.mark.parametrize("format", format_names())
def test_no_fixes_at_all(format: str) -> None:
    assert write_fixes([], format)


def test_errors_about_unknown_formats_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"table, json, geojson, csv, kml"):
        write_fixes(FIXES, "shp")
    for name in ("a.shp", "a"):
        with pytest.raises(SkyPartError, match=r"\.geojson, \.csv, \.kml, \.gpx"):
            TrackFile(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_the_position_of_the_drone_is_written() -> None:
    fix = replace(GOOD, drone_latitude=47.5, drone_longitude=8.25)
    assert "drone at 47.500000, 8.250000" in " ".join(write_fixes([fix], "table").split())
    assert "drone at 47.50000000, 8.25000000" in write_fixes([fix], "gpx")
    assert "drone at" not in write_fixes([replace(fix, drone_latitude=None, drone_longitude=None)], "gpx")


@pytest.mark.parametrize(
    ("format", "output", "chosen"),
    [
        ("", None, "table"),
        ("", "fixes", "table"),
        ("", "fixes.txt", "table"),
        ("", "fixes.geojson", "geojson"),
        ("", "FIXES.KML", "kml"),
        ("CSV", None, "csv"),
        ("csv", "fixes.txt", "csv"),
        ("csv", "fixes.csv", "csv"),
        ("geojson", "fixes.json", "geojson"),
    ],
)
def test_the_format_is_the_named_one_or_that_of_the_suffix(format: str, output: str | None, chosen: str) -> None:
    assert choose_format(format, None if output is None else Path(output)).name == chosen


@pytest.mark.parametrize(("format", "output"), [("table", "a.csv"), ("json", "a.geojson"), ("kml", "a.GPX")])
def test_a_named_format_that_contradicts_the_suffix_raises(format: str, output: str) -> None:
    with pytest.raises(SkyPartError, match=f"its suffix means .*, but --format is {format}; omit --format"):
        choose_format(format, Path(output))


def test_a_track_file_is_checked_before_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder.gpx").mkdir()
    with pytest.raises(SkyPartError, match="is a folder"):
        TrackFile(tmp_path / "folder.gpx")
    with pytest.raises(SkyPartError, match=r"a\.json: \.json is not a track format"):
        TrackFile(tmp_path / "a.json")
    assert TrackFile(tmp_path / "A.GPX").path == tmp_path / "A.GPX" and not (tmp_path / "A.GPX").exists()
