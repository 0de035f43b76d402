import json
import multiprocessing
import os
import resource
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim import AdamW

from skypart import __version__
from skypart.errors import SkyPartError
from skypart.training import checkpoint as module
from skypart.training.checkpoint import (
    Progress,
    code_version,
    list_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    read_facts,
    save_checkpoint,
)

FORK = multiprocessing.get_context("fork")  # a fresh interpreter would spend seconds on importing torch
FACTS = {"recipe": {"run": {"seed": 1}}, "code": "x", "data": {"fingerprint": "f"}}


def learned(seed: int = 0, steps: int = 3) -> tuple[dict[str, nn.Module], AdamW]:
    """Two small modules, one with running statistics, and an optimiser after a few steps."""
    torch.manual_seed(seed)
    modules: dict[str, nn.Module] = {
        "student": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
        "loss": nn.Linear(3, 1),
    }
    optimiser = AdamW([p for m in modules.values() for p in m.parameters()], lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        modules["loss"](modules["student"](torch.randn(5, 4))).square().sum().backward()
        optimiser.step()
    return modules, optimiser


def save(folder: Path, step: int, keep: int = 2, seed: int = 0) -> Path:
    modules, optimiser = learned(seed)
    return save_checkpoint(folder, modules, optimiser, Progress(step=step), FACTS, keep)


def same_state(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return set(one) == set(other) and all(torch.equal(one[key], other[key]) for key in one)


def test_a_checkpoint_restores_everything(tmp_path: Path) -> None:
    modules, optimiser = learned(0)
    random_state = torch.get_rng_state()
    progress = Progress(7, 12.5, 6, [{"epoch": 1, "score": 12.5}])
    path = save_checkpoint(tmp_path, modules, optimiser, progress, FACTS, 2)
    others, other_optimiser = learned(9, steps=1)
    torch.manual_seed(5)
    assert load_checkpoint(path, others, other_optimiser) == progress
    assert read_facts(path) == (progress, FACTS)
    assert torch.equal(torch.get_rng_state(), random_state)
    for name in modules:
        assert same_state(modules[name].state_dict(), others[name].state_dict())
    for mine, theirs in zip(optimiser.state.values(), other_optimiser.state.values(), strict=True):
        assert same_state(mine, theirs)


def test_progress_without_validation_round_trips(tmp_path: Path) -> None:
    assert read_facts(save(tmp_path, 3))[0] == Progress(step=3)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_k_are_kept(tmp_path: Path, keep: int) -> None:
    for step in (5, 10, 90, 100, 1000):
        save(tmp_path, step, keep)
    steps = [read_facts(path)[0].step for path in list_checkpoints(tmp_path)]
    assert steps == [5, 10, 90, 100, 1000][-keep:]
    assert len(list(tmp_path.iterdir())) == keep


def test_a_truncated_newest_file_is_skipped(tmp_path: Path) -> None:
    old, new = save(tmp_path, 1, 9), save(tmp_path, 2, 9)
    whole = new.read_bytes()
    for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        new.write_bytes(whole[:size])
        assert newest_checkpoint(tmp_path) == old
    new.write_bytes(b"not a checkpoint at all")
    assert newest_checkpoint(tmp_path) == old
    new.write_bytes(whole)
    assert newest_checkpoint(tmp_path) == new
    old.unlink()
    new.write_bytes(whole[:100])
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None


def test_a_file_of_another_kind_or_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "step-00000001.ckpt.safetensors", {"format": "skypart"})
    with pytest.raises(SkyPartError, match="not a training checkpoint"):
        read_facts(tmp_path / "step-00000001.ckpt.safetensors")
    monkeypatch.setattr(module, "FORMAT_VERSION", 99)
    newer = save(tmp_path, 2)
    monkeypatch.undo()
    with pytest.raises(SkyPartError, match="newer skypart"):
        read_facts(newer)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    modules: dict[str, nn.Module] = {"student": nn.Linear(2, 2), "loss": nn.Linear(3, 1)}
    optimiser = AdamW([p for m in modules.values() for p in m.parameters()])
    with pytest.raises(SkyPartError, match="student"):
        load_checkpoint(path, modules, optimiser)


def test_a_full_disk_keeps_the_last_checkpoint_and_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = save(tmp_path, 1)
    before = good.read_bytes()

    def full(_: object, path: Path, __: object) -> None:
        Path(path).write_bytes(b"the first half of")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(SkyPartError, match=r"step-00000002.*No space left.*free .*disk"):
        save(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == [good.name] and good.read_bytes() == before
    assert newest_checkpoint(tmp_path) == good


def _write_beyond_the_limit(folder: Path) -> None:
    """In a separate process: the system limits files to half the size of a checkpoint."""
    save(folder, 1)
    size = next(folder.iterdir()).stat().st_size
    whole = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, whole[1]))
    try:
        save(folder, 2)
    except SkyPartError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, whole)
        (folder / "message").write_text(str(error))


