"""`skypart models`: the shipped model, those in the user's caches, and the backbones known by name."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import CacheNotFound, scan_cache_dir, try_to_load_from_cache
from rich.console import Console
from rich.table import Table
from rich.text import Text
from safetensors import safe_open

from skypart.embedding.shipped import pinned_sha256, sha256_of, shipped_model
from skypart.errors import SkyPartError
from skypart.model.sources import (
    BACKBONES,
    SUFFIXES,
    Published,
    find_in_folder,
    find_weights,
    hub_layout_file,
    weights_folders,
)
from skypart.model.storage import read_header, read_metadata

FOOTNOTE = (
    "You can also pass a file or folder, OWNER/NAME[@REVISION] of the Hugging Face hub, and as backbones "
    "untrained:tiny, untrained:vits14 and transformers:NAME."
)
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Endings of the names of tensors that are not parameters."""


@dataclass(frozen=True)
class Entry:
    """A model (`skypart.load`, --model) or a backbone (`skypart new`, backbone.name) and what is known about it.

    name: what to pass. place: shipped, weights folder, hub cache, hub, or elsewhere. file: its path, if it is local.
    state: whether it can be used now. about: its provenance, or how to get it.
    """

    name: str
    kind: Literal["model", "backbone"]
    place: str
    state: str
    about: str = ""
    file: str | None = None
    megabytes: float | None = None
    sha256: str | None = None


def list_models(hub_cache: Path | None = None) -> list[Entry]:
    """All known models and backbones, the shipped model first. hub_cache: instead of Hugging Face's default folder."""
    return [default_entry(), *_folder_entries(), *_hub_models(hub_cache), *backbone_entries(hub_cache)]


def read_card(path: Path) -> dict[str, Any]:
    """What a model card shows about a model file, read from its header and tensor shapes; loads no weights."""
    header = read_metadata(path)
    provenance = header["provenance"]
    with safe_open(path, "pt") as file:
        names = [key for key in file.keys() if not key.endswith(STATISTICS)]  # noqa: SIM118
        parameters = sum(math.prod(file.get_slice(key).get_shape()) for key in names)
    return {
        "parameters": parameters,
        "size": header["preprocessing"]["size"],
        "interpolation": header["preprocessing"]["interpolation"],
        "backbone": provenance.get("backbone", header["backbone"].get("kind", "vit")),
        "readout": header["head"].get("readout", "full"),
        "skypart_version": header["skypart_version"],
        **{key: provenance[key] for key in ("training", "date", "results", "licence_chain") if key in provenance},
    }


def default_entry() -> Entry:
    """The model shipped with the package. Its state is absent, verified, refused, altered or cannot be used."""
    file = shipped_model()
    if not file.is_file():
        return Entry("default", "model", "shipped", "absent", "missing from the package; reinstall skypart")
    digest, pinned = sha256_of(file), pinned_sha256(file)
    if pinned is None:
        state = "refused: SHA256SUMS has no hash for it; reinstall skypart"
    else:
        state = "verified" if digest == pinned else "altered: SHA-256 differs; reinstall skypart"
    return _entry("default", "shipped", file, state, digest)


def _entry(name: str, place: str, file: Path, state: str, digest: str | None = None) -> Entry:
    """The entry of a local model or backbone file."""
    kind: Literal["model", "backbone"] = "backbone"
    about = "weights of a backbone"
    try:
        if file.suffix == ".safetensors" and read_header(file).get("format") == "skypart":
            kind = "model"
            about = _summary(read_card(file))
    except SkyPartError as error:
        state, about = "cannot be used", str(error)
    return Entry(name, kind, place, state, about, str(file), round(file.stat().st_size / 1e6, 1), digest)


def _summary(card: dict[str, Any]) -> str:
    """A model card in one line."""
    parts = [f"{card['parameters'] / 1e6:.1f} M", f"{card['size']} px", f"from {card['backbone']}"]
    return "; ".join([*parts, *(str(card[key]) for key in ("training", "date") if key in card)])


def _folder_entries() -> Iterator[Entry]:
    """Files and Hugging Face folders in the weights folders. A file whose name is taken is listed by its path."""
    for folder in dict.fromkeys(weights_folders()):
        for found in sorted(folder.iterdir()) if folder.is_dir() else []:
            file = hub_layout_file(found) if found.is_dir() else found
            if file is None or not file.is_file() or file.suffix not in SUFFIXES or found.name.startswith("."):
                continue
            name = found.name if found.is_dir() else found.stem
            if name in BACKBONES:
                continue  # listed with the backbones
            hidden = find_weights(name) != found or name == "default"  # `default` is the shipped model
            yield _entry(str(found) if hidden else name, "weights folder", file, "here")


def _hub_models(hub_cache: Path | None) -> list[Entry]:
    """SkyPart models in the hub cache."""
    try:
        repositories = scan_cache_dir(hub_cache).repos
    except CacheNotFound:
        return []
    entries = []
    for repository in sorted(repositories, key=lambda each: each.repo_id):
        for revision in sorted(repository.revisions, key=lambda each: each.commit_hash):
            for file in revision.files:
                if repository.repo_type == "model" and file.file_name == "model.safetensors":
                    name = f"{repository.repo_id}@{revision.commit_hash}"
                    entries.append(_entry(name, "hub cache", file.file_path, "here"))
    return [entry for entry in entries if entry.kind == "model"]


def backbone_entries(hub_cache: Path | None = None) -> list[Entry]:
    """The backbones known by name: local, on the hub, or to be downloaded by hand."""
    return [_backbone(name, published, hub_cache) for name, published in BACKBONES.items()]


def _backbone(name: str, published: Published, hub_cache: Path | None) -> Entry:
    for folder in weights_folders():
        file = find_in_folder(folder, name) or hub_layout_file(folder / name)
        if file is not None:
            size = round(file.stat().st_size / 1e6, 1)
            return Entry(name, "backbone", "weights folder", "here", published.title, str(file), size)
    if published.repository is None:
        about = f"{published.title}: put {published.obtain} into {weights_folders()[-1]} as {name}.pth"
        return Entry(name, "backbone", "elsewhere", "download by hand", about)
    about = f"{published.title}, {published.repository}"
    cached = try_to_load_from_cache(published.repository, "model.safetensors", hub_cache, published.revision)
    if isinstance(cached, str) and Path(cached).is_file():
        size = round(Path(cached).stat().st_size / 1e6, 1)
        return Entry(name, "backbone", "hub cache", "here", about, cached, size)
    return Entry(name, "backbone", "hub", "downloaded on first use", about)


def print_models(entries: list[Entry], as_json: bool = False) -> None:
    """Print the entries as a table, or as JSON."""
    if as_json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    console = Console()
    for kind in ("model", "backbone"):
        table = Table(title=f"{kind.capitalize()}s", title_justify="left")
        for title in ("name", "place", "MB", "state", "about"):
            table.add_column(title, overflow="fold", justify="right" if title == "MB" else "left")
        for entry in (each for each in entries if each.kind == kind):
            size = "" if entry.megabytes is None else f"{entry.megabytes:.1f}"
            table.add_row(*map(Text, (entry.name, entry.place, size, entry.state, entry.about)))
        console.print(table)
    console.print(Text(FOOTNOTE))
