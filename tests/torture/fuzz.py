"""Mutate small files of every format that is read, and check that each ends in a result or in one SkyPartError.

    python -m tests.torture.fuzz --inputs 100000 --seed 1 --out DIR

Inputs run in child processes with 1 GB of memory beyond what importing takes, and 5 s each. A foreign exception, a
crash or a hang is a finding: its input is written to DIR, to be added to tests/torture/corpus when it is fixed. The
mutator is not guided by coverage; seeds are valid files of each kind, and the inputs in the corpus.
"""

import argparse
import asyncio
import io
import json
import os
import random
import resource
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from skypart.errors import SkyPartError
from skypart.images.decode import read_rgb
from skypart.images.exif import read_camera_facts
from skypart.images.xmp import read_pose
from skypart.maps.manifest import IndexManifest
from skypart.maps.pixels import PixelBox
from skypart.maps.sources import open_maps
from tests.images.photos_with_metadata import packet, save_photo
from tests.maps.makers import write_ground, write_mbtiles, write_pmtiles, write_tile_folder

CORPUS = Path(__file__).parent / "corpus"
SECONDS, MEMORY_BYTES = 5, 1 << 30
Read = Callable[[bytes, Path], object]


@dataclass(frozen=True)
class Target:
    """One reader. seeds: valid inputs. read: gets the input and an empty folder, and may raise SkyPartError only."""

    seeds: Sequence[bytes]
    read: Read


