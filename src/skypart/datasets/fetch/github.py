"""Files of a GitHub repository at a pinned commit, with their sizes and git hashes."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skypart.atomic import write_text
from skypart.datasets.fetch.download import RemoteFile
from skypart.datasets.fetch.web import RetryPolicy, read_json
from skypart.errors import SkyPartError


@dataclass(frozen=True)
class Hosts:
    """Addresses of GitHub's API and raw files."""

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
        """Its web page."""
        return f"https://github.com/{self.repository}/tree/{self.commit}/{self.folder}"


def list_files(
    snapshot: Snapshot, cache: Path, hosts: Hosts = Hosts(), retries: RetryPolicy = RetryPolicy()
) -> dict[str, RemoteFile]:
    """All files below the snapshot's folder, by their path in it; cached, because GitHub limits requests."""
    if not cache.is_file():
        listing = _list_remote(snapshot, hosts, retries)
        write_text(cache, json.dumps({path: asdict(remote) for path, remote in listing.items()}))
    try:
        return {path: RemoteFile(**facts) for path, facts in json.loads(cache.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise SkyPartError(
            f"{cache}: the cached listing is damaged; delete it and run the same command again"
        ) from error


def _list_remote(snapshot: Snapshot, hosts: Hosts, retries: RetryPolicy) -> dict[str, RemoteFile]:
    """Walk down to the folder and list everything below it."""
    tree = snapshot.commit
    for name in snapshot.folder.split("/"):
        entries, _ = _tree(snapshot, tree, hosts, retries)
        found = [entry["sha"] for entry in entries if entry["path"] == name and entry["type"] == "tree"]
        if not found:
            raise SkyPartError(f"{snapshot.address}: the folder no longer exists; the source has changed")
        tree = found[0]
    below = _below(snapshot, tree, "", hosts, retries)
    base = f"{hosts.raw}/{snapshot.repository}/{snapshot.commit}/{quote(snapshot.folder)}"
    return {path: RemoteFile(f"{base}/{quote(path)}", size, blob) for path, size, blob in below}


def _below(
    snapshot: Snapshot, tree: str, prefix: str, hosts: Hosts, retries: RetryPolicy
) -> list[tuple[str, int, str]]:
    """(path, size, blob) of every file below a tree; large trees are listed folder by folder."""
    entries, complete = _tree(snapshot, f"{tree}?recursive=1", hosts, retries)
    if not complete:
        entries, _ = _tree(snapshot, tree, hosts, retries)
    files = [
        (f"{prefix}{entry['path']}", int(entry["size"]), str(entry["sha"]))
        for entry in entries
        if entry["type"] == "blob" and ".." not in entry["path"].split("/")
    ]
    if not complete:
        for entry in entries:
            if entry["type"] == "tree":
                files += _below(snapshot, entry["sha"], f"{prefix}{entry['path']}/", hosts, retries)
    return files


def _tree(snapshot: Snapshot, tree: str, hosts: Hosts, retries: RetryPolicy) -> tuple[list[dict[str, Any]], bool]:
    """The entries of a git tree, and whether the list is complete."""
    url = f"{hosts.api}/repos/{snapshot.repository}/git/trees/{tree}"
    answer = read_json(url, retries)
    try:
        entries = [entry for entry in answer["tree"] if {"path", "type", "sha"} <= set(entry)]
        return entries, not answer.get("truncated", False)
    except (KeyError, TypeError, AttributeError) as error:
        raise SkyPartError(f"{url}: the response is not a listing; GitHub's API may have changed") from error
