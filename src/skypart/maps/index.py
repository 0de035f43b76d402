"""A map index: a folder with the embeddings and footprints of map views, and the model that made them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds, Footprint, join_bounds
from skypart.geo.geodesy import wrap_longitude
from skypart.images.decode import RgbImage
from skypart.maps.files import is_remote, path_exists, redact_address
from skypart.maps.manifest import STORE_FOLDER, IndexManifest, map_name, model_message
from skypart.maps.map_source import MapSource
from skypart.maps.render import render_image, render_tile
from skypart.maps.sources import open_maps
from skypart.maps.store import Hit, Within, absolute_address, check_exists, copy_views
from skypart.maps.view_tokens import ViewTokens, read_tokens, remove_unused_tokens
from skypart.maps.views import read_view

METRES_PER_DEGREE = 110_000.0
"""Of latitude, at least."""


class MapIndex:
    """A finished index, opened for queries.

    network: whether remote maps and views may be read. store: address of a copy of its views, to use instead of the
    recorded one.
    """

    def __init__(self, folder: str | Path, *, network: bool = False, store: str = "") -> None:
        self.folder = Path(folder)
        self.network = network
        self.manifest = IndexManifest.read(self.folder)
        if not self.manifest.maps:
            raise SkyPartError(f"{self.folder}: indexing was not finished; run the same `skypart index` command again")
        if store:
            self.manifest = replace(self.manifest, store=absolute_address(store))
        check_exists(self.manifest.store)
        self.store = self.manifest.open_store(self.folder, network=network)
        if store:
            self._check_copy()
        if not self.store.stats().views:
            raise SkyPartError(
                f"{self.store.location}: the views of this index are gone; restore them from a backup, or delete the "
                "whole index and index the map again"
            )

    def _check_copy(self) -> None:
        """Raise if another store than the recorded one does not have all views of this index."""
        stored = self.store.stats().maps
        for entry in self.manifest.maps:
            found = stored.get(entry.stored_name, 0)
            if found != entry.views:
                raise SkyPartError(
                    f"{self.store.location}: has {found:,} of the {entry.views:,} views of {entry.name}; it was not "
                    "filled completely or belongs to another index, so correct --store"
                )

    @property
    def name(self) -> str:
        """The folder's name without its suffix `.skyindex`."""
        return self.folder.resolve().name.removesuffix(".skyindex")

    @property
    def bounds(self) -> Bounds:
        """The bounding box of all maps."""
        return join_bounds([entry.bounds for entry in self.manifest.maps])

    def check_model(self, digest: str) -> None:
        """Raise if `digest` is not that of the model the views were embedded with."""
        if digest != self.manifest.model["digest"]:
            raise SkyPartError(model_message(self.folder, self.manifest.store_model, digest))

    def search(self, vectors: NDArray[np.float32], k: int, within: Within | None = None) -> list[list[Hit]]:
        """The `k` views most similar to each of (q, dim) unit vectors, best first."""
        found = self.store.search(vectors, k, within)
        return [[replace(hit, map_name=map_name(hit.map_name)) for hit in hits] for hits in found]

    @cached_property
    def _tokens(self) -> dict[str, ViewTokens]:
        """Compact patch tokens by map, where they were kept."""
        stored = {entry.stored_name: entry.name for entry in self.manifest.maps}
        return {stored[name]: tokens for name, tokens in read_tokens(self.folder, list(stored)).items()}

    def view_tokens(self, hit: Hit) -> NDArray[np.int8] | None:
        """The compact patch tokens (patches, k) of a view; None if the index was made without."""
        tokens = self._tokens.get(hit.map_name)
        return None if tokens is None else tokens.find(hit.footprint)

    @cached_property
    def sources(self) -> dict[str, MapSource]:
        """The maps themselves by name, except those that cannot be read any more; see `missing`."""
        sources: dict[str, MapSource] = {}
        for entry in self.manifest.maps:
            try:
                opened = open_maps(_current_paths(entry.paths, self.folder.resolve()), network=self.network)
            except SkyPartError:  # gone, damaged, or remote
                continue
            same = [source for source in opened if source.fingerprint == entry.fingerprint]
            if same:  # its file may have another name now
                sources[entry.name] = replace(same[0], name=entry.name)
        return sources

    @property
    def missing(self) -> list[str]:
        """Maps that cannot be read any more: positions in them cannot be refined, and they cannot be shown."""
        return [entry.name for entry in self.manifest.maps if entry.name not in self.sources]

    def missing_reasons(self) -> list[str]:
        """One message for each missing map that says why it is missing."""
        messages = []
        for entry in self.manifest.maps:
            if entry.name in self.sources:
                continue
            address = next((redact_address(path) for path in entry.paths if is_remote(path)), None)
            if address is None:
                reason = "was moved or changed since it was indexed"
            elif self.network:
                reason = f"cannot be read from {address}, or changed since it was indexed"
            else:
                reason = f"is on the network ({address}), which is used only with --network"
            messages.append(f"the map {entry.name} {reason}: positions in it are not refined, and it is not shown")
        return messages

    @cached_property
    def _boxes(self) -> NDArray[np.float64]:
        """(maps, 4) south, north, longitude of the centre and half the width of each source, in degrees."""
        boxes = [source.bounds for source in self.sources.values()]
        return np.array([(box.south, box.north, box.frame.longitude, box.degrees_wide / 2) for box in boxes])

    def _sources_near(self, footprint: Footprint) -> list[MapSource]:
        """The maps whose boxes a footprint may touch."""
        if not self.sources:
            return []
        south, north, centre, half = self._boxes.T
        reach = footprint.metres / METRES_PER_DEGREE  # its half diagonal is shorter
        around = reach / max(math.cos(math.radians(footprint.latitude)), 1e-3)
        touched = (south - reach <= footprint.latitude) & (footprint.latitude <= north + reach)
        touched &= np.abs(wrap_longitude(footprint.longitude - centre)) <= half + around
        every = list(self.sources.values())
        return [every[number] for number in np.flatnonzero(touched)]

    def view(self, footprint: Footprint, size: int) -> RgbImage | None:
        """A footprint as (size, size, 3) pixels, from the map that covers most of it; None if no map does."""
        best: tuple[float, RgbImage | None] = (0.0, None)
        for source in self._sources_near(footprint):
            rgb, valid_share = read_view(source, footprint, size)
            if valid_share > best[0]:
                best = (valid_share, rgb)
        return best[1]

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8]:
        """The Web Mercator tile of the maps, (256, 256, 4), transparent where there is no map."""
        return render_tile(list(self.sources.values()), z, x, y)

    def render(self, edge: int = 1200, box: Bounds | None = None) -> RgbImage:
        """One image of all maps within `box`, by default all of them; see `render_image`."""
        return render_image(list(self.sources.values()), self.bounds if box is None else box, edge)


