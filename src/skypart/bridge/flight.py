"""`skypart track`: from a video or a folder of photos to a written track, its score and its picture."""

from dataclasses import dataclass
from pathlib import Path

from skypart.atomic import check_writable
from skypart.bridge.formats import track_writer, write_track
from skypart.drawing.files import check_figure_path, save_figure
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import LocalFrame
from skypart.position.frames import open_frames
from skypart.position.picture import DrawMap, draw_track
from skypart.position.score import TrackScore, check_truth, raw_points, score_track
from skypart.position.track import Locate, track
from skypart.position.track_options import TrackOptions
from skypart.position.track_point import TrackPoint
from skypart.position.truth import Truth, read_truth
from skypart.progress import console


@dataclass(frozen=True)
class MapPicture:
    """What a track is drawn on: a map, by its bounds and a picture of any part of them."""

    bounds: Bounds
    draw: DrawMap


@dataclass(frozen=True, kw_only=True)
class Flight:
    """What became of a flight: points, frames that could not be read, files written, errors where truth is known."""

    points: list[TrackPoint]
    skipped: int
    written: list[Path]
    scores: dict[str, TrackScore]

    def summary(self) -> str:
        """One sentence for the terminal."""
        count = len(self.points)
        states = [point.state for point in self.points]
        text = f"{count} photos: {states.count('tracking')} with a fix, {states.count('coasting')} carried on"
        text += f", {states.count('lost')} without a position"
        return text + (f"; {self.skipped} frames could not be read" if self.skipped else "")


def run_track(
    source: Path,
    output: Path,
    locate: Locate,
    *,
    options: TrackOptions | None = None,
    frame: LocalFrame | None = None,
    rate_hz: float = 1.0,
    interval_s: float = 1.0,
    truth: Path | None = None,
    picture: Path | None = None,
    background: MapPicture | None = None,
) -> Flight:
    """Follow the flight of `source` and write `output`, and `picture` over `background` where asked for.

    frame: metric frame of the map. truth: a CSV that the track is scored against. What can be seen to be wrong with
    the arguments is told before the first photo is located.
    """
    track_writer(output)
    check_writable(output)
    if picture is not None:
        check_figure_path(picture)
        check_writable(picture)
    if picture is not None and background is None:
        raise SkyPartError(f"{picture}: a picture of the track needs the map; keep the index's map in its place")
    frames = open_frames(source, rate_hz=rate_hz, interval_s=interval_s)
    known: Truth | None = None
    if truth is not None:
        known = read_truth(truth, frames.times, frames.fps)
        check_truth(truth, known, frames, rate_hz)
    if frames.note:
        console.print(frames.note, style="yellow", markup=False, highlight=False, soft_wrap=True)
    points = track(frames, locate, options, frame)
    write_track(points, output, frames.start)
    written, scores = [output], {}
    if picture is not None and background is not None:
        title = f"{source.name}: {len(points)} photos"
        save_figure(draw_track(background.draw, background.bounds, points, known, title), picture)
        written.append(picture)
    if known is not None:
        scores = {"raw fixes": score_track(raw_points(points), known), "track": score_track(points, known)}
    return Flight(points=points, skipped=frames.skipped, written=written, scores=scores)
