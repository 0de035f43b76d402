"""Tables as text, CSV, Markdown and LaTeX: measured rows first, published rows marked as quoted."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from skypart.datasets.benchmark import Column

QUOTED = "quoted"


@dataclass(frozen=True)
class Row:
    """A method's numbers in percent; `source` names the paper's table if they are quoted, not measured here."""

    method: str
    values: dict[str, float]
    params: str | None = None
    source: str | None = None

    @property
    def origin(self) -> str:
        """`measured`, or `quoted (tab:...)`."""
        return "measured" if self.source is None else f"{QUOTED} ({self.source})"


@dataclass(frozen=True)
class Table:
    """Rows under columns, with a caption that names the protocol."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row] = field(default=())


def cell(row: Row, column: Column) -> str:
    """The number with two decimals, or a dash."""
    value = row.values.get(column.key)
    return "--" if value is None else f"{value:.2f}"


def terminal() -> Console:
    """Standard output; wide enough for every table if it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def print_table(console: Console, table: Table) -> None:
    """Print block by block: the metrics of a group in one column, quoted rows dimmed."""
    console.print(table.caption, highlight=False, style="bold", markup=False)
    for _, members in groupby(table.columns, key=lambda column: column.block):
        console.print(_block(table, list(members)))


def _block(table: Table, columns: Sequence[Column]) -> RichTable:
    groups = [list(members) for _, members in groupby(columns, key=lambda column: column.group or column.name)]
    if len(groups) == 1:  # a single group, such as a direction of DenseUAV: put its metrics side by side
        groups = [[column] for column in columns]
    shown = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("", no_wrap=True, max_width=30, overflow="ellipsis")
    for members in groups:
        names = [members[0].group, *(column.name for column in members)]
        shown.add_column("\n".join(name for name in names if name), justify="right")
    for quoted in (False, True):
        rows = [row for row in table.rows if (row.source is not None) == quoted]
        rows = [row for row in rows if any(column.key in row.values for column in columns)]
        if quoted and rows:
            shown.add_section()
            shown.add_row("quoted from the paper:", style="italic")
        for row in rows:
            cells = ["\n".join(cell(row, column) for column in members) for members in groups]
            shown.add_row(escape(row.method), *cells, style="dim" if quoted else "bold")
    return shown


def to_csv(table: Table) -> str:
    """CSV; the caption is a comment line above the headings."""
    out = io.StringIO()
    out.write(f"# {table.caption}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["method", "origin", "params", *(column.heading for column in table.columns)])
    for row in table.rows:
        writer.writerow([row.method, row.origin, row.params or "", *_csv_cells(row, table.columns)])
    return out.getvalue()


def _csv_cells(row: Row, columns: Sequence[Column]) -> list[str]:
    return ["" if column.key not in row.values else f"{row.values[column.key]:.4f}" for column in columns]


def to_markdown(table: Table) -> str:
    """A Markdown table below its caption. The best row is not marked: quoted rows follow other protocols."""
    lines = [table.caption, ""]
    lines.append(_markdown_row(["method", "origin", "params", *(column.heading for column in table.columns)]))
    lines.append(_markdown_row(["---", "---", "---", *("---:" for _ in table.columns)]))
    for row in table.rows:
        method = f"**{row.method}**" if row.source is None else row.method
        lines.append(_markdown_row([method, row.origin, row.params or "", *(cell(row, c) for c in table.columns)]))
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def to_latex(table: Table) -> str:
    """A LaTeX table (booktabs) with grouped headings; quoted rows are in italics and marked."""
    groups = [(name, len(list(members))) for name, members in groupby(table.columns, key=lambda c: c.group)]
    heads = " & ".join(f"\\multicolumn{{{width}}}{{c}}{{{_escape_tex(name)}}}" for name, width in groups)
    names = " & ".join(_escape_tex(column.name) for column in table.columns)
    body = []
    for row in table.rows:
        method = (
            f"\\textbf{{{_escape_tex(row.method)}}}"
            if row.source is None
            else f"\\textit{{{_escape_tex(row.method)}}} (quoted)"
        )
        params = _escape_tex(row.params or "")
        body.append(" & ".join([method, params, *(cell(row, column) for column in table.columns)]) + r" \\")
    return "\n".join(
        [
            "% needs \\usepackage{booktabs,graphicx}",
            r"\begin{table}[ht]",
            r"\centering",
            r"\small",
            f"\\caption{{{_escape_tex(table.caption)}}}",
            r"\resizebox{\textwidth}{!}{%",
            f"\\begin{{tabular}}{{@{{}}ll{'r' * len(table.columns)}@{{}}}}",
            r"\toprule",
            f" & & {heads} \\\\",
            f"Method & Params & {names} \\\\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _escape_tex(text: str) -> str:
    for character, escaped in (
        ("\\", r"\textbackslash{}"),
        ("&", r"\&"),
        ("%", r"\%"),
        ("_", r"\_"),
        ("#", r"\#"),
        ("$", r"\$"),
    ):
        text = text.replace(character, escaped)
    return text.replace("→", r"$\to$").replace("~", r"$\sim$")
