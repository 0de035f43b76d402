"""A map index: one folder with the embeddings of a map's views, what they show, and the model that made them."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage
from skypart.maps.footprint import Bounds, Footprint
from skypart.maps.map_source import MapSource
from skypart.maps.mercator import render_tile
from skypart.maps.sources import is_remote, open_maps
from skypart.maps.store import Circle, EmbeddedStore, Hit
from skypart.maps.views import read_view

FORMAT = 1
MANIFEST = "index.json"


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


@dataclass(frozen=True)
class MapEntry:
    """One map of an index. paths: where it lay when it was indexed. views: how many are stored."""

    name: str
    paths: tuple[str, ...]
    fingerprint: str
    views: int
    bounds: Bounds


@dataclass(frozen=True)
class Manifest:
    """What index.json says. model: digest, name and input size of the model. calibration: see skypart.position."""

    model: dict[str, Any]
    options: ViewOptions
    maps: tuple[MapEntry, ...] = ()
    calibration: dict[str, Any] | None = None
    format: int = field(default=FORMAT)

    def write(self, folder: Path) -> None:
        """Replace the index.json of `folder`."""
        write_text(folder / MANIFEST, json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """The index.json of `folder`."""
        file = folder / MANIFEST
        if not file.is_file():
            raise SkyPartError(f"{folder}: no map index; make one with `skypart index MAP -o {folder}`")
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise SkyPartError(
                    f"{file}: format {content['format']} is not the {FORMAT} this version reads; index the map again"
                )
            options = content["options"]
            maps = tuple(
                MapEntry(m["name"], tuple(m["paths"]), m["fingerprint"], int(m["views"]), Bounds(**m["bounds"]))
                for m in content["maps"]
            )
            cut = ViewOptions(tuple(options["sizes_m"]), float(options["overlap"]), int(options["rotations"]))
            model = {key: content["model"][key] for key in ("digest", "name", "size")}
            return Manifest(model, cut, maps, content["calibration"])
        except (ValueError, KeyError, TypeError) as error:
            raise SkyPartError(f"{file}: damaged ({error!r}); index the map again") from error


class MapIndex:
    """A finished index, opened for queries. network: whether maps that lie on the network may be read."""

    def __init__(self, folder: str | Path, *, network: bool = False) -> None:
        self.folder = Path(folder)
        self.network = network
        self.manifest = Manifest.read(self.folder)
        if not self.manifest.maps:
            raise SkyPartError(f"{self.folder}: indexing was not finished; run the same `skypart index` command again")
        self.store = EmbeddedStore(self.folder / "store")
        if not self.store.stats().views:
            raise SkyPartError(
                f"{self.store.folder}: its views are gone; restore the folder from a copy, or delete the whole index "
                "and index the map again"
            )

    @property
    def name(self) -> str:
        """The folder's name without its ending."""
        return self.folder.name.removesuffix(".skyindex")

    @property
    def bounds(self) -> Bounds:
        """The box around all maps."""
        return join_bounds([entry.bounds for entry in self.manifest.maps])

    def check_model(self, digest: str) -> None:
        """Refuse a model other than the one the views were embedded with."""
        if digest != self.manifest.model["digest"]:
            raise SkyPartError(
                f"{self.folder}: was made with the model {self.manifest.model['name']} "
                f"({self.manifest.model['digest'][:12]}), not with this one ({digest[:12]}); "
                "pass the model it was made with, or index the map again"
            )

    def search(self, vectors: NDArray[np.float32], k: int, within: Bounds | Circle | None = None) -> list[list[Hit]]:
        """The `k` views nearest to each of (q, dim) unit vectors, best first."""
        found = self.store.search(vectors, k, within)
        return [[replace(hit, map_name=hit.map_name.rpartition("@")[0]) for hit in hits] for hits in found]

    @cached_property
    def sources(self) -> dict[str, MapSource]:
        """The maps themselves by name, as far as they still lie where they were; see `missing`."""
        found: dict[str, MapSource] = {}
        for entry in self.manifest.maps:
            try:
                opened = open_maps(_moved(entry.paths, self.folder), network=self.network)
            except SkyPartError:  # gone, damaged, or on the network
                continue
            found |= {s.name: s for s in opened if (s.name, s.fingerprint) == (entry.name, entry.fingerprint)}
        return found

    @property
    def missing(self) -> list[str]:
        """Maps that cannot be read any more: positions in them cannot be refined, their pictures not be shown."""
        return [entry.name for entry in self.manifest.maps if entry.name not in self.sources]

    def why_missing(self) -> list[str]:
        """One sentence for each of the missing maps."""
        sentences = []
        for entry in self.manifest.maps:
            if entry.name in self.sources:
                continue
            address = next((path for path in entry.paths if is_remote(path)), None)
            if address is None:
                why = "was moved or changed since it was indexed"
            elif self.network:
                why = f"cannot be read from {address}, or changed since it was indexed"
            else:
                why = f"lies on the network ({address}), which is used with --network only"
            sentences.append(f"the map {entry.name} {why}: positions in it are not refined, its picture is not shown")
        return sentences

    def view(self, footprint: Footprint, size: int, map_name: str | None = None) -> RgbImage | None:
        """The map's picture of a footprint, (size, size, 3); None where the map is missing."""
        sources = [self.sources[map_name]] if map_name in self.sources else list(self.sources.values())
        best: tuple[float, RgbImage | None] = (0.0, None)
        for source in sources:
            picture, valid = read_view(source, footprint, size)
            if valid > best[0]:
                best = (valid, picture)
        return best[1]

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8]:
        """The Web Mercator tile of the maps, (256, 256, 4), transparent where there is none."""
        return render_tile(list(self.sources.values()), z, x, y)


def stored_name(name: str, fingerprint: str) -> str:
    """What the store calls a map: each version of it differently, so that no kill can leave a mixture behind."""
    return f"{name}@{fingerprint}"


def _moved(paths: Sequence[str], folder: Path) -> list[str]:
    """Where the files of a map lie now: at their place, or beside the index. Addresses stay as they are."""
    beside = {
        path: folder.parent / Path(path).name for path in paths if not is_remote(path) and not Path(path).exists()
    }
    return [str(beside[path]) if path in beside and beside[path].exists() else path for path in paths]


def join_bounds(boxes: Sequence[Bounds]) -> Bounds:
    """The smallest box around boxes; over the antimeridian where that is shorter."""
    south, north = min(box.south for box in boxes), max(box.north for box in boxes)

    def width(west: float) -> float:
        """Degrees from `west` eastwards to the end of the last box."""
        return max((box.west - west) % 360 + box.degrees_wide for box in boxes)

    west = min((box.west for box in boxes), key=width)
    if width(west) >= 360:
        return Bounds(south=south, west=-180.0, north=north, east=180.0)
    return Bounds(south=south, west=west, north=north, east=_wrap(west + width(west)))


def _wrap(longitude: float) -> float:
    """Degrees into -180..180."""
    return longitude if -180 <= longitude <= 180 else (longitude + 180) % 360 - 180
