"""`skypart data fetch`: from a name to a folder of maps with its licence beside it, whole or not at all."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from skypart.atomic import remove_stale_temporaries, write_text
from skypart.datasets.fetch.download import download, download_all
from skypart.datasets.fetch.github import Hosts, list_files
from skypart.datasets.fetch.parts import Part
from skypart.datasets.fetch.reference import compare, pinned
from skypart.datasets.fetch.sets import SETS, DataSet
from skypart.datasets.fetch.web import Patience
from skypart.errors import SkyPartError


def fetch(name: str, out: Path, tell: Callable[[str], None] = print) -> list[Path]:
    """Get the set called `name`, or `all`, into folders below `out`; returns these. Stop and start again at will."""
    if name != "all" and name not in SETS:
        raise SkyPartError(f"no data set called {name!r}; choose one of {', '.join(SETS)}, or all")
    chosen = SETS.values() if name == "all" else [SETS[name]]
    return [fetch_set(each, out, pinned(each.name), tell) for each in chosen]


def fetch_set(
    dataset: DataSet,
    out: Path,
    expected: dict[str, Any],
    tell: Callable[[str], None] = print,
    hosts: Hosts = Hosts(),
    patience: Patience = Patience(),
) -> Path:
    """Download, check, make and compare one set; it stands in `out` only when all of that is done.

    expected: see `reference.pinned`. Until then everything lies in a hidden folder beside, which a broken-off call
    leaves for the next one.
    """
    target, work = out / dataset.folder, out / f".{dataset.folder}.part"
    if target.is_dir():
        shutil.rmtree(work, ignore_errors=True)  # of a call that was broken off at its very end
        tell(f"{target}: already there; {compare(target, expected)}")
        return target
    tell(f"{dataset.name}: {dataset.what}\nlicence: {dataset.licence}. {dataset.terms}")
    made = work / "made"
    _make_folder(made)
    for part in dataset.parts:
        _make_part(part, dataset.name, work, made, hosts, patience)
    comparison = compare(made, expected)
    write_text(made / "LICENSE", f"{dataset.licence}\n{dataset.terms}\n")
    write_text(made / "PROVENANCE.txt", _provenance(dataset, str(comparison)))
    try:
        made.replace(target)
        shutil.rmtree(work)
    except OSError as error:
        raise SkyPartError(f"cannot write {target}: {error.strerror or error}; choose another place") from error
    tell(f"{target}: {comparison}")
    return target


def _make_folder(folder: Path) -> None:
    """Make the folder, or clear it of the files a killed call was writing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(folder)
    except OSError as error:
        raise SkyPartError(f"cannot write {folder}: {error.strerror or error}; choose another place") from error


def _make_part(part: Part, title: str, work: Path, made: Path, hosts: Hosts, patience: Patience) -> None:
    """Get what a part needs and make its maps."""
    snapshot = part.snapshot
    sources = work / snapshot.repository.replace("/", "-")
    listing = list_files(snapshot, work / f"{sources.name}-{snapshot.commit}.json", hosts, patience)

    def get(path: str) -> Path:
        if path not in listing:
            raise SkyPartError(f"{snapshot.address}: {path} is not there any more; the source has changed")
        download(listing[path], sources / path, patience)
        return sources / path

    files = {path: sources / path for path in part.choose(listing, get)}
    download_all({file: listing[path] for path, file in files.items()}, title, patience)
    part.make(files, made)


def _provenance(dataset: DataSet, comparison: str) -> str:
    """The text that goes beside the maps."""
    sources = "\n".join(f"Source : {address}" for address in dataset.sources)
    checks = "every source file by size and git hash; the result against the reference: " + comparison
    return f"{sources}\nContent: {dataset.what}\nChange : {dataset.change}\nChecked: {checks}\n"


def print_sets() -> None:
    """Print what can be fetched."""
    table = Table()
    for title in ("name", "what", "licence", "download"):
        table.add_column(title, overflow="fold")
    for each in SETS.values():
        table.add_row(*map(Text, (each.name, each.what, each.licence, f"about {each.megabytes:,} MB")))
    Console().print(table)
