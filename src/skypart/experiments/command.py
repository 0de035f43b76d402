"""`skypart experiment` from the options to the files and the summary on the screen."""

from rich.console import Console
from rich.table import Table as RichTable

from skypart.experiments.figures import draw_figures
from skypart.experiments.jobs import Options
from skypart.experiments.run import Comparison, run_experiment
from skypart.experiments.sheet import Sheet, write_sheets
from skypart.experiments.tables import build_sheets


def run_command(name: str, options: Options) -> Comparison | None:
    """Run a comparison, write its tables and figures, print the headline."""
    found = run_experiment(name, options)
    if found is None:
        return None
    sheets = build_sheets(found)
    write_sheets(options.out / "tables", sheets)
    figures = draw_figures(options.out / "figures", found)
    console = Console()
    for sheet in sheets:
        if sheet.name in ("headline", "differences"):
            print_sheet(console, sheet)
    drawn = f", {len(figures)} figures" if figures else ""
    console.print(f"wrote {options.out}: {len(sheets)} tables{drawn}", soft_wrap=True, markup=False, highlight=False)
    return found


def print_sheet(console: Console, sheet: Sheet) -> None:
    """Print a table on the terminal."""
    console.print(sheet.caption, style="bold", highlight=False, markup=False)
    table = RichTable(*sheet.headings, padding=0)
    table.columns[0].overflow, table.columns[0].min_width = "fold", 12  # "(quoted)" must not be cut off
    styles = {"catastrophic": "red", "large": "blue", "minor": "dim", "quoted": "dim italic", "": ""}
    for number, row in enumerate(sheet.rows):
        if number in sheet.blocks:
            table.add_section()
            table.add_row(sheet.blocks[number], style="italic")
        table.add_row(*(f"[{styles[c.mark]}]{c.text}[/]" if c.mark and c.text else c.text for c in row))
    console.print(table)
