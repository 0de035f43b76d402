"""Check an installed wheel as a new user would: no clone, no npm, an empty folder, and one photo to locate.

    python packaging/first_fix.py          run with the Python of the environment that SkyPart is installed in

Renders a small town, indexes its map, locates a photo by command and from Python, opens the page with its map, and
finds a recipe by name. `make wheel` builds the wheel, installs it into an empty environment and runs this there.
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


def call(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run `skypart ARGUMENTS` in `folder`; its standard output, or standard error if it should fail."""
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != code:
        sys.exit(f"skypart {' '.join(arguments)} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
    return done.stderr if code else done.stdout


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

    home = Path(skypart.__file__).resolve()
    assert "site-packages" in home.parts, f"{home} is not an installed package"
    with tempfile.TemporaryDirectory(prefix="skypart-first-fix-") as scratch:
        folder = Path(scratch)
        render = ["--from", "procedural", "--styles", "town", "--locations", "4", "--seed", "3"]
        call(folder, "world", "make", "town", *render, "--drone-per-altitude", "1")
        (town,) = (folder / "town" / "maps").glob("*.tif")
        call(folder, "index", str(town), "-o", "town.skyindex", "--sizes", "230", "--overlap", "0.3")
        with (folder / "town" / "poses.csv").open(encoding="utf-8") as file:
            row = max(csv.DictReader(file), key=lambda each: float(each["tilt_deg"]))
        photo = folder / "town" / row["path"]
        (fix,) = json.loads(call(folder, "locate", "town.skyindex", str(photo), "--format", "json"))["fixes"]
        off = metres(fix, row)
        assert off < 50, f"{off:.0f} m off"
        again = skypart.open_index(folder / "town.skyindex").locate(photo)
        assert (again.latitude, again.longitude) == (fix["latitude"], fix["longitude"])
        check_page(folder)
        message = call(folder, "train", "sues200", "data.root=nowhere", code=2)
        assert "nowhere" in message and "recipe" not in message, message
    print(
        f"skypart {skypart.__version__}: first fix {off:.0f} m off, radius {fix['radius_m']:.0f} m; "
        "page and recipes found"
    )


if __name__ == "__main__":
    main()
