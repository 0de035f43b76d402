"""Fixes and tracks as HTML for notebooks: a piece of the map with a drawing on it, in one string without scripts."""

import base64
import html
import io
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from PIL import Image

from skypart.drawing.style import AMBER, BLUE
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage
from skypart.position.fix import Fix
from skypart.position.track import TrackPoint

DrawMap: TypeAlias = Callable[[Bounds], RgbImage | None]
"""Returns an image of a part of the map, north up; None if the map cannot be read."""

EDGE_PX = 420
MIN_HALF_EDGE_M = 120.0
_BARS_M = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
_TEXT = 'font-family="sans-serif" font-size="13" paint-order="stroke" stroke="white" stroke-width="3"'


@dataclass(frozen=True)
class _Square:
    """A square of ground, drawn EDGE_PX pixels wide. half_m: half its edge in metres."""

    frame: LocalFrame
    half_m: float

    def pixels(self, latitude: float, longitude: float) -> tuple[float, float]:
        """Position in the drawing."""
        metres = self.frame.to_metres(latitude=latitude, longitude=longitude)
        scale = EDGE_PX / (2 * self.half_m)
        return EDGE_PX / 2 + float(metres.x) * scale, EDGE_PX / 2 - float(metres.y) * scale

    @property
    def scale(self) -> float:
        """Pixels per metre."""
        return EDGE_PX / (2 * self.half_m)

    @property
    def bounds(self) -> Bounds:
        """The square in degrees."""
        low = self.frame.to_degrees(x=-self.half_m, y=-self.half_m)
        high = self.frame.to_degrees(x=self.half_m, y=self.half_m)
        return Bounds(
            south=float(low.latitude), west=float(low.longitude), north=float(high.latitude), east=float(high.longitude)
        )


def fix_html(fix: Fix, draw_map: DrawMap | None = None, photo: RgbImage | None = None) -> str:
    """A fix on its map beside the photo; without a fix, the reason and the photo."""
    name = html.escape(Path(fix.photo).name)
    picture = _figure(_data_uri(photo), f"the photo {name}", name) if photo is not None else ""
    if fix.latitude is None or fix.longitude is None or fix.radius_m is None:
        return _layout([picture], f"<b>no fix</b>: {html.escape(fix.reason)}")
    half = max(MIN_HALF_EDGE_M, 3 * fix.radius_m, 0.75 * (fix.ground_m or 0.0))
    square = _Square(LocalFrame(latitude=fix.latitude, longitude=fix.longitude), half)
    x, y = square.pixels(fix.latitude, fix.longitude)
    shapes = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{fix.radius_m * square.scale:.1f}" fill="{BLUE}" fill-opacity="0.2" '
        f'stroke="{BLUE}" stroke-width="2"/><circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{BLUE}" stroke="white"/>'
    )
    shapes += _drone(fix, square)
    text = (
        f"<b>{fix.latitude:.6f}, {fix.longitude:.6f}</b> (latitude, longitude), 95 % within {fix.radius_m:.0f} m, "
        f"confidence {fix.confidence:.2f}"
    )
    if fix.heading_deg is not None:
        text += f", heading {fix.heading_deg:.0f}°"
    return _layout([_map_svg(square, draw_map, shapes, f"map around the fix of {name}"), picture], text)


def _drone(fix: Fix, square: _Square) -> str:
    """A line from the ground at the photo's centre to the drone, if its position is known and inside the square."""
    if fix.drone_latitude is None or fix.drone_longitude is None or fix.latitude is None or fix.longitude is None:
        return ""
    (x, y), (to_x, to_y) = (
        square.pixels(fix.latitude, fix.longitude),
        square.pixels(fix.drone_latitude, fix.drone_longitude),
    )
    if not (0 <= to_x <= EDGE_PX and 0 <= to_y <= EDGE_PX):
        return ""
    return (
        f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{AMBER}" stroke-width="2" stroke-dasharray="5 3"/>'
        f'<circle cx="{to_x:.1f}" cy="{to_y:.1f}" r="4" fill="{AMBER}" stroke="white"/>'
        f'<text x="{to_x + 7:.1f}" y="{to_y + 4:.1f}" {_TEXT}>drone</text>'
    )


