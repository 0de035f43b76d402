"""A killed writer leaves the state before or after a change. Only one process writes; readers never wait."""

import os
import shutil
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.maps.store import embedded, segment
from skypart.maps.store import manifest as store_manifest
from skypart.maps.store.embedded import EmbeddedStore
from skypart.maps.store.writer import LOCK
from tests.maps.store.builders import brute_force, make_batch, rows_of, unit_vectors

QUERIES = unit_vectors(3, 99)


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; its number."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def kill_at(number: int) -> None:
    """Let this process die, as by kill -9, before its `number`-th change of the disk."""
    calls = 0

    def dying(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for module, name in ((os, "fsync"), (os, "replace"), (os, "unlink"), (segment, "write_array")):
        setattr(module, name, dying(getattr(module, name)))


def change(folder: Path) -> None:
    """Replace one map and add to another, which merges segments."""
    store = EmbeddedStore(folder)
    store.add(make_batch(60, 3, "port"))
    with store.transaction():
        store.remove("town")
        store.add(make_batch(25, 4, "town"))


@pytest.mark.slow
def test_kill_at_every_step_leaves_the_state_before_or_after(tmp_path: Path) -> None:
    def start(folder: Path) -> None:
        with EmbeddedStore(folder) as store:
            store.add(make_batch(40, 0, "town"))
            store.add(make_batch(30, 1, "port"))

    start(tmp_path / "start")
    start(tmp_path / "whole")
    states = [EmbeddedStore(tmp_path / "whole").search(QUERIES, 200)]
    with EmbeddedStore(tmp_path / "whole") as store:
        store.add(make_batch(60, 3, "port"))
        states.append(store.search(QUERIES, 200))
    with EmbeddedStore(tmp_path / "whole") as store, store.transaction():
        store.remove("town")
        store.add(make_batch(25, 4, "town"))
    states.append(EmbeddedStore(tmp_path / "whole").search(QUERIES, 200))
    reached = set()
    for number in range(1, 100):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "start", folder)

        def work(folder: Path = folder, number: int = number) -> None:
            kill_at(number)
            change(folder)

        _, status = os.waitpid(in_child(work), 0)
        store = EmbeddedStore(folder)
        store.verify()
        state = states.index(store.search(QUERIES, 200))  # one of the three, row numbers and scores included
        reached.add(state)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        with EmbeddedStore(folder) as store:  # the next writer deletes leftovers and continues
            store.add(make_batch(1, 5, "isle"))
            names = {path.name for path in folder.iterdir()}
            assert len(names) == 2 * store.stats().segments + 2, names
    assert status == 0, "the change was never done without a kill"
    assert number > 15
    assert reached == {0, 1, 2}


