from dataclasses import replace
from pathlib import Path

import pytest
import torch

from skypart.model.skypart import SkyPart
from skypart.training.average import MovingAverage
from tests.model.builders import random_images
from tests.training.small_runs import SMALL_HEAD, small_run


def change_weights(model: SkyPart, seed: int) -> None:
    """Change all trainable parameters and the running statistics, as a training step does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.train()(random_images(6, 28, 28, seed))


def test_average_follows_the_formula_with_its_running_statistics(sues: Path, tmp_path: Path) -> None:
    student = small_run(sues, tmp_path, teacher=False).student
    average = MovingAverage(student, 0.9)
    expected = {name: value.clone() for name, value in student.state_dict().items()}
    for seed in range(3):
        change_weights(student, seed)
        average.update(student)
        for name, value in student.state_dict().items():
            if value.is_floating_point():
                expected[name] = 0.9 * expected[name] + 0.1 * value
            else:
                expected[name] = value.clone()
    state = average.state_dict()
    assert set(state) == set(expected)
    for name, value in state.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)
    assert not torch.equal(state["cls_branch.norm.running_mean"], torch.zeros(48))
    assert int(state["cls_branch.norm.num_batches_tracked"]) == 3


def test_frozen_parameters_stay_identical_and_the_average_has_no_gradients(sues: Path, tmp_path: Path) -> None:
    student = small_run(sues, tmp_path, teacher=False).student
    average = MovingAverage(student, 0.996)
    change_weights(student, 0)
    average.update(student)
    theirs = dict(student.named_parameters())
    for name, mine in average.model.named_parameters():
        assert not mine.requires_grad
        assert torch.equal(mine, theirs[name]) == (not theirs[name].requires_grad), name
    assert not average.model.training


@pytest.mark.parametrize(("patch_layer", "cls_layer"), [(0, 0), (1, 4), (2, 3)])
def test_the_average_can_share_the_students_trunk(sues: Path, tmp_path: Path, patch_layer: int, cls_layer: int) -> None:
    head = replace(SMALL_HEAD, patch_layer=patch_layer, cls_layer=cls_layer)
    student = small_run(sues, tmp_path, teacher=False, head=head).student
    average = MovingAverage(student, 0.9)
    change_weights(student, 1)
    average.update(student)
    images = random_images(3, 28, 28)
    with torch.no_grad():
        shared = average.model.finish(student.train().trunk(images)).embedding
        own = average.model(images).embedding
        assert torch.equal(shared, own)
        assert not torch.allclose(own, student.eval()(images).embedding, atol=1e-4)
