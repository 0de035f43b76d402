"""Downloads against a server that breaks off, lies, refuses and vanishes."""

import errno
import hashlib
import shutil
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skypart.datasets.fetch.download import Remote, content_is, download, download_all, git_blob
from skypart.datasets.fetch.web import PassingError, Patience, persist
from skypart.errors import SkyPartError
from tests.datasets.fetch.fake_github import HASTY, FakeGitHub, parts_left

CONTENT = np.random.default_rng(0).integers(0, 256, 200_000, dtype=np.uint8).tobytes()


def offer(github: FakeGitHub, content: bytes = CONTENT, name: str = "file.bin") -> Remote:
    github.repositories.setdefault("some/where@c", {})[name] = content
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return Remote(f"{github.address}/raw/some/where/c/{name}", len(content), blob)


def test_git_names_content_this_way(tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(b"hello\n")
    assert git_blob(tmp_path / "hello") == "ce013625030ba8dba906f756967f9e9ca394464a", "as `git hash-object` says"
    (tmp_path / "empty").touch()
    assert git_blob(tmp_path / "empty") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def test_a_broken_connection_goes_on_where_it_broke(github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    github.breaks, github.break_after = 5, 30_000
    told: list[int] = []
    download(remote, tmp_path / "file.bin", HASTY, told.append)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    starts = [int((asked or "bytes=0-").removeprefix("bytes=").removesuffix("-")) for _, asked in github.requests]
    assert starts == [0, 30_000, 60_000, 90_000, 120_000, 150_000]
    assert told[0] == 0 and told[-1] == len(CONTENT) and told == sorted(told)
    assert not parts_left(tmp_path)


def test_an_earlier_process_leaves_its_part(github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:123_456])
    download(remote, tmp_path / "file.bin", HASTY)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [asked for _, asked in github.requests] == ["bytes=123456-"]


def test_what_is_complete_is_not_asked_for(github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    (tmp_path / "file.bin").write_bytes(CONTENT)
    (tmp_path / "other.bin.part").write_bytes(CONTENT)
    download(remote, tmp_path / "file.bin", HASTY)
    download(remote, tmp_path / "other.bin", HASTY)
    assert github.requests == []
    assert (tmp_path / "other.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("lying", [b"x" * 5000, b"x" * 200_000, b"x" * 300_000])
def test_a_part_of_another_file_is_thrown_away(lying: bytes, github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    (tmp_path / "file.bin.part").write_bytes(lying)
    download(remote, tmp_path / "file.bin", HASTY)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_longer_than_a_file_of_unknown_size(github: FakeGitHub, tmp_path: Path) -> None:
    url = offer(github).url
    (tmp_path / "file.bin.part").write_bytes(b"x" * 300_000)
    download(Remote(url), tmp_path / "file.bin", HASTY)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [asked for _, asked in github.requests] == ["bytes=300000-", None]


def test_servers_without_ranges_and_lengths(github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    github.without_ranges = github.without_length = True
    github.breaks, github.break_after = 2, 30_000
    told: list[int] = []
    download(remote, tmp_path / "file.bin", HASTY, told.append)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert told[-1] == len(CONTENT), "begun anew, and said so"


def test_a_wrong_checksum_leaves_nothing(github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    github.altered.add("/raw/some/where/c/file.bin")
    with pytest.raises(SkyPartError, match="another size or checksum") as told:
        download(remote, tmp_path / "file.bin", HASTY)
    assert remote.url in str(told.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [401, 404, 410])
def test_final_answers_are_not_repeated(code: int, github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    github.codes["file.bin"] = [code] * 9
    with pytest.raises(SkyPartError, match=rf"answers {code} .*moved, gone or closed"):
        download(remote, tmp_path / "file.bin", HASTY)
    assert len(github.requests) == 1
    assert list(tmp_path.iterdir()) == []


class Pauses(threading.Event):
    """Takes note of the pauses and makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.made.append(timeout)
        return self.is_set()


def test_passing_answers_are(github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    stop = Pauses()
    github.codes["file.bin"], github.headers = [503, 429], {"Retry-After": "7"}
    download(remote, tmp_path / "file.bin", HASTY, stop=stop)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert stop.made == [7.0, 7.0]
    github.codes["file.bin"], github.headers = [500] * 9, {}
    stop.made.clear()
    with pytest.raises(SkyPartError, match=r"cannot be reached \(500 .*start the same command again"):
        download(remote, tmp_path / "again.bin", Patience(attempts=4, pause_s=0.5), stop=stop)
    assert stop.made == [0.5, 1.0, 2.0]


def test_nothing_is_repeated_after_a_stop() -> None:
    stop, tried = threading.Event(), []

    def fail() -> None:
        tried.append(1)
        stop.set()
        raise PassingError("broken")

    for _ in range(2):
        with pytest.raises(SkyPartError, match="stopped; start the same command again"):
            persist(fail, "http://some.where", Patience(pause_s=30.0), stop=stop)
    assert len(tried) == 1, "neither again, nor at all once it is set"


def test_rations_are_told(github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github)
    github.codes["file.bin"], github.headers = [403], {"X-RateLimit-Remaining": "0"}
    with pytest.raises(SkyPartError, match=r"too many requests.*wait an hour"):
        download(remote, tmp_path / "file.bin", HASTY)


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"cannot be reached \(.*\); connect to the network"):
        download(Remote("http://127.0.0.1:9/file.bin"), tmp_path / "file.bin", HASTY)
    with pytest.raises(SkyPartError, match="not a web address"):
        download(Remote("file:///etc/passwd"), tmp_path / "file.bin", HASTY)


def test_the_disk_says_no(github: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = offer(github)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SkyPartError, match=r"cannot write .*file\.bin: File exists; free disk space"):
        download(remote, tmp_path / "file" / "file.bin", HASTY)
    assert github.requests == []

    real = Path.open

    def full(self: Path, mode: str = "r", *given: Any, **named: Any) -> Any:
        if mode in ("ab", "wb"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, mode, *given, **named)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(SkyPartError, match="No space left on device"):
        download(remote, tmp_path / "file.bin", HASTY)


def test_many_files_at_once(github: FakeGitHub, tmp_path: Path) -> None:
    names = [f"{index}.bin" for index in range(40)]
    wanted = {tmp_path / name: offer(github, CONTENT[index:], name) for index, name in enumerate(names)}
    github.breaks, github.break_after = 30, 50_000
    download_all(wanted, "test", HASTY)
    assert all(content_is(file, remote) for file, remote in wanted.items())
    asked = len(github.requests)
    download_all(wanted, "test", HASTY)
    assert len(github.requests) == asked, "nothing to do the second time"


def test_the_first_failure_stops_the_others(github: FakeGitHub, tmp_path: Path) -> None:
    names = [f"{index:03}.bin" for index in range(200)]
    wanted = {tmp_path / name: offer(github, CONTENT[:1000], name) for name in names}
    del github.repositories["some/where@c"]["000.bin"]
    with pytest.raises(SkyPartError, match=r"000\.bin: the server answers 404"):
        download_all(wanted, "test", HASTY)
    assert len(github.requests) < len(wanted)


def test_one_that_waits_hears_of_the_failure_of_another(github: FakeGitHub, tmp_path: Path) -> None:
    wanted = {tmp_path / name: offer(github, CONTENT, name) for name in ("busy.bin", "gone.bin")}
    del github.repositories["some/where@c"]["gone.bin"]
    github.codes["busy.bin"], github.headers = [503] * 9, {"Retry-After": "5"}
    with pytest.raises(SkyPartError, match=r"gone\.bin: the server answers 404"):
        download_all(wanted, "test", HASTY)
    assert sum(path.endswith("busy.bin") for path, _ in github.requests) < HASTY.attempts


def test_an_empty_file(github: FakeGitHub, tmp_path: Path) -> None:
    remote = offer(github, b"")
    download(remote, tmp_path / "file.bin", HASTY)
    assert (tmp_path / "file.bin").read_bytes() == b"" and not parts_left(tmp_path)
    with pytest.raises(SkyPartError, match="another size or checksum"):
        download(Remote(remote.url, 0, "0" * 40), tmp_path / "other.bin", HASTY)
    assert not parts_left(tmp_path)


def test_too_little_space(github: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = offer(github)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 10**6 - 10**5, 10**5))
    with pytest.raises(SkyPartError, match=r"GB are to be downloaded and .* GB are free"):
        download_all({tmp_path / "deep" / "file.bin": remote}, "test", HASTY)
    assert github.requests == [] and list(tmp_path.iterdir()) == []
