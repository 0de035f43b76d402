"""docs/train-your-own.md: every command of the page, in its order, on rendered data of the same layouts."""

import json
import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import skypart
from skypart.cli import app
from skypart.embedding import shipped
from skypart.images.preprocess import Preprocessing
from skypart.model import HeadConfig, SkyPart, save_model
from skypart.model.embedder import load_torch
from skypart.training.checkpoint import list_checkpoints
from skypart.training.journal import Journal
from skypart.training.run import STOPPED
from skypart.worlds.make import make_world
from skypart.worlds.request import Request, build_request

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "train-your-own.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SMALL_HEAD = shlex.split("head.prototypes=6 head.part_dim=32 head.embedding_dim=48 head.gate_hidden=16")
SMALL = shlex.split(
    "backbone.size=28 backbone.trainable_blocks=2 batch.locations=2 batch.drone=2 batch.steps=2 optimiser.epochs=2 "
    "optimiser.warmup_epochs=0.5 distill.teacher=untrained:tiny distill.teacher_size=28 distill.patches=4 "
    "data.validation=0.4 data.validation_drone=2 data.workers=0 run.device=cpu run.log_every=1 run.checkpoint_every=1"
)
NO_FIX = 3
"""Exit code of `skypart locate` when it finds none, which an untrained model may well do."""


def steps() -> list[tuple[str, str]]:
    """(language, text) of each command and each piece of Python on the page."""
    found: list[tuple[str, str]] = []
    for language, text in BLOCK.findall(PAGE):
        found += [(language, text)] if language == "python" else [("sh", line) for line in text.splitlines() if line]
    return found


COMMANDS = [shlex.split(text, comments=True) for language, text in steps() if language == "sh"]


def small_version(command: list[str]) -> list[str]:
    """The same command for the small data: other folders, no GPU, and for training a tiny model and few steps."""
    words = [word.replace("/data/", "data/").replace("cuda", "cpu") for word in command[1:]]
    if words[0] != "train":
        return words
    fresh = "-weather" not in words[1] and not any(word.startswith("backbone.start") for word in words)
    backbone = ["backbone.name=untrained:tiny", *SMALL_HEAD] if fresh else []
    return [word for word in words if not word.startswith("data.workers")] + backbone + SMALL


class Workplace:
    """A folder in which the page's commands can be run as they stand there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_world(folder / "data" / "University-Release", request("university1652", 12), 1)
        make_world(folder / "data" / "SUES-200", request("sues200", 8), 1)
        (folder / "recipes").symlink_to(ROOT / "recipes")
        (folder / "map.tif").symlink_to(next((folder / "data" / "SUES-200" / "maps").glob("*.tif")))
        (folder / "photo.jpg").symlink_to(next((folder / "data" / "SUES-200").glob("drone_view_512/*/150/*.jpg")))
        head = HeadConfig(prototypes=6, part_dim=32, embedding_dim=48, gate_hidden=16)
        model = SkyPart.from_backbone("untrained:tiny", head, 0)
        model.preprocessing = Preprocessing(size=28)
        default = folder / "shipped" / "default.safetensors"
        save_model(model, default)
        default.with_name("SHA256SUMS").write_text(f"{shipped.sha256_of(default)}  {default.name}\n")

    def run(self, command: list[str], expected: tuple[int, ...] = (0,)) -> str:
        assert command[0] == "skypart"
        result = CliRunner().invoke(app, small_version(command))
        assert result.exit_code in expected, f"{shlex.join(command)}: {result.output}\n{result.exception!r}"
        return result.output


def request(like: str, locations: int) -> Request:
    return build_request(None, "tiny", locations=locations, seed=3, like=like, image_size=96)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("train-your-own"))


def test_the_page_and_the_command_line_agree() -> None:
    """Quick: every verb and option exists, every recipe and document the page names is there."""
    helps: dict[str, str] = {}
    for command in COMMANDS:
        assert command[0] == "skypart", "only our own commands stand in the page's blocks"
        words = command[1:3] if command[1] == "data" else command[1:2]
        if " ".join(words) not in helps:
            shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"})
            assert shown.exit_code == 0, words
            helps[" ".join(words)] = shown.output
        for option in (word for word in command if word.startswith("-")):
            assert option in helps[" ".join(words)], f"{shlex.join(command)}: no {option}"
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / link).is_file(), link
    for recipe in re.findall(r"recipes/[\w.-]+\.toml", PAGE):
        assert (ROOT / recipe).is_file(), recipe
    said = {"doctor", "data check", "data split-sues", "train", "evaluate", "info", "models", "index", "locate"}
    assert said == {" ".join(c[1:3]) if c[1] == "data" else c[1] for c in COMMANDS}


@pytest.mark.slow
def test_every_command_of_the_page(workplace: Workplace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(workplace.folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shipped, "shipped_model", lambda: workplace.folder / "shipped" / "default.safetensors")
    everything = steps()
    for number, (language, text) in enumerate(everything):
        command = shlex.split(text)
        if language == "python":
            exec(compile(text, "docs/train-your-own.md", "exec"), {})
        elif ("sh", text) in everything[number + 1 :]:  # the page comes back to it to show how it goes on
            with monkeypatch.context() as patch:
                stop_after_the_first_step(patch)
                assert "stopped at step 1; start the same command again" in workplace.run(command, (STOPPED,))
        else:
            told = workplace.run(command, (0, NO_FIX) if command[1] == "locate" else (0,))
            assert command[1] != "train" or ("trained 4 steps" in told and "best by validation" in told), told
    check_what_was_made(workplace.folder)


def stop_after_the_first_step(patch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C during the first step."""
    real = Journal.step

    def interrupted(self: Journal, step: int, state: str) -> None:
        real(self, step, state)
        signal.raise_signal(signal.SIGINT)

    patch.setattr(Journal, "step", interrupted)


def check_what_was_made(folder: Path) -> None:
    """Models, tables and links are there and hold what the page says."""
    runs = folder / "runs"
    log = (runs / "university1652" / "log.jsonl").read_text()
    assert log.count('"total"') >= 4 and list_checkpoints(runs / "university1652" / "checkpoints")
    for table in ("shipped/university", "shipped/sues", "mine/university", "mine/sues", "mine/cls", "mine/half"):
        assert (runs / table / "table.md").is_file(), table
    for table in ("shipped/sues", "mine/weather"):
        assert (runs / table / "weather-D2S.md").is_file(), table
    assert list((runs / "mine" / "university").glob("**/*.png")), "figures"
    assert any((folder / "data" / "SUES-200-split" / "Training").rglob("*.jpg"))
    full, half = runs / "university1652-weather" / "best.safetensors", folder / "mine.safetensors"
    assert half.stat().st_size < 0.75 * full.stat().st_size
    photo = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    one, two = (skypart.load(path).embed([photo])[0] for path in (full, half))
    assert float(one @ two) > 0.999
    assert (
        json.loads((folder / "town.skyindex" / "index.json").read_text())["model"]["digest"]
        == skypart.load(half).digest
    )
    assert load_torch(runs / "from-default" / "best.safetensors").model.provenance["start"] == "default"
