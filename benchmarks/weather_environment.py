"""A throw-away environment with imgaug 0.4.0 and the last numpy that it runs on, and calls into it."""

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

REQUIREMENTS = (
    "numpy==1.23.5",  # imgaug uses np.bool and np.complex, gone in 1.24
    "opencv-python-headless==4.8.1.78",  # the last built against numpy 1.x of that time
    "scipy<1.12",
    "scikit-image<0.22",
    "pillow<11",
    "imageio<2.35",
    "shapely<2.1",
    "matplotlib<3.9",
    "six",
)
IMGAUG = "imgaug==0.4.0"
ROOT = Path(__file__).resolve().parents[1]
STATISTICS_FILE = ROOT / "src" / "skypart" / "images" / "weather" / "statistics.py"
SHARED = ROOT.parent / "shared"
IMAGES = ("caliterra", "nust_map", "nust_frame")


def single_threaded() -> dict[str, str]:
    """The environment of a process that computes on one core."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return os.environ | dict.fromkeys(names, "1")


def imgaug_python() -> Path:
    """The interpreter of the throw-away environment, made in the cache folder at the first call."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", tempfile.gettempdir())) / "skypart-imgaug-0.4.0"
    python = cache / "bin" / "python"
    ready = cache / "ready"
    if not ready.exists():
        print(f"making the throw-away environment {cache}", file=sys.stderr)
        venv.create(cache, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *REQUIREMENTS], check=True)
        # Without its own requirements: they would pull a second, newer OpenCV.
        subprocess.run([*pip, "--no-deps", IMGAUG], check=True)
        ready.touch()
    return python


def run_imgaug(request: dict[str, Any]) -> dict[str, Any]:
    """Run weather_imgaug.py on a request (see there) and return its answer."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        question.write_text(json.dumps(request))
        script = Path(__file__).with_name("weather_imgaug.py")
        subprocess.run(
            [str(imgaug_python()), "-W", "ignore", str(script), str(question), str(answer)],
            check=True,
            env=single_threaded(),
        )
        result: dict[str, Any] = json.loads(answer.read_text())
        return result


def reference_images() -> dict[str, str]:
    """The clean 512x512 images of ../shared/weather_reference by name."""
    folder = SHARED / "weather_reference"
    missing = [name for name in IMAGES if not (folder / f"{name}.png").exists()]
    if missing:
        sys.exit(f"{folder}: {', '.join(missing)} missing; this measurement runs on the images of ../shared")
    return {name: str(folder / f"{name}.png") for name in IMAGES}


def machine() -> str:
    """The processor's name and the number of cores."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return f"{model}, {os.cpu_count()} cores"
