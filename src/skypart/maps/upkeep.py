"""What an index holds, whether its files are whole, and how to take a map out of it."""

from dataclasses import replace
from pathlib import Path

from rich.table import Table

from skypart.errors import SkyPartError
from skypart.maps.addresses import is_remote
from skypart.maps.index import MapIndex
from skypart.maps.manifest import Manifest, stored_name
from skypart.maps.store import EmbeddedStore, approximate


def maps_table(index: MapIndex) -> Table:
    """One row a map: views, box, and whether the map itself can still be read."""
    manifest, stats = index.manifest, index.store.stats()
    cut = ", ".join(f"{size:g}" for size in manifest.options.sizes_m)
    recall = "exact" if stats.approximate is None else f"approximate, recall@10 {stats.approximate:.3f}"
    table = Table(
        title=f"{index.folder}: model {manifest.model['name']} ({manifest.model['digest'][:12]})",
        caption=f"{stats.views:,} views of {cut} m, {stats.bytes / 1e6:,.1f} MB, search {recall}, "
        f"{_calibration(manifest)}",
    )
    for name in ("map", "views", "south", "west", "north", "east", "map itself"):
        table.add_column(name, justify="left" if name in ("map", "map itself") else "right")
    for entry in manifest.maps:
        box = (entry.bounds.south, entry.bounds.west, entry.bounds.north, entry.bounds.east)
        remote = any(map(is_remote, entry.paths)) and not index.network
        state = "on the network" if remote else "missing" if entry.name in index.missing else "there"
        table.add_row(entry.name, f"{entry.views:,}", *(f"{degrees:.5f}" for degrees in box), state)
    return table


def _calibration(manifest: Manifest) -> str:
    """A few words on the calibration of an index."""
    if manifest.calibration_fits:
        return "calibrated"
    return "default calibration" if manifest.calibration is None else "calibrated before its maps changed: do it again"


def remove_map(folder: str | Path, name: str) -> int:
    """Forget a map: the number of its views. Killed in between, the same call finishes it."""
    folder = Path(folder)
    Manifest.read(folder)  # before the store would make a folder where there is no index
    with EmbeddedStore(folder / "store", check=False) as store:
        with store.transaction():  # whose lock is kept until the store closes: nobody adds a map meanwhile
            manifest = Manifest.read(folder)
            entry = next((entry for entry in manifest.maps if entry.name == name), None)
            kept = tuple(other for other in manifest.maps if other != entry)
            if entry is None:
                raise SkyPartError(f"{folder}: holds no map {name}; it has {', '.join(e.name for e in kept) or 'none'}")
            if not kept:
                raise SkyPartError(f"{folder}: {name} is its only map; delete the folder instead")
            store.remove(stored_name(name, entry.fingerprint))
        replace(manifest, maps=kept).write(folder)  # after the views: those of a map not named would still be found
        if store.stats().views >= approximate.FROM_VIEWS:
            store.build_approximate()
    return entry.views
