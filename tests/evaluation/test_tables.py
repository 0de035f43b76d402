import csv
import io

from rich.console import Console

from skypart.datasets.benchmark import Column
from skypart.evaluation.tables import Row, Table, print_table, to_csv, to_latex, to_markdown

TABLE = Table(
    "A 50 % caption with under_scores & arrows →",
    [Column("D→S 150m", "R@1", "a", "D2S"), Column("D→S 150m", "AP", "b", "D2S"), Column("S→D", "R@1", "c", "S2D")],
    [Row("ours", {"a": 12.3456, "b": 100.0}), Row("A|B (X'24)", {"a": 1.0, "c": 99.995}, "9 M", "tab:one")],
)


def test_csv_keeps_four_digits_and_origin() -> None:
    text = to_csv(TABLE)
    assert text.startswith("# A 50 % caption")
    rows = list(csv.reader(text.splitlines()[1:]))
    assert rows[0] == ["method", "origin", "params", "D→S 150m R@1", "D→S 150m AP", "S→D R@1"]
    assert rows[1] == ["ours", "measured", "", "12.3456", "100.0000", ""]
    assert rows[2] == ["A|B (X'24)", "quoted (tab:one)", "9 M", "1.0000", "", "99.9950"]


def test_markdown_rows_have_the_same_number_of_cells() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[0] == TABLE.caption
    assert "A\\|B" in lines[-1] and "quoted (tab:one)" in lines[-1] and "**ours**" in lines[-2]
    assert {line.replace("\\|", "").count("|") for line in lines[2:]} == {7}


def test_latex_is_escaped_and_balanced() -> None:
    text = to_latex(TABLE)
    assert r"A 50 \% caption with under\_scores \& arrows $\to$" in text
    assert text.count("{") == text.count("}")
    assert r"\multicolumn{2}{c}{D$\to$S 150m} & \multicolumn{1}{c}{S$\to$D}" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in body} == {4}
    assert "(quoted)" in text


def test_terminal_shows_blocks_and_marks_quoted_rows() -> None:
    console = Console(file=io.StringIO(), width=100)
    print_table(console, TABLE)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    first, second = text.split("S→D", 1)
    assert "12.35" in first and "100.00" in first and "quoted from the paper:" in first
    assert "ours" not in second and "A|B" in second  # no number of ours in that block
