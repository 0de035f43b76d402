"""The long form of tests/torture, and its page: python -m benchmarks.torture [--inputs N] [--minutes M] [--out DIR]

--page-only writes docs/results/torture.md without running anything. Results in DIR replace those of the same part in
docs/results/torture.json, from which the page is made, so that one part can be run anew.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

from skypart.confine import landlock_version

PAGE, KEPT = Path("docs/results/torture.md"), Path("docs/results/torture.json")
Results: TypeAlias = dict[str, dict[str, Any]]
TESTS = tuple(f"tests/torture/test_{name}.py" for name in ("power_loss", "failing_io", "failing_commands"))
NOT_RUN = (
    "The server under attack and the integrity of answers have their own scripts and pages: `benchmarks/soak.py` and "
    "`benchmarks/outsiders.py`.",
    "Failing calls of `calibrate` do not reach the locating of photos, which is replaced; those of `train` are in "
    "its run folder.",
    "Writes inside safetensors (Rust) and GDAL (C) are not made to fail; only calls of Python are.",
    "NMEA is written, never read, so there is no reader to fuzz. C libraries (libtiff, libjpeg, GDAL, SQLite) are "
    "fuzzed without their coverage.",
    "`make audit` (pip-audit): needs a network with PyPI; here every package came back as not audited.",
)


def run(out: Path, inputs: int, minutes: float, points: int, checkpoints: int) -> None:
    """Run everything; results are JSON files in `out`."""
    environment = os.environ | {
        "SKYPART_TORTURE_OUT": str(out),
        "SKYPART_CRASH_POINTS": str(points),
        "SKYPART_CHECKPOINT_CRASH_POINTS": str(checkpoints),
    }
    pytest = [sys.executable, "-m", "pytest", "-q", "--timeout=7200", *TESTS]
    subprocess.run(pytest, env=environment, check=False)
    fuzz = [
        sys.executable,
        "-m",
        "tests.torture.fuzz",
        "--inputs",
        str(inputs),
        "--minutes",
        str(minutes),
        "--seed",
        "1",
    ]
    subprocess.run([*fuzz, "--out", str(out / "fuzz")], check=False)


PARTS = (
    "power-index",
    "power-new-index",
    "power-checkpoints",
    *(f"io-{name}" for name in ("index", "checkpoints", "files", "embed", "calibrate", "track", "evaluate", "train")),
)


def collect(out: Path, before: Results) -> Results:
    """The results by part: those in `out`, else those of `before`. Each has the date of its run."""
    found = dict(before)
    files = {name: out / f"{name}.json" for name in PARTS} | {"fuzz": out / "fuzz" / "result.json"}
    files |= {f"coverage/{file.stem}": file for file in (out / "coverage").glob("*.json")}
    for name, file in files.items():
        if file.is_file():
            found[name] = json.loads(file.read_text()) | {"date": str(date.fromtimestamp(file.stat().st_mtime))}
    if "fuzz" in found and files["fuzz"].is_file():
        found["fuzz"]["left"] = [
            f"`{text.stem}`: {text.read_text()[:160]}" for text in sorted((out / "fuzz").glob("*-*.txt"))
        ]
    return dict(sorted(found.items()))


def page(results: Results, command: str) -> str:
    """The page; what has no result is listed as not run."""
    lines = [
        "# Torture",
        "",
        f"{_dates(results)}, {platform.machine()}, {os.cpu_count()} cores shared with other work, "
        f"Linux {platform.release()}, Landlock {landlock_version()}. Command: `{command}`.",
        "",
    ]
    rows = [("part", "what was run", "result"), ("---", "---", "---")]
    missing = []
    fuzz = results.get("fuzz")
    if fuzz:
        rows.append(("fuzzing", f"{fuzz['inputs']:,} of {fuzz['asked']:,} inputs", f"{fuzz['findings']} findings left"))
        rows.append(("", "found and fixed in this run", f"{fuzz['fixed']} inputs"))
        rows.append(("", f"{fuzz['targets']} readers", f"{fuzz['seconds']} s"))
    else:
        missing.append("Fuzzing.")
    guided = [found for name, found in results.items() if name.startswith("coverage/")]
    if guided:
        inputs, wrong = sum(each["inputs"] for each in guided), sum(len(each["findings"]) for each in guided)
        rows.append(("fuzzing with coverage", f"{inputs:,} inputs, {len(guided)} readers", f"{wrong} findings"))
        rows.append(("", "time", f"{sum(each['seconds'] for each in guided):,} s"))
    else:
        missing.append("Fuzzing guided by coverage (`python -m benchmarks.fuzz_coverage`, needs atheris).")
    names = {
        "power-index": "power cuts, an index that grows",
        "power-new-index": "power cuts, a new index",
        "power-checkpoints": "power cuts, checkpoints",
    }
    for name, title in names.items():
        found = results.get(name)
        if found:
            rows.append((title, f"{found['points']:,} crash points", f"{found['events']} recorded events"))
        else:
            missing.append(f"{title[0].upper()}{title[1:]}: no result.")
    names = {
        "io-index": "failing calls, index",
        "io-checkpoints": "failing calls, checkpoints",
        "io-files": "failing calls, files",
        **{f"io-{name}": f"failing calls, `{name}`" for name in ("embed", "calibrate", "track", "evaluate", "train")},
    }
    for name, title in names.items():
        found = results.get(name)
        if found:
            total = sum(count for kind, count in found.items() if kind.endswith("failures"))
            rows.append(
                (
                    title,
                    f"{total:,} failures",
                    f"{found.get('errors', 0):,} clear errors, {found.get('survived', 0):,} survived",
                )
            )
        else:
            missing.append(f"{title[0].upper()}{title[1:]}: no result.")
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    for each in (fuzz or {}).get("left", ()):
        lines += ["", f"Finding {each}"]
    lines += [
        "",
        "A crash point passes if the index or the run opens in the state before or after.",
        "A failing call passes if the old state still opens and the error names the file.",
        *coverage_table(guided),
        "",
        "## Not run",
        *(f"- {line}" for line in (*missing, *NOT_RUN)),
        "",
    ]
    return "\n".join(lines)


def _dates(results: Results) -> str:
    """The days of the runs."""
    days = sorted({found["date"] for found in results.values()})
    return days[0] if days[:1] == days[-1:] else f"{days[0]} to {days[-1]}" if days else str(date.today())


def coverage_table(guided: Sequence[dict[str, Any]]) -> list[str]:
    """What the fuzzing with coverage did with each reader, as lines of Markdown."""
    if not guided:
        return []
    lines = [
        "",
        "## Fuzzing with coverage, reader by reader",
        "",
        "Covered is the number of branches of our Python code that inputs reached: by the seeds, then in the end. "
        "Branches inside C libraries and the standard library are not counted. "
        "Each reader had a fixed time on a crowded machine, so slow readers got few inputs.",
        "",
        "| reader | inputs | covered by seeds | covered at last | findings |",
        "|---|---|---|---|---|",
    ]
    for each in guided:
        reached = f"{each['first coverage']} | {each['coverage']} | {len(each['findings'])}"
        lines.append(f"| `{each['target']}` | {each['inputs']:,} | {reached} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--points", type=int, default=3_000)
    parser.add_argument("--checkpoints", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("torture-out"))
    parser.add_argument("--page-only", action="store_true")
    parser.add_argument("--command", default="make torture", help="What the page names as its command.")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.page_only:
        run(given.out.resolve(), given.inputs, given.minutes, given.points, given.checkpoints)
    before = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    results = collect(given.out, before)
    KEPT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(results, given.command), encoding="utf-8")


if __name__ == "__main__":
    main()
