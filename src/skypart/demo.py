"""`skypart demo`: index a map, locate photos, track a flight and show the web page, on a made-up town or real data."""

import hashlib
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from skypart.atomic import write_text
from skypart.bridge.formats import TrackFile
from skypart.demo_town import DemoFiles, csv_text, make_town
from skypart.drawing.files import save_figure
from skypart.embedding import load
from skypart.errors import SkyPartError
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.position.figures import MapBackground, draw_fixes
from skypart.position.fix import Fix
from skypart.position.flight import follow_flight
from skypart.position.labelled import LabelledPhoto, read_labelled
from skypart.position.locate import Locator
from skypart.position.photos import locate_photo
from skypart.position.track import TrackOptions
from skypart.progress import with_progress

PORT = 8000
TOWN_VIEWS = ViewOptions((150.0, 230.0), 0.35)
"""How the town is cut into views: coarsely, to keep the demo quick."""


@dataclass(frozen=True)
class DemoData:
    """The files of a demo and how they are used.

    views: how the maps are cut. rate_hz: frames per second of the video. max_photos: photos to locate.
    """

    files: DemoFiles
    views: ViewOptions
    rate_hz: float
    max_photos: int


def run_demo(
    out: Path, real: Path | None = None, model: str = "default", page: bool | None = None, device: str = "cpu"
) -> None:
    """Index maps, locate photos, track a video, print and draw the true errors, then show the web page.

    real: folder with a GeoTIFF, labelled photos and a video; by default a town is rendered. page: whether to open the
    page; None opens it if there is a display and a terminal. Otherwise its address is printed.
    """
    console = Console()
    started = time.monotonic()
    if real is None:
        console.print("[bold]1[/] rendering a town, its neighbours, and a flight over the town in changing weather")
        data = DemoData(make_town(out / "town"), TOWN_VIEWS, 1.0, 99)
    else:
        data = real_data(real, out)
    files = data.files
    console.print(f"[bold]2[/] indexing {len(files.maps)} maps")
    index = out / ("town.skyindex" if real is None else f"real-{_short_hash(real)}.skyindex")
    embedder = load(model, device)
    build_index([str(path) for path in files.maps], index, embedder, model, data.views)
    locator = Locator(MapIndex(index), embedder)
    photos = read_labelled(files.photos)
    photos = photos[:: max(1, len(photos) // data.max_photos)]
    console.print(f"[bold]3[/] locating {len(photos)} photos")
    fixes = [locate_photo(locator, photo.path) for photo in with_progress(photos, "locating")]
    console.print(fix_table(fixes, photos))
    view = locator.index
    figure = draw_fixes(MapBackground(view.bounds, lambda part: view.render(1600, part)), fixes, photos)
    save_figure(figure, out / "fixes.png")
    console.print(f"[bold]4[/] tracking {escape(files.video.name)}")
    flight = follow_flight(
        locator,
        files.video,
        TrackFile(out / "track.gpx"),
        TrackOptions(max_speed=45.0),
        rate_hz=data.rate_hz,
        truth=files.truth,
        figure=out / "track.png",
    )
    console.print(flight.report(), highlight=False)
    console.print(
        f"   {time.monotonic() - started:.0f} s in total; maps of the results: {out}/fixes.png, {out}/track.png",
        markup=False,
    )
    _show_page(locator, files.photos, index, page, console)


def _show_page(locator: Locator, photos: Path, index: Path, page: bool | None, console: Console) -> None:
    """Open the page, or print how to open it."""
    if page is None:
        display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) or sys.platform == "darwin"
        page = display and sys.stdout.isatty()
    if not page:
        console.print(
            f"[bold]5[/] the page: run `skypart serve {escape(f'{index} --examples {photos}')}`", highlight=False
        )
        console.print(f"   and open http://127.0.0.1:{PORT}/", highlight=False)
        return
    from skypart.serve.options import ServeOptions
    from skypart.serve.server import run_server
    from skypart.serve.service import IndexService

    run_server(IndexService(locator, photos), ServeOptions(port=PORT), open_browser=True)


def fix_table(fixes: Sequence[Fix], photos: Sequence[LabelledPhoto]) -> Table:
    """One row per photo: position, 95 % radius, error and confidence."""
    name = Column("photo", no_wrap=True)
    table = Table("", name, "latitude", "longitude", "95 %", "error", "conf.", "", padding=(0, 1, 0, 0), box=SIMPLE)
    for number, (fix, photo) in enumerate(zip(fixes, photos, strict=True), start=1):
        if fix.latitude is None or fix.longitude is None or fix.radius_m is None:
            table.add_row(str(number), escape(photo.path.name), "", "", "", "", f"{fix.confidence:.2f}", "no fix")
            continue
        error = ""
        metres = photo.error_m(latitude=fix.latitude, longitude=fix.longitude)
        if math.isfinite(metres):
            error = f"{metres:.0f} m" if metres <= fix.radius_m else f"[red]{metres:.0f} m[/]"
        found = (f"{fix.latitude:.5f}", f"{fix.longitude:.5f}", f"{fix.radius_m:.0f} m", error, f"{fix.confidence:.2f}")
        table.add_row(str(number), escape(photo.path.name), *found, "matched" if fix.refined else "")
    return table


def real_data(folder: Path, out: Path) -> DemoData:
    """Find GeoTIFFs, labelled photos and a video in one folder; write the video's true positions to `out`."""
    files = sorted(path for path in folder.glob("*") if path.is_file() and not path.name.startswith("."))
    maps = tuple(path for path in files if path.suffix.lower() in (".tif", ".tiff"))
    videos = [path for path in files if path.suffix.lower() in (".mp4", ".mov", ".avi", ".mkv")]
    if not maps or not videos:
        raise SkyPartError(f"{folder}: needs a GeoTIFF (*.tif), a video and a CSV of labelled photos")
    truth = out / "truth.csv"
    _write_truth(folder, truth)
    return DemoData(DemoFiles(maps, folder, videos[0], truth), ViewOptions((120.0, 200.0), 0.5), 0.25, 10)


def _short_hash(folder: Path) -> str:
    """Eight digits that identify a folder, so that two folders do not share an index."""
    return hashlib.blake2b(str(folder.resolve()).encode(), digest_size=4).hexdigest()


def _write_truth(folder: Path, truth: Path) -> None:
    """Write the positions of labelled frames by frame number, for `skypart track --truth`."""
    photos = read_labelled(folder)
    numbers = [re.findall(r"\d+", photo.path.stem) for photo in photos]
    if not all(numbers):
        raise SkyPartError(f"{folder}: names of labelled frames must end in their frame number; rename them")
    rows = [
        (int(found[-1]), photo.latitude, photo.longitude)
        for found, photo in zip(numbers, photos, strict=True)
        if photo.latitude is not None
    ]
    write_text(truth, csv_text(["frame", "latitude", "longitude"], rows))
