"""The parts figure: its size, its colours, and its files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skypart.drawing.files import save_image
from skypart.embedding import Explanation
from skypart.embedding.parts_figure import EDGE, PALETTE, part_overlay, parts_figure, prototype_colour
from skypart.errors import SkyPartError
from tests.model.builders import scene


def explanation(prototypes: int = 4) -> Explanation:
    """The left half is prototype 0, active; the right half is prototype 1, inactive."""
    assignment = np.zeros((4, 4, prototypes), dtype=np.float32)
    assignment[:, :2, 0] = assignment[:, 2:, 1] = 1.0
    active = np.zeros(prototypes, dtype=bool)
    active[[0, 2]] = True
    return Explanation(
        assignment=assignment,
        salience=active.astype(np.float32) * 0.8,
        active=active,
        centroids=np.full((prototypes, 2), 0.5, dtype=np.float32),
        gate=np.asarray([0.5, 0.3, 0.2], dtype=np.float32),
        embedding=np.ones(4, dtype=np.float32),
    )


def test_patches_are_tinted_by_their_prototype_and_inactive_ones_grey() -> None:
    black = np.zeros((40, 60, 3), dtype=np.uint8)
    overlay = np.asarray(part_overlay(black, explanation(), edge=64)).astype(int)
    left, right = overlay[:, :32].reshape(-1, 3), overlay[:, 32:].reshape(-1, 3)
    assert (left == left[0]).all() and (right == right[0]).all()
    assert left[0] == pytest.approx(0.65 * np.asarray(PALETTE[0]), abs=1)
    assert right[0].tolist() == [32, 32, 32]


def test_the_figure_shows_photo_and_parts_side_by_side() -> None:
    drawn = parts_figure(scene(), explanation(12), "meadow.jpg")
    assert drawn.size == (2 * EDGE + 248, EDGE + 78)
    shown = np.asarray(drawn.crop((12, 34, 12 + EDGE, 34 + EDGE)))
    photo = np.asarray(Image.fromarray(scene()).resize((EDGE, EDGE), Image.Resampling.BICUBIC))
    assert np.array_equal(shown, photo)


def test_every_prototype_has_a_colour() -> None:
    assert len(set(PALETTE)) == 12
    assert prototype_colour(13) == PALETTE[1]


def test_the_suffix_chooses_the_format(tmp_path: Path) -> None:
    image = Image.new("RGB", (4, 4))
    for name, form in (("a.png", "PNG"), ("b.JPG", "JPEG")):
        save_image(image, tmp_path / name)
        with Image.open(tmp_path / name) as written:
            assert written.format == form
    for name in ("c.xyz", "d"):
        with pytest.raises(SkyPartError, match=rf"{name}: .* is not an image format.* end the name in .png"):
            save_image(image, tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "b.JPG"]
