"""The server under load: the benchmark of docs/results/serve-load.md, shortened."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_32_clients_get_correct_responses_in_constant_memory() -> None:
    """The benchmark exits with 1 if a response is wrong, a connection breaks or memory grows."""
    command = [sys.executable, "benchmarks/serve_load.py", "--clients", "32", "--seconds", "40"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {(kind, int(status)) for kind, status in re.findall(r"^\| (\w+) \| (\d+) \|", done.stdout, re.M)}
    assert {("locate", 200), ("locate", 503)} <= counts
    assert {status for _, status in counts} == {200, 422, 503}