def _encoded(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(out, kind, **options)
    return out.getvalue()


def _decode(data: bytes, folder: Path) -> object:
    return read_rgb(io.BytesIO(data), 4_000_000).shape


def _facts(data: bytes, folder: Path) -> object:
    return read_camera_facts(io.BytesIO(data))


def _map_file(name: str) -> Read:
    def read(data: bytes, folder: Path) -> object:
        (folder / name).write_bytes(data)
        image = open_maps([str(folder / name)])[0].images[0]
        right, bottom = min(image.grid.width, 64), min(image.grid.height, 64)
        return image.reader.read(PixelBox(0, 0, right, bottom), 1, 1).rgb.shape

    return read


def _table(data: bytes, folder: Path) -> object:
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    (folder / "t.csv").write_bytes(data)
    return open_maps([str(folder / "t.csv")])[0].bounds


def _tile_metadata(data: bytes, folder: Path) -> object:
    write_tile_folder(folder / "tiles", {(3, 1, 1): np.zeros((256, 256, 3), np.uint8)})
    (folder / "tiles" / "metadata.json").write_bytes(data)
    return open_maps([str(folder / "tiles")])[0].bounds


def _sidecar(name: str) -> Read:
    def read(data: bytes, folder: Path) -> object:
        Image.new("RGB", (64, 64), (1, 2, 3)).save(folder / "town.png")
        (folder / "town.pgw").write_text("0.5\n0\n0\n-0.5\n500000\n3700000\n")
        (folder / "town.prj").write_text("EPSG:32643")
        (folder / name).write_bytes(data)
        return open_maps([str(folder / "town.png")])[0].bounds

    return read


def _manifest(data: bytes, folder: Path) -> object:
    (folder / "index.json").write_bytes(data)
    return IndexManifest.read(folder)


def _store(data: bytes, folder: Path) -> object:
    from skypart.maps.store.manifest import read_manifest

    (folder / "manifest.json").write_bytes(data)
    return read_manifest(folder)


def _model(data: bytes, folder: Path) -> object:
    from skypart.model.storage import load_model

    (folder / "m.safetensors").write_bytes(data)
    return load_model(folder / "m.safetensors").config


def _recipe(data: bytes, folder: Path) -> object:
    from skypart.training.recipe import load_recipe

    (folder / "r.toml").write_bytes(data)
    return load_recipe(folder / "r.toml")


def _truth(name: str) -> Read:
    def read(data: bytes, folder: Path) -> object:
        from skypart.position.score import read_truth

        (folder / name).write_bytes(data)
        return read_truth(folder / name, {"a.jpg": 0.0}, 1.0)

    return read


def _labelled(data: bytes, folder: Path) -> object:
    from skypart.position.labelled import CSV_NAMES, read_labelled

    Image.new("RGB", (8, 8)).save(folder / "a.jpg")
    (folder / CSV_NAMES[0]).write_bytes(data)
    return read_labelled(folder)


def _form(data: bytes, folder: Path) -> object:
    from starlette.requests import Request

    from skypart.serve.errors import HttpError
    from skypart.serve.options import ServeOptions
    from skypart.serve.photo_request import LocateForm, UploadReader, decode_photo, parse_form
    from skypart.serve.photo_routes import collect_hints
    from skypart.serve.workers import WorkerPool

    sent = [{"type": "http.request", "body": data, "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return sent.pop(0) if sent else {"type": "http.disconnect"}

    kind = (b"content-type", b"multipart/form-data; boundary=x")
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": [kind]}, receive)
    pool = WorkerPool("fuzz", 1, 4)

    async def work() -> object:
        async with UploadReader(ServeOptions()).receive(request, pool) as upload:
            form = parse_form(LocateForm, upload.fields)
            shape = decode_photo(upload.photo, form, 1_000_000).shape
            return shape, collect_hints(upload.photo, form), form.prior()

    try:
        return asyncio.run(work())
    except HttpError as error:
        return error.status
    finally:
        pool.close()


def targets(folder: Path) -> dict[str, Target]:
    """All readers with their seeds; seed files are made in `folder`."""
    pixels = _encoded("PNG")
    tile = io.BytesIO()
    Image.new("RGB", (256, 256), (9, 99, 199)).save(tile, "PNG")
    tiles = {(10, 5 + x, 7 + y): tile.getvalue() for x in range(2) for y in range(2)}
    shot = {0x920A: 8.8, 0xA405: 24, 0xA20E: 3000.0, 0xA210: 2, 0x9003: "2024:01:02 03:04:05"}
    xmp = packet('drone-dji:GimbalPitchDegree="-45.0" drone-dji:RelativeAltitude="+80.1"')
    photo = save_photo(folder / "p.jpg", shot=shot, gps={16: "T", 17: 12.5}, xmp=xmp, size=(40, 30)).read_bytes()
    exif_png = _encoded("PNG", exif=Image.open(io.BytesIO(photo)).getexif())
    tiff = write_ground(folder / "g.tif", pixels=(40, 30)).read_bytes()
    deflated = write_ground(folder / "d.tif", pixels=(40, 30), compress="deflate", tiled=True).read_bytes()
    manifest = {
        "model": {"digest": "a" * 32, "name": "default", "size": 448},
        "options": {"sizes_m": [100.0], "overlap": 0.5, "rotations": 1},
        "maps": [
            {"name": "t", "paths": ["/t.tif"], "fingerprint": "f", "views": 3}
            | {"bounds": {"south": 1.0, "west": 2.0, "north": 3.0, "east": 4.0}}
        ],
        "calibration": None,
        "format": 1,
    }
    place = "file,latitude,longitude,gsd\na.png,33.6,72.9,0.5\n"
    store = b'{"sha256": "0", "format": 1, "dimension": 3, "next_row": 0, "segments": []}'
    truth_csv = b"time_s,latitude,longitude\n0,33.6,72.9\n1,33.7,72.8\n"
    form = (
        b'--x\r\nContent-Disposition: form-data; name="tilt_deg"\r\n\r\n45\r\n--x\r\nContent-Disposition: form-data; '
        b'name="latitude"\r\n\r\n33.6\r\n--x\r\nContent-Disposition: form-data; name="longitude"\r\n\r\n72.9\r\n'
        b'--x\r\nContent-Disposition: form-data; name="photo"; filename="a.jpg"\r\n\r\n' + photo + b"\r\n--x--\r\n"
    )
    recipe = (Path(__file__).parents[2] / "recipes" / "default.toml").read_bytes()
    return {
        "jpeg": Target([_encoded("JPEG"), photo], _decode),
        "png": Target([pixels, _encoded("PNG", "P"), _encoded("PNG", "LA"), _encoded("PNG", "I;16")], _decode),
        "tiff": Target([_encoded("TIFF"), _encoded("TIFF", compression="tiff_lzw"), tiff], _decode),
        "webp": Target([_encoded("WEBP"), _encoded("WEBP", lossless=True)], _decode),
        "other-images": Target([_encoded("BMP"), _encoded("GIF", "P"), _encoded("PPM"), _encoded("JPEG2000")], _decode),
        "exif": Target([photo, exif_png], _facts),
        "xmp": Target([xmp], lambda data, folder: read_pose(data)),
        "geotiff": Target([tiff, deflated], _map_file("town.tif")),
        "mbtiles": Target([write_mbtiles(folder / "m.mbtiles", tiles).read_bytes()], _map_file("town.mbtiles")),
        "pmtiles": Target([write_pmtiles(folder / "m.pmtiles", tiles).read_bytes()], _map_file("town.pmtiles")),
        "table": Target([place.encode(), b"file,epsg,x_ul,y_ul,gsd\na.png,32643,500000,3700000,1\n"], _table),
        "tile-metadata": Target([b'{"scheme": "tms"}', b'{"tiles": [1, 2]}'], _tile_metadata),
        "world-file": Target([b"0.5\n0\n0\n-0.5\n500000\n3700000\n"], _sidecar("town.pgw")),
        "prj": Target([b"EPSG:32643", b"+proj=utm +zone=43 +datum=WGS84"], _sidecar("town.prj")),
        "aux-xml": Target([b"<PAMDataset><SRS>EPSG:32643</SRS></PAMDataset>"], _sidecar("town.png.aux.xml")),
        "index-json": Target([json.dumps(manifest, indent=1).encode()], _manifest),
        "store-manifest": Target([store], _store),
        "model": Target([_tiny_model(folder)], _model),
        "recipe": Target([recipe], _recipe),
        "truth-csv": Target([truth_csv], _truth("t.csv")),
        "labelled": Target([b"file,latitude,longitude\na.jpg,33.6,72.9\n"], _labelled),
        "form": Target([form], _form),
    }


def _tiny_model(folder: Path) -> bytes:
    from skypart.model import SkyPart, VisionTransformer
    from skypart.model.storage import save_model
    from tests.model.builders import TINY_HEAD, TINY_VIT

    save_model(SkyPart(VisionTransformer(TINY_VIT), TINY_HEAD), folder / "m.safetensors")
    return (folder / "m.safetensors").read_bytes()


INTERESTING: tuple[bytes, ...] = (
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\x7f\xff\xff\xff",
    b"-1",
    b"1e308",
    b"NaN",
    b"9" * 20,
)
INTERESTING += (b"[" * 2000, b"{", b"'", b'"', b"../", b"http:", b"\r\n", b"/etc/passwd", b"e-300", b"\x80" * 10)


def mutate(data: bytes, others: Sequence[bytes], chosen: random.Random) -> bytes:
    """`data` with a few random changes: bits, bytes, numbers, pieces moved, repeated, cut, or taken from `others`."""
    changed = bytearray(data)
    for _ in range(chosen.choice((1, 1, 2, 3, 8))):
        at = chosen.randrange(len(changed) + 1)
        kind = chosen.randrange(9)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chosen.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = chosen.randrange(256)
        elif kind == 2:
            changed[at : at + chosen.choice((1, 2, 4, 8))] = chosen.randbytes(chosen.choice((1, 2, 4, 8)))
        elif kind == 3:
            value = chosen.choice(INTERESTING)
            changed[at : at + (len(value) if chosen.random() < 0.5 else 0)] = value
        elif kind == 4:
            del changed[at : at + chosen.choice((1, 4, 64, 4096))]
        elif kind == 5:
            piece = changed[at : at + chosen.choice((4, 64, 1024))]
            changed[at:at] = piece * chosen.choice((1, 2, 50))
        elif kind == 6:
            del changed[at:]
        elif kind == 7:
            other = chosen.choice(others)
            start = chosen.randrange(len(other) + 1)
            changed[at : at + chosen.choice((0, 16, 256))] = other[start : start + chosen.choice((4, 64, 1024))]
        elif len(changed) >= 8:
            at = chosen.randrange(len(changed) - 7)
            size = chosen.choice((2, 4, 8))
            number = chosen.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63, 65_535, 1 << 20)) % (1 << (8 * size))
            changed[at : at + size] = number.to_bytes(size, chosen.choice(("little", "big")))
    return bytes(changed[: 1 << 20])


class _TookTooLongError(BaseException):
    """Raised by the alarm; no reader catches it."""


def attempt(target: Target, data: bytes, folder: Path) -> str | None:
    """Read one input; a description of what went wrong, None for a result or a SkyPartError."""

    def alarm(*_: object) -> None:
        raise _TookTooLongError

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            target.read(data, Path(empty))
    except SkyPartError as error:
        return "a message of several lines" if "\n" in str(error) else None
    except _TookTooLongError:
        return f"more than {SECONDS} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


def _child(names: Sequence[str], seed: int, first: int, count: int, log: str, out: str) -> None:
    """Fuzz in this process. Each input is written to `log` before it is read, so that a crash names it."""
    Image.init()
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)  # GDAL and libtiff complain there
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = targets(folder)
        for kind in names:  # late imports take seconds
            with tempfile.TemporaryDirectory(dir=folder) as empty, suppress(SkyPartError):
                every[kind].read(every[kind].seeds[0], Path(empty))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
        for number in range(first, first + count):
            chosen = random.Random(f"{seed}-{number}")
            kind = names[number % len(names)]
            seeds = [*every[kind].seeds, *corpus(kind)]
            data = mutate(chosen.choice(seeds), seeds, chosen)
            Path(log).write_bytes(f"{kind} {number}\n".encode() + data)
            wrong = attempt(every[kind], data, folder)
            if wrong is not None:
                (Path(out) / f"{kind}-{number}.bin").write_bytes(data)
                (Path(out) / f"{kind}-{number}.txt").write_text(wrong)


