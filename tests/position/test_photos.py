"""What is said and what photos say of themselves, on the way to the locator."""

import math
from pathlib import Path
from typing import Any

import pytest

from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.hints import join_hints
from skypart.position.photos import locate_photos, read_format, read_hints, read_prior
from tests.images.photos_with_metadata import packet, save_photo


class Listener:
    """A locator that notes what it is asked."""

    calibrated = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, Prior | None, Hints | None]] = []

    def locate(self, image: RgbImage, *, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        self.asked.append((name, prior, hints))
        return Fix(photo=name)


def test_a_prior_is_read_latitude_first() -> None:
    assert read_prior("") is None
    assert read_prior("48.1, -11.5") == Prior(latitude=48.1, longitude=-11.5, radius_m=1000.0)
    assert read_prior("48.1, -11.5", 250.0) == Prior(latitude=48.1, longitude=-11.5, radius_m=250.0)


@pytest.mark.parametrize(
    ("near", "radius", "words"),
    [
        ("48.1", 100.0, "give latitude and longitude"),
        ("48.1,11.5,3", 100.0, "give latitude and longitude"),
        ("here,there", 100.0, "give latitude and longitude"),
        ("111.5,48.1", 100.0, "latitude comes first"),
        ("nan,11.5", 100.0, "latitude comes first"),
        ("48.1,11.5", 0.0, "--radius must be"),
        ("", 100.0, "--radius is around --near"),
        ("48.1,11.5", math.nan, "--radius must be"),
        ("48.1,11.5", math.inf, "--radius must be"),
    ],
)
def test_a_place_that_is_none_is_refused(near: str, radius: float, words: str) -> None:
    with pytest.raises(SkyPartError, match=words):
        read_prior(near, radius)


def test_hints_are_read_and_headings_brought_into_range() -> None:
    assert read_hints() == Hints()
    said = Hints(heading_deg=270.0, altitude_m=120.0, tilt_deg=45.0, fov_deg=70.0)
    assert read_hints(-90.0, 120.0, 45.0, 70.0) == said
    assert read_hints(360.0).heading_deg == 0.0 and read_hints(0.0).heading_deg == 0.0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("heading", (400.0, math.nan)),
        ("altitude", (0.0, -5.0, 1e6, math.nan)),
        ("tilt", (-10.0, 0.0, 91.0)),
        ("fov", (0.0, 180.0, math.inf)),
    ],
)
def test_what_no_camera_can_have_is_refused(name: str, values: tuple[float, ...]) -> None:
    for value in values:
        arguments: dict[str, Any] = {name: value}
        with pytest.raises(SkyPartError, match=f"--{name} .* out of range"):
            read_hints(**arguments)


def test_what_was_said_counts_before_what_the_file_says() -> None:
    said, read = Hints(heading_deg=0.0, fov_deg=None), Hints(heading_deg=90.0, altitude_m=80.0, fov_deg=60.0)
    assert join_hints(said, read) == Hints(heading_deg=0.0, altitude_m=80.0, fov_deg=60.0)


def test_photos_and_folders_are_located_with_what_their_files_say(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    facts = 'drone-dji:GimbalYawDegree="+33.0" drone-dji:GimbalPitchDegree="-60.0" drone-dji:RelativeAltitude="+81.5"'
    flown = save_photo(tmp_path / "more" / "flown.jpg", xmp=packet(facts))
    plain = save_photo(tmp_path / "plain.jpg")
    listener: Any = Listener()
    prior = Prior(latitude=1.0, longitude=2.0, radius_m=3.0)
    fixes = locate_photos(listener, [plain, tmp_path / "more"], prior, Hints(altitude_m=120.0))
    assert [fix.photo for fix in fixes] == [str(plain), str(flown)]
    assert listener.asked[0] == (str(plain), prior, Hints(altitude_m=120.0))
    hints = listener.asked[1][2]
    assert (hints.heading_deg, hints.tilt_deg, hints.altitude_m) == (33.0, 60.0, 120.0)


def test_what_files_say_is_left_aside_where_asked_for(tmp_path: Path) -> None:
    facts = 'drone-dji:GimbalYawDegree="+33.0" drone-dji:GimbalPitchDegree="-60.0" drone-dji:RelativeAltitude="+81.5"'
    flown = save_photo(tmp_path / "flown.jpg", shot={0xA405: 24}, xmp=packet(facts))
    listener: Any = Listener()
    locate_photos(listener, [flown], None, Hints(tilt_deg=70.0), exif=False)
    assert listener.asked == [(str(flown), None, Hints(tilt_deg=70.0))]


FORMATS = ("table", "json", "geojson", "csv", "kml", "gpx")


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
def test_the_format_is_the_one_said_or_that_of_the_file(format: str, output: str | None, chosen: str) -> None:
    assert read_format(format, None if output is None else Path(output), FORMATS) == chosen


@pytest.mark.parametrize(("format", "output"), [("table", "a.csv"), ("json", "a.geojson"), ("kml", "a.GPX")])
def test_a_format_that_is_not_the_files_is_refused(format: str, output: str) -> None:
    with pytest.raises(SkyPartError, match=f"its suffix asks for .*, --format for {format}; leave --format out"):
        read_format(format, Path(output), FORMATS)


def test_no_photo_and_a_broken_one_are_told(tmp_path: Path) -> None:
    listener: Any = Listener()
    with pytest.raises(SkyPartError, match="no images in"):
        locate_photos(listener, [tmp_path])
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    with pytest.raises(SkyPartError, match=r"broken\.jpg"):
        locate_photos(listener, [tmp_path / "broken.jpg"])


def test_a_broken_photo_does_not_take_the_others_along(tmp_path: Path) -> None:
    listener: Any = Listener()
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff broken")
    fine = save_photo(tmp_path / "b.jpg")
    broken, located = locate_photos(listener, [tmp_path])
    assert not broken.found and "a.jpg" in str(broken.reason)
    assert located.photo == str(fine)
