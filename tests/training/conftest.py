"""A tiny data set for all training tests. Tests run with one thread, which is faster at this size."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.training.fake_data import make_sues


@pytest.fixture(scope="session")
def sues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight training locations of a raw SUES-200."""
    return make_sues(tmp_path_factory.mktemp("sues"), per_altitude=2)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
