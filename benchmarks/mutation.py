"""Mutation testing with mutmut: how many deliberate faults the quick tests find, area by area.

    pip install mutmut            # not a dependency of the project
    python benchmarks/mutation.py --sample 60 --out docs/results/mutation.md

Works on a clone of HEAD in a temporary folder. Of each area a random sample of mutants is tried, drawn from a seed;
`--sample 0` tries all, which takes hours. A mutant is killed if any quick test of its area fails.
"""

import argparse
import datetime
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AREAS = {
    "losses": (["src/skypart/losses/*.py"], ["tests/losses"]),
    "evaluation metrics": (
        [f"src/skypart/evaluation/{name}.py" for name in ("metrics", "ranking", "distance", "scores")],
        [f"tests/evaluation/test_{name}.py" for name in ("metrics", "distance")],
    ),
    "maps/store": (["src/skypart/maps/store/*.py"], ["tests/maps/store"]),
    "position": (["src/skypart/position/*.py"], ["tests/position"]),
}
"""Area -> (files that are mutated, tests that must notice)."""
KILLED = {1, 3, -24, 24, 36, 152, 255}
"""Exit codes of mutmut for mutants that a test, a time limit or the interpreter noticed."""


def configure(clone: Path, sources: list[str], tests: list[str]) -> None:
    """Add mutmut's settings to the clone's pyproject.toml."""
    file = clone / "pyproject.toml"
    text = (ROOT / "pyproject.toml").read_text().replace("-ra --strict-markers --timeout=900", "--strict-markers")
    settings = {
        "source_paths": ["src"],
        "only_mutate": sources,
        "pytest_add_cli_args_test_selection": ["-m", "not slow", "-p", "no:cacheprovider", *tests],
        "also_copy": ["tests", "docs", "recipes", "benchmarks", "README.md"],
    }
    file.write_text(text + "\n[tool.mutmut]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items()))


def results(clone: Path) -> Iterator[tuple[str, int | None]]:
    """(mutant, exit code of its tests or None) of all mutants."""
    for file in sorted((clone / "mutants").rglob("*.meta")):
        yield from json.loads(file.read_text())["exit_code_by_key"].items()


def try_area(mutmut: Path, sources: list[str], tests: list[str], sample: int, seed: int) -> dict[str, int | None]:
    """Exit codes of the sampled mutants of one area."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="skypart-mutation-") as folder:
        clone = Path(folder) / "skypart"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        vendor = ROOT / "src" / "skypart" / "serve" / "static" / "vendor"
        if vendor.is_dir():
            shutil.copytree(vendor, clone / vendor.relative_to(ROOT))
        configure(clone, sources, tests)
        command = [str(mutmut), "run", "--max-children", "1"]
        subprocess.run(
            [*command, "no.such.mutant"], cwd=clone, env=environment, capture_output=True
        )  # makes the mutants
        names = [name for name, _ in results(clone)]
        chosen = names if not sample else random.Random(seed).sample(names, min(sample, len(names)))
        print(f"{len(names)} mutants, trying {len(chosen)}", flush=True)
        subprocess.run([*command, *chosen], cwd=clone, env=environment, capture_output=True)
        return {name: code for name, code in results(clone) if name in set(chosen)} | {"": len(names)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=60, help="mutants per area; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutmut", type=Path, default=Path(sys.executable).parent / "mutmut")
    parser.add_argument("--areas", nargs="+", default=list(AREAS), choices=list(AREAS))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "mutation.md")
    parser.add_argument("--survivors", type=Path, help="file for the names of survivors")
    arguments = parser.parse_args()
    rows, survivors = [], []
    for area in arguments.areas:
        print(area, flush=True)
        codes = try_area(arguments.mutmut, *AREAS[area], arguments.sample, arguments.seed)
        total = codes.pop("") or 0
        tried = {name: code for name, code in codes.items() if code is not None}
        alive = [name for name, code in tried.items() if code not in KILLED]
        survivors += alive
        share = 100 * (len(tried) - len(alive)) / max(len(tried), 1)
        rows.append(f"| {area} | {total} | {len(tried)} | {len(tried) - len(alive)} | {share:.0f} % |")
        print(rows[-1], flush=True)
        if arguments.survivors is not None:
            arguments.survivors.write_text("\n".join(survivors) + "\n")
    version = subprocess.run([arguments.mutmut, "--version"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "describe", "--always"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    page = f"""# Mutation testing

Mutation testing puts deliberate faults into the code (changed operators, constants and arguments, removed calls) and
counts how many the quick tests of an area notice. A random sample of each area was tried. Some surviving faults cannot
be observed, such as a changed message or block size.

| area | mutants | tried | killed | score |
|---|---|---|---|---|
{chr(10).join(rows)}

Made by `python benchmarks/mutation.py --sample {arguments.sample} --seed {arguments.seed}` on
{datetime.date.today()}, commit {commit}, {version}, {platform.machine()}, {os.cpu_count()} cores.
"""
    arguments.out.write_text(page)


if __name__ == "__main__":
    main()
