"""The embeddings of the last batches, as further negatives at no cost: a small batch is then told apart from many."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Remembered:
    """N images of earlier batches, no gradient: embedding (N, D), location (N,) int64, is_drone (N,) bool."""

    embedding: Tensor
    location: Tensor
    is_drone: Tensor

    def of_view(self, drone: bool) -> "Remembered":
        """Those of one view."""
        rows = self.is_drone if drone else ~self.is_drone
        return Remembered(self.embedding[rows], self.location[rows], self.is_drone[rows])


class BatchMemory(nn.Module):
    """A ring of the last `size` images' embeddings; saved with the loss, so that a resumed run goes on exactly.

    While embeddings move slowly (fine-tuning, not the first steps of a fresh head), those of a few dozen steps ago
    still stand for their images (cross-batch memory, Wang et al. 2020).
    """

    embedding: Tensor
    location: Tensor
    is_drone: Tensor
    written: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("embedding", torch.zeros(size, dim))
        self.register_buffer("location", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("is_drone", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))  # images ever added

    def recall(self) -> Remembered:
        """A copy of what is there: the ring changes before the backward pass reads it."""
        rows = slice(0, min(int(self.written), self.size))
        return Remembered(self.embedding[rows].clone(), self.location[rows].clone(), self.is_drone[rows].clone())

    @torch.no_grad()
    def add(self, embedding: Tensor, location: Tensor, is_drone: Tensor) -> None:
        """Keep a batch (B, D), (B,), (B,) in the place of the oldest images."""
        kept = min(len(location), self.size)
        rows = (int(self.written) + torch.arange(kept, device=location.device)) % self.size
        self.embedding[rows] = embedding[-kept:].detach().to(self.embedding.dtype)
        self.location[rows] = location[-kept:]
        self.is_drone[rows] = is_drone[-kept:]
        self.written += kept
