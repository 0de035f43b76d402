"""A table as it is written: cells with their shading, and four file formats."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from skypart.atomic import write_text

Mark = Literal["", "catastrophic", "large", "minor", "quoted"]
_COLOURS = {"catastrophic": "red", "large": "blue", "minor": "gray", "quoted": "gray"}


@dataclass(frozen=True)
class Cell:
    """Text of a cell, and how it is shaded."""

    text: str
    mark: Mark = ""


@dataclass(frozen=True)
class Sheet:
    """One table. name: of its files. rows: cells under the headings; `blocks` start a block before a row.

    data: the data set it is of, for summaries over several.
    """

    name: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    blocks: dict[int, str] = field(default_factory=dict)
    data: str = ""

    def to_csv(self) -> str:
        """CSV with the caption in a comment above the headings."""
        out = io.StringIO()
        out.write(f"# {self.caption}\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows([cell.text for cell in row] for row in self.rows)
        return out.getvalue()

    def to_markdown(self) -> str:
        """A Markdown table under its caption; blocks are rows of their own."""
        lines = [self.caption, "", _pipes(self.headings), _pipes(["---"] + ["---:"] * (len(self.headings) - 1))]
        for number, row in enumerate(self.rows):
            if number in self.blocks:
                lines.append(_pipes([f"**{self.blocks[number]}**"] + [""] * (len(self.headings) - 1)))
            lines.append(_pipes([f"*{c.text}*" if c.mark == "quoted" and c.text else c.text for c in row]))
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """A LaTeX table (booktabs, xcolor) with the paper's shading."""
        body: list[str] = []
        for number, row in enumerate(self.rows):
            if number in self.blocks:
                body += [
                    r"\midrule",
                    rf"\multicolumn{{{len(self.headings)}}}{{@{{}}l}}{{\textit{{{_tex(self.blocks[number])}}}}} \\",
                ]
            body.append(" & ".join(_coloured(cell) for cell in row) + r" \\")
        heads = " & ".join(rf"\textbf{{{_tex(head)}}}" for head in self.headings)
        return "\n".join(
            [
                r"% needs \usepackage{booktabs,graphicx,xcolor}",
                r"\begin{table}[ht]",
                r"\centering\small",
                rf"\caption{{{_tex(self.caption)}}}",
                r"\resizebox{\textwidth}{!}{%",
                rf"\begin{{tabular}}{{@{{}}l{'r' * (len(self.headings) - 1)}@{{}}}}",
                r"\toprule",
                heads + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}}",
                r"\end{table}",
                "",
            ]
        )

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = [[{"text": c.text, "mark": c.mark} for c in row] for row in self.rows]
        blocks = {str(number): name for number, name in self.blocks.items()}
        return {
            "name": self.name,
            "caption": self.caption,
            "headings": list(self.headings),
            "rows": rows,
            "blocks": blocks,
            "data": self.data,
        }


def write_sheets(folder: Path, sheets: Sequence[Sheet]) -> None:
    """Write every table as JSON, CSV, Markdown and LaTeX."""
    for sheet in sheets:
        write_text(folder / f"{sheet.name}.json", json.dumps(sheet.to_data(), indent=1, ensure_ascii=False) + "\n")
        write_text(folder / f"{sheet.name}.csv", sheet.to_csv())
        write_text(folder / f"{sheet.name}.md", sheet.to_markdown())
        write_text(folder / f"{sheet.name}.tex", sheet.to_latex())


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def _coloured(cell: Cell) -> str:
    text = _tex(cell.text)
    return rf"\textcolor{{{_COLOURS[cell.mark]}}}{{{text}}}" if cell.mark and text else text


_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "→": r"$\to$",
        "±": r"$\pm$",
        "Δ": r"$\Delta$",
        "−": "$-$",
    }
    | {sign: f"\\{sign}" for sign in "&%_#${}"}
)


def _tex(text: str) -> str:
    """Text as LaTeX source."""
    return text.translate(_TEX)
