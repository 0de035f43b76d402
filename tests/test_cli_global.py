"""What all commands share: -h, -v and -q, variables, completion, closed pipes, and errors about mixed-up arguments."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main

from skypart.cli import app
from skypart.position import flight, photos
from skypart.position.fix import Hints, Prior
from tests.conftest import Run
from tests.maps.makers import centred_affine, write_raster
from tests.position.stand_in import ColourEmbedder, Shot, make_index, write_quilt

COMMAND: Any = typer.main.get_command(app)
EMBED = ("demo", "embed", "parts", "evaluate", "experiment", "index", "locate", "calibrate", "track", "fly", "serve")


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(photos, "load_fastest", lambda name, device, size: ColourEmbedder())
    return make_index(tmp_path / "town.skyindex", [write_quilt(tmp_path / "town.tif", edge=200)]).folder


def test_h_is_help(run: Run) -> None:
    for words in (["-h"], ["locate", "-h"], ["data", "check", "-h"]):
        code, out, _ = run(*words)
        assert code == 0 and "Usage" in out


def test_every_command_that_embeds_has_a_device() -> None:
    for name in EMBED:
        assert "--device" in {option for each in COMMAND.commands[name].params for option in each.opts}, name


def test_the_variable_of_every_option_is_named_after_it() -> None:
    """SKYPART_<COMMAND>_<OPTION>, or one of the few variables that several commands share."""
    shared = {"SKYPART_DEVICE", "SKYPART_MODEL", "SKYPART_API_KEY"}
    wrong, seen = [], 0

    def check(command: Any, words: tuple[str, ...]) -> None:
        nonlocal seen
        for name, each in getattr(command, "commands", {}).items():
            check(each, (*words, name))
        for each in command.params if words else ():
            if not hasattr(each, "is_flag") or "--help" in each.opts:
                continue
            long = next(name for name in each.opts if name.startswith("--"))
            documented = "_".join(("SKYPART", *words, long[2:])).replace("-", "_").upper()
            variable = each.envvar or "_".join(("SKYPART", *words, each.name)).replace("-", "_").upper()
            seen += 1
            if variable not in shared | {documented}:
                wrong.append((variable, documented))

    check(COMMAND, ())
    assert seen > 100
    assert not wrong


def test_completion_can_be_installed(run: Run) -> None:
    assert "--install-completion" in run("--help")[1]


@pytest.mark.parametrize("words", [("-q", "maps"), ("maps", "-q")])
def test_quiet_hides_warnings_before_and_after_the_command(words: tuple[str, ...], run: Run, town: Path) -> None:
    (town.parent / "town.tif").unlink()
    arguments = ("locate", town, town / "none.jpg")
    assert "was moved or changed" in run(*arguments)[2]
    quiet = ("-q", *arguments) if words[0] == "-q" else (*arguments, "-q")
    assert "was moved or changed" not in run(*quiet)[2]


def test_quiet_and_verbose_contradict_each_other(run: Run) -> None:
    code, _, err = run("-q", "-v", "models")
    assert code == 2 and "contradict each other" in err


def test_variables_set_the_defaults_of_options(run: Run, town: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []

    def load(name: str, device: str, size: int) -> ColourEmbedder:
        devices.append(device)
        return ColourEmbedder()

    monkeypatch.setattr(photos, "load_fastest", load)
    monkeypatch.setenv("SKYPART_DEVICE", "cuda:7")
    monkeypatch.setenv("SKYPART_LOCATE_TILT", "95")
    assert "--tilt 95 is out of range" in run("locate", town, "a.jpg")[2]
    monkeypatch.setenv("SKYPART_LOCATE_TILT", "45")
    run("locate", town, "a.jpg")
    run("locate", town, "a.jpg", "--device", "cpu")
    assert devices == ["cuda:7", "cpu"]


def test_track_takes_an_area_and_camera_hints(
    run: Run, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def follow(*_: Any, **arguments: Any) -> flight.Flight:
        given.update(arguments)
        return flight.Flight(points=[], skipped=0, written=[], scores={})

    monkeypatch.setattr(flight, "follow_flight", follow)
    words = ["--near", "48.5,-9.25", "--radius", 250, "--heading", -90, "--altitude", 80, "--tilt", 60, "--fov", 70]
    code, _, err = run("track", town, "a.mp4", "-o", tmp_path / "t.gpx", *words)
    assert code == 0, err
    assert given["prior"] == Prior(latitude=48.5, longitude=-9.25, radius_m=250.0)
    assert given["hints"] == Hints(heading_deg=270.0, altitude_m=80.0, tilt_deg=60.0, fov_deg=70.0)


def test_a_swapped_near_is_recognised(run: Run, town: Path) -> None:
    north, east = Shot(0.0, 0.0).place
    for metres in (0, 300):  # at the centre of the map, and beyond its edge but within the radius
        code, _, err = run("locate", town, "a.jpg", "--near", f"{east},{north + metres / 111_000}")
        assert code == 2 and "is in or near it; give latitude first, then longitude" in err
    assert "latitude first" not in run("locate", town, "a.jpg", "--near", f"{east},{north + 0.1}")[2]
    assert "latitude first" not in run("locate", town, "a.jpg", "--near", f"{north},{east}")[2]


def test_a_map_in_place_of_an_index_is_not_overwritten_by_the_advice(run: Run, tmp_path: Path) -> None:
    town = write_quilt(tmp_path / "town.tif", edge=120)
    code, _, err = run("locate", town, "a.jpg")
    assert (
        code == 2 and f"`skypart index {town} -o {tmp_path}/town.skyindex`, then give {tmp_path}/town.skyindex" in err
    )


@pytest.mark.parametrize("kind", ["float32", "int16"])
def test_an_elevation_model_is_not_indexed(kind: str, run: Run, tmp_path: Path) -> None:
    heights = np.random.default_rng(0).normal(300, 20, (1, 200, 200)).astype(kind)
    affine = centred_affine("EPSG:32632", (48.0, 9.0), 1.0, (200, 200))
    dem = write_raster(tmp_path / "dem.tif", heights, "EPSG:32632", affine)
    code, _, err = run("index", dem, "-o", tmp_path / "dem.skyindex")
    assert code == 2 and f"dem.tif: has one band of {kind} values, like an elevation model" in err


def test_a_closed_pipe_does_not_stop_a_command() -> None:
    code = (
        "import sys, typer, skypart.cli as cli\n"
        "@cli.app.command()\n"
        "def talk() -> None:\n"
        "    for number in range(20000): typer.echo(f'line {number}')\n"
        "    print('finished', file=sys.stderr)\n"
        "sys.argv = ['skypart', 'talk']\n"
        "cli.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    assert process.stderr.read() == "finished\n"
    assert process.wait() == 0
