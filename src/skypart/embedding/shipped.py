"""The model shipped with the package, its graph for ONNX Runtime, and the check of their SHA-256."""

import hashlib
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from skypart.atomic import write_text
from skypart.errors import SkyPartError


def shipped_model() -> Path:
    """The path of the model shipped with the package."""
    return Path(str(files("skypart"))) / "weights" / "default.safetensors"


def shipped_graph() -> Path:
    """The shipped model as an ONNX graph, whose weights are read from `shipped_model()` beside it."""
    return shipped_model().with_suffix(".onnx")


def shipped_detector() -> Path:
    """The keypoint detector shipped with the package, an ONNX graph."""
    return shipped_model().with_name("xfeat.onnx")


def write_sums() -> None:
    """Write SHA256SUMS of the shipped files."""
    files = [file for file in (shipped_model(), shipped_graph(), shipped_detector()) if file.is_file()]
    write_text(shipped_model().with_name("SHA256SUMS"), "".join(f"{sha256_of(file)}  {file.name}\n" for file in files))


def pinned_sha256(model: Path) -> str | None:
    """The SHA-256 of `model` in hex, as listed in SHA256SUMS beside it; None if there is no such file or line."""
    sums = model.with_name("SHA256SUMS")
    if not sums.is_file():
        return None
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition(" ")
        if name.strip().removeprefix("*") == model.name:
            return digest.lower()
    return None


def sha256_of(file: Path) -> str:
    """SHA-256 of a file in hex. Computed once per process unless the file changes."""
    try:
        status = file.stat()
        return _sha256(file, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise SkyPartError(f"{file}: cannot be read ({error.strerror or error}); check its permissions") from error


@lru_cache(maxsize=8)
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verified_default() -> Path:
    """The file of the shipped model. Raises if it is missing or was altered."""
    return _verified(shipped_model())


def verified_graph() -> Path:
    """The ONNX graph of the shipped model. Raises if the graph or its weights are missing or were altered."""
    verified_default()
    return _verified(shipped_graph())


def verified_detector() -> Path:
    """The file of the keypoint detector. Raises if it is missing or was altered."""
    return _verified(shipped_detector())


def _verified(model: Path) -> Path:
    if not model.is_file():
        raise SkyPartError(f"{model}: part of the default model is missing; reinstall skypart")
    if sha256_of(model) != pinned_sha256(model):
        raise SkyPartError(
            f"{model}: altered since it was shipped (its SHA-256 is not the one in SHA256SUMS); reinstall skypart"
        )
    return model
