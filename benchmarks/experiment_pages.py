"""Pages of finished experiments: tables, figures, times and commands under docs/results/experiments/.

    python benchmarks/experiment_pages.py out/peers out/ablation ...

Each folder is the output of `skypart experiment NAME -o FOLDER`. Copies its tables into one page and its figures beside
it. What the numbers mean is written by hand in docs/results/experiments/index.md.
"""

import argparse
import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.page import write_page

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "results" / "experiments"
TABLES = ("headline", "differences", "seeds", "kendall")
"""Tables that come first, in this order; the others follow by name."""


def training_time(folder: Path) -> tuple[int, float]:
    """Number of finished trainings, and their minutes in all by their logs."""
    seconds, count = 0.0, 0
    for log in sorted(note.with_name("log.jsonl") for note in (folder / "runs").glob("*/finished.json")):
        times = [json.loads(line)["time"] for line in log.read_text(encoding="utf-8").splitlines() if line]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        seconds += sum(gap for gap in gaps if gap < 300)  # longer ones are interruptions
        count += 1
    return count, seconds / 60


def command(folder: Path, plan: dict[str, Any], options: str) -> str:
    """The command that made a folder, with more options; names the seeds if not all of the plan were run."""
    run = sorted({int(path.stem.rpartition("-seed")[2]) for path in (folder / "scores").glob("*-seed*.npz")})
    chosen = "" if run == sorted(plan["presets"]["small"]["seeds"]) else "".join(f" --seed {seed}" for seed in run)
    return f"skypart experiment {folder.name}{chosen}{options and ' '}{options} -o out/{folder.name}"


def page(folder: Path, out: Path, options: str = "", note: str = "") -> list[str]:
    """The page of one experiment; its figures are copied to `out`. options, note: see `main`."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    name = folder.name
    count, minutes = training_time(folder)
    files = {path.stem: path for path in (folder / "tables").glob("*.md")}
    order = [stem for stem in TABLES if stem in files] + sorted(set(files) - set(TABLES))
    lines = [
        f"# {plan['title']}",
        "",
        f"`{command(folder, plan, options)}`, preset small: {count} trainings, {minutes:.0f} minutes in all",
        "on one thread each, on a machine that ran other work at the same time.",
        plan.get("about", ""),
        *([note] if note else []),
        "The backbone is a fine-tuned descendant of DINOv2-S: these are not numbers of the published DINOv2.",
        "What they say, and what they do not: [reading](index.md).",
        "",
    ]
    for stem in order:
        lines += [f"## {stem.replace('-', ' ').capitalize()}", "", files[stem].read_text(encoding="utf-8"), ""]
    for figure in sorted((folder / "figures").glob("*.png")):
        shutil.copyfile(figure, out / f"{name}-{figure.name}")
        lines += [f"![{figure.stem}]({name}-{figure.name})", ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--options", default="", help="further options of the command that made the folders")
    parser.add_argument("--note", default="", help="a remark for the top of the page")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for folder in arguments.folders:
        write_page(arguments.out / f"{folder.name}.md", page(folder, arguments.out, arguments.options, arguments.note))


if __name__ == "__main__":
    main()