def track_html(points: Sequence[TrackPoint], title: str, draw_map: DrawMap | None = None) -> str:
    """A track on its map, one line per stretch with positions; dots mark frames with a fix."""
    placed = [(p.latitude, p.longitude) for p in points if p.latitude is not None and p.longitude is not None]
    if not placed:
        return _layout([], f"<b>no position</b> in {html.escape(title)}")
    first = LocalFrame(latitude=placed[0][0], longitude=placed[0][1])
    metres = [first.to_metres(latitude=latitude, longitude=longitude) for latitude, longitude in placed]
    east, north = [float(each.x) for each in metres], [float(each.y) for each in metres]
    centre = first.to_degrees(x=(min(east) + max(east)) / 2, y=(min(north) + max(north)) / 2)
    half = max(MIN_HALF_EDGE_M, 0.62 * max(max(east) - min(east), max(north) - min(north)))
    square = _Square(LocalFrame(latitude=float(centre.latitude), longitude=float(centre.longitude)), half)
    path, dots, pen_down = "", "", False
    for point in points:
        if point.latitude is None or point.longitude is None:
            pen_down = False
            continue
        x, y = square.pixels(point.latitude, point.longitude)
        path += f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}"
        pen_down = True
        if point.state == "tracking":
            dots += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{BLUE}" stroke="white" stroke-width="0.7"/>'
    shapes = f'<path d="{path}" fill="none" stroke="{AMBER}" stroke-width="3" stroke-linejoin="round"/>{dots}'
    text = f"{html.escape(title)}<br>amber: track; blue: frames with a fix"
    return _layout([_map_svg(square, draw_map, shapes, "map around the track")], text)


def _map_svg(square: _Square, draw_map: DrawMap | None, shapes: str, title: str) -> str:
    """The map in a square with shapes over it and a scale bar."""
    image = draw_map(square.bounds) if draw_map is not None else None
    ground = f'<rect width="{EDGE_PX}" height="{EDGE_PX}" fill="#e8e8e8"/>'
    if image is not None:
        ground += f'<image href="{_data_uri(image)}" width="{EDGE_PX}" height="{EDGE_PX}" preserveAspectRatio="none"/>'
    bar = max((size for size in _BARS_M if size <= square.half_m / 2), default=_BARS_M[0])
    wide, low = bar * square.scale, EDGE_PX - 14
    label = f"{bar} m" if bar < 1_000 else f"{bar // 1_000} km"
    scale = (
        f'<path d="M14 {low}h{wide:.1f}" stroke="white" stroke-width="5"/>'
        f'<path d="M14 {low}h{wide:.1f}" stroke="black" stroke-width="3"/>'
        f'<text x="14" y="{low - 7}" {_TEXT}>{label}</text>'
    )
    return (
        f'<svg role="img" aria-label="{title}" width="{EDGE_PX}" height="{EDGE_PX}" viewBox="0 0 {EDGE_PX} {EDGE_PX}" '
        f'style="max-width:100%;height:auto">{ground}{shapes}{scale}</svg>'
    )


def _figure(uri: str, alternative: str, caption: str) -> str:
    return (
        f'<figure style="margin:0"><img src="{uri}" alt="{alternative}" style="max-width:100%">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _layout(parts: Sequence[str], text: str) -> str:
    """Parts side by side over a line of text."""
    row = "".join(parts)
    style = "display:flex;flex-wrap:wrap;gap:12px;align-items:flex-start"
    return f'<div class="skypart"><div style="{style}">{row}</div><p>{text}</p></div>'


def _data_uri(image: RgbImage) -> str:
    """An image as JPEG inside a URI."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


def in_notebook() -> bool:
    """Whether the code runs in a Jupyter kernel."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def show_html(content: str, name: str) -> None:
    """Display HTML in the notebook, or open it in the web browser as a temporary file called `name`."""
    if in_notebook():
        from IPython.display import HTML, display

        display(HTML(content))
        return
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    file = Path(tempfile.mkdtemp(prefix="skypart-")) / f"{safe}.html"
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(name)}</title>{content}</html>'
    file.write_text(page, encoding="utf-8")
    webbrowser.open(file.as_uri())
