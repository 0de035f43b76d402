"""Draw the pictures of README and docs with the shipped model, and record which model drew them.

    make pictures                                          all; the demo takes from a few minutes to half an hour
    python benchmarks/pictures.py --only weather level     some of them
    python benchmarks/pictures.py --shared ../shared       where the photo of the weather pictures is

Writes docs/images/*.jpg and pictures.json. tests/test_documentation.py fails if the recorded model is not the one that
ships, if the demo's were drawn with another version of the matching, or if a page shows a picture that is not recorded.
Three pictures are not drawn here, see WITHOUT_A_MODEL.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from skypart.atomic import write_text
from skypart.demo import run_demo
from skypart.embedding import load
from skypart.embedding.shipped import sha256_of, shipped_model
from skypart.images.contrast import stretch_contrast
from skypart.images.decode import read_rgb
from skypart.images.weather import corrupt
from skypart.images.weather.sheet import contact_sheet
from skypart.position.confidence import MATCHING_VERSION
from skypart.version import __version__

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
PHOTO = "data/caliterra_cc0/IMG_9394.jpg"
"""Caliterra in Dripping Springs by Dennis Baldwin, CC0; in the shared folder of the developers."""
LEVELLED = ("normal", "fog", "fog_rain", "fog_snow", "dark", "over_exposure")
WITHOUT_A_MODEL = ("worlds-oblique.jpg", "worlds-procedural.jpg", "worlds-real.jpg")
"""Contact sheets of rendered worlds, some with locations picked by eye; their labels are those of `labelled`."""


def save(image: Any, name: str) -> None:
    Image.fromarray(np.asarray(image)).convert("RGB").save(IMAGES / name, quality=88)


def labelled(grid: Image.Image, columns: Sequence[str], rows: Sequence[str], left: int = 96, top: int = 26) -> Any:
    """A grid of images with a title above each column and at the left of each row; "" leaves one out."""
    canvas = Image.new("RGB", (grid.width + left * any(rows), grid.height + top * any(columns)), "white")
    x, y = canvas.width - grid.width, canvas.height - grid.height
    canvas.paste(grid, (x, y))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(15)
    for number, title in enumerate(columns):
        middle = x + (number + 0.5) * grid.width / len(columns)
        draw.text((middle, y / 2), title, fill="black", font=font, anchor="mm")
    for number, title in enumerate(rows):
        middle = y + (number + 0.5) * grid.height / len(rows)
        draw.multiline_text((x / 2, middle), title, fill="black", font=font, anchor="mm", align="center")
    return canvas


def draw_demo(_: Path) -> None:
    """The track and the fixes of `skypart demo`."""
    with tempfile.TemporaryDirectory(prefix="skypart-pictures-") as scratch:
        run_demo(Path(scratch), page=False)
        for drawn, kept in (("track.png", "demo-track.jpg"), ("fixes.png", "demo-fixes.jpg")):
            save(Image.open(Path(scratch) / drawn).convert("RGB"), kept)


def draw_weather(shared: Path) -> None:
    """The contact sheet of `skypart weather`."""
    photo = read_rgb(shared / PHOTO)
    save(contact_sheet(photo, key=Path(PHOTO).name, cell=264), "weather.jpg")


def draw_level(shared: Path) -> None:
    """Six conditions as the shipped model resizes them, and after its contrast stretch."""
    preprocessing = load("default").preprocessing
    photo = preprocessing.resize(read_rgb(shared / PHOTO))
    seen = [corrupt(photo, condition, "paper", seed=1, key="photo") for condition in LEVELLED]
    lifted = [stretch_contrast(image) for image in seen]
    grid = np.concatenate([np.concatenate(seen, axis=1), np.concatenate(lifted, axis=1)])
    titles = [condition.replace("_", " and " if "fog_" in condition else "-") for condition in LEVELLED]
    save(labelled(Image.fromarray(grid), titles, ("photo", "what the\nmodel sees")), "level.jpg")


DRAWN: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "weather": (draw_weather, ("weather.jpg",)),
    "level": (draw_level, ("level.jpg",)),
    "demo": (draw_demo, ("demo-fixes.jpg", "demo-track.jpg")),
}
"""What can be drawn: the function, and the files it writes."""


def main() -> None:
    """Draw, and record each file as soon as it is written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=DRAWN, default=list(DRAWN))
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    options = parser.parse_args()
    file = IMAGES / "pictures.json"
    for name in options.only:
        draw, written = DRAWN[name]
        if name in ("weather", "level") and not (options.shared / PHOTO).is_file():
            print(f"{options.shared / PHOTO}: no such file, so {written[0]} stays; give --shared", file=sys.stderr)
            continue
        started = time.monotonic()
        draw(options.shared)
        record = json.loads(file.read_text(encoding="utf-8"))
        entry: dict[str, Any] = {
            "model_sha256": sha256_of(shipped_model()),
            "command": f"python benchmarks/pictures.py --only {name}",
            "seconds": round(time.monotonic() - started),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": platform.machine(),
            "skypart": __version__,
        }
        if name == "demo":
            entry["matching"] = MATCHING_VERSION
        record |= dict.fromkeys(written, entry)
        write_text(file, json.dumps(dict(sorted(record.items())), indent=1) + "\n")
        print(f"drew {', '.join(written)} in {entry['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