@pytest.mark.slow
def test_repeatedly_killed_writer_leaves_whole_batches_and_finishes(tmp_path: Path) -> None:
    batches = [make_batch(50, seed) for seed in range(60)]
    rng = np.random.default_rng(0)
    kills = 0
    while True:
        step = int(rng.integers(1, 80))

        def work(step: int = step) -> None:
            kill_at(step)
            store = EmbeddedStore(tmp_path / "killed")
            for views in batches[store.stats().views // 50 :]:
                store.add(views)

        _, status = os.waitpid(in_child(work), 0)
        kills += os.WIFSIGNALED(status)
        store = EmbeddedStore(tmp_path / "killed")
        store.verify()
        views = store.stats().views
        assert views % 50 == 0
        if status == 0:
            break
        vectors = np.concatenate([b.vectors for b in batches[: views // 50]] or [np.zeros((0, 24), np.float16)])
        assert rows_of(store.search(QUERIES, 5)) == brute_force(vectors, QUERIES, 5)
    assert kills > 3 and views == 50 * len(batches)
    with EmbeddedStore(tmp_path / "whole") as store:
        for batch in batches:
            store.add(batch)
    for path in (tmp_path / "whole").iterdir():  # as if it had never been killed
        if path.name != "writer.lock":
            assert (tmp_path / "killed" / path.name).read_bytes() == path.read_bytes()


def test_readers_see_whole_states_while_another_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SMALL_BYTES", 0)
    batches = [make_batch(20, seed) for seed in range(40)]
    vectors = np.concatenate([views.vectors for views in batches])

    def work() -> None:
        store = EmbeddedStore(tmp_path)
        for views in batches:
            os.read(steps[0], 1)  # not ahead of the readers by more than a batch
            store.add(views)

    steps = os.pipe()
    EmbeddedStore(tmp_path).add(make_batch(0, 0))
    child = in_child(work)
    follower = EmbeddedStore(tmp_path)
    seen: set[int] = set()
    try:
        while len(seen) < 2 or max(seen) < len(vectors):
            os.write(steps[1], b"x")
            follower.refresh()
            for store in (follower, EmbeddedStore(tmp_path)):
                answer = rows_of(store.search(QUERIES, 800))
                views = len(answer[0])
                assert answer == brute_force(vectors[:views], QUERIES, 800)
                assert views % 20 == 0
                seen.add(views)
            if os.waitpid(child, os.WNOHANG) != (0, 0):
                child = 0
                follower.refresh()
                assert len(follower.search(QUERIES, 800)[0]) == len(vectors)
                break
        assert len(seen) > 5
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_second_writer_learns_who_is_writing(tmp_path: Path) -> None:
    ready, go = os.pipe(), os.pipe()

    def work() -> None:
        store = EmbeddedStore(tmp_path)
        store.add(make_batch(5, 0))
        os.write(ready[1], b"x")
        os.read(go[0], 1)

    child = in_child(work)
    os.read(ready[0], 1)
    second = EmbeddedStore(tmp_path)
    with pytest.raises(SkyPartError, match=f"is being written by process {child}; wait"):
        second.add(make_batch(5, 1))
    with pytest.raises(SkyPartError, match=f"process {child}"):
        second.remove("town")
    assert len(second.search(QUERIES, 9)[0]) == 5  # reading still works
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    second.add(make_batch(5, 1))  # a dead writer holds no lock
    assert second.stats().views == 10
    with pytest.raises(SkyPartError, match=f"process {os.getpid()}"):
        EmbeddedStore(tmp_path).add(make_batch(5, 2))
    second.close()
    EmbeddedStore(tmp_path).add(make_batch(5, 2))


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as store:
        store.add(make_batch(5, 0))
        ends = os.pipe()
        child = in_child(lambda: os.read(ends[0], 1))
    try:
        EmbeddedStore(tmp_path).add(make_batch(5, 1))
    finally:
        os.write(ends[1], b"x")
        os.waitpid(child, 0)


def test_threads_search_while_the_store_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SMALL_BYTES", 0)
    batches = [make_batch(40, seed) for seed in range(25)]
    vectors = np.concatenate([views.vectors for views in batches])
    store = EmbeddedStore(tmp_path)
    store.add(batches[0])
    done = threading.Event()

    def search(_: int) -> set[int]:
        sizes = set()
        while not done.is_set():
            answer = rows_of(store.search(QUERIES, 5)), len(store.search(QUERIES[:1], 1_000)[0])
            sizes.add(answer[1])
            allowed = [plain[n] for n in range(40, answer[1] + 40, 40) if n in plain]
            assert answer[0] in allowed
        return sizes

    plain = {n: brute_force(vectors[:n], QUERIES, 5) for n in range(40, 1_001, 40)}
    with ThreadPoolExecutor(4) as pool:
        searches = [pool.submit(search, number) for number in range(4)]
        try:
            for views in batches[1:]:
                store.add(views)
        finally:
            done.set()
        for running in searches:
            assert running.result() <= set(plain)


def test_a_writer_starts_from_the_newest_state(tmp_path: Path) -> None:
    early = EmbeddedStore(tmp_path)
    with EmbeddedStore(tmp_path) as other:
        other.add(make_batch(5, 0))
    early.add(make_batch(7, 1))
    assert early.stats().views == 12


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    strays = {".manifest.tmp-0123abcd.json", "000000000007-3.vectors.npy", ".000000000007-3.vectors.tmp-89abcdef.npy"}
    ours = {"notes.txt", "weights.npy", ".hidden.npy", "index.json"}
    EmbeddedStore(tmp_path).add(make_batch(5, 0))
    for name in strays | ours:
        (tmp_path / name).write_text("x")
    EmbeddedStore(tmp_path).add(make_batch(50, 1))
    left = {path.name for path in tmp_path.iterdir()}
    assert ours < left
    assert not strays & left


def test_full_disk_leaves_the_state_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(5, 0))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SkyPartError, match="No space left"):
            store.add(make_batch(9, 1))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    store.add(make_batch(9, 1))
    assert store.stats().views == 14


def test_folder_without_write_permission_raises_a_clear_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SkyPartError, match="cannot write to"):
            EmbeddedStore(tmp_path / "store").add(make_batch(1, 0))
    finally:
        tmp_path.chmod(0o700)


def test_everything_is_flushed_before_the_manifest_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(5, 0))
    steps: list[tuple[str, str]] = []
    replace = os.replace

    def renamed(source: Path, target: Path) -> None:
        steps.append(("rename", Path(target).name))
        replace(source, target)

    def flushed(handle: int) -> None:
        steps.append(("flush", Path(f"/proc/self/fd/{handle}").readlink().name))

    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "fsync", flushed)
    store.add(make_batch(2, 1))
    kinds = [kind if name == tmp_path.name else f"{kind} {name.split('.')[-1]}" for kind, name in steps]
    assert kinds == [
        *("flush npy", "rename npy", "flush npy", "rename npy"),
        *("flush", "flush json", "rename json", "flush"),  # the folder, the manifest, the folder
    ]


def test_interrupt_after_the_rename_keeps_the_new_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddedStore(tmp_path)
    store.add(make_batch(5, 0))
    write = store_manifest.write_manifest

    def interrupted(*arguments: Any) -> None:
        write(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(embedded, "write_manifest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.add(make_batch(9, 1))
    assert store.stats().views == 14
    store.close()
    again = EmbeddedStore(tmp_path)
    again.verify()
    assert again.stats().views == 14


def test_lock_names_only_its_current_holder(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("12345678901234567890")
    with EmbeddedStore(tmp_path) as store:
        store.add(make_batch(1, 0))
        assert (tmp_path / LOCK).read_text() == str(os.getpid())


def test_filesystem_without_locks_raises_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with pytest.raises(SkyPartError, match=r"cannot lock .*Operation not supported; keep the store on a local disk"):
        EmbeddedStore(tmp_path).add(make_batch(1, 0))


def test_failed_start_of_a_writer_releases_the_lock(tmp_path: Path) -> None:
    EmbeddedStore(tmp_path).add(make_batch(5, 0))
    store = EmbeddedStore(tmp_path)
    good = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").write_bytes(b"{}")
    with pytest.raises(SkyPartError, match="damaged"):
        store.add(make_batch(5, 1))
    (tmp_path / "manifest.json").write_bytes(good)
    with EmbeddedStore(tmp_path) as other:
        other.add(make_batch(5, 1))
        assert other.stats().views == 10
