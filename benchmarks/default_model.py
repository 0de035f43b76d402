"""How good is the default model on places, styles and photos it was not trained on, and what does it have to beat?

    python benchmarks/default_model.py --shared ../shared [--also "CLS-only=runs/default-model/cls.safetensors"]

renders the test worlds (kept under --work) and embeds them with the shipped model, its CLS branch, other models (one
row for each that is given) and plain readouts of the untrained backbone. It writes docs/results/default-model.json, and
the tables between the marks of docs/results/default-model.md. --keep copies a row from the previous JSON file instead
of measuring it, for example because its model no longer exists. Only do so if the test images have not changed since:
a row that is measured again must have the same numbers.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.unseen import (
    FLOWN,
    OBLIQUE,
    Embed,
    by_map,
    dates,
    flown,
    frames,
    pictures_of,
    remembering,
    retrieval,
    worlds,
)

from skypart.atomic import write_text
from skypart.embedding.shipped import sha256_of
from skypart.errors import SkyPartError
from skypart.images.decode import ImageLike, RgbImage
from skypart.images.preprocess import Preprocessing
from skypart.images.weather import CONDITIONS, RENDERING
from skypart.model import SkyPart
from skypart.model.embedder import TorchEmbedder, load_torch
from skypart.progress import console
from skypart.training.checkpoint import code_version

ROOT = Path(__file__).resolve().parent.parent
FULL = "SkyPart"
BRANCH = "its CLS branch alone (it has an InfoNCE loss of its own)"
MADE = "made by"
WEATHERS = {"paper": "weather", "weatherprompt": "harder weather"}  # profile -> what its figures are called
UNTRAINED = {"untrained, mean patch of block 8": (8, "patches"), "untrained, CLS of block 10": (10, "cls")}


@dataclass(frozen=True)
class Compared:
    """A model: the rows it gives, the function from pictures to their unit vectors, and what tells models apart."""

    rows: tuple[str, ...]
    embed: Embed
    digest: str


def models(arguments: argparse.Namespace) -> list[Compared]:
    """What is compared."""
    full = load_torch(arguments.model, size=arguments.size)
    found = [Compared((FULL, BRANCH), partial(rows_of, full, {FULL: "embedding", BRANCH: "cls"}), full.digest)]
    for row in arguments.also:
        name, _, file = row.partition("=")
        other = load_torch(file, size=arguments.size)
        of_row = hashlib.sha256(f"{name} {other.digest}".encode()).hexdigest()  # figures are kept by name, too
        found.append(Compared((name,), partial(rows_of, other, {name: "embedding"}), of_row))
    backbone = arguments.shared / "weights" / "dinov2_vits14_descendant.safetensors"
    plain = SkyPart.from_backbone(str(backbone)).eval()
    embed = partial(plain_readouts, plain, arguments.size)
    return [*found, Compared(tuple(UNTRAINED), embed, sha256_of(backbone))]


def rows_of(
    embedder: TorchEmbedder, wanted: Mapping[str, str], pictures: Sequence[ImageLike]
) -> dict[str, NDArray[np.float32]]:
    """Unit rows by name, each of the embedding or the branch of the model's output that `wanted` gives for it."""
    outputs = list(embedder.outputs(pictures))
    return {name: torch.cat([getattr(each, part) for each in outputs]).numpy() for name, part in wanted.items()}


def plain_readouts(model: SkyPart, size: int, pictures: Sequence[RgbImage]) -> dict[str, NDArray[np.float32]]:
    """Unit rows of the untrained backbone: the mean patch and the CLS token of two blocks."""
    rows: dict[str, list[NDArray[np.float32]]] = {name: [] for name in UNTRAINED}
    prepare = Preprocessing(size=size)
    blocks = tuple(block for block, _ in UNTRAINED.values())
    with torch.inference_mode():
        for start in range(0, len(pictures), 16):
            inputs = torch.from_numpy(np.stack([prepare(picture) for picture in pictures[start : start + 16]]))
            tapped = model.backbone(inputs, blocks)
            for (name, (_, which)), tokens in zip(UNTRAINED.items(), tapped, strict=True):
                vector = tokens.cls if which == "cls" else tokens.patches.mean(dim=1)
                rows[name].append(torch.nn.functional.normalize(vector, dim=-1).numpy())
    return {name: np.concatenate(parts) for name, parts in rows.items()}


