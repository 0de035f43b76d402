"""Files from outside are opened in few places, where their limits are set; a lint for GDAL, Pillow and SQLite."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "skypart"
ALLOWED = {
    "rasterio.open": {
        *("maps/rasters.py", "position/terrain.py", "worlds/geotiff.py"),
        *("bridge/geotiff.py", "datasets/fetch/indexed_images.py"),
    },
    "Image.open": {"images/decode.py"},
    "sqlite3.connect": {"maps/tile_sets.py"},
    "np.load": None,
    "torch.load": {"model/weights_files.py"},
    "ElementTree.fromstring": {"images/xmp.py"},
    "pickle.load": set(),
    "pickle.loads": set(),
}
"""Call -> the files that may make it; None for any file, with the argument that makes it safe."""


def calls(name: str) -> dict[str, list[ast.Call]]:
    """All calls of that name in the package, by file."""
    found: dict[str, list[ast.Call]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                found.setdefault(file.relative_to(PACKAGE).as_posix(), []).append(node)
    return found


@pytest.mark.parametrize("name", [name for name, files in ALLOWED.items() if files is not None])
def test_files_from_outside_are_opened_in_few_places(name: str) -> None:
    allowed = ALLOWED[name]
    assert allowed is not None
    assert set(calls(name)) <= allowed


def test_images_are_opened_with_a_list_of_formats() -> None:
    every = [call for found in calls("Image.open").values() for call in found]
    assert every and all("formats" in {word.arg for word in call.keywords} for call in every)


def test_arrays_and_weights_are_never_unpickled() -> None:
    for call in (call for found in calls("np.load").values() for call in found):
        pickled = [word.value for word in call.keywords if word.arg == "allow_pickle"]
        assert not any(isinstance(value, ast.Constant) and value.value for value in pickled)
    for call in (call for found in calls("torch.load").values() for call in found):
        assert any(word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in call.keywords)


def test_maps_are_opened_with_one_driver() -> None:
    opened = calls("rasterio.open")["maps/rasters.py"]
    assert opened and all("driver" in {word.arg for word in call.keywords} for call in opened)
