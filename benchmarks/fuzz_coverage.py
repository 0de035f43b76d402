"""Fuzz the readers that are written in Python, guided by their coverage: python -m benchmarks.fuzz_coverage --out DIR

Needs atheris (`pip install atheris==3.0.0`, which has wheels for CPython on Linux x86-64 only; it is not among our
dependencies). Uses the targets and the corpus of tests/torture/fuzz.py. Each target runs in its own process with 1 GB
of memory beyond what importing takes, and 5 s of the processor per input. A target ends after --runs inputs or
--seconds seconds. The same command resumes: targets that have a result in DIR are skipped. The figures are copied into
docs/results/torture.md by `python -m benchmarks.torture --page-only`.
"""

import argparse
import hashlib
import importlib
import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path

from tests.torture.names import NAMES

TARGETS = NAMES
"""Every reader of tests/torture/fuzz.py. Only Python code is measured: of libtiff or libjpeg no coverage is seen."""
SECONDS, HANGING_SECONDS, MEMORY_MB = 5, 120, 1024
"""Limits of an input: seconds of the processor, seconds in all on a crowded machine, memory."""


def fuzz_here(name: str, runs: int, seconds: int, out: Path) -> None:
    """Fuzz one target in this process, which ends. A foreign exception leaves the input in `out`."""
    atheris = importlib.import_module("atheris")

    inputs = out / "corpus" / name
    inputs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp())
    with atheris.instrument_imports(include=["skypart"]):
        from tests.torture.fuzz import corpus, targets

        from skypart.errors import SkyPartError

        target = targets(folder)[name]
        for seed in target.seeds:  # late imports are instrumented, too
            with tempfile.TemporaryDirectory(dir=folder) as empty:
                try:
                    target.read(seed, Path(empty))
                except SkyPartError:
                    continue
    for number, seed in enumerate((*target.seeds, *corpus(name))):
        (inputs / f"seed-{number}").write_bytes(seed)

    def one_input(data: bytes) -> None:
        start = time.process_time()
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            try:
                target.read(data, Path(empty))
            except SkyPartError as error:
                if "\n" in str(error):
                    raise RuntimeError("a message of several lines") from error
        if time.process_time() - start > SECONDS:
            (out / f"{name}-slow-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        """Half of the time mutated inside of what checksums, lengths or compression protect."""
        if target.inside is not None and seed % 2:
            with suppress(ValueError, OSError, EOFError, IndexError, struct.error, zlib.error, sqlite3.Error):
                return target.inside(data, lambda piece: bytes(atheris.Mutate(piece, len(piece) + 64)))[:most]
        return bytes(atheris.Mutate(data, most))

    used = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    options = [
        f"-runs={runs}",
        f"-max_total_time={seconds}",
        f"-timeout={HANGING_SECONDS}",
        f"-rss_limit_mb={used + MEMORY_MB}",
        f"-artifact_prefix={out}/{name}-",
        f"-max_len={max(65_536, *(2 * len(seed) for seed in target.seeds))}",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(inputs)], one_input, custom_mutator=mutated)
    atheris.Fuzz()


def _passes(name: str, file: Path) -> bool:
    """Whether an input that took long with the measurement of coverage is read in time without it."""
    from tests.torture.fuzz import attempt, targets

    if not file.name.startswith((f"{name}-slow-", f"{name}-timeout-")):
        return False
    with tempfile.TemporaryDirectory() as folder:
        return attempt(targets(Path(folder))[name], file.read_bytes(), Path(folder)) is None


def fuzz_target(name: str, runs: int, seconds: int, out: Path) -> dict[str, object]:
    """Fuzz one target in a process of its own. The figures that libFuzzer prints."""
    start = time.time()
    command = [sys.executable, "-m", "benchmarks.fuzz_coverage", "--child", name]
    command += ["--runs", str(runs), "--seconds", str(seconds), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    (out / f"{name}.log").write_text(done.stderr[-20_000:])
    executed = re.findall(r"number_of_executed_units: (\d+)|^#(\d+)\s", done.stderr, re.MULTILINE)
    covered = re.findall(r" cov: (\d+) ", done.stderr)
    findings = [file.name for file in sorted(out.glob(f"{name}-*")) if file.is_file() and not _passes(name, file)]
    return {
        "target": name,
        "inputs": max((int(a or b) for a, b in executed), default=0),
        "first coverage": int(covered[0]) if covered else 0,
        "coverage": int(covered[-1]) if covered else 0,
        "findings": findings,
        "seconds": round(time.time() - start),
        "exit code": done.returncode,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000, help="Inputs per target.")
    parser.add_argument("--seconds", type=int, default=0, help="Seconds per target; 0 for no limit.")
    parser.add_argument("--only", default="", help="Targets, comma-separated.")
    parser.add_argument("--out", type=Path, default=Path("torture-out/coverage"))
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if given.child:
        fuzz_here(given.child, given.runs, given.seconds, out)
        return
    for name in given.only.split(",") if given.only else TARGETS:
        result = out / f"{name}.json"
        if result.is_file():
            before = json.loads(result.read_text())
            if before["inputs"] >= given.runs or before["seconds"] >= given.seconds > 0:
                continue
        found = fuzz_target(name, given.runs, given.seconds, out)
        result.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
