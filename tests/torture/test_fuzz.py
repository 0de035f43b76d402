"""The quick part of fuzzing: every committed case, and a few mutations of every format."""

import random
from pathlib import Path

import pytest

from tests.torture.fuzz import CORPUS, NAMES, attempt, corpus, fuzz, make_input, targets


def test_every_seed_is_valid(tmp_path: Path) -> None:
    """Fuzzing starts from files that are read to their end; else it would only test the first check."""
    every = targets(tmp_path)
    assert sorted(every) == sorted(NAMES)
    for name, target in every.items():
        for number, seed in enumerate(target.seeds):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            target.read(seed, folder)


def test_inputs_reach_behind_checksums(tmp_path: Path) -> None:
    """Without `inside`, almost every mutation would end at the first checksum."""
    every = targets(tmp_path)
    for name, target in every.items():
        if target.inside is None:
            continue
        found = [target.inside(seed, bytes) for seed in target.seeds]  # no change at all: still valid
        for number, seed in enumerate(found):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            target.read(seed, folder)
        chosen = random.Random(1)
        assert len({make_input(target, target.seeds[:1], chosen) for _ in range(20)}) > 10, name


def test_committed_cases_stay_fixed(tmp_path: Path) -> None:
    every = targets(tmp_path)
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} <= set(every)
    wrong = {
        name: [attempt(target, data, tmp_path) for data in corpus(name)]
        for name, target in every.items()
        if corpus(name)
    }
    assert not any(any(found) for found in wrong.values()), wrong


@pytest.mark.parametrize("piece", [b"<", b"9", b"G.PRY (1", b"a", b" ", b"a ", b"a:1", b"00:"])
def test_captions_are_read_in_linear_time(piece: bytes, tmp_path: Path) -> None:
    """Patterns that backtrack take minutes on these; the limit of `attempt` is seconds."""
    target = targets(tmp_path)["srt"]
    assert attempt(target, target.seeds[0] + piece * (300_000 // len(piece)), tmp_path) is None


def test_fuzzing_resumes(tmp_path: Path) -> None:
    """What was run is not run again, and a larger number continues."""
    (tmp_path / "progress.json").write_text('{"key": "3 srt", "inputs": 10, "seconds": 1}')
    assert fuzz(["srt"], 3, 10, tmp_path) == {"inputs": 10, "seconds": 1, "findings": 0}
    counts = fuzz(["srt"], 3, 14, tmp_path)
    assert counts["inputs"] == 14 and counts["seconds"] > 1 and not counts["findings"]


@pytest.mark.slow
def test_a_few_mutations_of_every_format(tmp_path: Path) -> None:
    counts = fuzz(NAMES, 0, 20 * len(NAMES), tmp_path / "out")
    assert counts["inputs"] == 20 * len(NAMES)
    assert not [file.read_text() for file in sorted((tmp_path / "out").glob("*.txt"))]


def test_the_fuzzer_notices_a_foreign_exception(tmp_path: Path) -> None:
    every = targets(tmp_path)

    def broken(data: bytes, folder: Path) -> object:
        raise ZeroDivisionError("division by zero")

    assert attempt(type(every["xmp"])([b""], broken), b"", tmp_path) == "ZeroDivisionError: division by zero"
