"""After a power cut at any moment, an index and a training run are in the state before or after."""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from skypart.errors import SkyPartError
from skypart.maps.index import MapIndex
from skypart.maps.manifest import IndexManifest
from skypart.training.checkpoint import Progress, load_checkpoint, newest_checkpoint, save_checkpoint
from tests.maps.makers import write_ground
from tests.maps.test_index import built, files
from tests.torture.power import Recorder, crash, read_tree, rebuild, recording

POINTS = int(os.environ.get("SKYPART_CRASH_POINTS", "120"))
CHECKPOINTS = int(os.environ.get("SKYPART_CHECKPOINT_CRASH_POINTS", "60"))


def note(name: str, counts: Counter[str]) -> None:
    """Write what was run for `make torture`, which makes a page of it."""
    out = os.environ.get("SKYPART_TORTURE_OUT")
    if out:
        (Path(out) / f"{name}.json").write_text(json.dumps(counts, indent=1) + "\n")


def crash_points(recorder: Recorder, count: int) -> list[tuple[int, random.Random]]:
    """All moments in turn, each with other random losses."""
    return [(number % (len(recorder.events) + 1), random.Random(number)) for number in range(count)]


@pytest.mark.slow
def test_an_index_is_in_the_state_before_or_after(tmp_path: Path) -> None:
    (tmp_path / "maps").mkdir()
    first = write_ground(tmp_path / "maps" / "first.tif")
    second = write_ground(tmp_path / "maps" / "second.tif", around=(33.66, 72.99))
    folder = tmp_path / "disk" / "i"
    built(folder, first)
    before = IndexManifest.read(folder)
    views = MapIndex(folder).store.stats().views
    with recording(tmp_path / "disk") as recorder:
        built(folder, second)
    after, whole = IndexManifest.read(folder), files(folder)
    assert {"flush", "rename", "flush-folder"} <= {kind for kind, *_ in recorder.events}
    counts: Counter[str] = Counter(events=len(recorder.events))
    for moment, chosen in crash_points(recorder, POINTS):
        found = rebuild(crash(recorder, moment, chosen), tmp_path / "crashed") / "i"
        index = MapIndex(found)
        assert index.manifest in (before, after)
        index.store.verify()
        assert index.store.stats().views >= views
        counts["points"] += 1
        counts["state before" if index.manifest == before else "state after"] += 1
        index.store.close()
        if counts["points"] % 10 == 0:
            built(found, second)
            assert files(found).keys() >= whole.keys()
            assert IndexManifest.read(found) == after
            counts["resumed"] += 1
    assert counts["state before"] and counts["state after"]
    note("power-index", counts)


@pytest.mark.slow
def test_a_new_index_can_be_made_after_a_power_cut(tmp_path: Path) -> None:
    (tmp_path / "maps").mkdir()
    (tmp_path / "disk").mkdir()
    town = write_ground(tmp_path / "maps" / "town.tif")
    with recording(tmp_path / "disk") as recorder:
        built(tmp_path / "disk" / "i", town)
    whole = IndexManifest.read(tmp_path / "disk" / "i")
    counts: Counter[str] = Counter(events=len(recorder.events))
    for moment, chosen in crash_points(recorder, max(POINTS // 10, len(recorder.events) + 1)):
        found = rebuild(crash(recorder, moment, chosen), tmp_path / "crashed") / "i"
        built(found, town)
        assert IndexManifest.read(found) == whole
        counts["points"] += 1
    note("power-new-index", counts)


def test_a_checkpoint_is_the_one_before_or_after(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    optimiser = AdamW(module.parameters())
    run = tmp_path / "run"

    def save(step: int) -> None:
        with torch.no_grad():
            module.weight.fill_(float(step))
        save_checkpoint(run, {"model": module}, optimiser, Progress(step=step), {}, 2)

    for step in (1, 2):
        save(step)
    start = read_tree(run)
    with recording(run) as recorder:
        save(3)
        save(4)
    assert recorder.start == start
    counts: Counter[str] = Counter(events=len(recorder.events))
    for moment, chosen in crash_points(recorder, CHECKPOINTS):
        found = rebuild(crash(recorder, moment, chosen), tmp_path / "crashed")
        newest = newest_checkpoint(found)
        assert newest is not None, "every checkpoint is lost"
        progress = load_checkpoint(newest, {"model": module}, optimiser)
        assert progress.step in (2, 3, 4) and torch.all(module.weight == progress.step)
        counts["points"] += 1
        counts[f"step {progress.step}"] += 1
    assert len([key for key in counts if key.startswith("step")]) == 3
    note("power-checkpoints", counts)


def test_the_simulation_loses_what_is_not_flushed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with recording(tmp_path / "disk") as recorder:
        (tmp_path / "disk" / "careless.txt").write_text("x" * 100)
        (tmp_path / "disk" / "careless.txt").rename(tmp_path / "disk" / "done.txt")
    found = [crash(recorder, len(recorder.events), random.Random(seed)) for seed in range(50)]
    assert any(tree.get("done.txt") == b"x" * 100 for tree in found)
    assert any(len(tree.get("done.txt", b"x" * 100)) < 100 for tree in found)
    assert any("done.txt" not in tree for tree in found)


def test_bad_input_is_still_an_error_while_recording(tmp_path: Path) -> None:
    with recording(tmp_path), pytest.raises(SkyPartError):
        IndexManifest.read(tmp_path / "none")
