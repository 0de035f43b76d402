"""What an engine reports while it works, and how far it may run ahead of the process that writes."""

import io
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from skypart.maps.engines import ViewProgress, ray_data
from skypart.maps.engines.ray_data import RayEngine


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, to be set by the test."""
    now = [1000.0]
    monkeypatch.setattr("skypart.maps.engines.progress.time.monotonic", lambda: now[0])
    return now


def report(progress: ViewProgress, clock: list[float], steps: list[tuple[float, int]]) -> None:
    for seconds, views in steps:
        clock[0] += seconds
        progress.advance(views)


def test_batch_job_prints_speed_and_time_left_once_a_minute(clock: list[float]) -> None:
    output = io.StringIO()
    with Progress(console=Console(file=output, force_terminal=False, width=200)) as bar:
        progress = ViewProgress("town", 1000, bar)
        report(progress, clock, [(5, 400), (30, 128), (29, 0), (1, 112), (30, 60), (31, 0)])
    lines = [line for line in output.getvalue().splitlines() if line.startswith("indexing town: ")]
    assert lines == [
        "indexing town: 640 of 1,000 views, 4.0 views/s, 0:01:30 left",
        "indexing town: 700 of 1,000 views, 2.5 views/s, 0:02:01 left",
    ], "views that were finished before do not count for the speed"


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (False, True)])
def test_no_lines_on_a_terminal_or_when_quiet(clock: list[float], terminal: bool, quiet: bool) -> None:
    output = io.StringIO()
    with Progress(console=Console(file=output, force_terminal=terminal, width=200), disable=quiet) as bar:
        report(ViewProgress("town", 1000, bar), clock, [(0, 0), (100, 100), (100, 100)])
    assert "views/s" not in output.getvalue()


def test_bar_of_slow_blocks_has_a_speed() -> None:
    """A block of a slow worker takes longer than the 30 seconds over which rich averages."""
    now = [0.0]
    bar = Progress(console=Console(file=io.StringIO()), get_time=lambda: now[0])
    progress = ViewProgress("town", 1000, bar)
    for _ in range(4):
        progress.advance(128)
        now[0] += 100.0
    assert bar.tasks[0].speed == pytest.approx(1.28)


def test_workers_are_held_back_while_the_writer_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that wait for the writer are bounded, however many there are in all."""
    made: list[int] = []

    class Rows:
        def iter_batches(self, **_: object) -> Iterator[dict[str, Any]]:
            for number in range(500):
                made.append(number)
                vectors = np.full((2, 4), number, dtype=np.float16)
                table = np.zeros((2, 4))
                yield {
                    "block": [number],
                    "vectors": [vectors.tobytes()],
                    "footprints": [table.tobytes()],
                    "tokens": [b""],
                    "shape": [np.zeros(2, dtype=np.int64).tobytes()],
                }

    class Job:
        device = "cpu"

        class embedder:  # noqa: N801
            dim = 4

    engine = RayEngine(None, started=False)
    monkeypatch.setattr(engine, "_dataset", lambda *_: Rows())
    stream = engine._stream(Job(), [])  # type: ignore[arg-type]
    found = [next(stream)]
    time.sleep(0.5)
    ahead = len(made)
    assert 1 < ahead <= ray_data.WAITING + 3
    found += stream
    assert [number for number, _ in found] == list(range(500))
    assert all((block.vectors == number).all() for number, block in found)
