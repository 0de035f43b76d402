"""`skypart data check`: count and open every image, and report what is missing, misplaced, extra or broken."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skypart.datasets.benchmark import Benchmark, Fault, ImageFolder
from skypart.datasets.records import Dataset
from skypart.datasets.registry import KINDS, recognise
from skypart.datasets.rendering import WORLD_FILE, is_rendered
from skypart.datasets.scan import abbreviate
from skypart.errors import SkyPartError
from skypart.images.decode import is_image, open_image, read_rgb
from skypart.progress import progress_bar

_CHUNK = 128
_EXPECTED_FILES = frozenset({".txt", ".csv", ".md", ".json", ".html", ".yaml", ".yml", ".toml", ".py"})
_SHOWN = 10
_HEADINGS: dict[Fault, str] = {
    "broken": "Broken (cannot be opened)",
    "missing": "Missing",
    "misplaced": "Misplaced",
    "extra": "Extra (ignored)",
}


@dataclass
class FolderCount:
    """Images per location that were found in one folder."""

    folder: ImageFolder
    images: Counter[str] = field(default_factory=Counter)


@dataclass
class CheckReport:
    """The outcome of a check; `faults` maps a type of fault to messages."""

    kind: str
    name: str
    root: Path
    counts: list[FolderCount]
    faults: dict[Fault, list[str]]
    notes: list[str]
    opened: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether training and evaluation can rely on this data: nothing broken, missing or misplaced."""
        return not (self.faults["broken"] or self.faults["missing"] or self.faults["misplaced"])


def check(root: str | Path, decode: bool = False, workers: int = 4) -> CheckReport:
    """Check the data set in `root`: read only image headers, or decode every pixel with `decode`."""
    start = perf_counter()
    root = Path(root)
    benchmark = KINDS[recognise(root)]
    faults: dict[Fault, list[str]] = {fault: [] for fault in _HEADINGS}
    counts = {folder.name: FolderCount(folder) for folder in benchmark.image_folders(root)}
    paths = list(_sort_files(root, counts, faults))
    faults["broken"] += _find_broken(root, paths, decode, workers)
    report = CheckReport(benchmark.kind, benchmark.title, root, list(counts.values()), faults, [], len(paths))
    _compare_with_release(report)
    dataset = benchmark.read(root)
    report.notes += dataset.notes
    if is_rendered(root):
        report.notes.append(f"rendered by `skypart world make` (see {WORLD_FILE})")
    for fault, message in (*inconsistencies(dataset, benchmark), *benchmark.inconsistencies(dataset)):
        faults[fault].append(message)
    report.seconds = perf_counter() - start
    return report


def _sort_files(root: Path, counts: dict[str, FolderCount], faults: dict[Fault, list[str]]) -> Iterator[str]:
    """Yield each image's path relative to `root`, after counting it in its folder or reporting it as a fault."""
    image_folders = [count.folder for count in counts.values()]
    may_be_empty = tuple(f"{folder.path}/" for folder in image_folders if not folder.used)
    above: dict[str, frozenset[str]] = {}
    for folder, subfolders, files in os.walk(root, followlinks=True):
        around, real = above.get(os.path.dirname(folder), frozenset()), os.path.realpath(folder)  # noqa: PTH120
        if real in around:  # a symbolic link to a parent folder: following it would never end
            subfolders.clear()
            continue
        above[folder] = around | {real}
        own = {"maps"} if folder == str(root) and is_rendered(root) else set()
        subfolders[:] = sorted(name for name in subfolders if name[0] != "." and name not in own)
        inside = os.path.relpath(folder, root).replace(os.sep, "/")
        prefix = "" if inside == "." else inside + "/"
        images = [name for name in sorted(files) if is_image(name)]
        faults["extra"] += [
            f"{prefix}{name}: not an image"
            for name in sorted(files)
            if not (is_image(name) or name.startswith(".") or os.path.splitext(name)[1] in _EXPECTED_FILES)  # noqa: PTH122
        ]
        if not files and not subfolders and not prefix.startswith(may_be_empty):
            faults["missing"].append(f"{prefix}: the folder is empty")
        for name in images:
            image_folder, location, problem = _find_folder(image_folders, prefix + name)
            if image_folder is None:
                faults["extra"].append(f"{prefix}{name}: outside the data set's folders")
            elif problem:
                faults["misplaced"].append(f"{prefix}{name}: {problem}")
            else:
                counts[image_folder.name].images[location] += 1
            yield prefix + name


def _find_folder(folders: list[ImageFolder], relative: str) -> tuple[ImageFolder | None, str, str]:
    """Find the image folder and the location of an image, given its path relative to the root, with slashes.

    Returns (folder or None, location, problem or "").
    """
    inside = [folder for folder in folders if relative.startswith(folder.path + "/")]
    if not inside:
        return None, "", ""
    words = relative[len(inside[0].path) + 1 :].split("/")
    if inside[0].any_depth:
        return inside[0], words[0] if len(words) > 1 else Path(words[0]).stem, ""
    if len(words) == 1:
        return inside[0], "", "is not in a location folder; move it into one"
    if not words[0].isdigit():
        return inside[0], "", f"its folder {words[0]!r} is not a location number"
    for folder in inside:
        if words[1:-1] == ([] if folder.inner is None else [folder.inner]):
            return folder, words[0], ""
    if inside[0].inner is not None:
        levels = ", ".join(folder.inner or "" for folder in inside)
        return inside[0], "", f"is in {'/'.join(words[:-1])}, not in an altitude folder ({levels})"
    return inside[0], "", "is one folder too deep"


