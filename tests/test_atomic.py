"""Files are written atomically."""

import errno
import os
from pathlib import Path

import pytest

from skypart.atomic import atomic_path, check_writable, remove_stale_temporaries, write_text
from skypart.errors import SkyPartError


def test_writes_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "note.txt"
    write_text(target, "one é")
    write_text(target, "two")
    assert target.read_text(encoding="utf-8") == "two"
    assert list(target.parent.iterdir()) == [target]


def test_the_temporary_file_is_beside_the_target_with_the_same_suffix(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "data.tar.npz") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".npz"
        assert temporary.name.startswith(".")
        temporary.write_bytes(b"x")
        assert not (tmp_path / "data.tar.npz").exists()
    assert (tmp_path / "data.tar.npz").read_bytes() == b"x"


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt(), SkyPartError("bad photo")])
def test_an_error_in_the_block_keeps_the_old_file(error: BaseException, tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    write_text(target, "old")

    def fail() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_full_disk_raises_and_keeps_the_old_file(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "note.txt"
    write_text(target, "old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    elif step == "rename":
        monkeypatch.setattr(Path, "replace", full)

    def write() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            if step == "write":
                full()

    with pytest.raises(SkyPartError, match=rf"cannot write {target}: No space left.*free disk space"):
        write()
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_paths_that_cannot_be_written_raise(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "file" / "inside.txt", tmp_path / "folder"):
        with pytest.raises(SkyPartError, match=f"cannot write {target}"):
            write_text(target, "text")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder"]


def test_check_writable_raises_and_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    check_writable(tmp_path / "new.txt")
    check_writable(tmp_path / "file")
    for target in (tmp_path, tmp_path / "file" / "inside.txt"):
        with pytest.raises(SkyPartError, match=f"cannot write {target}"):
            check_writable(target)
    assert [p.name for p in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "x"


def test_a_block_that_writes_nothing_raises(tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="cannot write"), atomic_path(tmp_path / "a.txt"):
        pass


def test_files_get_the_default_mode_whatever_their_writer_set(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    private = tmp_path / "private"
    with atomic_path(private) as temporary:
        temporary.write_text("x")
        temporary.chmod(0o600)
    assert private.stat().st_mode == plain.stat().st_mode


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("a.jpg", ".hidden.jpg", "deep/.tmp-12345678.jpg")]
    (tmp_path / "deep").mkdir()
    for file in kept:
        file.touch()
    for target in ("a.jpg", "deep/b.tar.gz", "LICENSE"):
        with atomic_path(tmp_path / target) as temporary:
            temporary.touch()
        temporary.touch()  # as if the process had been killed before the rename
        kept.append(tmp_path / target)
    remove_stale_temporaries(tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(kept)
