import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from skypart.cli import app
from skypart.datasets import open_dataset, sues200
from skypart.datasets.check import check, print_report
from skypart.datasets.split_sues import split_sues
from skypart.errors import SkyPartError
from tests.datasets.fakes import make_denseuav, make_folders, make_sues_raw, make_university, write_image


@pytest.mark.parametrize("make", [make_university, make_sues_raw, make_denseuav, make_folders])
def test_intact_reduced_sets_pass(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    report = check(make(tmp_path), decode=True)
    assert report.ok, report.faults
    assert report.faults["extra"] == []
    if report.kind != "folders":
        assert any("reduced or rendered" in note for note in report.notes)


def test_faults_are_reported(tmp_path: Path) -> None:
    make_university(tmp_path)
    (tmp_path / "test/query_drone/0003/image-01.jpeg").write_bytes(b"not an image")
    (tmp_path / "test/query_drone/0003/image-02.jpeg").write_bytes(b"")
    write_image(tmp_path / "train/drone/loose.jpg", 1, 1)
    write_image(tmp_path / "train/drone/0001/0001/deep.jpg", 1, 2)
    write_image(tmp_path / "train/drone/town/x.jpg", 1, 3)
    write_image(tmp_path / "photos/x.jpg", 1, 4)
    (tmp_path / "train/drone/0001/Thumbs.db").write_bytes(b"x")
    (tmp_path / "test/gallery_satellite/0004/image-01.jpg").unlink()
    write_image(tmp_path / "test/query_satellite/0001/leak.jpg", 1, 5)
    report = check(tmp_path)
    assert not report.ok
    assert len(report.faults["broken"]) == 2
    misplaced = "\n".join(report.faults["misplaced"])
    for words in (
        "loose.jpg: is not in a location folder",
        "deep.jpg: is one folder too deep",
        "'town' is not a location",
        "both in training",
    ):
        assert words in misplaced
    missing = "\n".join(report.faults["missing"])
    assert "test/gallery_satellite/0004/: the folder is empty" in missing
    assert "D2S: queried locations absent from the gallery: 1 (0004)" in missing
    assert len(report.faults["extra"]) == 2
    assert "google" not in missing


def test_a_missing_image_of_the_published_release_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_sues_raw(tmp_path)
    monkeypatch.setattr(sues200, "LOCATIONS", 5)
    monkeypatch.setattr(sues200, "IMAGES_PER_ALTITUDE", 2)
    (tmp_path / "drone_view_512/0008/200/1.jpg").unlink()
    report = check(tmp_path)
    assert report.faults["missing"] == ["drone_view_512/*/200: 1 fewer than 10 images: 0008 (1 of 2)"]


def test_a_denseuav_location_without_gps_is_reported(tmp_path: Path) -> None:
    make_denseuav(tmp_path)
    for name in ("Dense_GPS_ALL.txt", "Dense_GPS_test.txt"):
        lines = (tmp_path / name).read_text().splitlines()
        (tmp_path / name).write_text("\n".join(line for line in lines if "002257" not in line))
    assert any("Dense_GPS" in text and "002257" in text for text in check(tmp_path).faults["missing"])


def test_report_and_exit_code(tmp_path: Path) -> None:
    make_university(tmp_path)
    console = Console(record=True, width=160, file=io.StringIO())
    print_report(check(tmp_path), console)
    text = console.export_text()
    assert "University-1652" in text and "37,855" in text and "no problems found" in text
    assert CliRunner().invoke(app, ["data", "check", str(tmp_path)]).exit_code == 0
    (tmp_path / "test/query_drone/0003/image-01.jpeg").write_bytes(b"not an image")
    result = CliRunner().invoke(app, ["data", "check", str(tmp_path)])
    assert result.exit_code == 1
    assert "Broken" in result.output


def test_split_form_reads_like_the_raw_one(tmp_path: Path) -> None:
    raw = make_sues_raw(tmp_path / "raw")
    out = tmp_path / "split"
    links = split_sues(raw, out)
    before, after = open_dataset(raw), open_dataset(out)
    assert (out / "Testing/150/query_drone/0008/0.jpg").is_symlink()
    assert links == 4 * (2 * 2 + 2 + 3 * 2 + 3 + 5 * 2 + 5)
    for one, other in zip(before.tests, after.tests, strict=True):
        assert one.name == other.name
        assert [r.path.resolve() for r in one.query] == [r.path.resolve() for r in other.query]
        assert [r.path.resolve() for r in one.gallery] == [r.path.resolve() for r in other.gallery]
    assert {r.path.resolve() for r in before.train} == {r.path.resolve() for r in after.train}
    assert len(before.train) == len(after.train)
    assert split_sues(raw, out) == links
    assert check(out).ok
    with pytest.raises(SkyPartError, match="not raw SUES-200"):
        split_sues(out, tmp_path / "again")


def test_split_falls_back_to_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = make_sues_raw(tmp_path / "raw", ids=(1, 8))

    def refuse(self: Path, target: str) -> None:
        raise OSError("no symbolic links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    split_sues(raw, tmp_path / "split")
    linked = tmp_path / "split/Testing/150/query_drone/0008/0.jpg"
    assert linked.stat().st_ino == (raw / "drone_view_512/0008/150/0.jpg").stat().st_ino


def test_linked_folders_are_counted_and_cyclic_links_end(tmp_path: Path) -> None:
    root = make_university(tmp_path / "set", query=(3, 4), extra=())
    for name in ("drone", "satellite"):
        shutil.rmtree(root / f"test/query_{name}")
        (root / f"test/query_{name}").symlink_to(f"gallery_{name}")
    (root / "train/drone/0001/back").symlink_to(root)
    faults = check(root).faults
    assert not faults["missing"] and not faults["broken"]


def test_missing_locations_of_the_release_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_sues_raw(tmp_path)
    monkeypatch.setattr(sues200, "LOCATIONS", 5)
    monkeypatch.setattr(sues200, "IMAGES_PER_ALTITUDE", 2)
    shutil.rmtree(tmp_path / "drone_view_512/0008/200")
    assert check(tmp_path).faults["missing"][0] == "drone_view_512/*/200: 1 fewer than 5 locations"
    (tmp_path / "world.json").write_text("{}")
    assert not any("fewer than 5 locations" in fault for fault in check(tmp_path).faults["missing"])


def test_the_split_form_of_a_rendered_set_is_marked_as_rendered(tmp_path: Path) -> None:
    raw = make_sues_raw(tmp_path / "raw")
    (raw / "world.json").write_text('{"made_by": "skypart"}')
    split_sues(raw, tmp_path / "split")
    assert (tmp_path / "split" / "world.json").read_text() == '{"made_by": "skypart"}'
    assert any("rendered by" in note for note in check(tmp_path / "split").notes)
