"""A photo beside its parts: one colour per prototype (inactive ones faded), centroids and the graph between them."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from skypart.embedding.interface import Explanation
from skypart.images.decode import RgbImage

# Twelve colours that most colour-blind readers can tell apart; more prototypes repeat them.
PALETTE: tuple[tuple[int, int, int], ...] = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 92, 230), (213, 94, 0),
    (204, 121, 167), (120, 94, 240), (140, 200, 60), (220, 38, 127), (0, 200, 200), (160, 110, 60),
)  # fmt: skip
EDGE = 512
_MARGIN, _LEGEND, _CAPTION = 12, 200, 20
CAPTION = (
    "Colour: strongest prototype of each patch; grey: inactive. Disc: centre of a part, larger if it matters more. "
    "Lines: the graph between parts."
)


def prototype_colour(prototype: int) -> tuple[int, int, int]:
    """The colour of a prototype."""
    return PALETTE[prototype % len(PALETTE)]


def part_overlay(image: RgbImage, explanation: Explanation, edge: int = EDGE) -> Image.Image:
    """The photo as an (edge, edge) square, each patch tinted by its strongest prototype, inactive ones grey."""
    base = np.asarray(Image.fromarray(image).resize((edge, edge), Image.Resampling.BICUBIC), dtype=np.float32)
    winner = explanation.assignment.argmax(axis=-1)
    strength = explanation.assignment.max(axis=-1)
    tint = np.asarray([prototype_colour(k) for k in range(len(explanation.active))], dtype=np.float32)
    tint[~explanation.active] = 128.0
    opacity = np.where(explanation.active[winner], 0.35 + 0.3 * strength, 0.25)
    tints = _enlarge(tint[winner], edge)
    alpha = _enlarge(opacity[..., None].astype(np.float32), edge)
    return Image.fromarray(np.clip(base * (1 - alpha) + tints * alpha, 0, 255).astype(np.uint8))


def parts_figure(image: RgbImage, explanation: Explanation, title: str = "") -> Image.Image:
    """Photo, part map with centroids and graph, and a legend of each prototype's share and salience."""
    head = 34
    canvas = Image.new("RGB", (2 * EDGE + 4 * _MARGIN + _LEGEND, EDGE + head + 2 * _MARGIN + _CAPTION), (250, 250, 250))
    photo = Image.fromarray(image).resize((EDGE, EDGE), Image.Resampling.BICUBIC)
    canvas.paste(photo, (_MARGIN, head))
    overlay = part_overlay(image, explanation)
    draw_graph(overlay, explanation)
    canvas.paste(overlay, (EDGE + 2 * _MARGIN, head))
    draw = ImageDraw.Draw(canvas)
    draw.text((_MARGIN, 8), title or "photo", fill=(30, 30, 30), font=_font(16))
    draw.text(
        (EDGE + 2 * _MARGIN, 8),
        f"its parts: {int(explanation.active.sum())} of {len(explanation.active)} prototypes active",
        fill=(30, 30, 30),
        font=_font(16),
    )
    draw.text((_MARGIN, EDGE + head + _MARGIN // 2), CAPTION, fill=(70, 70, 70), font=_font(14))
    _draw_legend(draw, explanation, 2 * EDGE + 3 * _MARGIN, head)
    return canvas


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's built-in font, so that figures are the same on every machine."""
    return ImageFont.load_default(size)


def _enlarge(grid: NDArray[np.float32], edge: int) -> NDArray[np.float32]:
    """(rows, columns, channels) to (edge, edge, channels), nearest neighbour."""
    rows = np.arange(edge) * grid.shape[0] // edge
    columns = np.arange(edge) * grid.shape[1] // edge
    enlarged: NDArray[np.float32] = grid[rows][:, columns]
    return enlarged


def draw_graph(overlay: Image.Image, explanation: Explanation) -> None:
    """Draw the centroids of active prototypes as discs, sized by salience and share, and the graph's edges."""
    draw = ImageDraw.Draw(overlay, "RGBA")
    share = explanation.assignment.mean(axis=(0, 1))
    active = [int(k) for k in np.flatnonzero(explanation.active)]
    points = {k: (float(explanation.centroids[k, 0]) * EDGE, float(explanation.centroids[k, 1]) * EDGE) for k in active}
    for position, first in enumerate(active):
        for second in active[position + 1 :]:
            weight = float(
                explanation.salience[first] * explanation.salience[second] * np.sqrt(share[first] * share[second])
            )
            opacity = int(np.clip(40 + 1200 * weight, 40, 200))
            draw.line([points[first], points[second]], fill=(255, 255, 255, opacity), width=1 + (opacity > 120))
    for k in sorted(active, key=lambda k: -float(share[k])):
        x, y = points[k]
        radius = 9 + 16 * float(np.sqrt(share[k])) * float(explanation.salience[k])
        box = [x - radius, y - radius, x + radius, y + radius]
        draw.ellipse(box, fill=(*prototype_colour(k), 255), outline=(20, 20, 20, 255), width=2)
        draw.text((x, y), str(k + 1), fill=(0, 0, 0), font=_font(13), anchor="mm")


def _draw_legend(draw: ImageDraw.ImageDraw, explanation: Explanation, left: int, top: int) -> None:
    """One row per prototype: colour, share of the image, salience; then the fusion gate."""
    share = explanation.assignment.mean(axis=(0, 1))
    draw.text((left, 8), "share   salience (importance)", fill=(30, 30, 30), font=_font(14))
    for k in range(len(explanation.active)):
        y = top + 4 + k * 32
        on = bool(explanation.active[k])
        fill = prototype_colour(k) if on else (205, 205, 205)
        draw.rectangle([left, y, left + 24, y + 22], fill=fill, outline=(60, 60, 60))
        draw.text(
            (left + 12, y + 11), str(k + 1), fill=(0, 0, 0) if on else (120, 120, 120), font=_font(13), anchor="mm"
        )
        text = f"{100 * share[k]:3.0f} %    " + (f"{explanation.salience[k]:.2f}" if on else "off")
        draw.text((left + 34, y + 3), text, fill=(30, 30, 30) if on else (150, 150, 150), font=_font(14))
    y = top + 10 + len(explanation.active) * 32
    draw.text((left, y), "weights of the embedding", fill=(30, 30, 30), font=_font(14))
    y += 22
    for name, weight in zip(("part", "cls", "graph"), explanation.gate, strict=True):
        draw.text((left, y), name, fill=(30, 30, 30), font=_font(14))
        draw.rectangle([left + 50, y + 2, left + 50 + int(110 * weight), y + 14], fill=(70, 110, 180))
        draw.text((left + 165, y), f"{weight:.2f}", fill=(30, 30, 30), font=_font(13))
        y += 22
