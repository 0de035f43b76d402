"""Frames of a flight are looked for around the match before only while the track uses its fixes."""

from typing import Any, cast

import numpy as np

from skypart.position.fix import Fix, Hints, Prior
from skypart.position.fly import locate_with
from skypart.position.follow import SEARCH_EVERY, FlightLocator
from skypart.position.frames import Frame
from skypart.position.live import FLYING, FlyOptions, LiveTracker
from skypart.position.locate import Locator
from skypart.position.track import TrackPoint
from tests.position.flights import FRAME, fix_at, no_fix

BLACK = np.zeros((8, 8, 3), np.uint8)


class Recording:
    """Gives fixes, and keeps which match each frame was given."""

    def __init__(self, fixes: list[Fix]) -> None:
        self.fixes = fixes
        self.given: list[int | None] = []

    def locate_next(
        self, image: Any, last: int | None, *, name: str, prior: Prior | None, hints: Hints
    ) -> tuple[Fix, int | None]:
        """The next fix; its match is its number."""
        number = len(self.given)
        self.given.append(last)
        return self.fixes[number], number if self.fixes[number].found else None


def fly_over(fixes: list[Fix]) -> list[int | None]:
    """Which frames were given a match, in a flight of a fix each second."""
    recording = Recording(fixes)
    tracker = LiveTracker(FlyOptions(flow=False), FLYING, FRAME)
    locate = locate_with(cast("Locator", recording), tracker=tracker)
    for second in range(len(fixes)):
        fix = locate(Frame(float(second), BLACK, str(second)), Hints(), None)
        tracker.locate_done(float(second), fix)
    return recording.given


def test_a_flight_is_followed_once_three_fixes_agree_and_searched_anew_now_and_then() -> None:
    given = fly_over([fix_at(np.array([8.0 * second, 0.0]), 4.0, 0.95) for second in range(30)])
    assert given[:3] == [None] * 3, "nothing is followed before a position is said"
    followed = [number for number, each in enumerate(given) if each is not None]
    assert len(followed) > 20 and all(given[number] == number - 1 for number in followed)
    gaps = np.diff([number for number, each in enumerate(given) if each is None])
    assert gaps.max() <= SEARCH_EVERY, "a wrong place cannot confirm itself for long"


def test_after_a_contradiction_or_a_photo_without_a_fix_the_search_begins_anew() -> None:
    fixes = [fix_at(np.array([8.0 * second, 0.0]), 4.0, 0.95) for second in range(30)]
    fixes[6], fixes[20] = fix_at(np.array([900.0, 700.0]), 4.0, 0.95), no_fix()
    given = fly_over(fixes)
    assert given[6] == 5 and given[7] is None and given[8] == 7
    assert given[20] == 19 and given[21] is None


def test_without_a_track_every_frame_is_searched() -> None:
    recording = Recording([fix_at(np.zeros(2))] * 5)
    locate = locate_with(cast("Locator", recording))
    for second in range(5):
        locate(Frame(float(second), BLACK, "a"), Hints(), None)
    assert recording.given == [None] * 5


def test_an_unjudged_frame_is_not_followed() -> None:
    recording = Recording([fix_at(np.zeros(2))] * 3)
    flight = FlightLocator(cast("Locator", recording))
    for state in ("tracking", None, "tracking"):
        flight.locate(Frame(0.0, BLACK, "a"), Hints())
        if state is not None:
            flight.judge(TrackPoint(time_s=0.0, state="tracking"))
    assert recording.given == [None, 0, None]