Job = tuple[str, Callable[[], dict[str, Any]]]
"""A label that changes with what is measured on, and the work."""


def jobs_of(model: Compared, sets: Mapping[str, Path], arguments: argparse.Namespace) -> dict[str, Job]:
    """What is measured of a model, by name."""
    embed, size = remembering(model.embed), arguments.size
    found: dict[str, Job] = {
        "dates": ("dates", partial(dates, embed, arguments.shared)),
        "nust": ("nust", partial(frames, embed, arguments.shared, size)),
    }
    for world, path in sets.items():
        drawn = f"pictures {pictures_of(path)}"
        found[world] = (f"{world}, {drawn}", partial(retrieval, embed, path, size))
        if world == "real":
            found["by map"] = (f"by map, {drawn}", partial(by_map, embed, path))
        if world in ("real", OBLIQUE):
            found[f"{world}, flown"] = (f"flown, {drawn}", partial(flown, embed, path))
        for profile, job in WEATHERS.items():
            if arguments.profile not in ("", profile):
                continue
            if (world, profile) == ("real", "paper") or (FULL in model.rows and world in ("real", "procedural")):
                found[f"{world}, {job}"] = (
                    f"{world}, {job}, drawing {RENDERING}, area, {drawn}",
                    partial(retrieval, embed, path, size, CONDITIONS, profile),
                )
    return found