def test_a_real_write_error_is_a_clear_message(tmp_path: Path) -> None:
    process = FORK.Process(target=_write_beyond_the_limit, args=(tmp_path,))
    process.start()
    process.join()
    message = (tmp_path / "message").read_text()
    assert "cannot write" in message and "step-00000002" in message and "free disk space" in message
    assert {path.name for path in tmp_path.iterdir()} == {"message", "step-00000001.ckpt.safetensors"}


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _save_and_die(folder: Path, moment: str) -> None:
    """In a separate process: save step 3, but get killed at `moment`."""
    rename, unlink = Path.replace, Path.unlink

    def write_half(state: Any, path: Path, metadata: Any) -> None:
        save_file(state, path, metadata)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        _die()

    def rename_and_die(self: Path, target: Path) -> None:
        rename(self, target)
        _die()

    def die_at_a_checkpoint(self: Path, missing_ok: bool = False) -> None:
        if self.name.startswith("step-"):
            _die()
        unlink(self, missing_ok)

    if moment == "half written":
        module.save_file = write_half  # type: ignore[attr-defined, assignment]
    elif moment == "written, not renamed":
        Path.replace = _die  # type: ignore[method-assign, assignment]
    elif moment == "renamed":
        Path.replace = rename_and_die  # type: ignore[method-assign, assignment]
    else:
        Path.unlink = die_at_a_checkpoint  # type: ignore[method-assign]
    save(folder, 3, seed=3)


@pytest.mark.parametrize(
    ("moment", "newest"), [("half written", 2), ("written, not renamed", 2), ("renamed", 3), ("old one not deleted", 3)]
)
def test_a_kill_at_any_moment_leaves_a_readable_newest_checkpoint(tmp_path: Path, moment: str, newest: int) -> None:
    for step in (1, 2):
        save(tmp_path, step, seed=step)
    process = FORK.Process(target=_save_and_die, args=(tmp_path, moment))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    found = newest_checkpoint(tmp_path)
    assert found is not None and found == list_checkpoints(tmp_path)[-1] and read_facts(found)[0].step == newest
    modules, optimiser = learned(9)
    load_checkpoint(found, modules, optimiser)
    assert same_state(modules["student"].state_dict(), learned(newest)[0]["student"].state_dict())
    assert bool(list(tmp_path.glob(".*"))) == (newest == 2), "a temporary file is left"
    save(tmp_path, newest + 1)
    assert not list(tmp_path.glob(".*")), "the next save deletes it"
    assert [read_step(path) for path in list_checkpoints(tmp_path)] == [newest, newest + 1]


def read_step(path: Path) -> int:
    return int(path.name[5:13])


def test_code_version_starts_with_the_package_version() -> None:
    assert code_version().startswith("0.") and json.dumps(code_version())


def test_code_version_ignores_a_repository_around_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    installed = tmp_path / ".venv" / "skypart" / "training" / "checkpoint.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    (tmp_path / "theirs.py").write_text("")
    git("init", "--quiet")
    git("add", "theirs.py")
    git("commit", "--quiet", "--message", "theirs")
    monkeypatch.setattr(module, "__file__", str(installed))
    assert code_version() == __version__
    git("add", "--force", ".venv")
    git("commit", "--quiet", "--message", "a checkout")
    assert code_version() == f"{__version__}+{git('rev-parse', '--short=12', 'HEAD')}"


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_newer_checkpoint_does_not_displace_an_intact_one(tmp_path: Path, keep: int) -> None:
    save(tmp_path, 200, keep)
    broken = save(tmp_path, 300, keep + 1)
    broken.write_bytes(broken.read_bytes()[:50])
    good = save(tmp_path, 250, keep)
    assert newest_checkpoint(tmp_path) == good
    assert not broken.exists() and len(list_checkpoints(tmp_path)) == keep


def newer_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "FORMAT_VERSION", 99)
        save(path.parent, read_step(path), 9)


def other_progress(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"a": torch.zeros(1)}, path, header(progress='{"step": 2, "moon": 1}'))


def other_kind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"a": torch.zeros(1)}, path, {"format": "skypart"})


def no_permission(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Path.open

    def opened(self: Path, *arguments: Any, **options: Any) -> Any:
        if self == path:
            raise PermissionError(13, "Permission denied")
        return inner(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", opened)


def a_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.unlink()
    path.mkdir()


def header(**changes: str) -> dict[str, str]:
    return {"format": "skypart-training", "format_version": "1", "progress": '{"step": 2}', "facts": "{}"} | changes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (newer_version, "written by a newer skypart; upgrade"),
        (other_progress, "written by another version of skypart"),
        (other_kind, "not a training checkpoint"),
        (no_permission, r"cannot be read \(Permission denied\); fix its permissions"),
        (a_folder, r"cannot be read \(Is a directory\)"),
    ],
)
def test_an_intact_newest_file_is_never_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, words: str
) -> None:
    old, new = save(tmp_path, 1, 9), save(tmp_path, 2, 9)
    make(new, monkeypatch)
    with pytest.raises(SkyPartError, match=rf"step-00000002.*{words}"):
        newest_checkpoint(tmp_path)
    if make is not a_folder:
        save(tmp_path, 1, 1)
        assert new.exists(), "a file that a run could resume from was deleted"
        new.unlink()
    else:
        new.rmdir()
    assert newest_checkpoint(tmp_path) == old


@pytest.mark.parametrize(
    "changes", [{"progress": "{half"}, {"facts": ""}, {"format_version": "one"}, {"progress": "\x00"}]
)
def test_a_checkpoint_with_a_damaged_header_is_skipped(tmp_path: Path, changes: dict[str, str]) -> None:
    old = save(tmp_path, 1, 9)
    save_file({"a": torch.zeros(1)}, tmp_path / "step-00000002.ckpt.safetensors", header(**changes))
    assert newest_checkpoint(tmp_path) == old
    without = header()
    del without["progress"]
    save_file({"a": torch.zeros(1)}, tmp_path / "step-00000002.ckpt.safetensors", without)
    assert newest_checkpoint(tmp_path) == old
