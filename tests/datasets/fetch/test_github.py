"""Listings of repositories."""

from pathlib import Path

import pytest

from skypart.datasets.fetch.github import Snapshot, list_files
from skypart.errors import SkyPartError
from tests.datasets.fetch.fake_github import FAST_RETRIES, FakeGitHub

SNAPSHOT = Snapshot("some/one", "abc", "deep/in side")
FILES = {
    "README.md": b"outside",
    "deep/other/x.bin": b"outside too",
    "deep/in side/a.bin": b"a",
    "deep/in side/sub/b.bin": b"bb",
    "deep/in side/sub/sub/c d.bin": b"ccc",
    "deep/in side/sub/sub/e.bin": b"eeee",
}


@pytest.mark.parametrize("short", [False, True])
def test_all_files_below_the_folder(short: bool, github: FakeGitHub, tmp_path: Path) -> None:
    github.repositories["some/one@abc"] = FILES
    github.short_listings = short
    listing = list_files(SNAPSHOT, tmp_path / "listing.json", github.hosts, FAST_RETRIES)
    assert {path: remote.size for path, remote in listing.items()} == {
        "a.bin": 1,
        "sub/b.bin": 2,
        "sub/sub/c d.bin": 3,
        "sub/sub/e.bin": 4,
    }
    odd = listing["sub/sub/c d.bin"]
    assert odd.url == f"{github.address}/raw/some/one/abc/deep/in%20side/sub/sub/c%20d.bin"
    assert odd.git_blob is not None and len(odd.git_blob) == 40
    asked = len(github.requests)
    assert list_files(SNAPSHOT, tmp_path / "listing.json", github.hosts, FAST_RETRIES) == listing
    assert len(github.requests) == asked, "GitHub rations listings: asked once"


def test_a_listing_cannot_lead_out_of_the_folder(github: FakeGitHub, tmp_path: Path) -> None:
    github.repositories["some/one@abc"] = FILES | {"deep/in side/../../../evil": b"evil"}
    assert not any("evil" in path for path in list_files(SNAPSHOT, tmp_path / "l.json", github.hosts, FAST_RETRIES))


def test_bad_listings_raise(github: FakeGitHub, tmp_path: Path) -> None:
    cache = tmp_path / "listing.json"
    with pytest.raises(SkyPartError, match="responded 404"):
        list_files(SNAPSHOT, cache, github.hosts, FAST_RETRIES)
    github.repositories["some/one@abc"] = {"deep/x": b"x"}
    with pytest.raises(SkyPartError, match=r"tree/abc/deep/in side: the folder no longer exists"):
        list_files(SNAPSHOT, cache, github.hosts, FAST_RETRIES)
    github.codes["abc"] = [200]
    with pytest.raises(SkyPartError, match="the response is not JSON"):
        list_files(SNAPSHOT, cache, github.hosts, FAST_RETRIES)
    assert not cache.exists()
    cache.write_text("[1, 2")
    with pytest.raises(SkyPartError, match="the cached listing is damaged; delete it"):
        list_files(SNAPSHOT, cache, github.hosts, FAST_RETRIES)
