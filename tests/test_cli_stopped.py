"""Ctrl-C: only commands that can resume say so."""

from pathlib import Path

import pytest

from tests.conftest import Run


@pytest.mark.parametrize(
    ("place", "words", "resumes"),
    [
        ("skypart.position.photos.open_locator", ["locate", "i", "p.jpg"], False),
        ("skypart.position.photos.open_locator", ["track", "i", "index", "-o", "t.gpx"], False),
        ("skypart.position.photos.open_locator", ["calibrate", "i", "labelled"], False),
        ("skypart.maps.views.view_options", ["index", "town.tif", "-o", "i"], True),
        ("skypart.datasets.fetch.fetch", ["data", "fetch", "all"], True),
    ],
)
def test_an_interrupted_command_says_whether_it_resumes(
    place: str, words: list[str], resumes: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, stop)
    code, _, err = run(*words)
    expected = "skypart: stopped; start the same command again to resume" if resumes else "skypart: stopped"
    assert code == 130 and err.splitlines()[-1] == expected
