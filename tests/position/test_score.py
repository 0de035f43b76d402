"""True positions are read from several kinds of tables, and scores equal a simple computation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Fix
from skypart.position.score import TrackScore, Truth, check_truth_covers, read_truth, score_track
from skypart.position.track import TrackPoint, raw_track
from tests.position.flights import FRAME, fix_at

LINE = Truth(
    time_s=np.array([0.0, 10.0]),
    latitude=FRAME.to_degrees([0.0, 0.0], [0.0, 100.0]).latitude,
    longitude=FRAME.to_degrees([0.0, 0.0], [0.0, 100.0]).longitude,
)


def at(time_s: float, x: float, y: float, radius: float = 20.0, frame: LocalFrame = FRAME) -> TrackPoint:
    spot = frame.to_degrees(x, y)
    return TrackPoint(
        time_s=time_s,
        latitude=float(spot.latitude),
        longitude=float(spot.longitude),
        radius_m=radius,
        confidence=1.0,
        state="tracking",
    )


def test_errors_are_measured_against_the_interpolated_truth() -> None:
    points = [at(0.0, 3.0, 0.0), at(2.5, 0.0, 30.0), at(5.0, 40.0, 50.0), at(7.5, 60.0, 75.0), TrackPoint(time_s=9.0)]
    score = score_track(points, LINE)
    assert score.median_m == pytest.approx((5.0 + 40.0) / 2, abs=1e-3)
    assert score.p90_m == pytest.approx(40.0 + 0.7 * 20.0, abs=1e-3)
    assert (score.photos, score.left_out) == (5, 0)
    assert score.within_50_m == pytest.approx(3 / 5)
    assert score.without_fix == pytest.approx(1 / 5)
    assert score.inside == pytest.approx(2 / 4)


def test_times_without_truth_are_left_out() -> None:
    points = [at(-1.0, 0.0, 0.0), at(0.0, 0.0, 0.0), at(10.0, 0.0, 100.0), at(11.0, 0.0, 0.0)]
    score = score_track(points, LINE)
    assert (score.photos, score.left_out, score.within_50_m) == (2, 2, 1.0)
    gap = score_track([at(0.0, 0.0, 0.0), at(5.0, 0.0, 50.0)], LINE, max_gap_s=5.0)
    assert (gap.photos, gap.left_out) == (1, 1)  # one at a known time, one inside a gap
    with pytest.raises(SkyPartError, match="covers none"):
        score_track([at(50.0, 0.0, 0.0)], LINE)


def test_a_flight_without_positions_has_no_median() -> None:
    score = score_track([TrackPoint(time_s=1.0), TrackPoint(time_s=2.0)], LINE)
    assert (score.median_m, score.p90_m, score.inside) == (None, None, None)
    assert (score.without_fix, score.within_50_m) == (1.0, 0.0)


def test_truth_across_the_antimeridian() -> None:
    frame = LocalFrame(latitude=-17.0, longitude=180.0)
    ends = frame.to_degrees([-500.0, 500.0], [0.0, 0.0])
    truth = Truth(time_s=np.array([0.0, 10.0]), latitude=ends.latitude, longitude=ends.longitude)
    score = score_track([at(time, -500.0 + 100 * time, 0.0, frame=frame) for time in (1.0, 4.0, 6.0, 9.0)], truth)
    assert score.p90_m is not None and score.p90_m < 0.5


def test_raw_fixes_as_a_track() -> None:
    fix = fix_at(np.array([5.0, 0.0]))
    points = [TrackPoint(time_s=0.0, raw=fix), TrackPoint(time_s=1.0, raw=Fix(photo="a")), TrackPoint(time_s=2.0)]
    raw = raw_track(points)
    assert [point.state for point in raw] == ["tracking", "lost", "lost"]
    assert (raw[0].latitude, raw[0].radius_m, raw[0].raw) == (fix.latitude, fix.radius_m, fix)
    assert score_track(raw, LINE).median_m == pytest.approx(5.0, abs=1e-3)


def test_truth_by_time_frame_and_file(tmp_path: Path) -> None:
    table = tmp_path / "truth.csv"
    table.write_text("\ufefftime_s, Latitude ,lon\n2,48.1,16.1\n0,48.0,16.0\n2,49.0,17.0\n", encoding="utf-8")
    truth = read_truth(table)
    assert truth.time_s.tolist() == [0.0, 2.0] and truth.latitude.tolist() == [48.0, 48.1]
    table.write_text("file,video_frame,latitude,longitude\na.jpg,0,48,16\nb.jpg,45,48.1,16.1\n")
    assert read_truth(table, fps=30.0).time_s.tolist() == [0.0, 1.5]
    by_file = read_truth(table, {"a.jpg": 3.0, "deep/b.jpg": 7.0, "c.jpg": 9.0})
    assert by_file.time_s.tolist() == [3.0, 7.0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("time_s,latitude,longitude\n", "lists no position"),
        ("time_s,latitude\n1,2\n", "line 2: no latitude or longitude"),
        ("latitude,longitude\n1,2\n", "line 2: none of time_s"),
        ("time_s,latitude,longitude\n1,48,16\n1,x,2\n", "line 3"),
        ("time_s,latitude,longitude\n1,148,16\n", "not on the earth"),
        ("time_s,latitude,longitude\n1,nan,16\n", "not on the earth"),
        ("file,latitude,longitude\nz.jpg,48,16\n", "none of the flight's photos"),
        ("\0\0", "truth.csv"),
    ],
)
def test_errors_in_a_table_name_the_file_and_the_line(tmp_path: Path, content: str, words: str) -> None:
    table = tmp_path / "truth.csv"
    table.write_text(content)
    with pytest.raises(SkyPartError, match=words) as caught:
        read_truth(table, {"a.jpg": 0.0})
    assert "truth.csv" in str(caught.value)


def test_a_missing_or_binary_table_raises(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="no such file"):
        read_truth(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"time_s,latitude,longitude\n\xff\xfe,1,2\n")
    with pytest.raises(SkyPartError, match="not a CSV file"):
        read_truth(tmp_path / "b.csv")


def test_a_score_in_one_line() -> None:
    score = TrackScore(photos=20, left_out=1, median_m=4.2, p90_m=9.7, within_50_m=0.9, without_fix=0.1, inside=17 / 18)
    assert score.summary() == (
        "median error 4 m, 90 % below 10 m, 90 % within 50 m, 10 % without a position; truth inside the "
        "95 % radius of 94 % of the positions"
    )
    lost = replace(score, median_m=None, p90_m=None, inside=None)
    assert lost.summary() == "no position in 20 photos"


@pytest.mark.parametrize(("time", "known"), [(-0.03, False), (-0.01, True), (10.01, True), (10.03, False)])
def test_a_true_position_counts_within_a_fiftieth_of_a_second(time: float, known: bool) -> None:
    points = [at(5.0, 0.0, 50.0), at(time, 0.0, 0.0)]
    assert score_track(points, LINE).photos == 1 + known


def test_truth_is_interpolated_over_gaps_of_ten_seconds_at_most() -> None:
    longer = replace(LINE, time_s=np.array([0.0, 10.01]))
    assert score_track([at(0.0, 0.0, 0.0), at(5.0, 0.0, 50.0)], LINE).photos == 2
    assert score_track([at(0.0, 0.0, 0.0), at(5.0, 0.0, 50.0)], longer).photos == 1


class VideoOfTenSeconds:
    """Frames of which only the length is known."""

    skipped, start, note, fps = 0, None, "", 2.0
    times: dict[str, float] = {}  # noqa: RUF012

    def __len__(self) -> int:
        return 20


@pytest.mark.parametrize(
    ("begin", "end", "covers"),
    [(-5.0, -0.1, False), (-5.0, 0.0, True), (3.0, 4.0, True), (20.0, 30.0, True), (20.1, 30.0, False)],
)
def test_a_truth_must_overlap_the_video_or_begin_soon_after_it(begin: float, end: float, covers: bool) -> None:
    truth, frames = replace(LINE, time_s=np.array([begin, end])), VideoOfTenSeconds()
    if covers:
        check_truth_covers(Path("truth.csv"), truth, frames, 2.0)  # type: ignore[arg-type]
    else:
        with pytest.raises(SkyPartError, match=rf"its times run from {begin} to {end} s, the flight from 0 to 10\.0 s"):
            check_truth_covers(Path("truth.csv"), truth, frames, 2.0)  # type: ignore[arg-type]


def test_positions_up_to_50_m_off_are_counted() -> None:
    score = score_track([at(0.0, 49.99, 0.0), at(10.0, 50.01, 100.0)], LINE)
    assert score.within_50_m == 0.5
