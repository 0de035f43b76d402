"""The ring of earlier images: what it keeps, in which order, and that it is only written while training."""

from typing import Any

import torch

from skypart.losses.config import LossConfig
from skypart.losses.geopart import GeoPartLoss, LossBatch
from skypart.losses.memory import BatchMemory
from tests.losses.cases import normal


def add(memory: BatchMemory, first: int, count: int) -> None:
    numbers = torch.arange(first, first + count)
    memory.add(numbers[:, None].float().repeat(1, 3), numbers, numbers % 2 == 0)


def kept(memory: BatchMemory) -> set[int]:
    recalled = memory.recall()
    assert torch.equal(recalled.embedding[:, 0].long(), recalled.location)
    assert torch.equal(recalled.is_drone, recalled.location % 2 == 0)
    return set(recalled.location.tolist())


def test_the_newest_images_are_kept() -> None:
    memory = BatchMemory(5, 3)
    assert kept(memory) == set()
    add(memory, 0, 3)
    assert kept(memory) == {0, 1, 2}
    add(memory, 3, 3)
    assert kept(memory) == {1, 2, 3, 4, 5}
    add(memory, 6, 8)  # a batch larger than the memory
    assert kept(memory) == {9, 10, 11, 12, 13}


def test_what_was_recalled_does_not_change() -> None:
    memory = BatchMemory(2, 3)
    add(memory, 0, 2)
    before = memory.recall()
    add(memory, 2, 2)
    assert before.location.tolist() == [0, 1]


def test_a_second_batch_is_told_apart_from_the_first_and_only_training_remembers() -> None:
    off: dict[str, Any] = dict.fromkeys(
        ("part", "distill", "alt", "circle", "uapa", "proxy_anchor", "patch_nce"), False
    )
    is_drone = torch.tensor([True, False, True, False])
    first, second = (
        LossBatch(normal(4, 6, seed=seed, dtype=torch.float32), torch.tensor(places), is_drone)
        for seed, places in ((0, [0, 0, 1, 1]), (1, [2, 2, 3, 3]))
    )
    losses = {}
    for size in (0, 100):
        loss = GeoPartLoss(LossConfig(**off, info_nce_memory=size), 4, 6)
        loss.eval()
        idle = loss(first).total
        loss.train()
        losses[size] = [value.item() for value in (idle, loss(first).total, loss(second).total)]
    assert losses[0][:2] == losses[100][:2]
    assert losses[100][2] > losses[0][2]
