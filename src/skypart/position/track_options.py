"""What the filter of a flight may assume."""

import math
from dataclasses import dataclass

from skypart.errors import SkyPartError
from skypart.position.motion import Motion


@dataclass(frozen=True, kw_only=True)
class TrackOptions:
    """What the filter may assume.

    max_speed: m/s. max_acceleration: m/s^2; give a slow drone a small one, for a direction of flight is forgotten
    within 2 (max_speed / max_acceleration)^2 seconds without a fix. area_km2: of the map, over which mistaken fixes
    are spread. recover_after: fixes in a row that must agree on another place before the track jumps there.
    lost_after: fixes in a row that contradict a track before it is given up. lost_radius_m: 95 % radius beyond which a
    position is no longer told. error_memory_s: photos nearer in time than this show the same ground, err alike and
    count for less. smooth: let later photos correct earlier positions.
    """

    max_speed: float = 25.0
    max_acceleration: float = 4.0
    area_km2: float = 4.0
    recover_after: int = 5
    lost_after: int = 10
    lost_radius_m: float = 300.0
    error_memory_s: float = 1.0
    smooth: bool = True

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for name in ("max_speed", "max_acceleration", "area_km2", "recover_after", "lost_after", "lost_radius_m"):
            value = float(getattr(self, name))
            if not (math.isfinite(value) and value > 0):
                raise SkyPartError(f"track option {name} must be a positive number, not {getattr(self, name)}")
        if not (math.isfinite(self.error_memory_s) and self.error_memory_s >= 0):
            raise SkyPartError(f"track option error_memory_s must be 0 or more seconds, not {self.error_memory_s}")

    @property
    def motion(self) -> Motion:
        """The motion model."""
        return Motion(self.max_speed, self.max_acceleration)
