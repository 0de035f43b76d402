"""How maps are cut into views."""

import math
from dataclasses import dataclass

from skypart.errors import SkyPartError


@dataclass(frozen=True)
class ViewOptions:
    """How maps are cut into views.

    sizes_m: edges of the square views in metres, several because a photo's altitude need not be known.
    overlap: share of its edge that a view has in common with its neighbour. rotations: how many directions, evenly
    over the circle, each view is embedded in.
    """

    sizes_m: tuple[float, ...] = (100.0, 160.0, 250.0)
    overlap: float = 0.5
    rotations: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be cut."""
        if not self.sizes_m or not all(0 < size < math.inf for size in self.sizes_m):
            raise SkyPartError("--sizes must be metres greater than 0, for instance --sizes 100,160,250")
        if not 0 <= self.overlap <= 0.9:
            raise SkyPartError("--overlap must lie between 0 and 0.9")
        if not 1 <= self.rotations <= 36:
            raise SkyPartError("--rotations must lie between 1 and 36")

    @property
    def angles(self) -> tuple[float, ...]:
        """Compass degrees that are up in the views."""
        return tuple(360.0 * turn / self.rotations for turn in range(self.rotations))


def view_options(sizes: str, overlap: float | None, rotations: int | None) -> ViewOptions | None:
    """From the command line's options; None where none was given."""
    if not sizes and overlap is None and rotations is None:
        return None
    default = ViewOptions()
    try:
        metres = tuple(float(part) for part in sizes.split(",")) if sizes else default.sizes_m
    except ValueError as error:
        raise SkyPartError(f"--sizes {sizes}: give metres with commas, for instance 100,160,250") from error
    return ViewOptions(
        metres,
        default.overlap if overlap is None else overlap,
        default.rotations if rotations is None else rotations,
    )
