"""Retrieval sheets: a query, the parts the model found in it, and its five best matches, right or wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from skypart.datasets.records import Record, TestSplit
from skypart.drawing.style import AMBER, BLUE
from skypart.embedding import Embedder
from skypart.embedding.parts_figure import part_overlay
from skypart.evaluation.protocol import Vectors, locations, masked_gallery_ids, stack
from skypart.evaluation.ranking import rank_positives, top_matches
from skypart.evaluation.scores import Floats, GalleryMode, Integers
from skypart.images.decode import RgbImage, read_rgb

MATCHES = 5
_EDGE, _GAP, _BORDER, _HEAD, _SIDE, _FOOT = 168, 8, 6, 78, 128, 20
_WORDS = {"D2S": "drone to satellite", "S2D": "satellite to drone"}


@dataclass(frozen=True)
class Retrieval:
    """The ranking of one split.

    first: (q,) 0-based rank of the first positive. best: (q, 5) gallery indices of the best matches; scores: (q, 5).
    margin: (q,) score of the first match minus that of the best wrong one; -1 where the first match is wrong.
    """

    split: TestSplit
    first: Integers
    best: Integers
    scores: Floats
    margin: Floats


def retrieve(split: TestSplit, vectors: Vectors, gallery_mode: GalleryMode) -> Retrieval:
    """Rank the gallery of `split` for every query."""
    query, gallery = stack(split.query, vectors), stack(split.gallery, vectors)
    query_ids, gallery_ids = locations(split.query), locations(split.gallery)
    first = rank_positives(query, query_ids, gallery, gallery_ids, gallery_mode).first()
    best, scores = top_matches(query, gallery, MATCHES, masked_gallery_ids(split, gallery_mode))
    right = gallery_ids[best] == query_ids[:, None]
    wrong_score = np.where(right, -np.inf, scores).max(axis=1)
    margin = np.where(first == 0, scores[:, 0] - np.where(np.isfinite(wrong_score), wrong_score, 0.0), -1.0)
    return Retrieval(split, first, best, scores, margin)


def choose_queries(retrieval: Retrieval, each: int = 3, seed: int = 0) -> list[tuple[str, int]]:
    """(group, query index): the best by margin, the worst by rank, and random ones, each of another location."""
    chosen: list[tuple[str, int]] = []
    used: set[str] = set()
    orders = {
        "worst": np.lexsort((retrieval.margin, -retrieval.first)),
        "best": np.argsort(-retrieval.margin, kind="stable"),
        "random": np.random.default_rng(seed).permutation(len(retrieval.first)),
    }
    for why, order in orders.items():
        taken = 0
        for index in order:
            location = retrieval.split.query[index].location
            if taken < each and location not in used:
                used.add(location)
                chosen.append((why, int(index)))
                taken += 1
    return sorted(chosen, key=lambda item: ("best", "worst", "random").index(item[0]))


def draw_sheet(retrieval: Retrieval, rows: Sequence[tuple[str, int]], title: str, embedder: Embedder) -> Image.Image:
    """One row per query: photo, part map (if the model can explain), matches with an amber or blue border."""
    explain = embedder.explain if embedder.can_explain else None
    columns = 1 + (explain is not None) + retrieval.best.shape[1]
    step = _EDGE + _GAP
    canvas = Image.new("RGB", (_SIDE + columns * step + _GAP, _HEAD + len(rows) * (step + _FOOT) + _GAP), "white")
    draw = ImageDraw.Draw(canvas)
    draw.text((_GAP, 6), f"{_WORDS[retrieval.split.direction]}: {title}", fill="black", font=_font(16))
    names = ["query", *(["parts"] if explain else []), *(f"match {i + 1}" for i in range(retrieval.best.shape[1]))]
    for column, name in enumerate(names):
        draw.text((_SIDE + column * step, _HEAD - 22), name, fill="black", font=_font(13))
    draw.text((_SIDE, 26), "below a match: its place and its cosine similarity", fill="black", font=_font(12))
    draw.text((canvas.width - 220, 8), "amber = right", fill=AMBER, font=_font(14))
    draw.text((canvas.width - 110, 8), "blue = wrong", fill=BLUE, font=_font(14))
    for number, (why, index) in enumerate(rows):
        top = _HEAD + number * (step + _FOOT)
        record = retrieval.split.query[index]
        _side_text(draw, top, why, record, int(retrieval.first[index]), len(retrieval.split.gallery))
        photo = read_rgb(record.path)
        canvas.paste(_square(photo), (_SIDE, top))
        if explain is not None:
            canvas.paste(part_overlay(photo, explain(photo), _EDGE), (_SIDE + step, top))
        for place, match in enumerate(retrieval.best[index]):
            left = _SIDE + (columns - retrieval.best.shape[1] + place) * step
            found = retrieval.split.gallery[match]
            right = found.location == record.location
            _paste_match(canvas, found, left, top, AMBER if right else BLUE)
            text = f"{found.location}  {retrieval.scores[index, place]:.3f}"
            draw.text((left, top + _EDGE + 2), text, fill="black", font=_font(12))
    return canvas


def _side_text(draw: ImageDraw.ImageDraw, top: int, why: str, record: Record, first: int, gallery: int) -> None:
    rank = f"rank {first + 1:,} of {gallery:,}" if first < gallery else "no positive"
    altitude = "" if record.altitude is None else f"{record.altitude:g} m"
    lines = [line for line in (why, record.location, altitude, rank) if line]
    draw.multiline_text((_GAP, top + 4), "\n".join(lines), fill="black", font=_font(13), spacing=6)


def _paste_match(canvas: Image.Image, found: Record, left: int, top: int, colour: str) -> None:
    framed = Image.new("RGB", (_EDGE, _EDGE), colour)
    inner = _square(read_rgb(found.path), _EDGE - 2 * _BORDER)
    framed.paste(inner, (_BORDER, _BORDER))
    canvas.paste(framed, (left, top))


def _square(image: RgbImage, edge: int = _EDGE) -> Image.Image:
    return Image.fromarray(image).resize((edge, edge), Image.Resampling.BICUBIC)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
