"""The server gives back the memory that photos took, also if small objects were made in between."""

import platform
import subprocess
import sys

import pytest

SERVED = """
import sys, threading
from pathlib import Path
import numpy as np
from skypart.serve.memory import bound_heaps

if sys.argv[1] == "bounded":
    assert bound_heaps()

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

kept, lock = [], threading.Lock()

def photo(number):
    for size in (3, 6, 12, 24):
        images = [np.ones(size << 20, np.uint8) for _ in range(3)]
        with lock:
            kept.append(bytes(40_000))  # what stays, of another photo or of a cache
        del images

begun = resident_mb()
for number in range(6):
    threads = [threading.Thread(target=photo, args=(each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print(resident_mb() - begun)
"""


def growth_mb(how: str) -> float:
    done = subprocess.run([sys.executable, "-c", SERVED, how], capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are of glibc")
def test_memory_of_photos_is_given_back() -> None:
    """192 small blocks of 40 KB stay, 8 MB in all; without the settings, heaps of photos stay with them."""
    assert growth_mb("bounded") < 16 < growth_mb("as usual")
