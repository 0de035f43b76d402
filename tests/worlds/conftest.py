from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skypart.worlds import Ground, World
from skypart.worlds.ground import NO_ANGLE, FloatMap
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

MakeWorld = Callable[..., World]


def flat_world(rgb: np.ndarray, heights: FloatMap | None = None, gsd: float = 0.5, **more: object) -> World:
    """A bare World on (h, w, 3) colours, lit evenly as photos are."""
    tops = np.zeros(rgb.shape[:2], dtype=np.float32) if heights is None else heights
    ground = Ground(
        rgb=rgb,
        heights=tops,
        terrain=np.zeros_like(tops),
        vegetation=np.zeros(rgb.shape[:2], dtype=np.uint8),
        facades=np.full_like(rgb, 128),
        wall_angle=np.full(rgb.shape[:2], NO_ANGLE, dtype=np.uint8),
        gsd=gsd,
        baked=True,
    )
    return World("flat", [ground], (500_000.0, 5_000_000.0), 32632, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny data set of each benchmark's shape."""
    made = {}
    for like in ("sues200", "university1652", "denseuav"):
        out = tmp_path_factory.mktemp("worlds") / like
        make_world(out, build_request(None, "tiny", like=like, seed=5), workers=1)
        made[like] = out
    return made
