"""The model that comes with the package, and the SHA-256 it must have."""

import hashlib
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from skypart.errors import SkyPartError


def shipped_model() -> Path:
    """Where the model that comes with the package lies."""
    return Path(str(files("skypart"))) / "weights" / "default.safetensors"


def pinned_sha256(model: Path) -> str | None:
    """The SHA-256 that SHA256SUMS beside `model` gives for it, in hex; None where no such file or line stands."""
    sums = model.with_name("SHA256SUMS")
    if not sums.is_file():
        return None
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition(" ")
        if name.strip().removeprefix("*") == model.name:
            return digest.lower()
    return None


def sha256_of(file: Path) -> str:
    """SHA-256 of a file in hex; computed once a process as long as the file stays as it is."""
    try:
        facts = file.stat()
        return _sha256(file, facts.st_size, facts.st_mtime_ns)
    except OSError as error:
        raise SkyPartError(f"{file}: cannot be read ({error.strerror or error}); check its rights") from error


@lru_cache(maxsize=8)
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verified_default() -> Path:
    """The shipped model's file; an error where it is absent, or not the one that was shipped."""
    model = shipped_model()
    if not model.is_file():
        raise SkyPartError(f"{model}: the default model is missing; install skypart again, or name a model file")
    if sha256_of(model) != pinned_sha256(model):
        raise SkyPartError(
            f"{model}: altered since it was shipped (its SHA-256 is not the one in SHA256SUMS); install skypart again"
        )
    return model
