"""Every call to the file system fails in turn: what was there before still opens, and the error names the file."""

import builtins
import errno
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.maps.index import MapIndex, remove_map
from skypart.maps.manifest import IndexManifest
from skypart.training.checkpoint import Progress, load_checkpoint, newest_checkpoint, save_checkpoint
from tests.maps.makers import write_ground
from tests.maps.test_index import built
from tests.torture.test_power_loss import note

CALLS = ("open", "write", "fsync", "replace", "unlink", "mkdir")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EMFILE)
ALL = bool(os.environ.get("SKYPART_TORTURE_OUT"))
"""Whether every call fails with every error; else the errors take turns."""


class Failing:
    """Lets the n-th call of one kind below a folder fail. calls: how many there were; seen: of every kind."""

    def __init__(self, kind: str, number: int, code: int, root: Path) -> None:
        self.kind, self.number, self.code, self.root = kind, number, code, str(root)
        self.calls = 0
        self.seen: Counter[str] = Counter()

    def check(self, kind: str, path: Any) -> None:
        """Count a call; raise if it is the one to fail."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")  # noqa: PTH115
        if not str(path).startswith(self.root):
            return
        self.seen[kind] += 1
        if kind == self.kind:
            self.calls += 1
            if self.calls == self.number:
                named = () if kind in ("write", "fsync") else (str(path),)  # the kernel gives no name for open files
                raise OSError(self.code, os.strerror(self.code), *named)

    @property
    def happened(self) -> bool:
        """Whether the call to fail was reached."""
        return self.calls >= self.number


class WatchedFile:
    """A file opened for writing whose `write` may fail."""

    def __init__(self, file: Any, path: str, failing: Failing) -> None:
        self._file, self._path, self._failing = file, path, failing

    def write(self, data: Any) -> Any:
        self._failing.check("write", self._path)
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "WatchedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)


@contextmanager
def failing_calls(kind: str, number: int, code: int, root: Path) -> Iterator[Failing]:
    """While the block runs, the call of that number and kind below `root` fails."""
    failing = Failing(kind, number, code, root)
    names = {"fsync": "fsync", "replace": "replace", "rename": "replace", "mkdir": "mkdir"}
    names |= {"unlink": "unlink", "remove": "unlink"}
    real = {name: getattr(os, name) for name in names}
    real_open = io.open

    def wrap(name: str) -> Callable[..., Any]:
        def call(first: Any, *more: Any, **others: Any) -> Any:
            failing.check(names[name], first)
            return real[name](first, *more, **others)

        return call

    def opened(file: Any, mode: str = "r", *more: Any, **others: Any) -> Any:
        if isinstance(file, int) or not any(letter in mode for letter in "wax+"):
            if not isinstance(file, int):
                failing.check("open", file)
            return real_open(file, mode, *more, **others)
        failing.check("open", file)
        return WatchedFile(real_open(file, mode, *more, **others), str(file), failing)

    for name in names:
        setattr(os, name, wrap(name))
    io.open = builtins.open = opened
    try:
        yield failing
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        io.open = builtins.open = real_open


def every_failure(root: Path, work: Callable[[], object], check: Callable[[bool], None]) -> Counter[str]:
    """Repeat `work` with one failing call after the other, until none is left. check: gets whether `work` succeeded."""
    counts: Counter[str] = Counter()
    for kind in CALLS:
        for turn, code in enumerate(ERRORS):
            number = 1 if ALL else 1 + turn
            while True:
                succeeded = True
                with failing_calls(kind, number, code, root) as failing:
                    try:
                        work()
                    except SkyPartError as error:
                        succeeded = False
                        message = str(error)
                        assert str(root) in message and ";" in message and "\n" not in message, message
                if not failing.happened:
                    check(succeeded)  # also restores the state before `work`
                    break
                counts[f"{kind} failures"] += 1
                counts["errors" if not succeeded else "survived"] += 1
                try:
                    check(succeeded)
                except AssertionError as error:
                    raise AssertionError(f"after call {number} of {kind} failed with {os.strerror(code)}") from error
                number += 1 if ALL else len(ERRORS)
    return counts


@pytest.mark.slow
def test_indexing_survives_every_failing_call(tmp_path: Path) -> None:
    (tmp_path / "maps").mkdir()
    first = write_ground(tmp_path / "maps" / "first.tif")
    second = write_ground(tmp_path / "maps" / "second.tif", around=(33.66, 72.99))
    folder = tmp_path / "i"
    built(folder, first)
    before = {entry.name for entry in IndexManifest.read(folder).maps}

    def check(succeeded: bool) -> None:
        index = MapIndex(folder)
        names = {entry.name for entry in index.manifest.maps}
        assert names in (before, before | {"second"})
        index.store.verify()
        index.store.close()
        if "second" in names:
            remove_map(folder, "second")

    counts = every_failure(folder, lambda: built(folder, second), check)
    assert counts["errors"] > 20
    built(folder, second)
    assert {entry.name for entry in IndexManifest.read(folder).maps} == before | {"second"}
    note("io-index", counts)


def test_checkpoints_survive_every_failing_call(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    optimiser = AdamW(module.parameters())
    run = tmp_path / "run"
    steps = iter(range(1, 10_000))

    def save() -> None:
        step = next(steps)
        with torch.no_grad():
            module.weight.fill_(float(step))
        save_checkpoint(run, {"model": module}, optimiser, Progress(step=step), {}, 2)

    save()

    def check(succeeded: bool) -> None:
        newest = newest_checkpoint(run)
        assert newest is not None
        progress = load_checkpoint(newest, {"model": module}, optimiser)
        assert torch.all(module.weight == progress.step)

    counts = every_failure(run, save, check)
    assert counts["errors"] >= 2
    note("io-checkpoints", counts)


def test_a_written_file_survives_every_failing_call(tmp_path: Path) -> None:
    """What `embed`, `evaluate`, `calibrate` and `track` write goes through `skypart.atomic`."""
    file = tmp_path / "folder" / "track.json"
    write_text(file, "before")

    def check(succeeded: bool) -> None:
        assert file.read_text() == ("after" if succeeded else "before")
        assert list(file.parent.iterdir()) == [file] or not succeeded
        write_text(file, "before")

    counts = every_failure(tmp_path / "folder", lambda: write_text(file, "after", durable=False), check)
    assert counts["errors"] >= 4
    note("io-files", counts)


def test_the_failures_are_real(tmp_path: Path) -> None:
    with failing_calls("write", 2, errno.ENOSPC, tmp_path):
        (tmp_path / "a").write_text("first")
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "b").write_text("second")
    (tmp_path / "b").write_text("third")
    assert json.loads("1") == 1
