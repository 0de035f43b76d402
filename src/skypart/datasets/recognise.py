"""Tell what data set stands in a folder, or say in one sentence what is wrong with the layout."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skypart.datasets import denseuav, folders, sues200, university1652
from skypart.datasets.layout import WORLD_FILE
from skypart.datasets.records import Dataset
from skypart.datasets.scan import folders_in
from skypart.errors import SkyPartError

ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")


@dataclass(frozen=True)
class Kind:
    """One reader: how to recognise its layout, and how to read it."""

    name: str
    matches: Callable[[Path], bool]
    read: Callable[[Path], Dataset]


# The order matters: DenseUAV shares University-1652's folders, raw SUES-200 looks like two plain folders.
KINDS = {
    denseuav.KIND: Kind(denseuav.NAME, denseuav.matches, denseuav.read),
    university1652.KIND: Kind(university1652.NAME, university1652.matches, university1652.read),
    sues200.KIND: Kind(sues200.NAME, sues200.matches, sues200.read),
    folders.KIND: Kind("two folders (drone, satellite)", folders.matches, folders.read),
}


def recognise(root: str | Path, kind: str | None = None) -> str:
    """The key of KINDS for `root`; with `kind` given, check that the layout is of that kind."""
    root = Path(root)
    if kind is not None and kind not in KINDS:
        raise SkyPartError(f"unknown data set kind {kind!r}; choose one of {', '.join(KINDS)}")
    _must_be_folder(root)
    _must_be_finished(root)
    found = _kind_of(root)
    if kind is not None and found != kind:
        if kind == folders.KIND and found is not None and folders.matches(root):
            return kind
        if found is not None:
            raise SkyPartError(f"{root}: this is {KINDS[found].name}, not {KINDS[kind].name}; leave the kind out")
    if found is None:
        raise SkyPartError(_why_not(root))
    return found


def open_dataset(root: str | Path, kind: str | None = None) -> Dataset:
    """Read the data set in `root`; its kind is recognised from the layout unless given."""
    return KINDS[recognise(root, kind)].read(Path(root))


def _kind_of(root: Path) -> str | None:
    return next((key for key, kind in KINDS.items() if kind.matches(root)), None)


def _must_be_folder(root: Path) -> None:
    if not root.exists():
        raise SkyPartError(f"{root}: no such folder; check the path")
    if not root.is_dir():
        cure = "unpack the archive first" if root.suffix.lower() in ARCHIVES else "pass the data set's folder"
        raise SkyPartError(f"{root}: is a file, not a folder; {cure}")


def _must_be_finished(root: Path) -> None:
    """Refuse a rendered world that is still to be drawn: it lacks its lists, and would be split otherwise."""
    try:
        world = json.loads((root / WORLD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(world, dict) and world.get("complete") is False:
        raise SkyPartError(f"{root}: this world is not finished; give its `skypart world make` command again")


def _why_not(root: Path) -> str:
    """The likeliest reason why no data set was recognised in `root`."""
    for child in folders_in(root):
        for inner in (child, *folders_in(child)):
            found = _kind_of(inner)
            if found is not None:
                return f"{root}: {KINDS[found].name} lies deeper; pass {inner}"
    for parent in list(root.resolve().parents)[:3]:
        found = _kind_of(parent)
        if found is not None:
            return f"{root}: is a part of {KINDS[found].name}; pass its top folder {parent}"
    names = sorted(path.name for path in root.iterdir())
    archives = [name for name in names if Path(name).suffix.lower() in ARCHIVES]
    if archives:
        return f"{root}: holds {', '.join(archives[:3])} but no unpacked data set; unpack and try again"
    if not names:
        return f"{root}: the folder is empty"
    shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    return (
        f"{root}: not a data set this program knows. It holds {shown}. Wanted: train/ and test/ with query_drone, "
        "gallery_satellite, ... (University-1652, DenseUAV), drone_view_512/ and satellite-view/ or Training/ and "
        "Testing/ (SUES-200), or drone/ and satellite/ with matching names"
    )
