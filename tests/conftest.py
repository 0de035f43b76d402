"""Fixtures that several folders use."""

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import pytest
import torch

from skypart import progress
from skypart.cli import main
from skypart.model import SkyPart, VisionTransformer
from tests.model.builders import TINY_HEAD, TINY_VIT, scramble

Run = Callable[..., tuple[int, str, str]]

# Tests fork training runs off this process: in a copy of OpenCV's thread pool there are no threads, and it crashes.
cv2.setNumThreads(1)


_LOG = logging.getLogger("skypart")
_HANDLERS, _BARS = tuple(_LOG.handlers), progress._bars_shown


def _act_as_library() -> None:
    _LOG.handlers, progress._bars_shown = list(_HANDLERS), _BARS
    logging.disable(logging.NOTSET)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == "skypart" and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)
    _LOG.setLevel(logging.WARNING)  # of its own: other libraries change that of the root logger
    for handler in logging.root.handlers:  # those of pytest too, which an export to ONNX sets to ERROR
        handler.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _terminal_settings() -> Iterator[None]:
    """Begin and end each test without what `main` and other libraries set up for the logs of a whole process."""
    _act_as_library()
    yield
    _act_as_library()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call `skypart ARGUMENTS` here; exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["skypart", *map(str, arguments)])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        captured = capsys.readouterr()
        return code if isinstance(code, int) else int(code is not None), captured.out, captured.err

    return call


@pytest.fixture
def shared() -> Path:
    """The developers' shared folder beside the repository, where there is one."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder


@pytest.fixture
def shared_weights(shared: Path) -> Path:
    """A real ViT-S/14, a descendant of DINOv2-S."""
    file = shared / "weights" / "dinov2_vits14_descendant.safetensors"
    if not file.is_file():
        pytest.skip(f"no {file}")
    return file


@pytest.fixture
def tiny_model() -> SkyPart:
    """A small SkyPart with every parameter drawn from one seed, in evaluation mode; input 56 px, patch 14."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = SkyPart(VisionTransformer(TINY_VIT), TINY_HEAD)
    scramble(model, 1)
    return model.eval()
