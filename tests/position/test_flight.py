"""`run_flight`: from a folder of photos or a video to a track file, scores and a figure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skypart.bridge.formats import TrackFile
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.images.decode import RgbImage
from skypart.position.figures import MapBackground
from skypart.position.fix import Fix
from skypart.position.flight import area_km2, run_flight
from skypart.position.frames import Frame
from tests.position.flights import FRAME, Floats, noisy_fixes, straight
from tests.position.test_frames import film

SECONDS = np.arange(30.0)
PATH = straight(SECONDS)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Thirty photos, numbered by their brightness; one of them is damaged."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(30):
        Image.new("RGB", (8, 8), (4 * i, 0, 0)).save(folder / f"{i:03}.png")
    (folder / "012.png").write_bytes(b"damaged")
    return folder


class NumberedFixes:
    """Returns fixes by the number in the photo's name, and counts its calls."""

    def __init__(self) -> None:
        self.fixes = noisy_fixes(np.random.default_rng(1), PATH, sigma=8.0)
        self.calls = 0

    def __call__(self, photo: Frame) -> Fix:
        self.calls += 1
        number = int(Path(photo.name).stem)
        assert photo.image[0, 0, 0] == 4 * number
        return self.fixes[number]


def background(path: Floats = PATH) -> MapBackground:
    low, high = path.min(axis=0) - 200, path.max(axis=0) + 200
    corners = FRAME.to_degrees([low[0], high[0]], [low[1], high[1]])
    (south, north), (west, east) = corners.latitude, corners.longitude
    rows, columns = np.mgrid[0:60, 0:80]
    pixels = np.stack([rows * 4, columns * 3, (rows + columns) % 2 * 200], axis=-1).astype(np.uint8)
    box = Bounds(south=float(south), west=float(west), north=float(north), east=float(east))
    return MapBackground(box, lambda part: pixels)


def truth_table(path: Path) -> Path:
    spots = FRAME.to_degrees(PATH[:, 0], PATH[:, 1])
    lines = [f"{i:03}.png,{a},{b}" for i, (a, b) in enumerate(zip(spots.latitude, spots.longitude, strict=True))]
    path.write_text("\n".join(["file,latitude,longitude", *lines]))
    return path


def test_a_folder_becomes_a_track_file_scores_and_a_figure(photos: Path, tmp_path: Path) -> None:
    locate = NumberedFixes()
    flight = run_flight(
        photos,
        TrackFile(tmp_path / "out" / "track.gpx"),
        locate,
        truth=truth_table(tmp_path / "truth.csv"),
        figure=tmp_path / "out" / "track.png",
        background=background(),
    )
    assert flight.written == [tmp_path / "out" / "track.gpx", tmp_path / "out" / "track.png"]
    assert all(path.is_file() for path in flight.written)
    assert flight.skipped == 1 and len(flight.points) == locate.calls == 29
    raw, track = flight.scores["raw fixes"], flight.scores["track"]
    assert raw.photos == track.photos == 29
    assert raw.median_m is not None and track.median_m is not None and track.median_m < raw.median_m
    assert flight.summary() == (
        "29 photos: 29 with a fix, 0 carried on, 0 without a position; 1 frames could not be read"
    )
    with Image.open(flight.written[1]) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3).astype(int)
    for colour in ((0xF5, 0xA3, 0x00), (0x00, 0x61, 0xB5)):  # the track, the raw fixes
        assert (np.abs(pixels - colour).max(axis=1) < 12).sum() > 50


def test_an_invalid_truth_or_figure_is_reported_before_locating(photos: Path, tmp_path: Path) -> None:
    locate = NumberedFixes()
    with pytest.raises(SkyPartError, match="no such file"):
        run_flight(photos, TrackFile(tmp_path / "a.csv"), locate, truth=tmp_path / "none.csv")
    with pytest.raises(SkyPartError, match="needs the index's map"):
        run_flight(photos, TrackFile(tmp_path / "a.csv"), locate, figure=tmp_path / "a.png")
    assert locate.calls == 0 and not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("begin", [-500.0, 1_000.0])
def test_a_truth_of_another_time_is_reported_before_locating(photos: Path, tmp_path: Path, begin: float) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text(f"time_s,latitude,longitude\n{begin},48.2,16.4\n{begin + 9},48.2,16.4\n")
    video = film(tmp_path / "flight.mp4", count=50, fps=10.0)
    locate = NumberedFixes()
    for source, last in ((photos, 29.0), (video, 5.0)):
        with pytest.raises(SkyPartError, match=rf"truth.csv: covers none .* {begin} to .* 0 to {last} s"):
            run_flight(source, TrackFile(tmp_path / "a.csv"), locate, truth=truth)
    assert locate.calls == 0 and not (tmp_path / "a.csv").exists()


def test_a_truth_that_covers_a_part_of_a_video_is_accepted(tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text("time_s,latitude,longitude\n4.0,48.2,16.4\n90,48.2,16.4\n")
    video = film(tmp_path / "flight.mp4", count=50, fps=10.0)
    flight = run_flight(
        video, TrackFile(tmp_path / "a.csv"), lambda photo: Fix(photo="", reason="dark"), rate_hz=2.0, truth=truth
    )
    assert flight.scores["track"].photos == 1


def test_track_and_figure_are_written_even_if_the_truth_cannot_be_scored(photos: Path, tmp_path: Path) -> None:
    """Only the position of the damaged photo is known."""
    truth, files = tmp_path / "truth.csv", (tmp_path / "track.gpx", tmp_path / "track.png")
    truth.write_text("file,latitude,longitude\n012.png,48.2,16.4\n")
    with pytest.raises(SkyPartError, match="covers none"):
        run_flight(photos, TrackFile(files[0]), NumberedFixes(), truth=truth, figure=files[1], background=background())
    assert all(file.is_file() for file in files)


def test_only_the_visible_part_of_the_map_is_drawn(photos: Path, tmp_path: Path) -> None:
    asked: list[Bounds] = []

    def draw(part: Bounds) -> RgbImage:
        asked.append(part)
        return np.full((40, 40, 3), (0, 0, 255), dtype=np.uint8)

    behind = replace(background(), draw=draw)
    output = TrackFile(tmp_path / "track.gpx")
    run_flight(photos, output, NumberedFixes(), figure=tmp_path / "track.png", background=behind)
    [part] = asked
    whole = behind.bounds
    assert whole.south <= part.south < part.north <= whole.north and whole.west <= part.west < part.east <= whole.east
    blue = np.asarray(Image.open(tmp_path / "track.png").convert("RGB")).astype(int) - (64, 64, 255)
    assert (np.abs(blue).max(axis=-1) < 3).mean() > 0.2


def test_the_area_of_a_box_is_its_height_times_its_width() -> None:
    """A degree of latitude is 110.57 km at the equator, a degree of longitude 111.32 km."""
    box = Bounds(south=0.0, west=10.0, north=0.01, east=10.02)
    assert area_km2(box) == pytest.approx(1.1057 * 2.2264, rel=1e-3)


def test_the_report_has_summary_scores_and_files(photos: Path, tmp_path: Path) -> None:
    output = TrackFile(tmp_path / "track.csv")
    flight = run_flight(photos, output, NumberedFixes(), truth=truth_table(tmp_path / "truth.csv"))
    summary, raw, track, wrote = flight.report().splitlines()
    assert summary == flight.summary() and raw == f"raw fixes: {flight.scores['raw fixes'].summary()}"
    assert track.startswith("track: median error ") and wrote == f"wrote {output.path}"