def _find_broken(root: Path, relative: list[str], decode: bool, workers: int) -> list[str]:
    """Open (or decode) all images in a thread pool; returns an error message for each that fails."""

    def open_chunk(chunk: list[str]) -> tuple[int, list[str]]:
        messages = []
        for name in chunk:
            try:
                if decode:
                    read_rgb(root / name)
                else:
                    open_image(root / name).close()
            except (SkyPartError, OSError) as error:
                messages.append(str(error))
        return len(chunk), messages

    chunks = [relative[i : i + _CHUNK] for i in range(0, len(relative), _CHUNK)]
    broken: list[str] = []
    with ThreadPoolExecutor(workers) as pool, progress_bar() as bar:
        task = bar.add_task("decoding" if decode else "opening", total=len(relative))
        try:
            for done, messages in pool.map(open_chunk, chunks):
                broken += messages
                bar.advance(task, done)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return broken


def _compare_with_release(report: CheckReport) -> None:
    """Compare with the published counts; a reduced or rendered set gets a note instead of faults."""
    fixed = [count for count in report.counts if count.folder.published is not None and count.folder.used]
    empty = [count.folder.name for count in fixed if not count.images]
    if empty:
        report.faults["missing"].append(f"no images in {', '.join(empty)}")
    whole = [count for count in fixed if len(count.images) == _published_locations(count)]
    if len(whole) < len(fixed) and (is_rendered(report.root) or not whole):
        report.notes.append(
            "not the published release (other locations or fewer of them): a reduced or rendered set, "
            "whose results do not compare with published numbers"
        )
        return
    for count in fixed:
        fewer = _published_locations(count) - len(count.images)
        if fewer > 0 and count.images:
            report.faults["missing"].append(
                f"{count.folder.name}: {fewer:,} fewer than {_published_locations(count):,} locations"
            )
    for count in whole:
        wanted = (count.folder.published or (0, 0))[1]
        found = count.images.total()
        if found < wanted:
            report.faults["missing"].append(
                f"{count.folder.name}: {wanted - found:,} fewer than {wanted:,} images{_short_locations(count)}"
            )
        elif found > wanted:
            report.faults["extra"].append(f"{count.folder.name}: {found - wanted:,} more than {wanted:,} images")
    if whole and len(whole) == len(fixed):
        report.notes.append("locations as in the published release")


def _published_locations(count: FolderCount) -> int:
    """How many locations the published release has in this folder."""
    return (count.folder.published or (0, 0))[0]


def _short_locations(count: FolderCount) -> str:
    """The locations that have fewer images than most in their folder, as a phrase after a colon."""
    usual = Counter(count.images.values()).most_common(1)[0][0]
    by_number: dict[int, list[str]] = defaultdict(list)
    for location, number in count.images.items():
        if number < usual:
            by_number[number].append(location)
    short = [f"{location} ({number} of {usual})" for number, names in sorted(by_number.items()) for location in names]
    return ": " + ", ".join(short[:5]) + (", ..." if len(short) > 5 else "") if short else ""


def inconsistencies(dataset: Dataset, benchmark: Benchmark) -> Iterator[tuple[Fault, str]]:
    """Faults between the parts of a data set, as (fault, message): unpaired locations, leaks from training to test."""
    drone = {record.location for record in dataset.train if record.view == "drone"}
    satellite = {record.location for record in dataset.train if record.view == "satellite"}
    if drone - satellite:
        yield "missing", f"training locations without a satellite image: {abbreviate(drone - satellite)}"
    if satellite - drone:
        yield "missing", f"training locations without a drone image: {abbreviate(satellite - drone)}"
    if not dataset.tests:
        yield "missing", "nothing to test: no query and no gallery"
    tested: set[str] = set()
    for split in dataset.tests:
        queried = {record.location for record in split.query}
        in_gallery = {record.location for record in split.gallery}
        tested |= queried
        if not split.query or not split.gallery:
            yield "missing", f"{split.name}: no {'gallery' if split.query else 'query'} images"
        elif queried - in_gallery:
            absent = abbreviate(queried - in_gallery)
            yield "missing", f"{split.name}: queried locations absent from the gallery: {absent}"
    leaked = tested & (drone | satellite)
    if leaked and not benchmark.generic:
        yield "misplaced", f"locations both in training and among the queries: {abbreviate(leaked)}"


def print_report(report: CheckReport, console: Console | None = None) -> None:
    """Print counts beside the published ones, notes, and up to ten messages for each type of fault."""
    console = console or Console()
    table = Table(title=escape(f"{report.name} in {report.root}"), title_justify="left")
    table.add_column("folder")
    for column in ("locations", "published", "images", "published"):
        table.add_column(column, justify="right")
    for count in report.counts:
        published = count.folder.published
        if published is None and not count.images:
            continue
        wanted = ("-", "-") if published is None else (f"{published[0]:,}", f"{published[1]:,}")
        name = count.folder.name + ("" if count.folder.used else " (not used)")
        table.add_row(name, f"{len(count.images):,}", wanted[0], f"{count.images.total():,}", wanted[1])
    console.print(table)
    for note in report.notes:
        console.print(f"Note: {note}.", highlight=False)
    for fault, messages in report.faults.items():
        if messages:
            console.print(f"{_HEADINGS[fault]}: {len(messages):,}", style="bold")
            for message in messages[:_SHOWN]:
                console.print(f"  - {message}", highlight=False, markup=False)
            if len(messages) > _SHOWN:
                console.print(f"  ... and {len(messages) - _SHOWN:,} more")
    verdict = "no problems found" if report.ok else "this data set needs fixing"
    console.print(f"{report.opened:,} images opened in {report.seconds:.1f} s: {verdict}.", highlight=False)
