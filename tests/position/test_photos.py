"""Options and metadata on their way to the locator."""

import math
from pathlib import Path
from typing import Any

import pytest

from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage
from skypart.position.camera import merge_hints
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.photos import locate_photos, read_hints, read_prior
from tests.images.photos_with_metadata import packet, save_photo


class RecordingLocator:
    """A locator that records its arguments."""

    calibrated = False
    photo_edge = 224

    def __init__(self) -> None:
        self.asked: list[tuple[str, Prior | None, Hints | None]] = []

    def locate(self, image: RgbImage, *, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        self.asked.append((name, prior, hints))
        return Fix(photo=name)


def test_a_prior_is_parsed_latitude_first() -> None:
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
        ("", 100.0, "--radius needs --near"),
        ("48.1,11.5", math.nan, "--radius must be"),
        ("48.1,11.5", math.inf, "--radius must be"),
    ],
)
def test_an_invalid_prior_raises(near: str, radius: float, words: str) -> None:
    with pytest.raises(SkyPartError, match=words):
        read_prior(near, radius)


def test_hints_are_parsed_and_headings_are_normalised() -> None:
    assert read_hints() == Hints()
    expected = Hints(heading_deg=270.0, altitude_m=120.0, tilt_deg=45.0, fov_deg=70.0)
    assert read_hints(-90.0, 120.0, 45.0, 70.0) == expected
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
def test_impossible_hints_raise(name: str, values: tuple[float, ...]) -> None:
    for value in values:
        arguments: dict[str, Any] = {name: value}
        with pytest.raises(SkyPartError, match=f"--{name} .* out of range"):
            read_hints(**arguments)


def test_hints_of_the_user_override_the_metadata() -> None:
    given, metadata = Hints(heading_deg=0.0, fov_deg=None), Hints(heading_deg=90.0, altitude_m=80.0, fov_deg=60.0)
    assert merge_hints(given, metadata) == Hints(heading_deg=0.0, altitude_m=80.0, fov_deg=60.0)


def test_photos_and_folders_are_located_with_their_metadata(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    facts = 'drone-dji:GimbalYawDegree="+33.0" drone-dji:GimbalPitchDegree="-60.0" drone-dji:RelativeAltitude="+81.5"'
    flown = save_photo(tmp_path / "more" / "flown.jpg", xmp=packet(facts))
    plain = save_photo(tmp_path / "plain.jpg")
    recorder: Any = RecordingLocator()
    prior = Prior(latitude=1.0, longitude=2.0, radius_m=3.0)
    fixes = locate_photos(recorder, [plain, tmp_path / "more"], prior, Hints(altitude_m=120.0))
    assert [fix.photo for fix in fixes] == [str(plain), str(flown)]
    assert recorder.asked[0] == (str(plain), prior, Hints(altitude_m=120.0))
    hints = recorder.asked[1][2]
    assert (hints.heading_deg, hints.tilt_deg, hints.altitude_m) == (33.0, 60.0, 120.0)


def test_metadata_can_be_ignored(tmp_path: Path) -> None:
    facts = 'drone-dji:GimbalYawDegree="+33.0" drone-dji:GimbalPitchDegree="-60.0" drone-dji:RelativeAltitude="+81.5"'
    flown = save_photo(tmp_path / "flown.jpg", shot={0xA405: 24}, xmp=packet(facts))
    recorder: Any = RecordingLocator()
    locate_photos(recorder, [flown], None, Hints(tilt_deg=70.0), exif=False)
    assert recorder.asked == [(str(flown), None, Hints(tilt_deg=70.0))]


def test_no_photos_or_only_damaged_ones_raise(tmp_path: Path) -> None:
    recorder: Any = RecordingLocator()
    with pytest.raises(SkyPartError, match="no images in"):
        locate_photos(recorder, [tmp_path])
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    with pytest.raises(SkyPartError, match=r"broken\.jpg"):
        locate_photos(recorder, [tmp_path / "broken.jpg"])


def test_a_damaged_photo_does_not_affect_the_others(tmp_path: Path) -> None:
    recorder: Any = RecordingLocator()
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff broken")
    fine = save_photo(tmp_path / "b.jpg")
    broken, located = locate_photos(recorder, [tmp_path])
    assert not broken.found and "a.jpg" in str(broken.reason)
    assert located.photo == str(fine)
