"""What index.json says of a map index: its model, its cut, its maps and its calibration."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.maps.cut import ViewOptions

FORMAT = 1
MANIFEST = "index.json"


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

    @property
    def maps_digest(self) -> str:
        """A hash of the maps: other maps, or other pixels, another one."""
        named = sorted(stored_name(entry.name, entry.fingerprint) for entry in self.maps)
        return hashlib.blake2b("\n".join(named).encode(), digest_size=8).hexdigest()

    @property
    def calibration_fits(self) -> bool:
        """Whether there is a calibration, and of these maps."""
        return self.calibration is not None and self.calibration.get("maps", self.maps_digest) == self.maps_digest

    def write(self, folder: Path) -> None:
        """Replace the index.json of `folder`."""
        write_text(folder / MANIFEST, json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """The index.json of `folder`."""
        file = folder / MANIFEST
        try:
            if not file.is_file():
                raise SkyPartError(f"{folder}: no map index; make one with `skypart index MAP -o {folder}`")
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
        except OSError as error:
            raise SkyPartError(f"{file}: cannot be read ({error.strerror or error}); mend its rights") from error
        except (ValueError, KeyError, TypeError) as error:
            raise SkyPartError(f"{file}: damaged ({error!r}); index the map again") from error


def stored_name(name: str, fingerprint: str) -> str:
    """What the store calls a map: each version of it differently, so that no kill can leave a mixture behind."""
    return f"{name}@{fingerprint}"
