"""What an output format is: a name, and functions that turn fixes and tracks into text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from skypart.position.fix import Fix
from skypart.position.track import TrackPoint

FixesToText: TypeAlias = Callable[[Sequence[Fix]], str]
TrackToText: TypeAlias = Callable[[Sequence[TrackPoint], datetime | None], str]
"""Takes the points of a track, and when the flight began, if known."""


@dataclass(frozen=True, kw_only=True)
class OutputFormat:
    """An output format; see docs/extending.md.

    name: in lower case; also the suffix of its files. fixes: text of fixes, for `skypart locate`. track: text of a
    track, for `skypart track`; None if the format holds fixes only. other_suffixes: further suffixes, without a dot,
    that `locate -o` accepts when the format is named.
    """

    name: str
    fixes: FixesToText
    track: TrackToText | None = None
    other_suffixes: tuple[str, ...] = ()
