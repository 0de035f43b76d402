"""A map index: one folder with the embeddings of a map's views, what they show, and the model that made them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds, Footprint, join_bounds
from skypart.images.decode import RgbImage
from skypart.maps.addresses import is_remote, told
from skypart.maps.manifest import Manifest
from skypart.maps.map_source import MapSource
from skypart.maps.mercator import render_tile
from skypart.maps.sources import open_maps, there
from skypart.maps.store import Circle, EmbeddedStore, Hit
from skypart.maps.views import read_view


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
        return self.folder.resolve().name.removesuffix(".skyindex")

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
                opened = open_maps(_moved(entry.paths, self.folder.resolve()), network=self.network)
            except SkyPartError:  # gone, damaged, or on the network
                continue
            same = [source for source in opened if source.fingerprint == entry.fingerprint]
            if same:  # whatever its file is called now
                found[entry.name] = replace(same[0], name=entry.name)
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
            address = next((told(path) for path in entry.paths if is_remote(path)), None)
            if address is None:
                why = "was moved or changed since it was indexed"
            elif self.network:
                why = f"cannot be read from {address}, or changed since it was indexed"
            else:
                why = f"lies on the network ({address}), which is used with --network only"
            sentences.append(f"the map {entry.name} {why}: positions in it are not refined, its picture is not shown")
        return sentences

    def view(self, footprint: Footprint, size: int) -> RgbImage | None:
        """The maps' best picture of a footprint, (size, size, 3); None where they are missing."""
        best: tuple[float, RgbImage | None] = (0.0, None)
        for source in self.sources.values():
            picture, valid = read_view(source, footprint, size)
            if valid > best[0]:
                best = (valid, picture)
        return best[1]

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8]:
        """The Web Mercator tile of the maps, (256, 256, 4), transparent where there is none."""
        return render_tile(list(self.sources.values()), z, x, y)


def _moved(paths: Sequence[str], folder: Path) -> list[str]:
    """Where the files of a map lie now: at their place, or beside the index. Addresses stay as they are."""
    beside = {path: folder.parent / Path(path).name for path in paths if not is_remote(path) and not there(path)}
    return [str(beside[path]) if path in beside and there(beside[path]) else path for path in paths]
