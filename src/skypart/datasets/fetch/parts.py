"""Parts of a map set: which source files each one needs, and how maps are made from them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from skypart.datasets.fetch.clouds import Ept, Points, Potree
from skypart.datasets.fetch.download import RemoteFile
from skypart.datasets.fetch.github import Snapshot
from skypart.datasets.fetch.gridding import Grid, rasterise, write_surface
from skypart.datasets.fetch.indexed_images import Mosaic, make_mosaics, make_places
from skypart.errors import SkyPartError
from skypart.progress import with_progress

Listing = Mapping[str, RemoteFile]
Get = Callable[[str], Path]
"""Downloads one file of the listing and returns its local path."""


class DownloadPart(Protocol):
    """One or more maps that are made from a folder of a repository."""

    @property
    def snapshot(self) -> Snapshot:
        """The source folder."""
        ...

    def select_files(self, listing: Listing, get: Get) -> list[str]:
        """Paths of the files to download."""
        ...

    def make_maps(self, files: Mapping[str, Path], out: Path) -> None:
        """Make the maps in `out`; complete ones may be kept. files: path in the listing -> local file."""
        ...


@dataclass(frozen=True)
class PotreeMap:
    """An orthophoto and surface model from a coloured Potree octree. facts: extra entries of its meta file."""

    snapshot: Snapshot
    stem: str
    grid: Grid
    facts: tuple[tuple[str, Any], ...] = ()

    def select_files(self, listing: Listing, get: Get) -> list[str]:
        """cloud.js and the nodes whose cubes overlap the map."""
        cloud = Potree.read(get("cloud.js"))
        nodes = {path: _node_name(path) for path in listing if path.endswith(".bin")}
        _check_points(listing, nodes, cloud.record.itemsize, cloud.points, self.snapshot)
        return ["cloud.js", *(path for path, node in nodes.items() if self.grid.overlaps(*cloud.node_cube(node)))]

    def make_maps(self, files: Mapping[str, Path], out: Path) -> None:
        """STEM_ortho.jpg, STEM_dsm.png, STEM_meta.json."""
        cloud = Potree.read(files["cloud.js"])
        nodes = [file for path, file in files.items() if path.endswith(".bin")]
        _make_map(cloud.read_points, nodes, self.grid, out, self.stem, f"{self.stem}_meta.json", dict(self.facts))


@dataclass(frozen=True)
class EptMap:
    """An orthophoto and surface model from a coloured Entwine point tile set."""

    snapshot: Snapshot
    stem: str
    grid: Grid
    facts: tuple[tuple[str, Any], ...] = ()

    def select_files(self, listing: Listing, get: Get) -> list[str]:
        """ept.json and all nodes."""
        cloud = Ept.read(get("ept.json"))
        nodes = [path for path in listing if path.startswith("ept-data/") and path.endswith(".bin")]
        _check_points(listing, nodes, cloud.record.itemsize, cloud.points, self.snapshot)
        return ["ept.json", *nodes]

    def make_maps(self, files: Mapping[str, Path], out: Path) -> None:
        """STEM_ortho.jpg, STEM_dsm.png, meta.json."""
        cloud = Ept.read(files["ept.json"])
        nodes = [file for path, file in files.items() if path.endswith(".bin")]
        _make_map(cloud.read_points, nodes, self.grid, out, self.stem, "meta.json", dict(self.facts))


def _node_name(path: str) -> str:
    """The name of a Potree node, which encodes its position."""
    name = Path(path).stem
    if not re.fullmatch(r"r[0-7]*", name):
        raise SkyPartError(f"{path}: not named like a node of an octree; the source has changed")
    return name


def _check_points(listing: Listing, nodes: Any, record: int, points: int, snapshot: Snapshot) -> None:
    """Raise unless the nodes contain all points of the cloud."""
    stored = sum(listing[path].size or 0 for path in nodes)
    if stored != points * record:
        raise SkyPartError(f"{snapshot.address}: has {stored // record:,} of {points:,} points; the source has changed")


def _make_map(
    read: Callable[[Path], Points],
    nodes: list[Path],
    grid: Grid,
    out: Path,
    stem: str,
    meta_name: str,
    facts: dict[str, Any],
) -> None:
    if (out / meta_name).is_file():
        return
    passes = iter((f"{stem}: heights", f"{stem}: colours"))

    def points() -> Iterator[Points]:
        return (read(node) for node in with_progress(nodes, next(passes)))

    write_surface(rasterise(points, grid), grid, out, stem, meta_name, facts)


@dataclass(frozen=True)
class Places:
    """Images of places at several dates: `count` GeoTIFFs."""

    snapshot: Snapshot
    count: int

    def select_files(self, listing: Listing, get: Get) -> list[str]:
        """All GeoTIFFs of the folder."""
        found = [path for path in listing if path.endswith(".tif") and "/" not in path]
        if len(found) != self.count:
            raise SkyPartError(
                f"{self.snapshot.address}: {len(found)} instead of {self.count} images; the source has changed"
            )
        return found

    def make_maps(self, files: Mapping[str, Path], out: Path) -> None:
        """images/*.jpg and index.csv."""
        if not (out / "index.csv").is_file():
            make_places(files, out)


@dataclass(frozen=True)
class Mosaics:
    """Mosaics of web map tiles named OAM-X-Y-ZOOM.png, in any folder."""

    snapshot: Snapshot
    mosaics: tuple[Mosaic, ...]

    def select_files(self, listing: Listing, get: Get) -> list[str]:
        """The tiles of all mosaics."""
        where = {Path(path).name: path for path in listing}
        wanted = [f"OAM-{x}-{y}-{mosaic.zoom}.png" for mosaic in self.mosaics for x, y in mosaic.tiles]
        if missing := [name for name in wanted if name not in where]:
            raise SkyPartError(f"{self.snapshot.address}: {missing[0]} no longer exists; the source has changed")
        return [where[name] for name in wanted]

    def make_maps(self, files: Mapping[str, Path], out: Path) -> None:
        """One JPEG per mosaic, and index.csv."""
        if not (out / "index.csv").is_file():
            tiles = {(int(x), int(y)): file for file in files.values() for _, x, y, _ in [file.stem.split("-")]}
            make_mosaics(self.mosaics, tiles, out)
