"""How much a pip installation of SkyPart takes on disk, and which packages take most of it.

    python benchmarks/install_size.py      writes docs/results/install-size.md

Builds the wheel, installs it with and without extras into empty environments at the versions of constraints.txt, and
adds up the sizes of the installed files. The extras install PyTorch's CPU build, if pip is pointed to one.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.page import write_page

from skypart.progress import console

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs/results/install-size.md"
EXTRAS = {"": "`skypart`", "torch": "`skypart[torch]`, CPU build", "train": "`skypart[train]`, CPU build"}
LARGEST = 8


def run(*command: str | Path) -> str:
    """What a command prints; errors end the script."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def bytes_by_entry(folder: Path) -> dict[str, int]:
    """Size in bytes of each entry of a folder, with all that is below it."""
    return {
        entry.name: sum(file.lstat().st_size for file in [entry, *entry.rglob("*")] if not file.is_dir())
        for entry in folder.iterdir()
    }


def install(wheel: Path, extra: str, folder: Path) -> dict[str, int]:
    """Install a wheel into an empty environment. Returns the bytes by entry of its site-packages, without pip's."""
    run(sys.executable, "-m", "venv", folder)
    site = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    before = bytes_by_entry(site)
    target = f"{wheel}[{extra}]" if extra else str(wheel)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", target)
    return {name: size for name, size in bytes_by_entry(site).items() if name not in before}


def write(out: Path, wheel_mb: float, found: dict[str, dict[str, int]]) -> None:
    """Write the page. found: bytes by entry of each extra."""
    total = {extra: sum(sizes.values()) / 1e6 for extra, sizes in found.items()}
    core = sorted(found[""].items(), key=lambda each: -each[1])[:LARGEST]
    lines: Sequence[str] = [
        "# Size of the installation",
        "",
        f"The wheel is {wheel_mb:.0f} MB. Disk space after `pip install` into an empty environment, at the versions of "
        "constraints.txt and without pip itself:",
        "",
        "| installed | MB |",
        "|---|---:|",
        *(f"| {EXTRAS[extra]} | {size:.0f} |" for extra, size in total.items()),
        "",
        f"The {LARGEST} largest folders of `skypart` without extras:",
        "",
        "| folder in site-packages | MB |",
        "|---|---:|",
        *(f"| `{name}` | {size / 1e6:.0f} |" for name, size in core),
        "",
        "One MB is a million bytes in files; a file system needs a little more. PyTorch with CUDA, which pip chooses "
        "by default, was not measured: it takes gigabytes more.",
        f"Python {sys.version.split()[0]}.",
    ]
    write_page(out, lines)


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=OUT, help="Page to write.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
        wheel = next(folder.glob("*.whl"))
        found = {}
        for extra in EXTRAS:
            found[extra] = install(wheel, extra, folder / f"env-{extra}")
            console.print(f"[{extra}] {sum(found[extra].values()) / 1e6:.0f} MB", markup=False)
        write(arguments.out, wheel.stat().st_size / 1e6, found)


if __name__ == "__main__":
    main()
