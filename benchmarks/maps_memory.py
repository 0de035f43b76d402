"""Memory and time of reading views over all of a 40,000 x 40,000 px GeoTIFF.

    python benchmarks/maps_memory.py       writes docs/results/maps-memory.md

The map (20 x 20 km at 0.5 m, tiled, JPEG-compressed, no overviews) is written to a temporary folder, about 220 MB. A
child process reads every view of two ground sizes at 224 px, in the order in which they are indexed, on one core, and
reports its peak memory: the map library, NumPy and OpenCV are in it, torch and the model are not. A second one runs
`skypart index` on the map with the default model, at the larger of the two sizes.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import rasterio
from rasterio.transform import from_origin
from rasterio.windows import Window

from skypart.atomic import write_text
from skypart.maps.sources import open_maps
from skypart.maps.views import is_empty, plan_views, read_view
from skypart.progress import with_progress

OUT = Path(__file__).resolve().parents[1] / "docs/results/maps-memory.md"
BLOCK = 512
SIZES = (300.0, 1200.0)
OVERLAP = 0.25
WANTED = 600


def texture() -> np.ndarray:
    """(3, 8 blocks, 8 blocks) of ground-like noise, coarse and fine, the same each time."""
    rng = np.random.default_rng(0)
    edge = 8 * BLOCK
    rgb = np.zeros((edge, edge, 3), np.float32)
    for cells, weight in ((16, 60.0), (128, 35.0), (1024, 20.0)):
        coarse = rng.normal(0, weight, (cells, cells, 3)).astype(np.float32)
        rgb += cv2.resize(coarse, (edge, edge), interpolation=cv2.INTER_LINEAR)
    picture: np.ndarray = np.clip(rgb + 120, 0, 255).astype(np.uint8).transpose(2, 0, 1)
    return picture


def make_map(path: Path, edge: int) -> None:
    """Write the map, eight blocks of rows at a time."""
    pattern = texture()
    profile = {"driver": "GTiff", "width": edge, "height": edge, "count": 3, "dtype": "uint8", "crs": "EPSG:32643"}
    profile |= {"transform": from_origin(313_000, 3_724_000, 0.5, 0.5), "tiled": True, "blockxsize": BLOCK}
    profile |= {"blockysize": BLOCK, "compress": "jpeg", "photometric": "ycbcr", "jpeg_quality": 75}
    with rasterio.open(path, "w", **profile) as raster:
        for top in with_progress(range(0, edge, pattern.shape[1]), "writing the map"):
            for left in range(0, edge, pattern.shape[2]):
                height, width = min(pattern.shape[1], edge - top), min(pattern.shape[2], edge - left)
                raster.write(pattern[:, :height, :width], window=Window(left, top, width, height))


def read_all(path: str) -> None:
    """Read every view and print what it took; run in the child process."""
    cv2.setNumThreads(1)
    source = open_maps([path])[0]
    rows = []
    for size in SIZES:
        views = plan_views(source, [size], OVERLAP, [0.0])
        clock, cpu, empty = time.perf_counter(), time.process_time(), 0
        for view in with_progress(views, f"views of {size:g} m", len(views)):
            empty += is_empty(*read_view(source, view, 224))
        rows.append((size, len(views), empty, time.perf_counter() - clock, time.process_time() - cpu))
    print(json.dumps({"rows": rows, "peak_mb": peak_mb()}))


def index_all(path: str) -> None:
    """Index the map with the default model and print what it took; run in the child process."""
    from skypart.embedding import load
    from skypart.maps.build import build_index
    from skypart.maps.views import ViewOptions

    clock = time.perf_counter()
    options = ViewOptions((SIZES[-1],), OVERLAP)
    added = build_index([path], Path(path).with_suffix(".skyindex"), load("default"), "default", options)
    print(json.dumps({"views": sum(added.values()), "seconds": time.perf_counter() - clock, "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """Peak memory of this process; getrusage would count that of the process which started it."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def child(job: str, path: Path) -> dict[str, Any]:
    """What a process of its own, on one core, prints about its job on the map."""
    command = [sys.executable, __file__, job, str(path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--edge", type=int, default=40_000, help="pixels along each edge of the map")
    parser.add_argument("--read", help="used by the program itself")
    parser.add_argument("--index", help="used by the program itself")
    options = parser.parse_args()
    if options.read or options.index:
        read_all(options.read) if options.read else index_all(options.index)
        return
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "large.tif"
        make_map(path, options.edge)
        megabytes = path.stat().st_size / 1e6
        result, indexed = child("--read", path), child("--index", path)
    table = [
        f"| {size:g} m | {count:,} | {1e3 * cpu / count:.1f} | {1e3 * clock / count:.1f} |"
        for size, count, _, clock, cpu in result["rows"]
    ]
    lines = [
        "# Memory needed to read a large map",
        "",
        f"{options.edge:,} x {options.edge:,} px GeoTIFF, RGB, 0.5 m, JPEG in {BLOCK} px blocks, no overviews, "
        f"{megabytes:.0f} MB on disk.",
        f"Every view at two ground sizes, overlap {OVERLAP}, 224 px, one process, one core: "
        f"**peak {result['peak_mb']:.0f} MB**.",
        f"Target: below {WANTED} MB, so that PyTorch and a model fit into 2 GB as well.",
        "",
        f"The complete `skypart index` with the default model, {indexed['views']} views of {SIZES[-1]:g} m, one core: "
        f"**peak {indexed['peak_mb']:.0f} MB** (target: below 2,000), {indexed['seconds']:.0f} s.",
        "",
        "| ground | views | CPU ms per view | wall-clock ms per view |",
        "|---|---:|---:|---:|",
        *table,
        "",
        "A view of 300 m is read from 600 x 600 px of the map, one of 1200 m from 2400 x 2400 px, decoding included.",
        "Wall-clock times include waiting for other work on the machine.",
        "",
        f"Made by `python benchmarks/maps_memory.py` on {datetime.date.today().isoformat()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, load {load:.1f} at the start, Python {platform.python_version()}, "
        f"rasterio {rasterio.__version__}, GDAL {rasterio.__gdal_version__}, OpenCV {cv2.__version__}.",
        "",
    ]
    print("\n".join(lines))
    if options.edge == 40_000:
        write_text(OUT, "\n".join(lines))


if __name__ == "__main__":
    main()
