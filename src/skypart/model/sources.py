"""Find weights: a file, a folder, our weights folders, or the Hugging Face hub at a pinned revision."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skypart.errors import SkyPartError
from skypart.model.weights_files import TORCH_SUFFIXES

SUFFIXES = TORCH_SUFFIXES | {".safetensors"}
FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")
"""Names of the weights file in a Hugging Face folder, the preferred one first."""


@dataclass(frozen=True)
class Published:
    """A published backbone: its hub repository at a pinned revision, or where to download it by hand."""

    title: str
    repository: str | None = None
    revision: str | None = None
    obtain: str = ""


BACKBONES = {
    "dinov2_vits14": Published("DINOv2 ViT-S/14", "facebook/dinov2-small", "ed25f3a31f01632728cabb09d1542f84ab7b0056"),
    "dinov2_vitb14": Published("DINOv2 ViT-B/14", "facebook/dinov2-base", "f9e44c814b77203eaa57a6bdbbd535f21ede1415"),
    "dinov2_vits14_reg": Published(
        "DINOv2 ViT-S/14, 4 registers",
        "facebook/dinov2-with-registers-small",
        "0d9846e56b43a21fa46d7f3f5070f0506a5795a9",
    ),
    "dinov2_vitb14_reg": Published(
        "DINOv2 ViT-B/14, 4 registers",
        "facebook/dinov2-with-registers-base",
        "a1d738ccfa7ae170945f210395d99dde8adb1805",
    ),
    "dino_vits16": Published("DINO ViT-S/16", "facebook/dino-vits16", "abe3b354cb6a9b6f146096b14a4a9d7eecbcb4bd"),
    "ibot_vits16": Published(
        "iBOT ViT-S/16", obtain="the ViT-S/16 teacher checkpoint of the bytedance/ibot repository"
    ),
    "mocov3_vits16": Published(
        "MoCo v3 ViT-S/16", obtain="vit-s-300ep.pth.tar of the facebookresearch/moco-v3 repository"
    ),
}


@dataclass(frozen=True)
class WeightsSource:
    """A local weights file, its Hugging Face config.json if it has one, and its origin for messages."""

    file: Path
    config: dict[str, Any] | None
    origin: str


def weights_folders() -> list[Path]:
    """Folders searched for weights by name: those in SKYPART_WEIGHTS, then ~/.cache/skypart/weights."""
    configured = [Path(entry) for entry in os.environ.get("SKYPART_WEIGHTS", "").split(os.pathsep) if entry]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [*configured, cache / "skypart" / "weights"]


def find_in_folder(folder: Path, name: str) -> Path | None:
    """The weights file called `name`, with any known suffix, in a folder; None if there is none."""
    return _first_file(folder / f"{name}{suffix}" for suffix in sorted(SUFFIXES))


def find_weights(name: str) -> Path | None:
    """The file or, failing that, folder called `name` in the weights folders; None if there is none."""
    for folder in weights_folders():
        found = find_in_folder(folder, name) or (folder / name if (folder / name).is_dir() else None)
        if found is not None:
            return found
    return None


def hub_layout_file(folder: Path) -> Path | None:
    """The weights file of a folder in Hugging Face layout; None if it has none."""
    return _first_file(folder / name for name in FOLDER_FILES)


def _first_file(candidates: Iterable[Path]) -> Path | None:
    return next((file for file in candidates if file.is_file()), None)


def resolve(name: str, revision: str | None = None) -> WeightsSource:
    """Find the weights called `name`: a path, a name of BACKBONES, or OWNER/NAME[@REVISION] on the hub."""
    path = Path(name).expanduser()
    if path.is_file():
        return WeightsSource(path, None, str(path))
    if path.is_dir():
        return _from_folder(path, str(path))
    found = None if "/" in name else find_weights(name)
    if found is not None:
        return _from_folder(found, str(found)) if found.is_dir() else WeightsSource(found, None, str(found))
    known = BACKBONES.get(name)
    if known is not None and known.repository is None:
        raise SkyPartError(
            f"{known.title} is not on the hub; download {known.obtain} and pass its path, or put it into "
            f"{weights_folders()[-1]} as {name}.pth"
        )
    if known is not None and known.repository is not None:
        return _from_hub(known.repository, revision or known.revision)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and path.suffix not in SUFFIXES:
        repository, _, pinned = name.partition("@")
        return _from_hub(repository, revision or pinned or None)
    if "/" in name or path.suffix in SUFFIXES:
        raise SkyPartError(f"{name}: no such file; check the path, or see `skypart doctor`")
    raise SkyPartError(
        f"no weights called {name!r}; pass a file, a folder, OWNER/NAME of the hub, `default`, or one of "
        f"{', '.join(BACKBONES)}"
    )


def _from_folder(folder: Path, origin: str) -> WeightsSource:
    """The weights file of a local folder in Hugging Face layout."""
    file, declared = hub_layout_file(folder), folder / "config.json"
    if file is None:
        raise SkyPartError(f"{folder}: contains neither {' nor '.join(FOLDER_FILES)}; pass the weights file itself")
    return WeightsSource(file, _read_config(declared) if declared.is_file() else None, origin)


def _read_config(file: Path) -> dict[str, Any]:
    """Parse a Hugging Face config.json."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SkyPartError(f"{file}: not readable as JSON ({error}); download it again") from error
    if not isinstance(config, dict):
        raise SkyPartError(f"{file}: not a JSON object with model settings; download it again")
    return config


def _from_hub(repository: str, revision: str | None) -> WeightsSource:
    """Download (or find in the local hub cache) the weights of a hub repository."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

    origin = f"{repository}@{revision}" if revision else repository
    if not _is_cached(repository, revision) and not hub_reachable():
        raise SkyPartError(_no_hub_message(origin, "no connection"))

    def fetch(filename: str) -> Path:
        return Path(hf_hub_download(repository, filename, revision=revision))

    try:
        try:
            file = fetch("model.safetensors")
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            file = fetch("pytorch_model.bin")
        try:
            config = _read_config(fetch("config.json"))
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            config = None
        return WeightsSource(file, config, origin)
    except HFValidationError as error:
        raise SkyPartError(f"{repository!r} is neither a local file nor a hub name; check the spelling") from error
    except SkyPartError:
        raise
    except Exception as error:  # huggingface_hub lets errors of its HTTP libraries through
        raise SkyPartError(_no_hub_message(origin, type(error).__name__)) from error


def _no_hub_message(origin: str, cause: str) -> str:
    return (
        f"{origin} cannot be downloaded from the Hugging Face hub ({cause}); connect to the network "
        f"once, or download the file elsewhere and pass its path or put it into {weights_folders()[-1]}"
    )


def _is_cached(repository: str, revision: str | None) -> bool:
    """Whether the weights are in the local hub cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = (try_to_load_from_cache(repository, name, revision=revision) for name in FOLDER_FILES)
        return any(isinstance(path, str) for path in found)
    except HFValidationError:
        return True  # the download reports what is wrong with the name


def hub_reachable(timeout_s: float = 4.0) -> bool:
    """Whether the hub answers. Without this check, huggingface_hub retries for half a minute."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=timeout_s)
    except Exception:  # of whichever HTTP library huggingface_hub uses
        return False
    return True
