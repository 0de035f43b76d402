"""Tables of photos of known position."""

from pathlib import Path

import pytest
from PIL import Image
from pyproj import Transformer

from skypart.errors import SkyPartError
from skypart.position.labelled import read_labelled


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "photos/c.jpg", "photos/d[1].jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    return tmp_path


def table(folder: Path, text: str, name: str = "positions.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_photos_are_found_beside_the_table_and_in_folders_beside_it(folder: Path) -> None:
    file = table(folder, "file,latitude,longitude\na.jpg,48.1,11.5\nc.jpg,-33.5,-70.25\nd[1].jpg,0,180\n")
    found = read_labelled(file)
    assert [photo.path.relative_to(folder).as_posix() for photo in found] == [
        "a.jpg",
        "photos/c.jpg",
        "photos/d[1].jpg",
    ]
    assert [(photo.latitude, photo.longitude) for photo in found] == [(48.1, 11.5), (-33.5, -70.25), (0.0, 180.0)]
    assert read_labelled(folder) == found


def test_an_empty_position_means_outside_the_map(folder: Path) -> None:
    found = read_labelled(table(folder, "\ufeffPath, LON ,Lat,weather\na.jpg, 11.5 , 48.1 ,fog\nb.jpg,,,rain\n"))
    assert (found[0].latitude, found[0].longitude) == (48.1, 11.5)
    assert (found[1].latitude, found[1].longitude) == (None, None)


def test_the_position_of_the_ground_is_preferred_to_that_of_the_drone(folder: Path) -> None:
    (photo,) = read_labelled(table(folder, "path,lat,lon,target_lat,target_lon\na.jpg,1,2,3,4\n", "poses.csv"))
    assert (photo.latitude, photo.longitude) == (3.0, 4.0)


@pytest.mark.parametrize(("zone", "epsg"), [("43n", 32643), ("19s", 32719)])
def test_utm_coordinates_are_read(folder: Path, zone: str, epsg: int) -> None:
    (photo,) = read_labelled(table(folder, f"file,utm{zone}_e,utm{zone}_n\na.jpg,320000.5,3724000.25\n", "frames.csv"))
    longitude, latitude = Transformer.from_crs(f"EPSG:{epsg}", "EPSG:4326", always_xy=True).transform(
        320000.5, 3724000.25
    )
    assert photo.latitude == pytest.approx(latitude, abs=1e-8)
    assert photo.longitude == pytest.approx(longitude, abs=1e-8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file,latitude\na.jpg,48\n", "must name the columns file, latitude and longitude"),
        ("", "must name the columns"),
        ("file,latitude,longitude\n", "lists no photo"),
        ("file,latitude,longitude\nz.jpg,48,11\n", r"line 2: no photo 'z\.jpg' beside the file"),
        ("file,latitude,longitude\na.jpg,48,11\n,48,11\n", "line 3: no photo ''"),
        ("file,latitude,longitude\n**x.jpg,48,11\n", r"line 2: no photo '\*\*x\.jpg'"),
        ("file,latitude,longitude\nphotos,48,11\n", "line 2: no photo 'photos'"),
        ("file,latitude,longitude\na.jpg,48,\n", "line 2: latitude and longitude must be degrees"),
        ("file,latitude,longitude\na.jpg,north,11\n", "line 2: latitude and longitude must be degrees"),
        ("file,latitude,longitude\na.jpg,111,48\n", "is not on the earth; are they swapped"),
        ("file,latitude,longitude\na.jpg,nan,11\n", "is not on the earth"),
        ("file,utm43n_e,utm43n_n\na.jpg,inf,3724000\n", "is not on the earth"),
    ],
)
def test_errors_in_a_table_name_the_line(folder: Path, text: str, words: str) -> None:
    with pytest.raises(SkyPartError, match=words):
        read_labelled(table(folder, text))


def test_files_that_are_not_tables_raise(folder: Path) -> None:
    with pytest.raises(SkyPartError, match="cannot be read as a table"):
        read_labelled(folder / "a.jpg")
    with pytest.raises(SkyPartError, match="no such file"):
        read_labelled(folder / "none.csv")
    with pytest.raises(SkyPartError, match=r"contains none of positions\.csv"):
        read_labelled(folder / "photos")
