"""`skypart demo` on a small town, and on real data if it is available."""

from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

import skypart.demo as demo
import skypart.demo_town as town
from skypart.embedding.shipped import shipped_model
from skypart.errors import SkyPartError
from skypart.maps.views import ViewOptions
from skypart.model.embedder import new_model
from skypart.model.storage import save_model
from skypart.position.fix import Fix
from skypart.position.labelled import LabelledPhoto, read_labelled

NUST = Path(__file__).resolve().parents[2] / "shared" / "data" / "nust_bsd2"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(town, "EXTENT", 420.0)
    monkeypatch.setattr(town, "GSD", 1.0)
    monkeypatch.setattr(town, "PHOTO", (96, 3))
    monkeypatch.setattr(town, "VIDEO", (96, 4))
    monkeypatch.setattr(town, "STYLES", ("town", "suburb"))


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_town_is_rendered_once(tmp_path: Path) -> None:
    made = town.make_town(tmp_path / "town")
    photos = read_labelled(made.photos)
    assert len(made.maps) == 2 and all(path.is_file() for path in (*made.maps, made.video, made.truth))
    assert len(photos) == 3 and all(photo.latitude is not None for photo in photos)
    before = made.maps[0].stat().st_mtime_ns
    town.make_town(tmp_path / "town")
    assert made.maps[0].stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_demo_writes_figures_and_prints_the_address_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "tiny.safetensors"
    save_model(new_model("untrained:tiny", 56), model)
    monkeypatch.setattr(demo, "TOWN_VIEWS", ViewOptions((140.0,), 0.2))
    demo.run_demo(tmp_path / "out", model=str(model), page=False)
    output = capsys.readouterr().out
    assert "http://127.0.0.1:8000/" in output and "locating 3 photos" in output
    for name in ("fixes.png", "track.png", "track.gpx"):
        assert (tmp_path / "out" / name).stat().st_size > 200


def test_the_table_shows_errors_and_marks_those_beyond_the_radius() -> None:
    near = Fix(photo="near", latitude=48.0, longitude=11.0, radius_m=30.0, confidence=0.9)
    far = Fix(photo="far", latitude=48.001, longitude=11.0, radius_m=30.0, confidence=0.9)
    none = Fix(photo="none", reason="too dark")
    names = ("near", "far", "03_over_exposure_none.jpg")
    truth = [LabelledPhoto(path=Path("x", name), latitude=48.0, longitude=11.0) for name in names]
    console = Console(width=80, record=True, color_system="truecolor")
    with console.capture() as capture:
        console.print(demo.fix_table([near, far, none], truth))
    lines = capture.get().splitlines()
    assert " 0 m" in next(line for line in lines if "near" in line)
    assert "111 m" in next(line for line in lines if "far" in line)
    assert "\x1b[31m111 m" in next(line for line in lines if "far" in line)
    assert "no fix" in next(line for line in lines if names[2] in line)


def test_a_folder_without_a_map_raises(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"needs a GeoTIFF"):
        demo.run_demo(tmp_path / "out", real=tmp_path)


def test_hidden_and_auxiliary_files_are_ignored(tmp_path: Path) -> None:
    for name in ("town.tif.aux.xml", "town.tif.ovr", "._town.tif", "._flight.mp4", "TOWN.TIF", "flight.MP4"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "old.tiff").mkdir()
    Image.new("RGB", (40, 30), (90, 120, 60)).save(tmp_path / "f_000123.jpg")
    (tmp_path / "frames.csv").write_text("file,latitude,longitude\nf_000123.jpg,48,11\n")
    files = demo.real_data(tmp_path, tmp_path / "out").files
    assert files.maps == (tmp_path / "TOWN.TIF",) and files.video == tmp_path / "flight.MP4"


@pytest.mark.slow
@pytest.mark.skipif(not NUST.is_dir(), reason="needs ../shared/data/nust_bsd2")
@pytest.mark.skipif(not shipped_model().is_file(), reason="no default model is shipped")
def test_real_frames_are_located_on_their_real_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.run_demo(tmp_path, real=NUST, page=False)
    output = capsys.readouterr().out
    assert "median error" in output
    assert (tmp_path / "track.gpx").is_file() and (tmp_path / "fixes.png").is_file()
    matched = [line for line in output.splitlines() if "frame_" in line and "matched" in line]
    assert matched, output


def test_real_folders_have_separate_indexes_and_frames_their_last_number(tmp_path: Path) -> None:
    assert demo._short_hash(tmp_path / "a") != demo._short_hash(tmp_path / "b")
    for name in ("flight2_000123", "flight2_000200"):
        Image.new("RGB", (40, 30), (90, 120, 60)).save(tmp_path / f"{name}.jpg")
    (tmp_path / "frames.csv").write_text("file,latitude,longitude\nflight2_000123.jpg,48,11\nflight2_000200.jpg,,\n")
    demo._write_truth(tmp_path, tmp_path / "truth.csv")
    assert (tmp_path / "truth.csv").read_text().split() == ["frame,latitude,longitude", "123,48.0,11.0"]