def corpus(kind: str) -> list[bytes]:
    """The committed inputs of a target: cases that were found once."""
    return [file.read_bytes() for file in sorted((CORPUS / kind).glob("*.bin"))]


def fuzz(
    names: Sequence[str], seed: int, inputs: int, out: Path, block: int = 500, until: float = 1e18
) -> Counter[str]:
    """Run `inputs` inputs in blocks, each in a fresh process. Counts inputs and findings; stops at time `until`."""
    counts: Counter[str] = Counter()
    out.mkdir(parents=True, exist_ok=True)
    for first in range(0, inputs, block):
        if time.time() > until:
            break
        count = min(block, inputs - first)
        log = out / f"current-{seed}-{first}"
        process = get_context("spawn").Process(target=_child, args=(names, seed, first, count, str(log), str(out)))
        process.start()
        process.join(60 + count * SECONDS)
        if process.exitcode != 0:
            process.kill()
            kind, _, data = log.read_bytes().partition(b"\n") if log.exists() else (b"unknown 0", b"", b"")
            name = kind.decode().replace(" ", "-")
            (out / f"{name}.bin").write_bytes(data)
            (out / f"{name}.txt").write_text(f"crash or hang: exit code {process.exitcode}")
        counts["inputs"] += count
        with suppress(OSError):
            log.unlink()
    counts["findings"] = len(list(out.glob("*.txt")))
    return counts


NAMES = [
    *("jpeg", "png", "tiff", "webp", "other-images", "exif", "xmp", "geotiff"),
    *("mbtiles", "pmtiles", "table", "tile-metadata", "world-file", "prj", "aux-xml", "index-json"),
    *("store-manifest", "model", "recipe", "truth-csv", "labelled", "form"),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    start = time.time()
    names = given.only.split(",") if given.only else NAMES
    counts = fuzz(names, given.seed, given.inputs, given.out, until=start + 60 * given.minutes)
    result = {**counts, "asked": given.inputs, "seconds": round(time.time() - start), "targets": len(names)}
    result["sqlite"] = sqlite3.sqlite_version
    (given.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    sys.exit(1 if counts["findings"] else 0)


if __name__ == "__main__":
    main()