def measure(arguments: argparse.Namespace, before: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """All figures, by row, then by set, and the code that gave them. What was measured before with the same model
    is kept beside the worlds; rows of `before` are measured only where they lack something."""
    sets = worlds(arguments)
    made: set[str] = set()
    figures: dict[str, Any] = {}
    for model in models(arguments):
        kept = arguments.work / f"figures-{arguments.size}-{model.digest[:12]}.json"
        known: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else {}
        for job, (label, run) in jobs_of(model, sets, arguments).items():
            if all(job in before.get(row, ()) for row in model.rows):
                found = {row: before[row][job] for row in model.rows}
            elif arguments.as_kept and all(row in before for row in model.rows):
                continue
            else:
                if label not in known:
                    console.print(f"{model.rows[0]}: {job}")
                    known[label] = run()
                    known.setdefault(MADE, {})[label] = f"{code_version()} of {datetime.date.today().isoformat()}"
                    write_text(kept, json.dumps(known, indent=1))
                made.add(known[MADE][label])
                found = known[label]
            for name, each in found.items():
                figures.setdefault(name, {})[job] = each
    return figures, sorted(made)


def mean_of(weather: Mapping[str, Mapping[str, float]], direction: str) -> float:
    """R@1 of a direction, mean over the ten conditions."""
    return float(np.mean([weather[condition][direction] for condition in CONDITIONS]))


def tables(figures: dict[str, Any], size: int, made: Sequence[str], copied: Sequence[str], as_kept: bool) -> str:
    """The figures as Markdown. made: versions of the code that measured them. copied: rows of the previous page."""
    real = [name for name in figures[FULL] if list(figures[FULL][name]) == ["normal"]]
    lines = [
        f"| R@1, % | {' | '.join(f'{name}, D→S / S→D' for name in real)} | real, mean of the ten `paper` weathers, "
        "D→S / S→D | city, date against date | NUST frames within 50 m (median error) |",
        "|---|" + "---|" * (len(real) + 3),
    ]
    for name, mine in figures.items():
        cells = [_both(mine[world]["normal"]) if world in mine else "" for world in real]
        weather = mine.get("real, weather")  # not there with --only
        cells.append(" / ".join(f"{mean_of(weather, way):.1f}" for way in ("D2S", "S2D")) if weather else "")
        cells.append(f"{np.mean(list(mine['dates'].values())):.1f}")
        cells.append(f"{mine['nust']['within_50m']:.0f} % ({mine['nust']['median_m']:.0f} m)")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += _apart(figures)
    for profile, job in WEATHERS.items():
        if f"real, {job}" not in figures[FULL]:
            continue
        lines += [
            "",
            f"| `{profile}` weather, one drone view per place, R@1, % | " + " | ".join(CONDITIONS) + " | mean |",
            "|---|" + "---|" * 11,
        ]
        for world in ("real", "procedural"):
            if f"{world}, {job}" not in figures[FULL]:
                continue
            weather = figures[FULL][f"{world}, {job}"]
            for direction, arrow in (("D2S", "D→S"), ("S2D", "S→D")):
                row = " | ".join(f"{weather[condition][direction]:.1f}" for condition in CONDITIONS)
                lines.append(f"| {world}, {arrow} | {row} | {mean_of(weather, direction):.1f} |")
    lines += [
        "",
        f"- Input {size} px; images with weather are resized by area.",
        f"- Machine: {platform.machine()}, {os.cpu_count()} cores.",
        f"- Code: {'; '.join(made)}.",
    ]
    if copied:
        absent = "cells that it lacked are blank" if as_kept else "cells that it lacked were measured now"
        lines.append(f"- Copied from the previous version of this page ({absent}): {'; '.join(copied)}.")
    lines.append(f"- Command: `python {shlex.join(sys.argv)}`")
    return "\n".join(lines) + "\n"


def _apart(figures: Mapping[str, Any]) -> list[str]:
    """A table of the real places map by map, and of images changed as in flight."""
    if "by map" not in figures[FULL]:  # not there with --only
        return []
    counts = {title: each["places"] for title, each in figures[FULL]["by map"].items()}
    heads = [f"{title} ({count} places)" for title, count in counts.items()]
    changed = [world for world in ("real", OBLIQUE) if f"{world}, flown" in figures[FULL]]
    heads += [f"{world}, {title}" for world in changed for title in FLOWN]
    lines = [
        "",
        f"| R@1 among all 200 real places, D→S / S→D, % | {' | '.join(heads)} |",
        "|---|" + "---|" * len(heads),
    ]
    for name, mine in figures.items():
        parts = [("by map", tuple(counts)), *((f"{world}, flown", tuple(FLOWN)) for world in changed)]
        cells = [_both(mine[job][title]) if job in mine else "" for job, titles in parts for title in titles]
        if any(cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _both(found: Mapping[str, float]) -> str:
    """R@1 of both directions as a cell."""
    return f"{found['D2S']:.1f} / {found['S2D']:.1f}"


def kept_rows(names: Sequence[str], file: Path) -> dict[str, Any]:
    """Rows of the previous page, by name."""
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    missing = [name for name in names if name not in before]
    if missing:
        raise SkyPartError(f"{file}: has no row {missing[0]!r} to keep; it has {', '.join(before) or 'none'}")
    return {name: before[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--model", default="default")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FILE", help="another model's row")
    parser.add_argument("--keep", action="append", default=[], metavar="NAME", help="copy this row of the old page")
    parser.add_argument("--as-kept", action="store_true", help="leave cells blank that copied rows lack")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "default-model" / "test")
    parser.add_argument("--only", action="append", default=[], help="only these worlds")
    parser.add_argument("--profile", choices=("", *WEATHERS), default="", help="only this profile's weathers")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "default-model.md")
    arguments = parser.parse_args()
    before = kept_rows(arguments.keep, arguments.out.with_suffix(".json"))
    figures, made = measure(arguments, before)
    untrained = {name: figures.pop(name) for name in UNTRAINED}
    others = {name: row for name, row in before.items() if name not in (*figures, *untrained)}
    figures = figures | others | untrained  # what must be beaten comes last
    write_text(arguments.out.with_suffix(".json"), json.dumps(figures, indent=1) + "\n")
    text = tables(figures, arguments.size, made, list(before), arguments.as_kept)
    page = arguments.out.read_text(encoding="utf-8") if arguments.out.is_file() else "<!-- figures -->\n<!-- end -->\n"
    marked = re.sub(r"(<!-- figures -->\n).*?(<!-- end -->)", lambda m: m[1] + text + m[2], page, flags=re.DOTALL)
    write_text(arguments.out, marked)
    console.print(text)


if __name__ == "__main__":
    main()
