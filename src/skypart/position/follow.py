"""Locate the frames of a flight one after the other: around the match before, as long as the track confirms it."""

from skypart.position.fix import Fix, Hints, Prior
from skypart.position.frames import Frame
from skypart.position.locate import LastMatch, Locator
from skypart.position.track import TrackPoint

SEARCH_EVERY = 8
"""Of so many frames in a row at least one is searched in the whole map, so that a wrong place cannot confirm itself."""


class FlightLocator:
    """Locates frames in order. The match of the frame before is passed on only while the track uses its fixes.

    Before three fixes agree, after a fix that contradicts the track, and while lost, every frame is searched anew. A
    match around the one before is judged like any other.
    """

    def __init__(self, locator: Locator) -> None:
        self.locator = locator
        self._last: LastMatch | None = None
        self._confirmed = False
        self._followed = 0  # frames in a row that were given the match before

    def locate(self, frame: Frame, hints: Hints, prior: Prior | None = None) -> Fix:
        """The fix of the next frame."""
        last = self._last if self._confirmed and self._followed < SEARCH_EVERY - 1 else None
        self._followed = 0 if last is None else self._followed + 1
        # Until the track has judged this frame's fix, nothing is known of it.
        self._confirmed = False
        fix, self._last = self.locator.locate_next(frame.image, last, name=frame.name, prior=prior, hints=hints)
        return fix

    def judge(self, point: TrackPoint) -> None:
        """Take what the track made of the last frame's fix."""
        self._confirmed = point.state == "tracking"
