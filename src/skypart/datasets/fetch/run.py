"""`skypart data fetch`: download a map set by name and write its folder, with the licence, atomically."""

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
from skypart.datasets.fetch.parts import DownloadPart
from skypart.datasets.fetch.reference import compare, load_reference
from skypart.datasets.fetch.sets import SETS, MapSet
from skypart.datasets.fetch.web import RetryPolicy
from skypart.errors import SkyPartError


def fetch(name: str, out: Path, report: Callable[[str], None] = print) -> list[Path]:
    """Fetch the set called `name`, or `all`, into folders in `out`; returns them. A stopped call can be resumed."""
    if name != "all" and name not in SETS:
        raise SkyPartError(f"no data set called {name!r}; choose one of {', '.join(SETS)}, or all")
    chosen = SETS.values() if name == "all" else [SETS[name]]
    return [fetch_set(each, out, load_reference(each.name), report) for each in chosen]


def fetch_set(
    dataset: MapSet,
    out: Path,
    expected: dict[str, Any],
    report: Callable[[str], None] = print,
    hosts: Hosts = Hosts(),
    retries: RetryPolicy = RetryPolicy(),
) -> Path:
    """Download, verify, make and compare one set; its folder appears in `out` only when it is complete.

    expected: see `reference.load_reference`. Work in progress is in a hidden folder, from which a later call resumes.
    """
    target, work = out / dataset.folder, out / f".{dataset.folder}.part"
    if target.is_dir():
        shutil.rmtree(work, ignore_errors=True)  # left by a call that was interrupted at its very end
        report(f"{target}: already exists; {compare(target, expected)}")
        return target
    report(f"{dataset.name}: {dataset.what}\nlicence: {dataset.licence}. {dataset.terms}")
    made = work / "made"
    _make_folder(made)
    for part in dataset.parts:
        _make_part(part, dataset.name, work, made, hosts, retries)
    comparison = compare(made, expected)
    write_text(made / "LICENSE", f"{dataset.licence}\n{dataset.terms}\n")
    write_text(made / "PROVENANCE.txt", _provenance(dataset, str(comparison)))
    try:
        made.replace(target)
        shutil.rmtree(work)
    except OSError as error:
        raise SkyPartError(f"cannot write {target}: {error.strerror or error}; choose another folder") from error
    report(f"{target}: {comparison}")
    return target


def _make_folder(folder: Path) -> None:
    """Create the folder, or remove temporary files that a killed call left in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(folder)
    except OSError as error:
        raise SkyPartError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from error


def _make_part(part: DownloadPart, title: str, work: Path, made: Path, hosts: Hosts, retries: RetryPolicy) -> None:
    """Download the files of a part and make its maps."""
    snapshot = part.snapshot
    sources = work / snapshot.repository.replace("/", "-")
    listing = list_files(snapshot, work / f"{sources.name}-{snapshot.commit}.json", hosts, retries)

    def get(path: str) -> Path:
        if path not in listing:
            raise SkyPartError(f"{snapshot.address}: {path} no longer exists; the source has changed")
        download(listing[path], sources / path, retries)
        return sources / path

    files = {path: sources / path for path in part.select_files(listing, get)}
    download_all({file: listing[path] for path, file in files.items()}, title, retries)
    part.make_maps(files, made)


def _provenance(dataset: MapSet, comparison: str) -> str:
    """The text of PROVENANCE.txt."""
    sources = "\n".join(f"Source : {address}" for address in dataset.sources)
    checks = "every source file by size and git hash; the result against the reference: " + comparison
    return f"{sources}\nContent: {dataset.what}\nChange : {dataset.change}\nChecked: {checks}\n"


def print_sets() -> None:
    """Print the sets that can be fetched."""
    table = Table()
    for title in ("name", "what", "licence", "download"):
        table.add_column(title, overflow="fold")
    for each in SETS.values():
        table.add_row(*map(Text, (each.name, each.what, each.licence, f"about {each.megabytes:,} MB")))
    Console().print(table)
