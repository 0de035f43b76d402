"""Resample position embeddings to any grid, as the original DINOv2 code or as Hugging Face does."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import interpolate

PositionMode: TypeAlias = Literal["original", "huggingface"]

# The original code asks for a grid 0.1 patches larger than needed, so that a rounding error cannot lose a row. This
# shifts the sampling positions slightly. Its register models use antialiasing instead.
_ORIGINAL_OFFSET = 0.1


def interpolate_positions(
    positions: Tensor,
    native: tuple[int, int],
    grid: tuple[int, int],
    mode: PositionMode = "original",
    antialias: bool = False,
) -> Tensor:
    """Resample patch positions to another grid with a bicubic filter.

    positions: (1, native rows * native columns, dim), row by row.
    native, grid: (rows, columns) of the weights file and of the input image.
    mode: `original` scales by (grid + 0.1) / native unless `antialias`, `huggingface` by the exact ratio.
    Returns (1, rows * columns, dim); at the native size, the stored values unchanged.
    """
    if grid == native:
        return positions
    dim = positions.shape[-1]
    image = positions.float().reshape(1, *native, dim).permute(0, 3, 1, 2)
    if mode == "original" and not antialias:
        scale = [(size + _ORIGINAL_OFFSET) / stored for size, stored in zip(grid, native, strict=True)]
        image = interpolate(image, scale_factor=scale, mode="bicubic", align_corners=False)
    else:
        image = interpolate(image, size=list(grid), mode="bicubic", align_corners=False, antialias=antialias)
    return image.permute(0, 2, 3, 1).reshape(1, grid[0] * grid[1], dim).to(positions.dtype)


def sincos_positions(dim: int, grid: tuple[int, int], temperature: float = 10_000.0) -> Tensor:
    """The fixed two-dimensional sine-cosine positions of MoCo v3, (1, rows * columns, dim).

    A quarter of the channels each holds the sine of the row, its cosine, the sine of the column, its cosine.
    """
    frequency = temperature ** -(torch.arange(dim // 4, dtype=torch.float32) / (dim // 4))
    rows, columns = torch.meshgrid(
        torch.arange(grid[0], dtype=torch.float32), torch.arange(grid[1], dtype=torch.float32), indexing="ij"
    )
    down, across = rows.flatten()[:, None] * frequency, columns.flatten()[:, None] * frequency
    return torch.cat([down.sin(), down.cos(), across.sin(), across.cos()], dim=1)[None]
