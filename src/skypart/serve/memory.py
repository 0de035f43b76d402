"""Keep the memory of a long-running process flat, by two settings of glibc's allocator."""

import ctypes

ARENAS = 2
"""Heaps that threads share. By default there are eight for each core, and each keeps what its busiest moment took."""
MAPPED_BYTES = 1 << 20
"""Blocks from this size on are mapped, and given back when they are freed. By default the limit rises to 32 MB with the
sizes that are freed, and images then lie between small objects that keep their heap from shrinking."""
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8


def bound_heaps() -> bool:
    """Apply the settings to this process; returns whether its allocator has them. Call it before memory is taken."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - other C libraries lack it
        change = libc.mallopt
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows
        return False
    return bool(change(_M_ARENA_MAX, ARENAS)) and bool(change(_M_MMAP_THRESHOLD, MAPPED_BYTES))
