"""The list of benchmarks, and which one a folder holds. A new benchmark is added to `KINDS` here."""

import json
from pathlib import Path

from skypart.datasets.benchmark import Benchmark
from skypart.datasets.denseuav import DenseUav
from skypart.datasets.folders import OwnFolders
from skypart.datasets.records import Dataset
from skypart.datasets.rendering import WORLD_FILE, Rendering
from skypart.datasets.scan import folders_in
from skypart.datasets.sues200 import Sues200
from skypart.datasets.university1652 import University1652
from skypart.errors import SkyPartError

ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")

KINDS: dict[str, Benchmark] = {
    benchmark.kind: benchmark for benchmark in (DenseUav(), University1652(), Sues200(), OwnFolders())
}
"""Kind -> benchmark, in the order in which layouts are tried.

The order matters: DenseUAV has the folders of University-1652, and raw SUES-200 also matches two plain folders.
"""


def register(benchmark: Benchmark) -> None:
    """Add a benchmark from outside the package; its layout is tried before all others."""
    if benchmark.kind in KINDS:
        raise SkyPartError(f"there is already a benchmark of kind {benchmark.kind!r}; choose another kind")
    known = dict(KINDS)
    KINDS.clear()
    KINDS.update({benchmark.kind: benchmark} | known)


def find_benchmark(kind: str) -> Benchmark:
    """The benchmark of `kind`."""
    if kind not in KINDS:
        raise SkyPartError(f"unknown data set kind {kind!r}; choose one of {', '.join(KINDS)}")
    return KINDS[kind]


def renderings() -> dict[str, Rendering]:
    """Value of `--like` -> how to render that layout."""
    found = [benchmark.rendering for benchmark in KINDS.values()]
    return {rendering.name: rendering for rendering in found if rendering is not None}


def find_rendering(name: str) -> Rendering:
    """The rendering called `name`."""
    known = renderings()
    if name not in known:
        raise SkyPartError(f"unknown layout {name!r}; choose one of {', '.join(known)}")
    return known[name]


def find_rendered_kind(name: str) -> str:
    """The kind of the data sets that the rendering called `name` makes."""
    rendering = find_rendering(name)
    return next(kind for kind, benchmark in KINDS.items() if benchmark.rendering == rendering)


def recognise(root: str | Path, kind: str | None = None) -> str:
    """The kind of the data set in `root`; if `kind` is given, check that the layout is of that kind."""
    root = Path(root)
    wanted = None if kind is None else find_benchmark(kind)
    _require_folder(root)
    _require_finished(root)
    found = _matching_kind(root)
    if found is None:
        raise SkyPartError(_explain_mismatch(root))
    if wanted is not None and found != wanted.kind:
        if wanted.generic and wanted.matches(root):
            return wanted.kind
        raise SkyPartError(f"{root}: this is {KINDS[found].title}, not {wanted.title}; leave the kind out")
    return found


def open_dataset(root: str | Path, kind: str | None = None) -> Dataset:
    """Read the data set in `root`; its kind is recognised from the layout unless it is given."""
    return KINDS[recognise(root, kind)].read(Path(root))


def _matching_kind(root: Path) -> str | None:
    return next((kind for kind, benchmark in KINDS.items() if benchmark.matches(root)), None)


def _require_folder(root: Path) -> None:
    if not root.exists():
        raise SkyPartError(f"{root}: no such folder; check the path")
    if not root.is_dir():
        remedy = "unpack the archive first" if root.suffix.lower() in ARCHIVES else "pass the data set's folder"
        raise SkyPartError(f"{root}: is a file, not a folder; {remedy}")


def _require_finished(root: Path) -> None:
    """Refuse a rendered world that is not finished: without its list of training ids it would be split differently."""
    try:
        world = json.loads((root / WORLD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(world, dict) and world.get("complete") is False:
        raise SkyPartError(f"{root}: this world is not finished; run its `skypart world make` command again")


def _explain_mismatch(root: Path) -> str:
    """The most likely reason why no data set was recognised in `root`, with the remedy."""
    for child in folders_in(root):
        for inner in (child, *folders_in(child)):
            found = _matching_kind(inner)
            if found is not None:
                return f"{root}: {KINDS[found].title} is in a sub-folder; pass {inner}"
    for parent in list(root.resolve().parents)[:3]:
        found = _matching_kind(parent)
        if found is not None:
            return f"{root}: is part of {KINDS[found].title}; pass its top folder {parent}"
    names = sorted(path.name for path in root.iterdir())
    archives = [name for name in names if Path(name).suffix.lower() in ARCHIVES]
    if archives:
        return f"{root}: holds {', '.join(archives[:3])} but no unpacked data set; unpack and try again"
    if not names:
        return f"{root}: the folder is empty"
    shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    known = "; ".join(f"{benchmark.title}: {benchmark.layout}" for benchmark in KINDS.values())
    return f"{root}: not a known data set. It holds {shown}. Known layouts are {known}"
