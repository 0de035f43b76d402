"""Frames of videos and folders: order, times, hints, and damaged input."""

from datetime import datetime
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from skypart.errors import SkyPartError
from skypart.position.fix import Hints
from skypart.position.frames import open_frames
from tests.images.photos_with_metadata import degrees, packet, save_photo


def film(path: Path, count: int = 50, fps: float = 10.0, code: str = "mp4v") -> Path:
    """A video whose frame i has grey level 5 i, with a moving pattern on it."""
    pattern = np.random.default_rng(0).integers(-12, 13, size=(120, 160, 1))
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*code), fps, (160, 120))
    assert writer.isOpened()
    for i in range(count):
        level = np.clip(5 * i + np.roll(pattern, 7 * i, axis=1), 0, 255).astype(np.uint8)
        writer.write(np.repeat(level, 3, axis=2))
    writer.release()
    return path


def test_a_video_at_a_chosen_rate(tmp_path: Path) -> None:
    frames = open_frames(film(tmp_path / "a.mp4"), rate_hz=2.0)
    found = list(frames)
    assert [frame.time_s for frame in found] == pytest.approx(np.arange(0.0, 5.0, 0.5))
    levels = [float(frame.image.mean()) for frame in found]
    assert levels == pytest.approx(np.arange(0, 250, 25), abs=5)
    assert len(frames) == len(found) == 10 and frames.skipped == 0 and frames.fps == pytest.approx(10.0)
    assert found[3].name == "a.mp4#15"
    assert found[0].image.shape == (120, 160, 3) and found[0].image.dtype == np.uint8
    assert [frame.time_s for frame in frames] == [frame.time_s for frame in found]  # can be read again


@pytest.mark.parametrize(("rate", "gap"), [(100.0, 0.1), (10.0, 0.1), (3.0, 1 / 3), (0.5, 2.0)])
def test_rates_that_do_not_divide_the_frame_rate(tmp_path: Path, rate: float, gap: float) -> None:
    times = [frame.time_s for frame in open_frames(film(tmp_path / "a.mp4"), rate_hz=rate)]
    assert np.diff(times).mean() == pytest.approx(gap, rel=0.07)
    assert np.diff(times).min() > 0.09


def test_colours_are_red_green_blue(tmp_path: Path) -> None:
    writer = cv2.VideoWriter(str(tmp_path / "a.avi"), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"MJPG"), 5.0, (64, 64))
    writer.write(np.full((64, 64, 3), (10, 20, 220), dtype=np.uint8))  # OpenCV's order: blue first
    writer.release()
    image = next(iter(open_frames(tmp_path / "a.avi"))).image
    np.testing.assert_allclose(image.reshape(-1, 3).mean(axis=0), [220, 20, 10], atol=6)


def test_times_fall_back_to_the_frame_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = film(tmp_path / "a.mp4", count=20)
    real = cv2.VideoCapture

    class Timeless:
        """A capture whose container has no time stamps."""

        def __init__(self, *arguments: object) -> None:
            self._real = real(*arguments)

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

        def get(self, what: int) -> float:
            return 0.0 if what == cv2.CAP_PROP_POS_MSEC else float(self._real.get(what))

    monkeypatch.setattr(cv2, "VideoCapture", Timeless)
    assert [frame.time_s for frame in open_frames(path, rate_hz=5.0)] == pytest.approx(np.arange(0.0, 2.0, 0.2))


