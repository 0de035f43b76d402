from pathlib import Path

import pytest

from skypart.datasets import KINDS, denseuav, folders, open_dataset, sues200
from skypart.datasets.records import Dataset, Position
from skypart.errors import SkyPartError
from tests.datasets.fakes import make_denseuav, make_folders, make_sues_raw, make_university, write_image

SHARED = Path(__file__).resolve().parents[3] / "shared"


def sizes(dataset: Dataset) -> dict[str, tuple[int, int]]:
    return {split.name: (len(split.query), len(split.gallery)) for split in dataset.tests}


def test_university_has_both_directions_and_no_altitude(tmp_path: Path) -> None:
    dataset = open_dataset(make_university(tmp_path))
    assert dataset.kind == "university1652"
    assert sizes(dataset) == {"D2S": (9, 4), "S2D": (3, 12)}
    assert len(dataset.train) == 8
    assert {r.location for r in dataset.train} == {"0001", "0002"}
    assert all(r.altitude is None and r.position is None for r in dataset.train)
    assert {r.view for r in dataset.tests[0].query} == {"drone"}


def test_raw_sues_is_split_by_the_official_ids(tmp_path: Path) -> None:
    dataset = open_dataset(make_sues_raw(tmp_path))
    assert {r.location for r in dataset.train} == {"0001", "0002"}
    altitudes = (150, 200, 250, 300)
    expected = {f"D2S {h}m": (6, 5) for h in altitudes} | {f"S2D {h}m": (3, 10) for h in altitudes}
    assert sizes(dataset) == expected
    assert all(r.altitude == 150 for r in dataset.tests[0].query)
    assert dataset.altitudes == [150, 200, 250, 300]


def test_train_ids_file_replaces_the_official_split(tmp_path: Path) -> None:
    make_sues_raw(tmp_path)
    (tmp_path / "train_ids.txt").write_text("0008\n0012\n")
    dataset = open_dataset(tmp_path)
    assert {r.location for r in dataset.train} == {"0008", "0012"}
    (tmp_path / "train_ids.txt").write_text("eight\n")
    with pytest.raises(SkyPartError, match="one location number per line"):
        open_dataset(tmp_path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
def test_official_ids_equal_the_published_list() -> None:
    assert sorted(map(int, (SHARED / "sues200_train_ids.txt").read_text().split())) == sorted(sues200.TRAIN_IDS)


def test_denseuav_heights_and_positions(tmp_path: Path) -> None:
    make_denseuav(tmp_path)
    with (tmp_path / "Dense_GPS_ALL.txt").open("a") as file:
        file.write("test/drone/002256/H80.JPG E121.5 N31.25 99\n")
    dataset = open_dataset(tmp_path)
    assert dataset.kind == "denseuav"
    counts = sizes(dataset)
    assert counts["D2S"] == (9, 30)
    assert counts["D2S 80m"] == (3, 30)
    assert counts["S2D"] == (18, 15)
    assert counts["S2D 100m"] == (6, 15)
    query = dataset.tests[0].query
    assert query[0].position == Position(121.5, 31.25)  # the later line overrides
    assert query[3].position == Position(120.38 + 0.0002 * 2257, 30.32 + 0.0001 * 2257)


def test_a_denseuav_gps_line_with_latitude_first_raises(tmp_path: Path) -> None:
    make_denseuav(tmp_path)
    (tmp_path / "Dense_GPS_ALL.txt").write_text("test/drone/002256/H80.JPG N31.25 E121.5 99\n")
    with pytest.raises(SkyPartError, match=r"Dense_GPS_ALL\.txt, line 1"):
        open_dataset(tmp_path)


def test_folders_match_by_subfolder_and_stem(tmp_path: Path) -> None:
    dataset = open_dataset(make_folders(tmp_path))
    assert dataset.kind == "folders"
    assert sizes(dataset) == {"D2S": (6, 3), "S2D": (3, 6)}
    assert dataset.train[0].position == Position(10.0, 50.0)
    assert dataset.train[0].altitude == 120.0
    (tmp_path / "train_ids.txt").write_text("bridge\n")
    held_out = open_dataset(tmp_path)
    assert {r.location for r in held_out.train} == {"bridge"}
    assert {r.location for r in held_out.tests[0].query} == {"church", "park"}
    assert len(held_out.tests[0].gallery) == 3


def test_folders_without_a_common_location_raise(tmp_path: Path) -> None:
    write_image(tmp_path / "drone/a.jpg", 1, 1)
    write_image(tmp_path / "satellite/b.jpg", 1, 2)
    with pytest.raises(SkyPartError, match="share no location"):
        open_dataset(tmp_path)


def test_swapped_longitude_and_latitude_raise(tmp_path: Path) -> None:
    make_folders(tmp_path)
    (tmp_path / "positions.csv").write_text("location,lon,lat\nbridge,31.0,121.0\n")
    with pytest.raises(SkyPartError, match=r"line 2.*swapped"):
        open_dataset(tmp_path)


def test_wrong_layouts_get_a_clear_error_message(tmp_path: Path) -> None:
    data = make_university(tmp_path / "outer/University-Release")
    with pytest.raises(SkyPartError, match="not SUES-200"):
        open_dataset(data, "sues200")
    with pytest.raises(SkyPartError, match="unknown data set kind"):
        open_dataset(data, "visloc")
    with pytest.raises(SkyPartError, match=r"is in a sub-folder; pass .*University-Release"):
        open_dataset(tmp_path / "outer")
    with pytest.raises(SkyPartError, match="is part of University-1652; pass its top folder"):
        open_dataset(data / "test/query_drone")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/SUES-200.zip").write_bytes(b"PK")
    with pytest.raises(SkyPartError, match="unpack"):
        open_dataset(tmp_path / "packed")
    with pytest.raises(SkyPartError, match="unpack the archive"):
        open_dataset(tmp_path / "packed/SUES-200.zip")
    with pytest.raises(SkyPartError, match="no such folder"):
        open_dataset(tmp_path / "nowhere")
    (tmp_path / "blank").mkdir()
    with pytest.raises(SkyPartError, match="is empty"):
        open_dataset(tmp_path / "blank")


def test_hidden_folders_are_ignored(tmp_path: Path) -> None:
    root = make_folders(tmp_path)
    write_image(root / "drone" / "park" / ".thumbs" / "deep" / "0.jpg", 9, 9)
    write_image(root / "drone" / "park" / "east" / "0.jpg", 9, 9)
    names = {record.path.name for record in open_dataset(root).train if record.location == "park"}
    assert names == {"park.png", "0.jpg", "1.jpg"}
    assert sum(record.location == "park" and record.view == "drone" for record in open_dataset(root).train) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"location,lon,lat\nbridge,nan,50\n", "not on the earth"),
        ("location,lon,lat\nK\u00f6ln,7,50\n".encode("latin-1"), "not a UTF-8 CSV"),
    ],
)
def test_invalid_positions_raise(tmp_path: Path, content: bytes, words: str) -> None:
    root = make_folders(tmp_path)
    (root / "positions.csv").write_bytes(content)
    with pytest.raises(SkyPartError, match=words):
        open_dataset(root)
    (root / "positions.csv").unlink()
    (root / "train_ids.txt").write_bytes("K\u00f6ln".encode("latin-1"))
    with pytest.raises(SkyPartError, match=r"train_ids\.txt: is not UTF-8"):
        open_dataset(root)


