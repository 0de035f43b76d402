"""Numbers that no camera writes: hints are ignored or refused, and never end in a traceback."""

from pathlib import Path

import pytest

from skypart.images.exif import read_camera_facts
from skypart.position.camera import drone_position, ground_width
from skypart.position.fix import Hints
from skypart.serve.errors import HttpError
from skypart.serve.photo_request import LocateForm, parse_form
from tests.images.photos_with_metadata import save_photo

ODD = (1.7e308, 1e-308, 5e-324, 0.0, -1.0, float("nan"), float("inf"))


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("tag", [0x920A, 0xA405, 0xA404, 0xA20E])
def test_odd_lenses_have_no_field_of_view(
    tag: int, value: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shot = {0x920A: 8.8, 0xA405: 24.0, 0xA20E: 3000.0, 0xA210: 2} | {tag: value}
    photo = save_photo(tmp_path / "p.jpg")
    monkeypatch.setattr("skypart.images.exif._tags", lambda image: ({}, shot, {}))
    fov = read_camera_facts(photo).fov_deg
    assert fov is None or 1.0 <= fov <= 170.0


@pytest.mark.parametrize("value", ["1e-300", "5e-324", "0", "-1", "nan", "inf", "1e308"])
@pytest.mark.parametrize("name", ["tilt_deg", "fov_deg", "altitude_m"])
def test_odd_fields_are_refused(name: str, value: str) -> None:
    with pytest.raises(HttpError) as error:
        parse_form(LocateForm, {name: value})
    assert error.value.status == 422


@pytest.mark.parametrize("value", [1e-300, 5e-324, 1e-9])
def test_tiny_hints_give_no_ground_and_no_position(value: float) -> None:
    hints = Hints(altitude_m=value, fov_deg=value, tilt_deg=45.0)
    assert ground_width(hints) is None
    drone_position(latitude=0.0, longitude=0.0, heading=0.0, ground_m=100.0, hints=hints)
