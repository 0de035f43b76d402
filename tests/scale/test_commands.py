"""The commands themselves with other engines: the same answers as with the embedded store and the local engine."""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

import skypart
from skypart import embedding
from skypart.cli import main
from skypart.maps.manifest import IndexManifest
from skypart.model import SkyPart, VisionTransformer
from skypart.position import photos
from skypart.serve.app import create_app
from tests.conftest import Run
from tests.model.builders import TINY_HEAD, TINY_VIT, scramble
from tests.position.stand_in import SURE, ColourEmbedder, Shot, quilt, write_quilt
from tests.position.test_calibrate import labelled_photos
from tests.scale.s3_server import free_port
from tests.scale.test_replicas import locate, process, wait_for

pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")
pytestmark = pytest.mark.slow  # Milvus Lite is a process of its own
SHOTS = [Shot(120.0 - 20.0 * number, -90.0, 90.0, 100.0) for number in range(4)]
CHOICES = {
    "recorded": ("milvus.skyindex", ""),
    "moved": ("moved.skyindex", ""),
    "given": ("embedded.skyindex", "milvus.db"),
}
"""Index, and file of Milvus Lite for --store: made with --store, moved with --move-to, and another copy."""


def load_colours(name: str, device: str = "cpu", size: int | None = None) -> ColourEmbedder:
    assert name == "colours"
    return ColourEmbedder()


def call(*words: object) -> str:
    """Standard output of `skypart WORDS`; a photo without a fix (exit code 3) is no error."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as output:
        patch.setattr(sys, "argv", ["skypart", *map(str, words)])
        patch.setattr(embedding, "load", load_colours)
        patch.setattr(photos, "load_fastest", load_colours)
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert code in (0, 3, None), code
    return output.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A map, its index in three stores, all made by commands, and photos of a flight."""
    folder = tmp_path_factory.mktemp("town")
    town = write_quilt(folder / "town.tif")
    common = ("--model", "colours", "--sizes", "100,150", "--overlap", 0.5)
    said = [
        call("index", town, "-o", folder / "embedded.skyindex", *common),
        call("index", town, "-o", folder / "moved.skyindex", *common, "--store", "embedded:"),
        call("index", town, "-o", folder / "milvus.skyindex", *common, "--store", f"milvus:{folder / 'milvus.db'}"),
    ]
    assert len(set(said)) == 1 and re.match(r"indexed town: \d+ views\n", said[0])
    views = said[0].split()[2]
    assert f"copied {views} views" in call(
        "maps", folder / "moved.skyindex", "--move-to", f"milvus:{folder / 'moved.db'}"
    )
    for name in ("embedded", "moved", "milvus"):
        index = folder / f"{name}.skyindex"
        manifest = IndexManifest.read(index)
        assert manifest.store == ("embedded:" if name == "embedded" else f"milvus:{folder / name}.db")
        content = json.loads((index / "index.json").read_text()) | {"calibration": SURE.to_dict()}
        del content["sha256"]
        (index / "index.json").write_text(json.dumps(content))
        assert "all files match" in call("maps", index, "--verify")
    (folder / "flight").mkdir()
    for number, shot in enumerate(SHOTS):
        Image.fromarray(shot.photo(quilt(1), 200)).save(folder / "flight" / f"{number}.png")
    return folder


def arguments(choice: str, folder: Path) -> list[str]:
    """Index and options of a choice."""
    index, store = CHOICES[choice]
    return [str(folder / index), *(["--store", f"milvus:{folder / store}"] if store else [])]


def timeless(content: Any) -> Any:
    """An answer without the seconds it took."""
    if isinstance(content, dict):
        return {key: timeless(value) for key, value in content.items() if key not in ("seconds", "index")}
    return [timeless(each) for each in content] if isinstance(content, list) else content


@pytest.mark.parametrize("choice", CHOICES)
def test_locate_gives_the_same_fixes(choice: str, folder: Path) -> None:
    options = ("--heading", 90, "--format", "json", "--near", "{:.6f},{:.6f}".format(*SHOTS[0].place), "--radius", 200)
    for words in (options[:2], options[:4], options):
        flight = sorted((folder / "flight").iterdir())
        expected = call("locate", folder / "embedded.skyindex", *flight, *words)
        found = call("locate", *arguments(choice, folder), *flight, *words)
        if len(words) > 2:
            assert timeless(json.loads(found)) == timeless(json.loads(expected))
            assert sum(fix["found"] for fix in json.loads(found)["fixes"]) >= 2
        else:
            assert re.findall(r"-?\d+\.\d{6}", found) == re.findall(r"-?\d+\.\d{6}", expected) != []


