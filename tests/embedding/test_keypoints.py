"""Keypoints: the shipped detector finds the same points again, and its parts against plain formulas."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch.nn import functional

from skypart.embedding.keypoints import (
    MAX_KEYPOINTS,
    ImageKeypoints,
    KeypointDetector,
    detector_shape,
    mutual_neighbours,
    resize_for_detector,
    sample_bicubic,
    shipped_keypoints,
    strongest,
)
from skypart.embedding.shipped import shipped_detector, verified_detector
from skypart.errors import SkyPartError
from tests.position.stand_in import quilt


def test_the_same_ground_is_matched_after_a_shift() -> None:
    """Keypoints move with the picture: 40 pixels to the left and 24 up."""
    ground = quilt(3, 400)
    first, second = (shipped_keypoints().detect(ground[y : y + 320, x : x + 320]) for x, y in ((0, 0), (40, 24)))
    ours, theirs = mutual_neighbours(first, second)
    moved = 320 * (first.points[ours] - second.points[theirs])
    right = np.linalg.norm(moved - [40, 24], axis=1) < 2.0
    assert len(first.points) <= MAX_KEYPOINTS and len(ours) > 100 and right.mean() > 0.7
    np.testing.assert_allclose(np.linalg.norm(first.descriptors, axis=1), 1.0, atol=1e-5)
    assert first.points.min() > 0 and first.points.max() < 1


def test_brightness_and_contrast_hardly_matter() -> None:
    town = quilt(3, 320)
    dim = (town.astype(np.float32) * 0.3 + 20).astype(np.uint8)
    first, second = (shipped_keypoints().detect(image) for image in (town, dim))
    ours, theirs = mutual_neighbours(first, second)
    assert (np.linalg.norm(first.points[ours] - second.points[theirs], axis=1) < 0.01).sum() > 300


def test_a_blank_image_has_no_keypoints() -> None:
    found = shipped_keypoints().detect(np.full((64, 96, 3), 90, np.uint8))
    assert found.points.shape == (0, 2) and found.descriptors.shape == (0, 64)
    ours, theirs = mutual_neighbours(found, shipped_keypoints().detect(quilt(1, 64)))
    assert len(ours) == len(theirs) == 0


def test_bicubic_samples_are_those_of_torch() -> None:
    """`grid_sample` counts pixel centres from -1 to 1; inside the map both read the same numbers."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(7, 12, 15)).astype(np.float32)
    y, x = rng.uniform(-0.5, 11.5, 40), rng.uniform(-0.5, 14.5, 40)
    grid = torch.tensor(np.stack([(2 * x + 1) / 15 - 1, (2 * y + 1) / 12 - 1], axis=1))[None, None].float()
    wanted = functional.grid_sample(torch.tensor(values)[None], grid, mode="bicubic", align_corners=False)[0, :, 0].T
    found = sample_bicubic(values, y, x)
    np.testing.assert_allclose(found, functional.normalize(wanted, dim=1).numpy(), atol=1e-4)


def test_the_strongest_points_come_first() -> None:
    scores = np.zeros((4, 5), np.float32)
    scores[1, 2], scores[3, 4], scores[0, 0] = 0.5, 0.9, 0.1
    rows, columns = strongest(scores, 2)
    assert (rows.tolist(), columns.tolist()) == ([3, 1], [4, 2])
    rows, columns = strongest(scores, 9)
    assert (rows.tolist(), columns.tolist()) == ([3, 1, 0], [4, 2, 0])


def test_only_mutual_nearest_neighbours_match() -> None:
    """Photo points 0 and 1 are nearest to view point 0, which is nearest to 1; photo 2 and view 1 are mutual."""
    photo = ImageKeypoints(np.zeros((3, 2)), np.array([[0.8, 0.6, 0], [1, 0, 0], [0, 0, 1]], np.float32))
    view = ImageKeypoints(np.zeros((2, 2)), np.array([[1, 0, 0], [0, 0.6, 0.8]], np.float32))
    ours, theirs = mutual_neighbours(photo, view)
    assert (ours.tolist(), theirs.tolist()) == ([1, 2], [0, 1])


@pytest.mark.parametrize("aspect", [0.3, 9 / 16, 0.75, 1.0, 1.5, 4.0])
def test_the_detectors_shape_keeps_aspect_and_area(aspect: float) -> None:
    height, width = detector_shape(aspect, 320)
    assert height % 32 == width % 32 == 0
    assert height / width == pytest.approx(aspect, rel=0.12) and height * width == pytest.approx(320**2, rel=0.15)
    assert resize_for_detector(quilt(1, 200), (height, width)).shape == (height, width, 3)


def test_a_detector_that_is_missing_or_altered_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "xfeat.onnx"
    monkeypatch.setattr("skypart.embedding.shipped.shipped_detector", lambda: copy)
    with pytest.raises(SkyPartError, match=r"xfeat.onnx: .*missing; reinstall skypart"):
        verified_detector()
    content = bytearray(shipped_detector().read_bytes())
    content[1000] ^= 1
    copy.write_bytes(content)
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  xfeat.onnx\n")
    with pytest.raises(SkyPartError, match=r"xfeat.onnx: altered since it was shipped"):
        verified_detector()
    copy.write_bytes(b"no graph")
    with pytest.raises(SkyPartError, match="ONNX Runtime cannot load it"):
        KeypointDetector(copy)


def test_the_detector_needs_no_particular_size() -> None:
    for shape in ((32, 32), (64, 320), (288, 384)):
        found = shipped_keypoints().detect(cv2.resize(quilt(2, 200), shape[::-1]))
        assert found.points.shape[1] == 2
