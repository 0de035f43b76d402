"""A whole flight through `track`: the locator is asked once a photo, and priors never lock it in."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.position.fix import Fix, Prior
from skypart.position.frame import Frame
from skypart.position.track import track
from skypart.position.track_options import TrackOptions
from tests.position.flights import FRAME, errors, noisy_fixes, straight


class Blank:
    """Frames without content, at these times."""

    def __init__(self, seconds: list[float], skipped: int = 0) -> None:
        self.seconds, self.skipped = seconds, skipped
        self.times: dict[str, float] = {}
        self.fps: float | None = None
        self.start: datetime | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    def __iter__(self) -> Iterator[Frame]:
        for number, time in enumerate(self.seconds):
            yield Frame(time, np.zeros((4, 4, 3), dtype=np.uint8), str(number))


class Recorded:
    """A locator that answers from a list, and remembers what it was asked."""

    def __init__(self, fixes: list[Fix]) -> None:
        self.fixes = fixes
        self.priors: list[Prior | None] = []

    def __call__(self, photo: Frame, prior: Prior | None) -> Fix:
        self.priors.append(prior)
        return self.fixes[int(photo.name)]


def test_a_flight_from_end_to_end() -> None:
    seconds = np.arange(60.0)
    truth = straight(seconds)
    locate = Recorded(noisy_fixes(np.random.default_rng(1), truth, wrong=0.2, missing=0.1))
    points = track(Blank(seconds.tolist()), locate)
    assert len(points) == 60 and [point.time_s for point in points] == seconds.tolist()
    assert [point.raw for point in points] == locate.fixes
    assert locate.priors == [None] * 60
    assert np.nanmax(errors(points, truth)) < 60
    unsmoothed = track(Blank(seconds.tolist()), locate, TrackOptions(smooth=False), FRAME)
    assert np.nanmedian(errors(points, truth)) < np.nanmedian(errors(unsmoothed, truth))


def test_the_maps_own_error_is_not_averaged_out() -> None:
    seconds = np.arange(60.0)
    truth = straight(seconds)
    fixes = noisy_fixes(np.random.default_rng(1), truth, sigma=4.0)
    shifted = [replace(fix, radius_m=math.hypot(fix.radius_m or 0.0, 12.0), map_error_m=12.0) for fix in fixes]
    alone, with_error = (track(Blank(seconds.tolist()), Recorded(each), None, FRAME) for each in (fixes, shifted))
    for before, after in zip(alone, with_error, strict=True):
        assert before.radius_m is not None and after.radius_m is not None
        assert after.radius_m == pytest.approx(math.hypot(before.radius_m, 12.0))
        assert (after.latitude, after.longitude) == pytest.approx((before.latitude, before.longitude), abs=1e-9)


def test_photos_before_the_first_fix_are_lost() -> None:
    seconds = np.arange(20.0)
    fixes = noisy_fixes(np.random.default_rng(2), straight(seconds))
    fixes[:5] = [Fix(photo="a", reason="dark")] * 5
    for smooth in (True, False):
        points = track(Blank(seconds.tolist()), Recorded(fixes), TrackOptions(smooth=smooth))
        assert {point.state for point in points[:5]} == {"lost"} and points[-1].state == "tracking"
        assert [point.raw for point in points] == fixes


def test_a_flight_without_any_fix_is_lost_throughout() -> None:
    points = track(Blank([0.0, 1.0]), Recorded([Fix(photo="a", reason="dark")] * 2))
    assert [point.state for point in points] == ["lost", "lost"]


def test_no_frame_at_all_is_an_error() -> None:
    with pytest.raises(SkyPartError, match="none of the 3 frames"):
        track(Blank([], skipped=3), Recorded([]))


def test_priors_lie_where_the_drone_is_and_every_fourth_photo_is_free() -> None:
    seconds = np.arange(40.0)
    truth = straight(seconds)
    locate = Recorded(noisy_fixes(np.random.default_rng(3), truth))
    track(Blank(seconds.tolist()), locate, TrackOptions(use_prior=True))
    told = [(prior, place) for prior, place in zip(locate.priors, truth, strict=True) if prior]
    assert len(told) == 40 - 10 - 1  # two photos must agree first
    assert [i for i, prior in enumerate(locate.priors) if prior is None] == [0, 1, *range(4, 40, 4)]
    for prior, place in told:
        spot = FRAME.to_metres(latitude=prior.latitude, longitude=prior.longitude)
        assert math.hypot(float(spot.x) - place[0], float(spot.y) - place[1]) < prior.radius_m


def test_a_kidnapped_drone_is_found_though_the_search_is_narrowed() -> None:
    seconds = np.arange(120.0)
    truth = straight(seconds)
    truth[40:] += [0.0, 2_000.0]
    honest = noisy_fixes(np.random.default_rng(4), truth)

    def locate(photo: Frame, prior: Prior | None) -> Fix:
        """Near a prior that is wrong, something is found all the same, now and then."""
        fix = honest[int(photo.name)]
        if prior is None:
            return fix
        spot = FRAME.to_metres(latitude=prior.latitude, longitude=prior.longitude)
        place = truth[int(photo.name)]
        if math.hypot(float(spot.x) - place[0], float(spot.y) - place[1]) < prior.radius_m:
            return fix
        return Fix(photo=photo.name, reason="nothing near")

    points = track(Blank(seconds.tolist()), locate, TrackOptions(use_prior=True, smooth=False))
    far = errors(points, truth)
    assert far[5:40].max() < 60
    assert far[75:].max() < 60


def test_an_error_of_the_locator_is_told() -> None:
    def locate(photo: Frame, prior: Prior | None) -> Fix:
        raise SkyPartError("the index is gone")

    with pytest.raises(SkyPartError, match="the index is gone"):
        track(Blank([0.0]), locate)


def test_a_photo_that_fails_costs_its_own_fix_only() -> None:
    seconds = np.arange(30.0)
    truth = straight(seconds)
    recorded = Recorded(noisy_fixes(np.random.default_rng(1), truth))

    def locate(photo: Frame, prior: Prior | None) -> Fix:
        if photo.name == "7":
            raise SkyPartError("town.tif: cannot be read")
        return recorded(photo, prior)

    points = track(Blank(seconds.tolist()), locate)
    raw = points[7].raw
    assert len(points) == 30 and raw is not None and not raw.found and raw.reason == "town.tif: cannot be read"
    assert np.nanmax(errors(points, truth)) < 60

    def fail(photo: Frame, prior: Prior | None) -> Fix:
        raise SkyPartError("town.tif: cannot be read")

    with pytest.raises(SkyPartError, match="cannot be read"):
        track(Blank(seconds.tolist()), fail)
