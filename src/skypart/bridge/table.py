"""Fixes as a table for the terminal."""

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from skypart.bridge.output_format import OutputFormat
from skypart.bridge.values import fix_values
from skypart.position.fix import Fix

_DASH = "-"


def fix_table(fixes: Sequence[Fix]) -> Table:
    """One row per photo: position and 95 % radius, or the reason why there is no fix."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("photo", overflow="fold")
    for name in ("latitude", "longitude", "95 % within", "confidence", "heading"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for fix in map(fix_values, fixes):
        if fix["latitude"] is None:
            note = Text("no fix", style="bold yellow").append(f": {fix['reason']}", style="not bold")
        else:
            notes = [] if fix["calibrated"] else ["not calibrated"]
            if fix["drone_latitude"] is not None:
                notes.append(f"drone at {fix['drone_latitude']:.6f}, {fix['drone_longitude']:.6f}")
            note = Text("; ".join(notes))
        formats = ("latitude", ".6f"), ("longitude", ".6f"), ("radius_m", ".0f"), ("confidence", ".2f")
        cells = [_DASH if fix[name] is None else format(fix[name], spec) for name, spec in formats]
        heading = _DASH if fix["heading_deg"] is None else f"{fix['heading_deg']:.0f}\N{DEGREE SIGN}"
        cells[2] += "" if fix["radius_m"] is None else " m"
        table.add_row(Text(fix["photo"]), *cells, heading, note)
    return table


def table_text(table: Table, width: int = 140) -> str:
    """A table as plain text, without colours."""
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


FORMAT = OutputFormat(name="table", fixes=lambda fixes: table_text(fix_table(fixes)))