def test_damaged_frames_are_skipped_and_counted(tmp_path: Path) -> None:
    content = bytearray(film(tmp_path / "a.mp4").read_bytes())
    start = content.index(b"mdat") + 4
    length = (len(content) - start) // 3
    content[start + length : start + length + length // 3] = bytes(length // 3)
    (tmp_path / "broken.mp4").write_bytes(content)
    frames = open_frames(tmp_path / "broken.mp4", rate_hz=10.0)
    found = list(frames)
    assert 0 < frames.skipped < 50
    assert len(found) + frames.skipped == 50
    assert found[-1].time_s == pytest.approx(4.9)
    assert float(found[-1].image.mean()) > 100


def test_a_truncated_video_yields_the_frames_it_has(tmp_path: Path) -> None:
    content = film(tmp_path / "a.avi", code="MJPG").read_bytes()
    (tmp_path / "cut.avi").write_bytes(content[: len(content) // 2])
    frames = open_frames(tmp_path / "cut.avi", rate_hz=10.0)
    found = list(frames)
    assert 10 < len(found) < 40 and frames.skipped == 50 - len(found)


def test_files_that_are_not_videos_raise(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "empty.mp4").write_bytes(b"")
    whole = film(tmp_path / "a.mp4").read_bytes()
    (tmp_path / "headless.mp4").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "a.txt").write_text("x")
    Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    for name, words in (
        ("text.mp4", "cannot be opened"),
        ("headless.mp4", "cannot be opened"),
        ("empty.mp4", "empty"),
        ("a.txt", "not a supported video"),
        ("a.jpg", "skypart locate"),
        ("missing.mp4", "no such file"),
    ):
        with pytest.raises(SkyPartError, match=words) as caught:
            open_frames(tmp_path / name)
        assert name in str(caught.value)
    with pytest.raises(SkyPartError, match="rate"):
        open_frames(tmp_path / "a.mp4", rate_hz=0.0)


def test_a_list_of_videos_is_not_followed(tmp_path: Path) -> None:
    film(tmp_path / "other.mp4")
    (tmp_path / "list.mp4").write_text("ffconcat version 1.0\nfile other.mp4\n")
    assert cv2.VideoCapture(str(tmp_path / "list.mp4"), cv2.CAP_FFMPEG).isOpened()  # FFmpeg would follow it
    with pytest.raises(SkyPartError, match=r"list\.mp4: .* it is text"):
        open_frames(tmp_path / "list.mp4")


def test_photos_are_ordered_by_exif_time(tmp_path: Path) -> None:
    for name, second in (("c", 3), ("a", 7), ("b", 7), ("d", 7), ("e", 20)):
        save_photo(tmp_path / f"{name}.jpg", shot={0x9003: f"2024:05:06 07:08:{second:02}"})
    frames = open_frames(tmp_path)
    found = [(Path(frame.name).stem, frame.time_s) for frame in frames]
    assert [name for name, _ in found] == ["c", "a", "b", "d", "e"]
    assert [time for _, time in found] == pytest.approx([0.0, 4.0, 4 + 1 / 3, 4 + 2 / 3, 17.0])
    assert frames.start == datetime(2024, 5, 6, 7, 8, 3)
    assert frames.times["e.jpg"] == 17.0


def test_photos_have_hints_from_their_metadata(tmp_path: Path) -> None:
    facts = 'drone-dji:GimbalYawDegree="-30.0" drone-dji:GimbalPitchDegree="-80.0" drone-dji:RelativeAltitude="+95.0"'
    save_photo(tmp_path / "b.jpg", shot={0x9003: "2024:05:06 07:08:01"}, xmp=packet(facts))
    save_photo(tmp_path / "a.jpg", shot={0x9003: "2024:05:06 07:08:09"}, gps={1: "N", 2: degrees(48.0)})
    flown, plain = open_frames(tmp_path)
    assert (flown.time_s, flown.hints) == (0.0, Hints(heading_deg=330.0, tilt_deg=80.0, altitude_m=95.0))
    assert (plain.time_s, plain.hints) == (8.0, Hints())
    assert next(iter(open_frames(film(tmp_path / "a.mp4")))).hints == Hints()


def test_photos_are_ordered_by_name_if_one_has_no_time(tmp_path: Path) -> None:
    save_photo(tmp_path / "b.jpg", shot={0x9003: "2024:05:06 07:08:01"})
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    (tmp_path / "ab.jpg").write_text("damaged")
    frames = open_frames(tmp_path, interval_s=2.5)
    assert [(Path(frame.name).name, frame.time_s) for frame in frames] == [("a.png", 0.0), ("b.jpg", 5.0)]
    assert frames.skipped == 1 and frames.start is None and len(frames) == 3


def test_damaged_photos_do_not_affect_the_times_of_others(tmp_path: Path) -> None:
    for name, second in (("b", 3), ("d", 1), ("e", 9)):
        save_photo(tmp_path / f"{name}.jpg", shot={0x9003: f"2024:05:06 07:08:{second:02}"})
    (tmp_path / "a.jpg").write_bytes(b"")
    (tmp_path / "c.jpg").write_bytes((tmp_path / "b.jpg").read_bytes()[:30])
    frames = open_frames(tmp_path)
    assert [(Path(frame.name).stem, frame.time_s) for frame in frames] == [("d", 0.0), ("b", 2.0), ("e", 8.0)]
    assert frames.skipped == 2 and len(frames) == 5 and frames.start == datetime(2024, 5, 6, 7, 8, 1)
    assert frames.times == {"d.jpg": 0.0, "b.jpg": 2.0, "e.jpg": 8.0}
    assert frames.note == ""
    for name in "bde":
        (tmp_path / f"{name}.jpg").write_bytes(b"")
    assert list(open_frames(tmp_path)) == []


def test_photos_without_a_time_are_noted(tmp_path: Path) -> None:
    save_photo(tmp_path / "a.jpg", shot={0x9003: "2024:05:06 07:08:01"})
    Image.new("RGB", (40, 30)).save(tmp_path / "b.png")
    (tmp_path / "c.jpg").write_bytes(b"")
    note = "1 of 3 photos have no EXIF time: all are ordered by name, 2.5 s apart (--interval)"
    assert open_frames(tmp_path, interval_s=2.5).note == note


def test_numbers_in_names_are_sorted_by_value(tmp_path: Path) -> None:
    for name in ("frame1", "frame2", "frame10", "part2/frame03", "part10/frame1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
    expected = ["frame1.png", "frame2.png", "frame10.png", "part2/frame03.png", "part10/frame1.png"]
    assert list(open_frames(tmp_path).times) == expected


def test_times_with_and_without_zone(tmp_path: Path) -> None:
    save_photo(tmp_path / "a.jpg", shot={0x9003: "2024:05:06 07:08:01", 0x9011: "+02:00"})
    save_photo(tmp_path / "b.jpg", shot={0x9003: "2024:05:06 07:08:09"})
    assert [frame.time_s for frame in open_frames(tmp_path)] == [0.0, 8.0]


def test_an_empty_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="no images"):
        open_frames(tmp_path)


@pytest.mark.slow
def test_a_real_video(shared: Path) -> None:
    video = shared / "data" / "nust_bsd2" / "drone_video.mp4"
    if not video.is_file():
        pytest.skip(f"no {video}")
    frames = open_frames(video, rate_hz=0.2)
    found = list(frames)
    assert frames.skipped == 0 and abs(len(found) - len(frames)) <= 1
    assert np.diff([frame.time_s for frame in found]) == pytest.approx(5.0, abs=0.04)
    assert found[-1].time_s == pytest.approx(45.0, abs=0.05)
    assert all(frame.image.shape == (480, 852, 3) and frame.image.std() > 10 for frame in found)


def test_real_photos(shared: Path) -> None:
    folder = shared / "data" / "caliterra_cc0"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    frames = open_frames(folder)
    first = next(iter(frames))
    assert Path(first.name).name == "IMG_9354.jpg" and first.time_s == 0.0
    assert frames.start == datetime(2014, 10, 19, 13, 20, 51)
    assert sorted(frames.times.values()) == list(frames.times.values())
