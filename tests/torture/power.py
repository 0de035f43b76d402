# ruff: noqa: PTH100, PTH110, PTH112, PTH115, PTH120
"""Power cuts, simulated in user space: record what a program writes and flushes, then rebuild what a disk may hold.

The model: the content of a file is on the disk once it was flushed (`fsync`); else any beginning of it, or zeros, may
be. Names (created, renamed, deleted) reach the disk in order within a folder; those since the last flush of the folder
may be lost, from any one on.
"""

import builtins
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Recorder:
    """The events of a program below `root`, in order: (kind, path, more). start: the files before it ran."""

    root: Path
    start: dict[str, bytes] = field(default_factory=dict)
    events: list[tuple[str, str, Any]] = field(default_factory=list)

    def _inside(self, path: Any) -> str | None:
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        full = os.path.abspath(os.fspath(path))
        return (
            os.path.relpath(full, self.root)
            if full.startswith(f"{self.root}{os.sep}") or full == str(self.root)
            else None
        )

    def add(self, kind: str, path: Any, more: Any = None) -> None:
        """Note an event, if it is below the root."""
        inside = self._inside(path)
        if inside is not None:
            self.events.append((kind, inside, more))


@contextmanager
def recording(root: Path) -> Iterator[Recorder]:
    """Record what this process does below `root` while the block runs."""
    root = Path(os.path.realpath(root))
    recorder = Recorder(root, read_tree(root))
    real = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "unlink", "remove", "mkdir", "rmdir")}
    real_open, real_rmtree = io.open, shutil.rmtree

    def fsync(handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        path = os.readlink(f"/proc/self/fd/{number}")
        if os.path.isdir(path):
            recorder.add("flush-folder", path)
        else:
            with real_open(path, "rb") as file:
                recorder.add("flush", path, file.read())
        real["fsync"](handle)

    def renamed(name: str) -> Callable[..., None]:
        def call(source: Any, target: Any, **more: Any) -> None:
            with real_open(source, "rb") as file:
                content = file.read()
            real[name](source, target, **more)
            recorder.add("rename", source, (recorder._inside(target), content))

        return call

    def simple(name: str, kind: str) -> Callable[..., None]:
        def call(path: Any, *more: Any, **others: Any) -> None:
            real[name](path, *more, **others)
            if others.get("dir_fd") is None:
                recorder.add(kind, path)

        return call

    def rmtree(path: Any, *more: Any, **others: Any) -> None:
        found = [file for file in sorted(Path(path).rglob("*")) if file.is_file()]
        real_rmtree(path, *more, **others)
        for file in found:
            recorder.add("unlink", file)

    def open_file(file: Any, mode: str = "r", *more: Any, **others: Any) -> Any:
        made = not isinstance(file, int) and any(letter in mode for letter in "wax") and not os.path.exists(file)
        opened = real_open(file, mode, *more, **others)
        if made:
            recorder.add("create", file)
        return opened

    patches: dict[tuple[Any, str], Any] = {
        (os, "fsync"): fsync,
        (os, "replace"): renamed("replace"),
        (os, "rename"): renamed("rename"),
        (os, "unlink"): simple("unlink", "unlink"),
        (os, "remove"): simple("remove", "unlink"),
        (os, "mkdir"): simple("mkdir", "mkdir"),
        (os, "rmdir"): simple("rmdir", "rmdir"),
        (io, "open"): open_file,
        (builtins, "open"): open_file,
        (shutil, "rmtree"): rmtree,
    }
    before = {key: getattr(*key) for key in patches}
    for (module, name), patch in patches.items():
        setattr(module, name, patch)
    try:
        yield recorder
    finally:
        for (module, name), patch in before.items():
            setattr(module, name, patch)


def read_tree(root: Path) -> dict[str, bytes]:
    """The content of all files below `root`, by path."""
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


def crash(recorder: Recorder, after: int, chosen: random.Random) -> dict[str, bytes]:
    """What the disk may hold if the power fails after so many events."""
    names = {path: (path, True) for path in recorder.start}  # path -> (identity, whether its content is flushed)
    contents = dict(recorder.start)
    done = recorder.events[:after]
    flushed_at: dict[str, int] = {}
    for number, (kind, path, _) in enumerate(done):
        if kind == "flush-folder":
            flushed_at[path] = number
    lost_from: dict[str, int] = {}  # folder -> number of the first event on its names that is lost
    for number, (kind, path, _) in enumerate(done):
        folder = os.path.dirname(path) or "."
        is_name = kind in ("create", "rename", "unlink", "mkdir", "rmdir")
        flushed = number <= flushed_at.get(folder, -1)
        if is_name and not flushed and folder not in lost_from and chosen.random() < 0.3:
            lost_from[folder] = number
    for number, (kind, path, more) in enumerate(done):
        lost = number >= lost_from.get(os.path.dirname(path) or ".", len(done))
        if kind == "create" and not lost:
            names[path] = (f"{path}#{number}", False)
            contents[f"{path}#{number}"] = b""
        elif kind == "flush":
            identity = names.get(path, (f"{path}#{number}", False))[0]
            contents[identity] = more
            if path in names or not lost:
                names[path] = (identity, True)
        elif kind == "rename" and not lost:
            target, content = more
            identity, safe = names.pop(path, (f"{path}#{number}", False))
            if not safe:
                contents[identity] = content
            if target is not None:
                names[target] = (identity, safe)
        elif kind == "unlink" and not lost:
            names.pop(path, None)
    tree = {}
    for path, (identity, safe) in names.items():
        content = contents.get(identity, b"")
        tree[path] = content if safe else _torn(content, chosen)
    return tree


def _torn(content: bytes, chosen: random.Random) -> bytes:
    """What is left of a file that was not flushed."""
    length = chosen.randrange(len(content) + 1)
    return chosen.choice((b"", content[:length], content[:length] + bytes(len(content) - length), content))


def rebuild(tree: dict[str, bytes], folder: Path) -> Path:
    """Write files into an empty folder."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for path, content in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder
