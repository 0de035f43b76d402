"""Mutate small files of every format that is read, and check that each ends in a result or in one SkyPartError.

    python -m tests.torture.fuzz --inputs 100000 --seed 1 --out DIR   (the same command resumes)

Inputs run in child processes with 1 GB of memory beyond what importing takes, and 5 s each. A foreign exception, a
crash or a hang is a finding: its input is written to DIR, to be added to tests/torture/corpus when it is fixed. The
mutator is not guided by coverage (see benchmarks/fuzz_coverage.py for that); seeds are valid files of each kind, and
the inputs in the corpus. Half of the inputs of formats with checksums or lengths get right ones after they are mutated,
so that readers look further than that.
"""

import argparse
import asyncio
import gzip
import hashlib
import io
import json
import os
import random
import resource
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.images.decode import read_rgb
from skypart.images.exif import read_camera_facts
from skypart.images.xmp import read_pose
from skypart.maps.manifest import IndexManifest
from skypart.maps.pixels import PixelBox
from skypart.maps.sources import open_maps
from tests.images.photos_with_metadata import packet, save_photo
from tests.maps.makers import write_ground, write_mbtiles, write_pmtiles, write_tile_folder
from tests.torture.names import NAMES as NAMES

CORPUS = Path(__file__).parent / "corpus"
SECONDS, WAITING_SECONDS, MEMORY_BYTES = 5, 600, 1 << 30
"""Limits of an input: seconds of the processor, seconds in all on a crowded machine, memory."""
BLOCK = 25_000
"""Inputs of a process: starting one takes as long as thousands of inputs."""
Read = Callable[[bytes, Path], object]
Mutate = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Target:
    """One reader. seeds: valid inputs. read: gets the input and an empty folder, and may raise SkyPartError only.

    inside: mutates what checksums, lengths or compression protect, with the function that it gets; None if nothing is
    protected.
    """

    seeds: Sequence[bytes]
    read: Read
    inside: Callable[[bytes, Mutate], bytes] | None = None


def _png_inside(data: bytes, change: Mutate) -> bytes:
    """Mutate one chunk of a PNG, or its unpacked pixels, and correct lengths and checksums."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    number = int.from_bytes(change(b"\0\0\0\0")[:4], "big") % max(len(chunks), 1)
    out = bytearray(data[:8])
    for position, (kind, body) in enumerate(chunks):
        if position == number:
            with suppress(zlib.error):
                body = zlib.compress(change(zlib.decompress(body))) if kind == b"IDAT" else change(body)
        out += len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
    return bytes(out)


def _sealed_json(data: bytes, change: Mutate) -> bytes:
    """Mutate a JSON file whose key "sha256" is the SHA-256 of the rest; the checksum is right if it is still JSON."""
    changed = change(data)
    with suppress(ValueError, RecursionError):
        body = json.loads(changed)
        if isinstance(body, dict):
            body.pop("sha256", None)
            text = json.dumps(body, sort_keys=True)
            return json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), **body}).encode()
    return changed


def _pmtiles_inside(data: bytes, change: Mutate) -> bytes:
    """Mutate the unpacked root directory of a PMTiles file, which is written at its end."""
    offset, length = struct.unpack_from("<QQ", data, 8)
    directory = gzip.compress(change(gzip.decompress(data[offset : offset + length])), 1)
    return data[:8] + struct.pack("<QQ", len(data), len(directory)) + data[24:] + directory


def _safetensors_inside(data: bytes, change: Mutate) -> bytes:
    """Mutate the header of a safetensors file, and correct its length."""
    length = int.from_bytes(data[:8], "little")
    header = change(data[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def _tiff_inside(data: bytes, change: Mutate) -> bytes:
    """Mutate the first directory of a little-endian TIFF: tags, types, counts and values or offsets."""
    offset = int.from_bytes(data[4:8], "little")
    size = 12 * int.from_bytes(data[offset : offset + 2], "little")
    entries = change(data[offset + 2 : offset + 2 + size])[:size].ljust(size, b"\0")
    return data[: offset + 2] + entries + data[offset + 2 + size :]


def _sql_inside(data: bytes, change: Mutate) -> bytes:
    """Mutate one value of an MBTiles file, of its metadata or of its table of tiles."""
    with closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(data)
        numbers = list(change(bytes(range(16))).ljust(3, b"\0"))
        table, columns = (
            ("metadata", ("name", "value"))
            if numbers[0] % 4 == 0
            else ("tiles", ("zoom_level", "tile_column", "tile_row", "tile_data"))
        )
        column = columns[numbers[1] % len(columns)]
        places = [row[0] for row in base.execute(f"SELECT rowid FROM {table}")]
        place = places[numbers[2] % len(places)]
        old = base.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (place,)).fetchone()[0]
        new: Any = change(old if isinstance(old, bytes) else str(old).encode())
        if isinstance(old, int):
            try:
                new = int(new) % (1 << 63)
            except ValueError:
                new = int.from_bytes(new[:7], "big") - (1 << 40)
        with suppress(sqlite3.Error):
            base.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, place))
            base.commit()
        return base.serialize()


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


def _contract(data: bytes, folder: Path) -> object:
    from skypart.embedding.exported import ExportContract, contract_file

    model = folder / "m.onnx"
    model.touch()
    contract_file(model).write_bytes(data)
    return ExportContract.read(model)


def _recipe(data: bytes, folder: Path) -> object:
    from skypart.training.recipe import load_recipe

    (folder / "r.toml").write_bytes(data)
    return load_recipe(folder / "r.toml")


def _plan(data: bytes, folder: Path) -> object:
    from skypart.experiments.plan import read_plan

    (folder / "small.toml").write_text("[data]\n")
    (folder / "p.toml").write_bytes(data)
    return read_plan(folder / "p.toml").title


def _telemetry(name: str) -> Read:
    def read(data: bytes, folder: Path) -> object:
        from skypart.telemetry.source import read_telemetry

        (folder / name).write_bytes(data)
        found = read_telemetry(folder / name, fixed_tilt=90.0)
        return found.summary(), found.at(1.0)

    return read


def _world(data: bytes, folder: Path) -> object:
    from skypart.worlds.rasters import find_sources

    (folder / "town.tif").write_bytes(data)
    return find_sources(folder / "town.tif")[0].load().extent_m


def _world_index(data: bytes, folder: Path) -> object:
    from skypart.worlds.rasters import find_sources

    (folder / "images").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "images" / "a.png")
    (folder / "index.csv").write_bytes(data)
    return [source.load().extent_m for source in find_sources(folder)]


def _world_meta(data: bytes, folder: Path) -> object:
    from skypart.worlds.rasters import find_sources

    Image.new("RGB", (8, 8), (90, 90, 90)).save(folder / "a_ortho.png")
    Image.fromarray(np.full((8, 8), 9, np.uint8)).save(folder / "a_dsm.png")
    (folder / "a_meta.json").write_bytes(data)
    return [source.load().extent_m for source in find_sources(folder)]


def _heights(data: bytes, folder: Path) -> object:
    from skypart.position.terrain import Terrain

    (folder / "dem.tif").write_bytes(data)
    return Terrain.read(folder / "dem.tif").height(33.6, 72.9)


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
    from skypart.embedding.exported import contract_file
    from skypart.embedding.shipped import shipped_graph

    pngs = [_encoded("PNG"), _encoded("PNG", "P"), _encoded("PNG", "LA"), _encoded("PNG", "I;16")]
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
    files = [
        b'{"name": "0-%s.npy", "bytes": 152, "sha256": "%s"}' % (kind, b"a" * 64)
        for kind in (b"vectors", b"footprints")
    ]
    store = b'{"format": 1, "dimension": 3, "next_row": 2, "segments": [{"map_name": "t@f", "rows": [[0, 2]], '
    store += b'"vectors": %s, "footprints": %s}]}' % (files[0], files[1])
    truth_csv = b"time_s,latitude,longitude\n0,33.6,72.9\n1,33.7,72.8\n"
    form = (
        b'--x\r\nContent-Disposition: form-data; name="tilt_deg"\r\n\r\n45\r\n--x\r\nContent-Disposition: form-data; '
        b'name="latitude"\r\n\r\n33.6\r\n--x\r\nContent-Disposition: form-data; name="longitude"\r\n\r\n72.9\r\n'
        b'--x\r\nContent-Disposition: form-data; name="photo"; filename="a.jpg"\r\n\r\n' + photo + b"\r\n--x--\r\n"
    )
    recipe = (Path(__file__).parents[2] / "recipes" / "default.toml").read_bytes()
    contract = contract_file(shipped_graph()).read_bytes()
    captions = b'1\n00:00:01,000 --> 00:00:01,033\n<font size="28">2023-05-01 12:34:56.789\n[latitude: 48.125] '
    captions += b"[longitude: 16.375] [rel_alt: 99.500 abs_alt: 301.000] "
    captions += b"[gb_yaw: -90.0 gb_pitch: -80.0 gb_roll: 0.5] </font>\n\n"
    plain = b"1\n00:00:01,000 --> 00:00:01,033\nF/5.6, RTK (16.375, 48.125, 22), D 92.16m, H 99.50m, H.S 3.50m/s, "
    plain += "F.PRY (1.0°, -2.0°, 30.0°), G.PRY (-80.0°, 0.5°, -90.0°)\n\n".encode()
    flight = b"time,yaw,gimbal_pitch,height,ve,vn\n2024-05-06T07:08:09Z,350,-90,100,1,2\n1715000000,10,-80,,3,nan\n"
    plan = (
        b'title = "t"\nreference = "a, x"\n[presets.small]\nrecipe = "small.toml"\nseeds = [1, 2]\n'
        b'[presets.small.world]\nlocations = 4\n[axes.one]\na = ["loss.weight=1"]\nb = []\n[axes.two]\nx = []\n'
    )
    places = b"file,city,place,gsd_m,width,height,epsg,x_ul,y_ul\na.png,t,1,0.6,8,8,26911,400000,4000000\n"
    meta = (
        b'{"gsd_m": 0.5, "width": 8, "height": 8, "zmin_m": 1, "step_m": 0.1, "origin_ll_m": [1.0, 2.0], "epsg": 2993}'
    )
    degrees = _degrees_tiff(folder / "w.tif")
    return {
        "jpeg": Target([_encoded("JPEG"), photo], _decode),
        "png": Target(pngs, _decode, _png_inside),
        "tiff": Target([_encoded("TIFF"), _encoded("TIFF", compression="tiff_lzw"), tiff], _decode, _tiff_inside),
        "webp": Target([_encoded("WEBP"), _encoded("WEBP", lossless=True)], _decode),
        "other-images": Target([_encoded("BMP"), _encoded("GIF", "P"), _encoded("PPM"), _encoded("JPEG2000")], _decode),
        "exif": Target([photo, exif_png], _facts),
        "xmp": Target([xmp], lambda data, folder: read_pose(data)),
        "geotiff": Target([tiff, deflated], _map_file("town.tif"), _tiff_inside),
        "mbtiles": Target(
            [write_mbtiles(folder / "m.mbtiles", tiles).read_bytes()], _map_file("town.mbtiles"), _sql_inside
        ),
        "pmtiles": Target(
            [write_pmtiles(folder / "m.pmtiles", tiles).read_bytes()], _map_file("town.pmtiles"), _pmtiles_inside
        ),
        "table": Target([place.encode(), b"file,epsg,x_ul,y_ul,gsd\na.png,32643,500000,3700000,1\n"], _table),
        "tile-metadata": Target([b'{"scheme": "tms"}', b'{"tiles": [1, 2]}'], _tile_metadata),
        "world-file": Target([b"0.5\n0\n0\n-0.5\n500000\n3700000\n"], _sidecar("town.pgw")),
        "prj": Target([b"EPSG:32643", b"+proj=utm +zone=43 +datum=WGS84"], _sidecar("town.prj")),
        "aux-xml": Target([b"<PAMDataset><SRS>EPSG:32643</SRS></PAMDataset>"], _sidecar("town.png.aux.xml")),
        "index-json": Target([json.dumps(manifest, indent=1).encode()], _manifest, _sealed_json),
        "store-manifest": Target([_sealed_json(store, bytes)], _store, _sealed_json),
        "model": Target([_tiny_model(folder)], _model, _safetensors_inside),
        "contract": Target([contract], _contract),
        "recipe": Target([recipe], _recipe),
        "plan": Target([plan], _plan),
        "srt": Target([captions, plain], _telemetry("f.srt")),
        "telemetry-csv": Target([flight, b"time_s,speed\n1,2\n2,3\n"], _telemetry("f.csv")),
        "tlog": Target([_flight_log(folder / "f.tlog")], _telemetry("f.tlog")),
        "world-geotiff": Target([tiff, degrees], _world, _tiff_inside),
        "world-index": Target([places], _world_index),
        "world-meta": Target([meta], _world_meta),
        "heights": Target([tiff, degrees], _heights, _tiff_inside),
        "truth-csv": Target([truth_csv], _truth("t.csv")),
        "labelled": Target([b"file,latitude,longitude\na.jpg,33.6,72.9\n"], _labelled),
        "form": Target([form], _form),
    }


def _degrees_tiff(path: Path) -> bytes:
    """A GeoTIFF in degrees, which is resampled to UTM."""
    import rasterio
    from rasterio.transform import from_origin

    place = {"crs": "EPSG:4326", "transform": from_origin(9.0, 48.0, 1e-5, 1e-5)}
    with rasterio.open(path, "w", driver="GTiff", width=40, height=30, count=3, dtype="uint8", **place) as raster:
        raster.write(np.random.default_rng(1).integers(1, 255, (3, 30, 40)).astype(np.uint8))
    return path.read_bytes()


def _flight_log(path: Path) -> bytes:
    """Some messages of every kind that is read, as a ground station records them."""
    from pymavlink.dialects.v20 import common

    writer = common.MAVLink(None)
    half = [0.7, 0.0, 0.7, 0.0]
    messages = [
        common.MAVLink_attitude_message(1000, 0.1, 0.2, 0.3, 0.0, 0.0, 0.0),
        common.MAVLink_global_position_int_message(1100, 481250000, 163750000, 301000, 99500, 1, 2, 3, 9000),
        common.MAVLink_local_position_ned_message(1200, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        common.MAVLink_gimbal_device_attitude_status_message(0, 0, 1300, 64, half, 0.0, 0.0, 0.0, 0),
        common.MAVLink_odometry_message(
            1_400_000, 1, 8, 0.0, 0.0, 0.0, half, 1.0, 2.0, 3.0, 0, 0, 0, [0] * 21, [0] * 21
        ),
        common.MAVLink_gps_raw_int_message(1_500_000, 3, 481250000, 163750000, 0, 0, 0, 0, 0, 9),
    ]
    frames = [
        (1_715_000_000_000_000 + 100_000 * number).to_bytes(8, "big") + message.pack(writer)
        for number, message in enumerate(messages * 3)
    ]
    path.write_bytes(b"".join(frames))
    return path.read_bytes()


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
            changed[at:at] = piece * chosen.choice((1, 1, 2, 50, 50, 5000))
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


def make_input(target: Target, seeds: Sequence[bytes], chosen: random.Random) -> bytes:
    """An input for a target: a mutated seed, half of the time mutated inside of what checksums protect."""

    def change(data: bytes) -> bytes:
        return mutate(data, seeds, chosen)

    if target.inside is not None and chosen.random() < 0.5:
        with suppress(ValueError, OSError, EOFError, IndexError, struct.error, zlib.error, sqlite3.Error):
            return target.inside(chosen.choice(target.seeds), change)[: 1 << 20]
    return change(chosen.choice(seeds))


class _TookTooLongError(BaseException):
    """Raised by the alarm; no reader catches it."""


def attempt(target: Target, data: bytes, folder: Path) -> str | None:
    """Read one input; a description of what went wrong, None for a result or a SkyPartError."""

    def alarm(*_: object) -> None:
        raise _TookTooLongError

    before = {each: signal.signal(each, alarm) for each in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor, because the machine may be busy
    signal.setitimer(signal.ITIMER_REAL, WAITING_SECONDS)
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
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for each, handler in before.items():
            signal.signal(each, handler)
    return None


def _child(names: Sequence[str], seed: int, first: int, last: int, until: float, log: str, out: str) -> None:
    """Fuzz in this process. Each input is written to `log` before it is read, so that a crash names it.

    Ends after the input before `last`, or at the time `until`; then the number of the next input is in `log`.
    """
    Image.init()
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)  # GDAL and libtiff complain there
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = targets(folder)
        seeds = {kind: [*every[kind].seeds, *corpus(kind)] for kind in names}
        for kind in names:  # late imports take seconds
            with tempfile.TemporaryDirectory(dir=folder) as empty, suppress(SkyPartError):
                every[kind].read(every[kind].seeds[0], Path(empty))
        for number in range(first, last):
            if time.time() > until:
                Path(log).write_bytes(f"none {number}\n".encode())
                return
            chosen = random.Random(f"{seed}-{number}")
            kind = names[number % len(names)]
            data = make_input(every[kind], seeds[kind], chosen)
            Path(log).write_bytes(f"{kind} {number}\n".encode() + data)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
            wrong = attempt(every[kind], data, folder)
            if wrong is not None:
                (Path(out) / f"{kind}-{number}.bin").write_bytes(data)
                (Path(out) / f"{kind}-{number}.txt").write_text(wrong)
        Path(log).write_bytes(f"none {last}\n".encode())


def corpus(kind: str) -> list[bytes]:
    """The committed inputs of a target: cases that were found once."""
    return [file.read_bytes() for file in sorted((CORPUS / kind).glob("*.bin"))]


@dataclass
class _Log:
    """The file in which a child notes the input that it reads. first: the number of the last one that was seen."""

    file: Path
    first: int

    def current(self) -> tuple[str, int, bytes]:
        """Kind, number and bytes of the input; kind "none" if the child reads none."""
        try:
            head, _, data = self.file.read_bytes().partition(b"\n")
            kind, number = head.decode().split()
        except (OSError, ValueError):  # not there yet, or being written
            return "none", self.first, b""
        self.first = int(number)
        return kind, self.first, data

    def changed(self, default: float) -> float:
        """When it was written last, as a time; `default` if it does not exist."""
        try:
            return self.file.stat().st_mtime
        except OSError:
            return default


def fuzz(
    names: Sequence[str], seed: int, inputs: int, out: Path, block: int = BLOCK, until: float = 1e18
) -> Counter[str]:
    """Run `inputs` inputs in blocks, each in a fresh process. Counts inputs, seconds and findings.

    Stops at time `until`; the same call then resumes with the next input, from `progress.json` in `out`.
    """
    out.mkdir(parents=True, exist_ok=True)
    progress = out / "progress.json"
    key = f"{seed} {','.join(names)}"
    counts: Counter[str] = Counter()
    if progress.is_file() and (found := json.loads(progress.read_text())).pop("key") == key:
        counts.update(found)
    while counts["inputs"] < inputs and time.time() <= until:
        log = _Log(out / f"current-{seed}", counts["inputs"])
        log.file.unlink(missing_ok=True)
        begun, before = time.time(), counts["seconds"]
        arguments = (names, seed, log.first, min(log.first + block, inputs), until, str(log.file), str(out))
        process = get_context("spawn").Process(target=_child, args=arguments)
        process.start()
        while process.is_alive() and time.time() - log.changed(begun) < 3 * WAITING_SECONDS:
            process.join(5)
            counts["inputs"], counts["seconds"] = log.current()[1], before + round(time.time() - begun)
            write_text(progress, json.dumps({"key": key, **counts}) + "\n")
        if process.exitcode != 0:  # also None: it hangs where no signal of Python's reaches it
            process.kill()
            kind, number, data = log.current()
            (out / f"{kind}-{number}.bin").write_bytes(data)
            (out / f"{kind}-{number}.txt").write_text(f"crash or hang: exit code {process.exitcode}")
            counts["inputs"] = number + 1
            write_text(progress, json.dumps({"key": key, **counts}) + "\n")
        log.file.unlink(missing_ok=True)
    counts["findings"] = len(list(out.glob("*.txt")))
    return counts


def recheck(out: Path) -> int:
    """Read the findings in `out` again; those that are fixed get the suffix .fixed. Returns how many have it."""
    with tempfile.TemporaryDirectory() as name:
        every = targets(Path(name))
        for text in sorted(out.glob("*.txt")):
            data, kind = text.with_suffix(".bin").read_bytes(), text.stem.rpartition("-")[0]
            if kind in every and attempt(every[kind], data, Path(name)) is None:
                text.rename(text.with_suffix(".fixed"))
    return len(list(out.glob("*.fixed")))


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
    fixed = recheck(given.out)
    counts["findings"] = len(list(given.out.glob("*.txt")))
    result = {**counts, "fixed": fixed, "asked": given.inputs, "targets": len(names)}
    result["sqlite"] = sqlite3.sqlite_version
    (given.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    sys.exit(1 if counts["findings"] else 0)


if __name__ == "__main__":
    main()