def _current_paths(paths: Sequence[str], folder: Path) -> list[str]:
    """Where the files of a map are now: in their original place, or beside the index. Addresses stay the same."""
    beside = {path: folder.parent / Path(path).name for path in paths if not is_remote(path) and not path_exists(path)}
    return [str(beside[path]) if path in beside and path_exists(beside[path]) else path for path in paths]


def maps_table(index: MapIndex) -> Table:
    """One row per map: views, bounding box, and whether the map itself can still be read."""
    manifest, stats = index.manifest, index.store.stats()
    sizes = ", ".join(f"{size:g}" for size in manifest.options.sizes_m)
    search = "exact" if stats.recall is None else f"approximate, recall@10 {stats.recall:.3f}"
    table = Table(
        title=f"{index.folder}: model {manifest.model['name']} ({manifest.model['digest'][:12]})",
        caption=f"{stats.views:,} views of {sizes} m, {stats.bytes / 1e6:,.1f} MB, search {search}, "
        f"{_calibration_state(manifest)}",
    )
    for name in ("map", "views", "south", "west", "north", "east", "map itself"):
        table.add_column(name, justify="left" if name in ("map", "map itself") else "right")
    for entry in manifest.maps:
        box = (entry.bounds.south, entry.bounds.west, entry.bounds.north, entry.bounds.east)
        remote = any(map(is_remote, entry.paths)) and not index.network
        state = "on the network" if remote else "missing" if entry.name in index.missing else "there"
        table.add_row(entry.name, f"{entry.views:,}", *(f"{degrees:.5f}" for degrees in box), state)
    return table


def _calibration_state(manifest: IndexManifest) -> str:
    """A few words on the calibration of an index."""
    if manifest.calibration_fits:
        return "calibrated"
    return (
        "default calibration" if manifest.calibration is None else "calibrated before its maps changed: calibrate again"
    )


def move_store(folder: str | Path, address: str) -> int:
    """Copy the views of an index into another store and use that from now on. Returns the number of views.

    The files of the embedded store stay; delete them when the new store has proved itself.
    """
    folder, address = Path(folder), absolute_address(address)
    manifest = IndexManifest.read(folder)
    if address == manifest.store:
        raise SkyPartError(f"{folder}: already has its views in this store")
    views = copy_views(manifest.store, folder / STORE_FOLDER, address, manifest.store_model)
    replace(IndexManifest.read(folder), store=address).write(folder)
    return views


def remove_map(folder: str | Path, name: str) -> int:
    """Remove a map from an index. Returns the number of its views. After a crash, the same call completes it."""
    folder = Path(folder)
    manifest = IndexManifest.read(folder)
    with manifest.open_store(folder, check=False) as store:
        with store.transaction():  # its lock is held until the store closes: nobody adds a map meanwhile
            manifest = IndexManifest.read(folder)
            entry = next((entry for entry in manifest.maps if entry.name == name), None)
            kept = tuple(other for other in manifest.maps if other != entry)
            if entry is None:
                names = ", ".join(e.name for e in kept) or "none"
                raise SkyPartError(f"{folder}: there is no map {name} in this index; it has {names}")
            if not kept:
                raise SkyPartError(f"{folder}: {name} is its only map; delete the folder instead")
            store.remove(entry.stored_name)
        replace(manifest, maps=kept).write(folder)  # after its views: those of an unlisted map would still be found
        remove_unused_tokens(folder, [other.stored_name for other in kept])
        store.optimize()
    return entry.views