@pytest.mark.parametrize("choice", CHOICES)
def test_track_writes_the_same_track(choice: str, folder: Path, tmp_path: Path) -> None:
    call("track", folder / "embedded.skyindex", folder / "flight", "-o", tmp_path / "expected.csv")
    said = call("track", *arguments(choice, folder), folder / "flight", "-o", tmp_path / "found.csv")
    assert re.search("4 photos: [234] with a fix", said)
    assert (tmp_path / "found.csv").read_text() == (tmp_path / "expected.csv").read_text()


@pytest.mark.parametrize("choice", CHOICES)
def test_serve_answers_the_same(choice: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []

    def ask(service: Any, options: Any, *, open_browser: bool) -> None:
        with TestClient(create_app(service, options), base_url="http://127.0.0.1:8000") as client:
            files = {"photo": ("0.png", (folder / "flight/0.png").read_bytes(), "image/png")}
            answers.append(timeless(client.post("/v1/locate", files=files).json()))

    monkeypatch.setattr("skypart.serve.server.run_server", ask)
    call("serve", folder / "embedded.skyindex")
    call("serve", *arguments(choice, folder))
    assert answers[0] == answers[1] and answers[0]["found"]


def test_calibrate_fits_the_same_calibration(folder: Path, tmp_path: Path) -> None:
    labelled = labelled_photos(tmp_path / "labelled", 32, 10)
    fitted = []
    for words in ([str(folder / "embedded.skyindex")], *(arguments(choice, folder) for choice in CHOICES)):
        before = (Path(words[0]) / "index.json").read_bytes()
        said = call("calibrate", *words, labelled, "-o", tmp_path / "calibration.png")
        fitted.append((said, IndexManifest.read(Path(words[0])).calibration))
        (Path(words[0]) / "index.json").write_bytes(before)
    assert "calibrated on 32 photos" in fitted[0][0] and fitted[0][1] != SURE.to_dict()
    assert all(calibration == fitted[0][1] for _, calibration in fitted)


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("index", ["--store", "milvus"], "unknown store address 'milvus'; use one that starts with"),
        (
            "index",
            ["--store", "http://host:19530"],
            "address http:; put milvus: before the address of a server, remote:",
        ),
        ("index", ["--store", "milvus:host:19530"], "has no scheme; write milvus:http://host:19530"),
        ("index", ["--engine", "spark"], "--engine spark: unknown; choose one of local, ray"),
        (
            "index",
            ["--engine", "ray", "--address", "http://head:8265"],
            "--address http://head:8265: is not the address of a Ray cluster; write HOST:6379, or auto",
        ),
        ("index", ["--engine", "ray", "--address", "head"], "is not the address of a Ray cluster; write HOST:6379"),
        ("index", ["--address", "head:6379"], "the local engine has no address; add --engine ray"),
        ("locate", ["--store", "milvus:http://127.0.0.1:1"], "start Milvus, or correct the address"),
        ("locate", ["--store", "remote:s3://bucket/store"], "used only with --network"),
        ("locate", ["--store", "milvus:empty.db"], "empty.db: there is no such file; correct the store address"),
    ],
)
def test_errors_are_one_line(
    command: str,
    words: list[str],
    message: str,
    folder: Path,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embedding, "load", load_colours)
    monkeypatch.setattr(photos, "load_fastest", load_colours)
    if command == "index":
        code, out, err = run("index", folder / "town.tif", "-o", "new", "--model", "colours", *words)
        assert not (tmp_path / "new").exists()
    else:
        code, out, err = run("locate", folder / "embedded.skyindex", folder / "flight/0.png", *words)
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1
    assert not list(tmp_path.glob("*.db"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = SkyPart(VisionTransformer(TINY_VIT), TINY_HEAD)
    scramble(tiny, 1)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    skypart.save(tiny.eval(), path)
    return path


def test_index_on_ray_into_milvus_is_served_as_a_local_index_is(folder: Path, model: Path, tmp_path: Path) -> None:
    """Processes of their own from the first command to the last: Ray on this machine, Milvus Lite, the server."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    command = [sys.executable, "-m", "skypart.cli"]
    indexing = [
        *command,
        "index",
        str(folder / "town.tif"),
        "--model",
        str(model),
        "--sizes",
        "100",
        "--overlap",
        "0.2",
    ]
    more = {"local": [], "ray": ["--engine", "ray", "--store", f"milvus:{tmp_path / 'ray.db'}"]}
    answers = []
    for name, words in more.items():
        index, log = str(tmp_path / f"{name}.skyindex"), tmp_path / f"{name}.log"
        with process([*indexing, "-o", index, *words], log) as started:
            assert started.wait(300) == 0, log.read_text()
        assert "indexed town: " in log.read_text()
        port = free_port()
        with process([*command, "serve", index, "--port", str(port)], log) as server:
            wait_for(f"http://127.0.0.1:{port}", server, log)
            answers.append(timeless(locate(f"http://127.0.0.1:{port}", folder / "flight/0.png")))
    assert answers[0] == answers[1]
