"""Draw the pictures of the README with the shipped model, and record which model drew them.

    python benchmarks/pictures.py            runs `skypart demo` in a scratch folder; a few minutes

Writes docs/images/demo-track.jpg, demo-fixes.jpg and pictures.json. tests/test_documentation.py fails if the recorded
model is not the one that ships.
"""

import json
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image

from skypart.demo import run_demo
from skypart.model.shipped import sha256_of, shipped_model
from skypart.version import __version__

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
PICTURES = {"track.png": "demo-track.jpg", "fixes.png": "demo-fixes.jpg"}


def main() -> None:
    """Run the demo and keep its figures."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="skypart-pictures-") as scratch:
        out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch)
        run_demo(out, page=False)
        seconds = time.monotonic() - started
        for drawn, kept in PICTURES.items():
            Image.open(out / drawn).convert("RGB").save(IMAGES / kept, quality=88)
    record = {
        "model_sha256": sha256_of(shipped_model()),
        "pictures": sorted(PICTURES.values()),
        "command": "python benchmarks/pictures.py",
        "seconds": round(seconds),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": platform.machine(),
        "skypart": __version__,
    }
    (IMAGES / "pictures.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
