"""`skypart data check`: count, open every image, and say in plain words what is missing, extra or broken."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Literal, TypeAlias

from skypart.datasets import folders, university1652
from skypart.datasets.consistency import inconsistencies
from skypart.datasets.layout import WORLD_FILE, Part, parts_of, place
from skypart.datasets.recognise import KINDS, recognise
from skypart.errors import SkyPartError
from skypart.images.decode import is_image, open_image, read_rgb
from skypart.progress import progress_bar

Fault: TypeAlias = Literal["broken", "missing", "misplaced", "extra"]
_CHUNK = 128
_EXPECTED_FILES = frozenset({".txt", ".csv", ".md", ".json", ".html", ".yaml", ".yml", ".toml", ".py"})


@dataclass
class PartCount:
    """What was found in one part: images per location."""

    part: Part
    images: Counter[str] = field(default_factory=Counter)


@dataclass
class CheckReport:
    """The outcome of a check; `faults` maps a kind of fault to plain sentences."""

    kind: str
    name: str
    root: Path
    counts: list[PartCount]
    faults: dict[Fault, list[str]]
    notes: list[str]
    opened: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether training and evaluation can rely on this data: nothing broken, missing or misplaced."""
        return not (self.faults["broken"] or self.faults["missing"] or self.faults["misplaced"])


def check(root: str | Path, decode: bool = False, workers: int = 4) -> CheckReport:
    """Check the data set in `root`; headers only, or every pixel with `decode`."""
    start = perf_counter()
    root = Path(root)
    kind = recognise(root)
    faults: dict[Fault, list[str]] = {"broken": [], "missing": [], "misplaced": [], "extra": []}
    counts = {part.name: PartCount(part) for part in parts_of(kind, root)}
    paths = list(_sort_files(root, kind, counts, faults))
    faults["broken"] += _broken(root, paths, decode, workers)
    report = CheckReport(kind, KINDS[kind].name, root, list(counts.values()), faults, [], len(paths))
    _compare(report)
    dataset = KINDS[kind].read(root)
    report.notes += dataset.notes
    if (root / WORLD_FILE).is_file():
        report.notes.append(f"rendered by `skypart world make` (see {WORLD_FILE})")
    for fault, sentence in inconsistencies(dataset):
        faults[fault].append(sentence)
    report.seconds = perf_counter() - start
    return report


def _sort_files(root: Path, kind: str, counts: dict[str, PartCount], faults: dict[Fault, list[str]]) -> Iterator[str]:
    """Yield each image's path relative to `root`, counted into its part or reported."""
    parts = [count.part for count in counts.values()]
    above: dict[str, frozenset[str]] = {}
    for folder, subfolders, files in os.walk(root, followlinks=True):
        around, real = above.get(os.path.dirname(folder), frozenset()), os.path.realpath(folder)  # noqa: PTH120
        if real in around:  # a link back to a folder that holds it would never end
            subfolders.clear()
            continue
        above[folder] = around | {real}
        own = {"maps"} if folder == str(root) and (root / WORLD_FILE).is_file() else set()
        subfolders[:] = sorted(name for name in subfolders if name[0] != "." and name not in own)
        inside = os.path.relpath(folder, root).replace(os.sep, "/")
        prefix = "" if inside == "." else inside + "/"
        images = [name for name in sorted(files) if is_image(name)]
        faults["extra"] += [
            f"{prefix}{name}: not an image"
            for name in sorted(files)
            if not (is_image(name) or name.startswith(".") or os.path.splitext(name)[1] in _EXPECTED_FILES)  # noqa: PTH122
        ]
        if not files and not subfolders and not _may_be_empty(prefix):
            faults["missing"].append(f"{prefix}: the folder is empty")
        for name in images:
            part, location, complaint = place(parts, prefix + name, loose=kind == folders.KIND)
            if part is None:
                faults["extra"].append(f"{prefix}{name}: outside the data set's folders")
            elif complaint:
                faults["misplaced"].append(f"{prefix}{name}: {complaint}")
            else:
                counts[part.name].images[location] += 1
            yield prefix + name


def _may_be_empty(prefix: str) -> bool:
    return any(prefix.startswith(part + "/") for part in university1652.UNUSED_PARTS)


def _broken(root: Path, relative: list[str], decode: bool, workers: int) -> list[str]:
    """Open (or decode) all images in a thread pool; one sentence for each that fails."""

    def open_chunk(chunk: list[str]) -> tuple[int, list[str]]:
        complaints = []
        for name in chunk:
            try:
                if decode:
                    read_rgb(root / name)
                else:
                    open_image(root / name).close()
            except (SkyPartError, OSError) as error:
                complaints.append(str(error))
        return len(chunk), complaints

    chunks = [relative[i : i + _CHUNK] for i in range(0, len(relative), _CHUNK)]
    broken: list[str] = []
    with ThreadPoolExecutor(workers) as pool, progress_bar() as bar:
        task = bar.add_task("decoding" if decode else "opening", total=len(relative))
        try:
            for done, complaints in pool.map(open_chunk, chunks):
                broken += complaints
                bar.advance(task, done)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return broken


def _compare(report: CheckReport) -> None:
    """Compare with the published counts; a smaller set (reduced or rendered) is noted, not blamed."""
    fixed = [count for count in report.counts if count.part.official is not None and count.part.used]
    absent = [count.part.name for count in fixed if not count.images]
    if absent:
        report.faults["missing"].append(f"no image at all in {', '.join(absent)}")
    whole = [count for count in fixed if len(count.images) == _official_locations(count)]
    rendered = (report.root / WORLD_FILE).is_file()
    if len(whole) < len(fixed) and (rendered or not whole):
        report.notes.append(
            "not the published release (other locations or fewer of them): a reduced or rendered set, "
            "whose results do not compare with published numbers"
        )
        return
    for count in fixed:
        lacking = _official_locations(count) - len(count.images)
        if lacking > 0 and count.images:
            report.faults["missing"].append(
                f"{count.part.name}: {lacking:,} fewer than {_official_locations(count):,} locations"
            )
    for count in whole:
        wanted = (count.part.official or (0, 0))[1]
        found = count.images.total()
        if found < wanted:
            report.faults["missing"].append(
                f"{count.part.name}: {wanted - found:,} fewer than {wanted:,} images{_short(count)}"
            )
        elif found > wanted:
            report.faults["extra"].append(f"{count.part.name}: {found - wanted:,} more than {wanted:,} images")
    if whole and len(whole) == len(fixed):
        report.notes.append("locations as in the published release")


def _official_locations(count: PartCount) -> int:
    """How many locations the published release has in this part."""
    return (count.part.official or (0, 0))[0]


def _short(count: PartCount) -> str:
    """Name the locations that have fewer images than is usual in their part."""
    usual = Counter(count.images.values()).most_common(1)[0][0]
    by_number: dict[int, list[str]] = defaultdict(list)
    for location, number in count.images.items():
        if number < usual:
            by_number[number].append(location)
    short = [f"{location} ({number} of {usual})" for number, names in sorted(by_number.items()) for location in names]
    return ": " + ", ".join(short[:5]) + (", ..." if len(short) > 5 else "") if short else ""
