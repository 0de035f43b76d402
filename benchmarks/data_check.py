"""How long `skypart data check` takes to read the headers of 60,200 images that are in the file cache.

    python benchmarks/data_check.py       writes docs/results/data-check-speed.md

The set has the raw layout of SUES-200, with 512 x 512 JPEGs and 75 drone images per altitude, in a temporary folder.
"""

import datetime
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from skypart.atomic import write_text
from skypart.datasets.check import check

OUT = Path(__file__).resolve().parents[1] / "docs/results/data-check-speed.md"


def make_set(root: Path) -> None:
    """200 locations x 4 altitudes x 75 copies of one of 20 pictures, and a tile each."""
    pictures = []
    for number in range(20):
        small = np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        file = root / f"{number}.jpg"
        Image.fromarray(small).resize((512, 512)).save(file, quality=85)
        pictures.append(file.read_bytes())
        file.unlink()
    for place in range(1, 201):
        folders = [root / "drone_view_512" / f"{place:04d}" / str(altitude) for altitude in (150, 200, 250, 300)]
        for folder, count in [(folder, 75) for folder in folders] + [(root / "satellite-view" / f"{place:04d}", 1)]:
            folder.mkdir(parents=True)
            for index in range(count):
                (folder / f"{index}.jpg").write_bytes(pictures[(place + index) % len(pictures)])


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        make_set(root)
        check(root)  # warms the disk cache
        load = os.getloadavg()[0]
        start = time.perf_counter()
        report = check(root)
        seconds = time.perf_counter() - start
    lines = [
        "# Speed of `skypart data check`",
        "",
        f"{report.opened:,} images of 512 x 512 in the raw layout of SUES-200, headers only, warm file cache: "
        f"**{seconds:.1f} s**.",
        "Target: less than 60 s for 60,000 images.",
        "",
        f"Made by `python benchmarks/data_check.py` on {datetime.date.today().isoformat()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, load {load:.1f} before the timed run.",
        "",
    ]
    write_text(OUT, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
