"""corrupt(): pure, deterministic, any size and kind of image, clear error messages."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.images.weather import CONDITIONS, LABELS, PROFILES, corrupt

CELLS = [(profile, condition) for profile in PROFILES for condition in CONDITIONS]


def sample_image(height: int = 96, width: int = 128, seed: int = 5) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(30, 220, (8, 8, 3)).astype(np.float32)
    rows, columns = np.arange(height) * 8 // height, np.arange(width) * 8 // width
    return (coarse[rows][:, columns] + rng.normal(0, 12, (height, width, 3))).clip(0, 255).astype(np.uint8)


def test_names() -> None:
    expected = "normal fog rain snow fog_rain fog_snow rain_snow dark over_exposure wind"
    assert expected.split() == list(CONDITIONS)
    assert set(LABELS) == set(CONDITIONS)
    assert PROFILES == ("paper", "weatherprompt")


@pytest.mark.parametrize(("profile", "condition"), CELLS)
def test_pure_and_repeatable(profile: str, condition: str) -> None:
    clean = sample_image()
    kept = clean.copy()
    clean.setflags(write=False)
    first = corrupt(clean, condition, profile, 3, "a/b.jpg")
    assert first.dtype == np.uint8 and first.shape == clean.shape
    assert np.array_equal(clean, kept)
    assert first.flags.writeable and not np.shares_memory(first, clean)
    assert np.array_equal(first, corrupt(clean, condition, profile, 3, "a/b.jpg"))
    if condition == "normal":
        assert np.array_equal(first, clean)
    else:
        assert not np.array_equal(first, clean)
        assert not np.array_equal(first, corrupt(clean, condition, profile, 4, "a/b.jpg"))
        assert not np.array_equal(first, corrupt(clean, condition, profile, 3, "a/c.jpg"))


def test_order_and_threads_do_not_matter() -> None:
    clean = sample_image(120, 90)
    jobs = [(profile, condition, str(key)) for profile, condition in CELLS for key in range(3)]
    alone = {job: corrupt(clean, job[1], job[0], 0, job[2]) for job in jobs}
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: corrupt(clean, job[1], job[0], 0, job[2]), reversed(jobs)))
    for job, result in zip(reversed(jobs), together, strict=True):
        assert np.array_equal(alone[job], result), job


def test_same_bytes_in_a_fresh_process_with_other_hash_seed() -> None:
    code = (
        "import hashlib, numpy as np\n"
        "from skypart.images.weather import CONDITIONS, PROFILES, corrupt\n"
        "clean = np.arange(80 * 100 * 3, dtype=np.uint32).astype(np.uint8).reshape(80, 100, 3)\n"
        "whole = hashlib.sha256()\n"
        "for profile in PROFILES:\n"
        "    for condition in CONDITIONS:\n"
        "        whole.update(corrupt(clean, condition, profile, 1, 'é/1').tobytes())\n"
        "print(whole.hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, threads in (("1", "1"), ("2", "2"))
    }
    assert len(digests) == 1


@pytest.mark.parametrize("shape", [(64, 64), (1, 200), (200, 1), (1, 1), (3, 5), (64, 1500), (1001, 67), (333, 257)])
def test_any_size(shape: tuple[int, int]) -> None:
    clean = sample_image(*shape)
    for profile, condition in CELLS:
        result = corrupt(clean, condition, profile, 0, "x")
        assert result.shape == (*shape, 3) and result.dtype == np.uint8
    for condition in CONDITIONS:
        assert corrupt(clean, condition, severity=0.7).shape == (*shape, 3)


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["fog", "rain", "snow", "wind"])
def test_large_photo(condition: str) -> None:
    clean = np.full((6000, 8000, 3), 90, dtype=np.uint8)
    clean[::7] = 160
    result = corrupt(clean, condition)
    assert result.shape == clean.shape
    # Flakes of a pixel or two, blurred over hundreds, vanish on such a photo, in imgaug as well.
    assert condition == "snow" or not np.array_equal(result, clean)


def test_grey_alpha_and_16_bit_are_converted() -> None:
    grey = sample_image()[:, :, 0]
    three = np.repeat(grey[:, :, None], 3, axis=2)
    wanted = corrupt(three, "fog_rain", key="k")
    opaque = np.dstack([three, np.full(grey.shape, 255, np.uint8)])
    for same in (grey, grey[:, :, None], opaque, grey.astype(np.uint16) * 257, np.asfortranarray(three), three[:, ::1]):
        assert np.array_equal(wanted, corrupt(same, "fog_rain", key="k"))


def test_numpy_views_equal_their_copies() -> None:
    clean = sample_image()
    assert np.array_equal(corrupt(clean[::-1, ::2], "wind"), corrupt(clean[::-1, ::2].copy(), "wind"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"condition": "fog+rain"}, ("fog+rain", "did you mean 'fog_rain'", "over_exposure")),
        ({"condition": "hail"}, ("hail", "normal, fog")),
        ({"condition": "fog", "profile": "papers"}, ("papers", "did you mean 'paper'", "weatherprompt")),
        ({"condition": "fog", "severity": 1.2}, ("severity", "1.2")),
        ({"condition": "fog", "severity": float("nan")}, ("severity", "nan")),
    ],
)
def test_clear_error_messages(arguments: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(SkyPartError) as caught:
        corrupt(sample_image(), **arguments)  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "bad", [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 2), np.uint8), np.zeros((0, 4, 3), np.uint8)]
)
def test_bad_arrays_raise(bad: NDArray[np.generic]) -> None:
    with pytest.raises(SkyPartError, match="an image array must be"):
        corrupt(bad, "fog")
