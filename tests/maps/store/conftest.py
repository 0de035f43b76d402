"""Tests of the store do not wait for the disk; that it is told to flush, and when, has a test of its own."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that was written, flushed or not: only a power cut would."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
