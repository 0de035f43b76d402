"""The worked example of docs/extending.md, "A new output format", runs."""

import runpy
from pathlib import Path

import pytest

from skypart.bridge import formats
from skypart.bridge.output_format import OutputFormat
from skypart.errors import SkyPartError
from tests.bridge.examples import BAD, CROSSING, EDGE, TRACK

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "wkt_format.py"


@pytest.fixture
def wkt(monkeypatch: pytest.MonkeyPatch) -> OutputFormat:
    """The format of the example, registered for one test."""
    monkeypatch.setattr(formats, "_formats", dict(formats._formats))
    format = runpy.run_path(str(EXAMPLE))["FORMAT"]
    assert isinstance(format, OutputFormat)
    formats.register(format)
    return format


def test_a_registered_format_writes_fixes_and_is_chosen_by_name_or_suffix(wkt: OutputFormat) -> None:
    assert formats.write_fixes([EDGE, BAD], "WKT") == "POINT (179.99990000 -17.00000000)\nPOINT EMPTY\n"
    assert formats.choose_format("", Path("fixes.wkt")) is formats.choose_format("wkt", None) is wkt
    with pytest.raises(SkyPartError, match=r"choose one of table, .*, wkt$"):
        formats.write_fixes([], "shp")


def test_a_registered_format_writes_tracks(wkt: OutputFormat, tmp_path: Path) -> None:
    assert ".wkt" in formats.track_suffixes()
    formats.TrackFile(tmp_path / "flight.wkt").write(CROSSING)
    text = (tmp_path / "flight.wkt").read_text()
    assert text.startswith("MULTILINESTRING ((179.99800000 -17.00000000, ") and text.count("(") == 3
    formats.TrackFile(tmp_path / "lost.wkt").write([TRACK[0]])
    assert (tmp_path / "lost.wkt").read_text() == "MULTILINESTRING EMPTY\n"


def test_formats_are_not_registered_by_default() -> None:
    assert "wkt" not in formats.format_names()


def test_the_documentation_shows_the_code_of_the_example() -> None:
    text, code = (DOCS / "extending.md").read_text(), EXAMPLE.read_text()
    section = text[text.index("## A new output format") :]
    block = section[section.index("```python") + len("```python\n") : section.index("   ```\n")]
    for line in block.splitlines():
        assert line.removeprefix("   ") in code.splitlines()
