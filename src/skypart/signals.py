"""Temporary signal handlers."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Install `handler` for these signals while the block runs, then restore the previous handlers.

    Outside the main thread, where Python allows no handlers, this does nothing.
    """
    previous = {}
    try:
        for number in numbers:
            previous[number] = signal.signal(number, handler)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
