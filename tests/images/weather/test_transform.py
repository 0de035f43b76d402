"""The training transform: uniform, deterministic, picklable."""

import pickle
from collections import Counter

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.images.weather import CONDITIONS, WeatherTransform
from tests.images.weather.test_corrupt import sample_image


def test_conditions_are_equally_likely() -> None:
    transform = WeatherTransform("weatherprompt", seed=42)
    counts = Counter(transform.condition(f"drone/{image}.jpg", draw) for image in range(200) for draw in range(20))
    assert set(counts) == set(CONDITIONS)
    # 400 expected each; the deviation is 19.
    assert all(abs(count - 400) < 80 for count in counts.values())


def test_the_result_depends_on_key_and_visit_only() -> None:
    transform = WeatherTransform("paper", seed=1)
    copied = pickle.loads(pickle.dumps(transform))
    clean = sample_image()
    first = transform(clean, "a.jpg", 3)
    assert first.shape == clean.shape and first.dtype == np.uint8
    assert np.array_equal(first, copied(clean, "a.jpg", 3))
    draws = [draw for draw in range(40) if transform.condition("a.jpg", draw) not in ("normal", "wind")]
    assert len({transform(clean, "a.jpg", draw).tobytes() for draw in draws}) == len(draws) > 20


def test_chosen_conditions_only() -> None:
    transform = WeatherTransform(conditions=("fog", "rain"))
    assert {transform.condition("x", draw) for draw in range(40)} == {"fog", "rain"}


def test_unknown_names_raise() -> None:
    with pytest.raises(SkyPartError, match="weather profile 'snowy'"):
        WeatherTransform("snowy")
    with pytest.raises(SkyPartError, match="weather condition 'hail'"):
        WeatherTransform(conditions=("hail",))
