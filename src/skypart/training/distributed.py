"""One process or many: start-up under torchrun, gather with gradients, and which process writes files."""

import datetime
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_gather

from skypart.errors import SkyPartError


@dataclass(frozen=True)
class Workers:
    """The place of this process among all processes: rank, world size and device."""

    rank: int
    world: int
    device: torch.device

    @property
    def is_leader(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def slice(self, count: int) -> slice:
        """This rank's share of `count` items, in order. All shares are equal."""
        if count % self.world:
            raise SkyPartError(
                f"a batch of {count} locations cannot be shared equally by {self.world} processes; "
                "choose batch.locations divisible by --nproc-per-node"
            )
        share = count // self.world
        return slice(self.rank * share, (self.rank + 1) * share)


def start_workers(device: str) -> Workers:
    """Join the process group of torchrun, or run as a single process. `auto` uses a GPU if torch finds one.

    `cuda` without a number, and `auto`, give each process on a machine its own GPU.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = _find_device(device, local)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if world > 1 and not dist.is_initialized():
        # the replacement that torch 2.13 suggests is missing, or has no gradient, in older supported versions
        warnings.filterwarnings("ignore", r"torch\.distributed\.nn\.functional\.\w+ is deprecated", FutureWarning)
        # other ranks wait while rank 0 computes teacher features or validates
        timeout = datetime.timedelta(hours=24)
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=timeout)
    return Workers(rank, world, chosen)


def _find_device(name: str, local: int) -> torch.device:
    """The device called `name`; a GPU without a number gets the number `local`. Raises if there is no such device."""
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError):  # AssertionError: torch was built without this device
        raise SkyPartError(
            f"run.device={name}: torch has no such device here; use run.device=cpu, cuda or auto"
        ) from None
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise SkyPartError(f"run.device={name}: torch sees no GPU here; use run.device=cpu or see `skypart doctor`")
    number = local if device.index is None else device.index
    if number >= torch.cuda.device_count():
        raise SkyPartError(
            f"run.device={name}: there is no cuda:{number}, torch sees {torch.cuda.device_count()} GPU(s) here; choose "
            "one of them, or lower --nproc-per-node"
        )
    return torch.device("cuda", number)


def stop_workers() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def gather(tensor: Tensor) -> Tensor:
    """The tensors of all ranks, concatenated along the first axis in rank order. Gradients flow to each rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return tensor
    return torch.cat(all_gather(tensor.contiguous()))  # type: ignore[no-untyped-call]


def all_agree(flag: bool, device: torch.device) -> bool:
    """Whether `flag` holds on every rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return flag
    vote = torch.tensor([1.0 if flag else 0.0], device=device)
    dist.all_reduce(vote, op=dist.ReduceOp.MIN)
    return bool(vote.item() > 0)


@contextmanager
def leader_first() -> Iterator[None]:
    """Run the block on rank 0 first, so that the others find its files. Rank 0 uses the threads of waiting ranks."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        yield
    elif dist.get_rank() > 0:
        dist.barrier()
        yield
    else:
        own, processes = torch.get_num_threads(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        torch.set_num_threads(max(own, min(own * processes, os.cpu_count() or 1)))
        try:
            yield
        finally:
            torch.set_num_threads(own)
        dist.barrier()
