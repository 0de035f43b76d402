"""The server the tests of this folder talk to."""

from collections.abc import Iterator

import pytest

from tests.datasets.fetch.fake_github import FakeGitHub, serving


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving(FakeGitHub()) as server:
        yield server
