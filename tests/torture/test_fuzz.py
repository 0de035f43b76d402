"""The quick part of fuzzing: every committed case, and a few mutations of every format."""

from pathlib import Path

import pytest

from tests.torture.fuzz import CORPUS, NAMES, attempt, corpus, fuzz, targets


def test_every_seed_is_valid(tmp_path: Path) -> None:
    """Fuzzing starts from files that are read to their end; else it would only test the first check."""
    every = targets(tmp_path)
    assert sorted(every) == sorted(NAMES)
    for name, target in every.items():
        if name == "store-manifest":
            continue  # its checksum is wrong on purpose: a right one would only be the empty store
        for number, seed in enumerate(target.seeds):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            target.read(seed, folder)


def test_committed_cases_stay_fixed(tmp_path: Path) -> None:
    every = targets(tmp_path)
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} <= set(every)
    wrong = {
        name: [attempt(target, data, tmp_path) for data in corpus(name)]
        for name, target in every.items()
        if corpus(name)
    }
    assert not any(any(found) for found in wrong.values()), wrong


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
