"""Tables of photos and of worlds open nothing outside of their folder, whatever names or links they contain."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from skypart.errors import SkyPartError
from skypart.position.labelled import read_labelled
from skypart.worlds import find_sources

PLACES = "file,city,place,gsd_m,width,height,epsg,x_ul,y_ul\n"
NAMES: dict[str, Callable[[Path], str]] = {
    "absolute": str,
    "parent": lambda outside: f"../{outside.name}",
    "inner parent": lambda outside: f"images/../../{outside.name}",
    "backslash": lambda outside: f"..\\{outside.name}",
    "link": lambda outside: "link.png",
    "linked folder": lambda outside: f"linked/{outside.name}",
    "zero": lambda outside: "a\0.png",
    "long": lambda outside: "a" * 5000,
}


def photos(folder: Path, name: str) -> object:
    (folder / "positions.csv").write_text(f"file,latitude,longitude\n{name},48.1,11.5\n")
    return read_labelled(folder)


def worlds(folder: Path, name: str) -> object:
    (folder / "index.csv").write_text(f"{PLACES}{name},t,1,0.6,8,8,26911,400000,4000000\n")
    return find_sources(folder)


@pytest.mark.parametrize("read", [photos, worlds])
@pytest.mark.parametrize("kind", NAMES)
def test_tables_name_nothing_outside(kind: str, read: Callable[[Path, str], object], tmp_path: Path) -> None:
    """The server would show a photo of its table of examples to everyone."""
    outside = tmp_path / "outside.png"
    Image.new("RGB", (8, 8)).save(outside)
    folder = tmp_path / "table"
    (folder / "images").mkdir(parents=True)
    (folder / "link.png").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    with pytest.raises(SkyPartError, match=r"the table's folder|cannot be opened|can be opened") as error:
        read(folder, NAMES[kind](outside))
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


@pytest.mark.parametrize("read", [photos, worlds])
@pytest.mark.parametrize("name", ["a.png", "images/a.png", "link.png"])
def test_names_and_links_within_the_folder_are_followed(
    name: str, read: Callable[[Path, str], object], tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    for file in (tmp_path / "a.png", tmp_path / "images" / "a.png"):
        Image.new("RGB", (8, 8)).save(file)
    (tmp_path / "link.png").symlink_to(tmp_path / "a.png")
    assert read(tmp_path, name)
