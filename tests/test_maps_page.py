"""docs/maps.md is correct: its tables can be read, its commands and options exist."""

import re
from pathlib import Path

import pytest
from PIL import Image
from typer.main import get_command

from skypart.cli import app
from skypart.maps.sources import open_maps
from skypart.position.labelled import read_labelled

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "maps.md").read_text(encoding="utf-8")


def tables(columns: str) -> list[str]:
    """The CSV examples whose first line is `columns`."""
    return [text for text in re.findall(r"```csv\n(.*?)```", PAGE, re.DOTALL) if text.startswith(f"{columns}\n")]


def write(folder: Path, table: str) -> Path:
    """Write the table and the images that it names, 40 x 20 pixels each."""
    for line in table.splitlines()[1:]:
        Image.new("RGB", (40, 20), (90, 120, 60)).save(folder / line.split(",")[0])
    (folder / "positions.csv").write_text(table)
    return folder / "positions.csv"


def test_images_by_centre_and_width(tmp_path: Path) -> None:
    (table,) = tables("file,latitude,longitude,metres")
    (source,) = open_maps([str(write(tmp_path, table))])
    harbour, market = (part.grid for part in source.images)
    assert (float(harbour.centre.latitude), float(harbour.centre.longitude)) == pytest.approx((48.2061, 16.4212))
    assert (harbour.gsd_m, market.gsd_m) == pytest.approx((250 / 40, 180 / 40), rel=1e-4)


def test_images_by_edges(tmp_path: Path) -> None:
    (table,) = tables("file,north,west,south,east")
    (source,) = open_maps([str(write(tmp_path, table))])
    box = source.bounds
    assert (box.north, box.west, box.south, box.east) == pytest.approx((48.21, 16.41, 48.2, 16.425))


def test_labelled_photos(tmp_path: Path) -> None:
    (table,) = tables("file,latitude,longitude")
    write(tmp_path, table)
    first, _, field = read_labelled(tmp_path)
    assert (first.path.name, first.latitude, first.longitude) == ("IMG_0001.JPG", 48.20612, 16.42118)
    assert (field.latitude, field.longitude) == (None, None)


def test_every_option_on_the_page_exists() -> None:
    commands = getattr(get_command(app), "commands")  # noqa: B009  (typer's own type has no such attribute)
    known = {word for command in commands.values() for option in command.params for word in option.opts}
    named = set(re.findall(r"--[a-z][a-z-]+", re.sub(r"\brio [^`\n]*", "", PAGE)))
    assert len(named) > 15 and named <= known, named - known
    for command in re.findall(r"skypart ([a-z]+)", PAGE):
        assert command in commands, command
