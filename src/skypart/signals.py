"""Signals answered otherwise for a while."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def answering(answer: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Call `answer` at these signals, as before afterwards; outside of the main thread nothing changes."""
    before = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, answer)
    except ValueError:  # only the main thread may
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
