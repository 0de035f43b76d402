"""Prove that a refactoring changed no number: record what the shipped model answers, and compare two records.

    python benchmarks/bit_identity.py record before/   # on the old code
    python benchmarks/bit_identity.py record after/    # on the new code, on the same machine
    python benchmarks/bit_identity.py compare before/ after/

Both records use the command line only, so the script runs unchanged on old and new code. The demo's town is rendered
from its seed; embeddings are compared byte by byte, fixes and tracks as text without the time they took.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

NO_FIX = 3
"""Exit code of `skypart locate` when a photo got no fix."""


def run(*words: str, accepted: tuple[int, ...] = (0,)) -> None:
    """Run a `skypart` command with the interpreter and the import path of this script, on one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "skypart.cli", *words], env=environment)
    if done.returncode not in accepted:
        raise SystemExit(f"skypart {' '.join(words)}: exit code {done.returncode}")


def record(out: Path) -> None:
    """Make the demo's town, index it, then embed, locate and track with the default model; write answers to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    demo = out / "demo"
    run("demo", "-o", str(demo), "--no-page")
    photos, index = demo / "town" / "photos", demo / "town.skyindex"
    run("embed", str(photos), "-o", str(out / "embeddings.npz"))
    for name, hints in {"blind": [], "heading": ["--heading", "90"], "tilted": ["--tilt", "55", "--fov", "52"]}.items():
        file = out / f"fixes-{name}.json"
        run("locate", str(index), str(photos), "--format", "json", "-o", str(file), *hints, accepted=(0, NO_FIX))
    with np.load(out / "embeddings.npz") as content:
        embeddings = hashlib.sha256(content["embeddings"].tobytes()).hexdigest()
        digest = str(content["model"])
    vectors = sorted((index / "store").glob("*vectors*"))
    summary = {
        "model": digest,
        "embeddings": embeddings,
        "map vectors": [hashlib.sha256(file.read_bytes()).hexdigest() for file in vectors],
        "track": hashlib.sha256((demo / "track.gpx").read_bytes()).hexdigest(),
        "fixes": {file.stem: without_times(json.loads(file.read_text())) for file in sorted(out.glob("fixes-*.json"))},
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n")


def without_times(value: Any) -> Any:
    """JSON data without `seconds`, and paths by their last name."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key != "seconds"}
    if isinstance(value, list):
        return [without_times(each) for each in value]
    return Path(value).name if isinstance(value, str) and "/" in value else value


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """One line for each value that differs."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other})
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{path}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            line for i, pair in enumerate(zip(one, other, strict=True)) for line in differences(*pair, f"{path}/{i}")
        ]
    return [] if one == other else [f"{path}: {one!r} != {other!r}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("record").add_argument("out", type=Path)
    compare = verbs.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "record":
        record(arguments.out)
        return
    one, other = (json.loads((folder / "summary.json").read_text()) for folder in (arguments.before, arguments.after))
    found = differences(one, other)
    print("\n".join(found) or "identical, bit by bit")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