def test_full_column_names_win_over_short_ones(tmp_path: Path) -> None:
    table = tmp_path / "positions.csv"
    table.write_text("path,longitude,latitude,x,y\ndrone/a.jpg,8.5,47.3,120,40\n")
    assert folders.read_positions(table)["drone/a.jpg"].position == Position(8.5, 47.3)
    table.write_text("path,x,y\ndrone/a.jpg,8.5,47.3\n")
    assert folders.read_positions(table)["drone/a.jpg"].position == Position(8.5, 47.3)
    table.write_text("longitude,latitude,location\n1,2\n")
    with pytest.raises(SkyPartError, match=r"positions\.csv, line 2: a cell is missing"):
        folders.read_positions(table)


def test_a_gps_file_in_another_encoding_raises(tmp_path: Path) -> None:
    make_denseuav(tmp_path)
    (tmp_path / "Dense_GPS_ALL.txt").write_text("a b c", encoding="utf-16")
    with pytest.raises(SkyPartError, match=r"Dense_GPS_ALL\.txt: is not UTF-8 text"):
        denseuav.read_positions(tmp_path)


def test_an_unfinished_world_raises(tmp_path: Path) -> None:
    root = make_sues_raw(tmp_path)
    (root / "world.json").write_text('{"complete": false}')
    with pytest.raises(SkyPartError, match="not finished"):
        open_dataset(root)
    (root / "world.json").write_text('{"complete": true}')
    assert open_dataset(root).train


def test_a_custom_split_is_not_the_published_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_sues_raw(tmp_path)
    official = open_dataset(root)
    (root / "train_ids.txt").write_text("8\n12\n")
    own = open_dataset(root)
    for data, published in ((official, True), (own, False)):
        monkeypatch.setattr(sues200.Sues200, "published_tests", sizes(data))
        assert KINDS["sues200"].is_published(data) == published
    assert "official" in official.notes[0] and "its own train_ids.txt" in own.notes[0]


def test_denseuav_notes_missing_positions(tmp_path: Path) -> None:
    root = make_denseuav(tmp_path)
    assert not open_dataset(root).notes
    for name in ("test", "ALL"):
        file = root / f"Dense_GPS_{name}.txt"
        file.write_text("".join(line for line in file.read_text().splitlines(True) if "/002257/" not in line))
    assert open_dataset(root).notes == (
        "1 locations have no line in Dense_GPS_*.txt (first: 002257): SDM and MA cannot be computed",
    )
