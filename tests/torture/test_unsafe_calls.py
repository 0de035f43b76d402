"""Files from outside are opened in few places, where their limits are set; a lint for GDAL, Pillow and SQLite.

Part of `make lint`: it reads the source only.
"""

import ast
from functools import lru_cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "skypart"
ALLOWED = {
    "rasterio.open": {
        *("images/raster_files.py", "worlds/geotiff.py", "bridge/geotiff.py"),  # the last two only write
    },
    "Image.open": {"images/decode.py"},
    "sqlite3.connect": {"maps/tile_sets.py"},
    "cv2.VideoCapture": {"position/frames.py", "position/live_video.py"},  # the last: cameras that the user names
    "cv2.imread": set(),
    "rasterio.Env": {"maps/rasters.py"},
    "set_gdal_config": {"maps/rasters.py"},
    "tarfile.open": {"serve/assets.py"},  # of a pinned SHA-256, members are read by name
    "urllib.request.urlopen": {"datasets/fetch/web.py"},
    "safe_open": {"model/storage.py", "model/catalogue.py", "training/checkpoint.py"},
    "np.load": None,
    "torch.load": {"model/weights_files.py"},
    "ElementTree.fromstring": {"images/xmp.py"},
    "pickle.load": set(),
    "pickle.loads": set(),
}
"""Call -> the files that may make it; None for any file, with the argument that makes it safe."""


@lru_cache(maxsize=1)
def nodes() -> dict[str, list[ast.AST]]:
    """Everything in the source of the package, by file."""
    return {
        file.relative_to(PACKAGE).as_posix(): [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
        for file in sorted(PACKAGE.rglob("*.py"))
    }


@lru_cache(maxsize=1)
def named_calls() -> dict[str, dict[str, list[ast.Call]]]:
    """All calls in the package, by name and file."""
    found: dict[str, dict[str, list[ast.Call]]] = {}
    for file, every in nodes().items():
        for node in every:
            if isinstance(node, ast.Call):
                found.setdefault(ast.unparse(node.func), {}).setdefault(file, []).append(node)
    return found


def calls(name: str) -> dict[str, list[ast.Call]]:
    """All calls of that name in the package, by file."""
    return named_calls().get(name, {})


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
    opened = calls("rasterio.open")["images/raster_files.py"]
    assert opened and all("driver" in {word.arg for word in call.keywords} for call in opened)
    for file in ("worlds/geotiff.py", "bridge/geotiff.py"):
        assert all(ast.unparse(call.args[1]) == "'w'" for call in calls("rasterio.open")[file])


def assigned(name: str) -> dict[str, list[str]]:
    """The values that the package assigns to a name such as `Image.MAX_IMAGE_PIXELS`, by file."""
    found: dict[str, list[str]] = {}
    for file, every in nodes().items():
        for node in every:
            if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
                found.setdefault(file, []).append(ast.unparse(node.value))
    return found


def test_the_settings_of_pillow_are_not_loosened() -> None:
    """Pillow's own limit of pixels only warns; `open_image` refuses by the header, and must stay the only opener."""
    assert assigned("Image.MAX_IMAGE_PIXELS") == {"images/decode.py": ["None"]}
    for name in ("ImageFile.LOAD_TRUNCATED_IMAGES", "PngImagePlugin.MAX_TEXT_MEMORY", "PngImagePlugin.MAX_TEXT_CHUNK"):
        assert assigned(name) == {}, name
    compared = {ast.unparse(node.test) for node in nodes()["images/decode.py"] if isinstance(node, ast.If)}
    assert "width * height > max_pixels" in compared


def test_gdal_gets_only_known_settings() -> None:
    """Options such as GDAL_VRT_ENABLE_PYTHON would let a map run code, CPL_CURL options reach hosts."""
    named = {word.arg for call in calls("rasterio.Env")["maps/rasters.py"] for word in call.keywords}
    assert named == {"GDAL_DISABLE_READDIR_ON_OPEN"}
    set_names = {ast.unparse(call.args[0]) for call in calls("set_gdal_config")["maps/rasters.py"]}
    assert set_names == {"'GDAL_CACHEMAX'"}
    risky = ("GDAL_VRT_ENABLE", "CPL_VSIL_CURL", "GDAL_PAM_PROXY", "GDAL_HTTP_UNSAFESSL", "GDAL_DRIVER_PATH")
    for file in sorted(PACKAGE.rglob("*.py")):
        found = [name for name in risky if name in file.read_text(encoding="utf-8")]
        assert not found, f"{file}: {found}"


def test_gdal_forgets_formats_that_refer_to_others() -> None:
    from skypart.confine import FOLLOWING_DRIVERS

    assert {"VRT", "WMS", "HTTP", "Zarr", "GTI"} <= set(FOLLOWING_DRIVERS.split())
    assert set(calls("skip_following_drivers")) == {"cli/entry.py"}


def test_sqlite_is_opened_read_only_without_trust() -> None:
    text = (PACKAGE / "maps" / "tile_sets.py").read_text(encoding="utf-8")
    assert "?mode=ro" in text and "PRAGMA trusted_schema = OFF" in text and "set_progress_handler" in text
