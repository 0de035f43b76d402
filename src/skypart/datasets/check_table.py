"""Print a check's report for people."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skypart.datasets.check import CheckReport

_SHOWN = 10
_WORDS = {
    "broken": "Broken (cannot be opened)",
    "missing": "Missing",
    "misplaced": "Misplaced",
    "extra": "Extra (ignored)",
}


def print_report(report: CheckReport, console: Console | None = None) -> None:
    """Print counts beside the published ones, notes, and up to ten sentences for each kind of fault."""
    console = console or Console()
    table = Table(title=escape(f"{report.name} in {report.root}"), title_justify="left")
    table.add_column("part")
    for column in ("locations", "published", "images", "published"):
        table.add_column(column, justify="right")
    for count in report.counts:
        official = count.part.official
        if official is None and not count.images:
            continue
        wanted = ("-", "-") if official is None else (f"{official[0]:,}", f"{official[1]:,}")
        name = count.part.name + ("" if count.part.used else " (not used)")
        table.add_row(name, f"{len(count.images):,}", wanted[0], f"{count.images.total():,}", wanted[1])
    console.print(table)
    for note in report.notes:
        console.print(f"Note: {note}.", highlight=False)
    for fault, sentences in report.faults.items():
        if sentences:
            console.print(f"{_WORDS[fault]}: {len(sentences):,}", style="bold")
            for sentence in sentences[:_SHOWN]:
                console.print(f"  - {sentence}", highlight=False, markup=False)
            if len(sentences) > _SHOWN:
                console.print(f"  ... and {len(sentences) - _SHOWN:,} more")
    verdict = "all well" if report.ok else "this data set needs mending"
    console.print(f"{report.opened:,} images opened in {report.seconds:.1f} s: {verdict}.", highlight=False)
