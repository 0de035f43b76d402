"""Tests of the store do not wait for the disk; flushing has its own test."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing it has written, flushed or not; only a power cut would."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
