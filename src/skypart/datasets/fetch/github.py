"""Files of a GitHub repository at a pinned commit, with the sizes and hashes git knows them by."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skypart.atomic import write_text
from skypart.datasets.fetch.download import Remote
from skypart.datasets.fetch.web import Patience, read_json
from skypart.errors import SkyPartError


@dataclass(frozen=True)
class Hosts:
    """Where GitHub answers."""

    api: str = "https://api.github.com"
    raw: str = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Snapshot:
    """A folder of a repository (OWNER/NAME) at a commit."""

    repository: str
    commit: str
    folder: str

    @property
    def address(self) -> str:
        """Where people find it."""
        return f"https://github.com/{self.repository}/tree/{self.commit}/{self.folder}"


def list_files(
    snapshot: Snapshot, cache: Path, hosts: Hosts = Hosts(), patience: Patience = Patience()
) -> dict[str, Remote]:
    """All files below the snapshot's folder, by their path in it; kept in `cache`, for GitHub rations its listings."""
    if not cache.is_file():
        listing = _list(snapshot, hosts, patience)
        write_text(cache, json.dumps({path: asdict(remote) for path, remote in listing.items()}))
    try:
        return {path: Remote(**facts) for path, facts in json.loads(cache.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise SkyPartError(f"{cache}: a damaged listing; delete it and start the same command again") from error


def _list(snapshot: Snapshot, hosts: Hosts, patience: Patience) -> dict[str, Remote]:
    """Walk down to the folder, then take all below it."""
    tree = snapshot.commit
    for name in snapshot.folder.split("/"):
        entries, _ = _tree(snapshot, tree, hosts, patience)
        found = [entry["sha"] for entry in entries if entry["path"] == name and entry["type"] == "tree"]
        if not found:
            raise SkyPartError(f"{snapshot.address}: no such folder any more; the source has changed")
        tree = found[0]
    below = _below(snapshot, tree, "", hosts, patience)
    base = f"{hosts.raw}/{snapshot.repository}/{snapshot.commit}/{quote(snapshot.folder)}"
    return {path: Remote(f"{base}/{quote(path)}", size, blob) for path, size, blob in below}


def _below(snapshot: Snapshot, tree: str, prefix: str, hosts: Hosts, patience: Patience) -> list[tuple[str, int, str]]:
    """(path, size, blob) of every file below a tree; one that is too large to list whole is listed branch by branch."""
    entries, whole = _tree(snapshot, f"{tree}?recursive=1", hosts, patience)
    if not whole:
        entries, _ = _tree(snapshot, tree, hosts, patience)
    files = [
        (f"{prefix}{entry['path']}", int(entry["size"]), str(entry["sha"]))
        for entry in entries
        if entry["type"] == "blob" and ".." not in entry["path"].split("/")
    ]
    if not whole:
        for entry in entries:
            if entry["type"] == "tree":
                files += _below(snapshot, entry["sha"], f"{prefix}{entry['path']}/", hosts, patience)
    return files


def _tree(snapshot: Snapshot, tree: str, hosts: Hosts, patience: Patience) -> tuple[list[dict[str, Any]], bool]:
    """The entries of a git tree, and whether they are all."""
    url = f"{hosts.api}/repos/{snapshot.repository}/git/trees/{tree}"
    answer = read_json(url, patience)
    try:
        entries = [entry for entry in answer["tree"] if {"path", "type", "sha"} <= set(entry)]
        return entries, not answer.get("truncated", False)
    except (KeyError, TypeError, AttributeError) as error:
        raise SkyPartError(f"{url}: does not answer with a listing; GitHub may have changed its ways") from error
