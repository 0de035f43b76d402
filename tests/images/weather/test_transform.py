"""The training transform: uniform, deterministic, picklable."""

import pickle
from collections import Counter

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.images.weather import CONDITIONS, WeatherTransform
from tests.images.weather.test_corrupt import picture


def test_conditions_are_equally_likely() -> None:
    transform = WeatherTransform("weatherprompt", seed=42)
    counts = Counter(transform.condition(f"drone/{image}.jpg", draw) for image in range(200) for draw in range(20))
    assert set(counts) == set(CONDITIONS)
    # 400 expected each; the deviation is 19.
    assert all(abs(count - 400) < 80 for count in counts.values())


def test_same_on_every_worker_and_new_at_every_visit() -> None:
    transform = WeatherTransform("paper", seed=1)
    copied = pickle.loads(pickle.dumps(transform))
    clean = picture()
    first = transform(clean, "a.jpg", 3)
    assert first.shape == clean.shape and first.dtype == np.uint8
    assert np.array_equal(first, copied(clean, "a.jpg", 3))
    draws = [draw for draw in range(40) if transform.condition("a.jpg", draw) not in ("normal", "wind")]
    assert len({transform(clean, "a.jpg", draw).tobytes() for draw in draws}) == len(draws) > 20


def test_chosen_conditions_only() -> None:
    transform = WeatherTransform(conditions=("fog", "rain"))
    assert {transform.condition("x", draw) for draw in range(40)} == {"fog", "rain"}


def test_unknown_names_are_refused_at_once() -> None:
    with pytest.raises(SkyPartError, match="weather profile 'snowy'"):
        WeatherTransform("snowy")
    with pytest.raises(SkyPartError, match="weather condition 'hail'"):
        WeatherTransform(conditions=("hail",))
