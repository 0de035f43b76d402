"""Check an installed wheel as a new user would: no clone, no npm, an empty folder, and a few photos to locate.

    python packaging/first_fix.py          run with the Python of the environment that SkyPart is installed in

Renders a small town, indexes its map, locates photos by command and from Python, opens the page with its map, and
finds a recipe by name. Without the extra `torch`, the model runs in ONNX Runtime.

`make wheel` builds the wheel, installs it into an empty environment and runs this there.
"""

import csv
import json
import math
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

COMMAND = [str(Path(sys.executable).parent / "skypart"), "-q"]


PHOTOS, FIXES = 8, 1
"""Photos to locate, and the least number of fixes. The default calibration refuses some; no fix may be wrong."""


def call(folder: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run `skypart ARGUMENTS` in `folder`; what it printed, errors after results."""
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"skypart {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def metres(fix: dict[str, float], row: dict[str, str]) -> float:
    """Distance of a fix from the true centre of its photo."""
    north = (fix["latitude"] - float(row["target_lat"])) * 111_320
    east = (fix["longitude"] - float(row["target_lon"])) * 111_320 * math.cos(math.radians(fix["latitude"]))
    return math.hypot(north, east)


def check_page(folder: Path) -> None:
    """The page and its map library are served without any download."""
    port = "18573"
    server = subprocess.Popen([*COMMAND, "serve", "town.skyindex", "--port", port], cwd=folder)
    try:
        for attempt in range(120):
            try:
                page = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read().decode()
                break
            except OSError:
                if attempt == 119 or server.poll() is not None:
                    sys.exit("the server did not start")
                time.sleep(1)
        library = next(part for part in page.split('"') if part.endswith("leaflet.css"))
        for path in (library, library.replace("leaflet.css", "leaflet-src.esm.js")):
            assert len(urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).read()) > 10_000, path
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Run all checks; any failure ends with a message and a non-zero exit code."""
    import skypart
    from skypart.embedding.runtimes import has_torch
    from skypart.recipe_files import find_recipe

    home = Path(skypart.__file__).resolve()
    assert "site-packages" in home.parts, f"{home} is not an installed package"
    with tempfile.TemporaryDirectory(prefix="skypart-first-fix-") as scratch:
        folder = Path(scratch)
        render = ["--from", "procedural", "--styles", "town", "--locations", "4", "--seed", "3"]
        call(folder, "world", "make", "town", *render, "--drone-per-altitude", "1")
        (town,) = (folder / "town" / "maps").glob("*.tif")
        call(folder, "index", str(town), "-o", "town.skyindex", "--sizes", "230", "--overlap", "0.3")
        with (folder / "town" / "poses.csv").open(encoding="utf-8") as file:
            rows = sorted(csv.DictReader(file), key=lambda each: -float(each["tilt_deg"]))[:PHOTOS]
        photos = [str(folder / "town" / row["path"]) for row in rows]
        located = call(folder, "locate", "town.skyindex", *photos, "--format", "json", codes=(0, 3))
        answers = json.loads(located)["fixes"]
        found = [(fix, row) for fix, row in zip(answers, rows, strict=True) if fix["found"]]
        assert len(found) >= FIXES, f"{len(found)} of {PHOTOS} photos got a fix"
        off = max(metres(fix, row) for fix, row in found)
        assert off < 50, f"{off:.0f} m off"
        fix, row = found[0]
        again = skypart.open_index(folder / "town.skyindex").locate(folder / "town" / row["path"])
        assert (again.latitude, again.longitude) == (fix["latitude"], fix["longitude"])
        check_page(folder)
        message = call(folder, "train", "sues200", "data.root=nowhere", codes=(2,))
        assert ("nowhere" if has_torch() else "skypart[train]") in message and "recipe" not in message, message
        assert find_recipe("sues200").is_file()
    packages = sum(file.stat().st_size for file in home.parents[1].rglob("*") if file.is_file()) / 1e6
    print(
        f"skypart {skypart.__version__} {'with' if has_torch() else 'without'} PyTorch, {packages:.0f} MB of packages: "
        f"{len(found)} of {PHOTOS} photos got a fix, at most {off:.0f} m off; page and recipes found"
    )


if __name__ == "__main__":
    main()
