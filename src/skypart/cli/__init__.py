"""The command line: one function per command, no logic of its own. Commands import what they need when they run."""

from skypart.cli.app import app
from skypart.cli.entry import main

__all__ = ["app", "main"]
